/** What can be done with the experiments that are ticked. */

import { Button, Group, Modal, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { GitCompareArrows, Pin, Square, Tag, Trash2 } from "lucide-react";
import { useState } from "react";
import { api, asked, type Experiment } from "../api/client";
import { MOST } from "../compare/view";
import { several } from "../look/numbers";
import { FINAL } from "../look/states";
import classes from "./experiments.module.css";
import { TagDialog } from "./TagDialog";

interface Props {
  ticked: readonly Experiment[];
  onDone: () => void;
  pins: readonly string[];
  onPins: (pins: string[]) => void;
  baseline: string;
  onBaseline: (id: string) => void;
}

export function BulkBar({ ticked, onDone, pins, onPins, baseline, onBaseline }: Props) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const [asking, setAsking] = useState<"stop" | "delete" | null>(null);
  const [busy, setBusy] = useState(false);
  const [tagging, setTagging] = useState(false);
  const going = ticked.filter((one) => !FINAL.has(one.state) && one.origin === "run");
  const over = ticked.filter((one) => FINAL.has(one.state));
  const meant = asking === "stop" ? going : over;
  const pinned = ticked.every((one) => pins.includes(one.id));

  const act = async () => {
    setBusy(true);
    const failed: string[] = [];
    for (const one of meant) {
      const path = { params: { path: { word: one.id } } };
      const wish =
        asking === "stop"
          ? asked(api.POST("/api/experiments/{word}/stop", { ...path, body: {} }))
          : asked(api.DELETE("/api/experiments/{word}", path));
      await wish.catch((error) => failed.push(`${one.id}: ${error.message}`));
    }
    const done = meant.length - failed.length;
    notifications.show({
      color: failed.length ? "red" : "green",
      title: `${several(done, "experiment")} ${asking === "stop" ? "told to stop" : "deleted"}`,
      message: failed.join("; "),
    });
    setBusy(false);
    setAsking(null);
    onDone();
    void client.invalidateQueries({ queryKey: ["experiments"] });
  };

  return (
    <div className={classes.bulk} role="toolbar" aria-label="ticked experiments">
      <Text fw={550}>{several(ticked.length, "experiment")}</Text>
      <Button
        variant="light"
        leftSection={<GitCompareArrows size={14} aria-hidden />}
        disabled={ticked.length < 2 || ticked.length > MOST}
        title={ticked.length > MOST ? `at most ${MOST}` : undefined}
        onClick={() =>
          void navigate({ to: "/compare", search: { ids: ticked.map((one) => one.id).join(",") } as never })
        }
      >
        Compare
      </Button>
      <Button
        variant="default"
        leftSection={<Pin size={14} aria-hidden />}
        onClick={() => {
          const ids = ticked.map((one) => one.id);
          onPins(pinned ? pins.filter((id) => !ids.includes(id)) : [...new Set([...pins, ...ids])]);
          onDone();
        }}
      >
        {pinned ? "Unpin" : "Pin"}
      </Button>
      {ticked.length === 1 && (
        <Button
          variant="default"
          onClick={() => {
            onBaseline(ticked[0]!.id === baseline ? "" : ticked[0]!.id);
            onDone();
          }}
        >
          {ticked[0]!.id === baseline ? "No baseline" : "Baseline"}
        </Button>
      )}
      <Button variant="default" leftSection={<Tag size={13} aria-hidden />} onClick={() => setTagging(true)}>
        Tag
      </Button>
      <Button
        variant="default"
        leftSection={<Square size={13} aria-hidden />}
        disabled={going.length === 0}
        onClick={() => setAsking("stop")}
      >
        Stop {going.length || ""}
      </Button>
      <Button
        variant="default"
        leftSection={<Trash2 size={14} aria-hidden />}
        disabled={over.length === 0}
        title={over.length === 0 ? "what still runs is stopped first" : undefined}
        onClick={() => setAsking("delete")}
      >
        Delete {over.length || ""}
      </Button>
      <Button variant="subtle" onClick={onDone}>
        Untick all
      </Button>
      {tagging && <TagDialog ticked={ticked} onClose={() => setTagging(false)} />}
      <Modal
        opened={asking !== null}
        onClose={() => setAsking(null)}
        title={`${asking === "stop" ? "Stop" : "Delete"} ${several(meant.length, "experiment")}?`}
        size="sm"
      >
        <Text mb="xs">
          {asking === "stop"
            ? "Their replicas get SIGTERM, and SIGKILL after the grace of their file."
            : "Their logs, metrics and outputs are removed and cannot be brought back. Registered models stay."}
        </Text>
        <Text className="mono clip" mb="md" title={meant.map((one) => one.id).join(" ")}>
          {meant.map((one) => one.id).join(" ")}
        </Text>
        <Group justify="flex-end" gap="sm">
          <Button variant="default" onClick={() => setAsking(null)} data-autofocus>
            Keep {meant.length === 1 ? "it" : "them"}
          </Button>
          <Button color={asking === "delete" ? "red" : undefined} loading={busy} onClick={() => void act()}>
            {asking === "stop" ? "Stop" : "Delete"}
          </Button>
        </Group>
      </Modal>
    </div>
  );
}
