/** Gives tags to the experiments that are ticked, and takes others from them. */

import { Button, Checkbox, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, asked, type Experiment } from "../api/client";
import { several } from "../look/numbers";
import { changedBy, held, written } from "./tags";

export function TagDialog({ ticked, onClose }: { ticked: readonly Experiment[]; onClose: () => void }) {
  const client = useQueryClient();
  const [text, setText] = useState("");
  const [remove, setRemove] = useState<string[]>([]);
  const [busy, setBusy] = useState(false);
  const add = written(text);
  const meant = changedBy(ticked, add, remove);

  const act = async () => {
    setBusy(true);
    const failed: string[] = [];
    for (const one of meant)
      await asked(
        api.POST("/api/experiments/{word}/tags", { params: { path: { word: one.id } }, body: { add, remove } }),
      ).catch((error) => failed.push(`${one.id}: ${error.message}`));
    notifications.show({
      color: failed.length ? "red" : "green",
      title: `Tags of ${several(meant.length - failed.length, "experiment")} changed`,
      message: failed.join("; "),
    });
    void client.invalidateQueries({ queryKey: ["experiments"] });
    onClose();
  };

  return (
    <Modal opened onClose={onClose} title={`Tags of ${several(ticked.length, "experiment")}`} size="sm">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (meant.length) void act();
        }}
      >
        <TextInput
          label="Add"
          description="Several with commas between them."
          value={text}
          maxLength={1000}
          data-autofocus
          onChange={(event) => setText(event.currentTarget.value)}
        />
        {held(ticked).length > 0 && (
          <Checkbox.Group label="Remove" mt="md" value={remove} onChange={setRemove}>
            <Stack gap={6} mt={4} mah={220} style={{ overflowY: "auto" }}>
              {held(ticked).map(({ tag, count }) => (
                <Checkbox
                  key={tag}
                  value={tag}
                  label={ticked.length > 1 ? `${tag} (${count} of ${ticked.length})` : tag}
                />
              ))}
            </Stack>
          </Checkbox.Group>
        )}
        <Text className="mono clip" c="dimmed" mt="md" title={ticked.map((one) => one.id).join(" ")}>
          {ticked.map((one) => one.id).join(" ")}
        </Text>
        <Group justify="flex-end" gap="sm" mt="md">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={busy} disabled={meant.length === 0}>
            Change tags
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
