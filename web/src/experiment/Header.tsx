/** Who it is, how it does, and what can be done with it. */

import { ActionIcon, Button, Checkbox, Menu, Progress, Select, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Copy, EllipsisVertical, GitCompareArrows, Play, Square, Trash2 } from "lucide-react";
import { useState } from "react";
import { api, asked, type ExperimentDetail } from "../api/client";
import { quotedValue } from "../experiments/completion";
import { useAct } from "../look/act";
import { Confirm } from "../look/Confirm";
import { CopyButton } from "../look/Notes";
import { percent } from "../look/numbers";
import { StateMark } from "../look/StateMark";
import { Ago, Elapsed, useNow } from "../look/Time";
import { absolute, duration } from "../look/times";
import { along, useShown } from "./context";
import classes from "./experiment.module.css";
import { attemptsOf } from "./replicas";

export function Header() {
  const { experiment } = useShown();
  return (
    <header className={classes.header}>
      <div className={classes.title}>
        <h1 className="clip" title={experiment.name ?? experiment.id}>
          {experiment.name ?? "unnamed"}
        </h1>
        <span className="mono dim">{experiment.id}</span>
        <CopyButton text={experiment.id} what="the id" />
        <span className="dim">#{experiment.number}</span>
        <span className={classes.state}>
          <StateMark state={experiment.state} size={15} />
        </span>
        {experiment.reason && (
          <span className={`clip ${classes.reason}`} title={experiment.reason}>
            {experiment.reason}
          </span>
        )}
        <Actions />
      </div>
      {experiment.description && (
        <p className={classes.description} title={experiment.description}>
          {experiment.description}
        </p>
      )}
      <Facts />
    </header>
  );
}

function Facts() {
  const view = useShown();
  const { experiment, attempt, setAttempt } = view;
  const attempts = attemptsOf(experiment);
  return (
    <div className={classes.facts}>
      {attempts.length > 1 && (
        <Select
          aria-label="attempt"
          w={150}
          styles={{ input: { height: 24, minHeight: 24 } }}
          comboboxProps={{ width: 200 }}
          allowDeselect={false}
          data={attempts
            .map((one) => ({
              value: String(one),
              label: `attempt ${one}${one === experiment.attempt ? " (newest)" : ""}`,
            }))
            .reverse()}
          value={String(attempt)}
          onChange={(value) => setAttempt(Number(value) === experiment.attempt ? null : Number(value))}
        />
      )}
      {experiment.started ? (
        <Fact name={experiment.finished ? "ran" : "running for"}>
          <Elapsed of={experiment} />
        </Fact>
      ) : experiment.finished ? (
        <span className={classes.fact}>never started</span>
      ) : (
        <Fact name="waits">
          <Waited experiment={experiment} />
        </Fact>
      )}
      <Fact name="created">
        <Ago time={experiment.created} />
      </Fact>
      <Fact name="cluster">
        <Link to="/clusters" className="plainlink">
          {experiment.cluster}
        </Link>
      </Fact>
      <Fact name="framework">{experiment.framework}</Fact>
      {experiment.backend !== "native" && <Fact name="backend">{experiment.backend}</Fact>}
      {experiment.origin !== "run" && <Fact name="origin">{experiment.origin}</Fact>}
      {experiment.files[0] && (
        <Fact name="file">
          <Link
            to="/experiments/$id/$tab"
            params={{ id: experiment.id, tab: "config" }}
            search={along(view) as never}
            className={`plainlink mono clip ${classes.file}`}
            title={experiment.files.map((file) => file.name).join("\n")}
          >
            {experiment.files.map((file) => file.name.split("/").slice(-2).join("/")).join(" + ")}
          </Link>
        </Fact>
      )}
      {experiment.tags.map((tag) => (
        <Link key={tag} to="/experiments" search={{ q: `tags:${quotedValue(tag)}` } as never} className={classes.tag}>
          {tag}
        </Link>
      ))}
      {experiment.progress && experiment.state === "running" && (
        <span className={classes.progress}>
          <Progress value={experiment.progress.fraction * 100} w={120} size="sm" aria-label="progress" />
          {percent(experiment.progress.fraction)}
          {experiment.progress.eta !== null && <span className="dim">{duration(experiment.progress.eta)} left</span>}
        </span>
      )}
    </div>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <span className={classes.fact}>
      <span className="dim">{name}</span> {children}
    </span>
  );
}

function Waited({ experiment }: { experiment: ExperimentDetail }) {
  const now = useNow();
  return <span title={`created ${absolute(experiment.created)}`}>{duration(now - experiment.created)}</span>;
}

type Asking = "stop" | "rerun" | "delete" | null;

function Actions() {
  const { experiment, over } = useShown();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState<Asking>(null);
  const { busy, error, act, forget } = useAct();
  const [resume, setResume] = useState(false);
  const [exact, setExact] = useState(false);
  const ours = experiment.origin === "run";
  const path = { params: { path: { word: experiment.id } } };

  const close = () => {
    setAsking(null);
    forget();
  };
  const stop = (grace?: number) =>
    act(async () => {
      const next = await asked(api.POST("/api/experiments/{word}/stop", { ...path, body: { grace } }));
      client.setQueryData(["experiment", experiment.id], next);
      notifications.show({ message: `${experiment.id} is told to stop` });
      close();
    });
  const rerun = () =>
    act(async () => {
      const body = { params: [], environment: {}, oversubscribe: false, exact, resume };
      const made = await asked(api.POST("/api/experiments/{word}/rerun", { ...path, body }));
      notifications.show({ message: `${made.experiment.id} runs the files of ${experiment.id} again` });
      close();
      await navigate({ to: "/experiments/$id", params: { id: made.experiment.id } });
    });
  const remove = () =>
    act(async () => {
      await asked(api.DELETE("/api/experiments/{word}", path));
      client.removeQueries({ queryKey: ["experiment", experiment.id] });
      void client.invalidateQueries({ queryKey: ["experiments"] });
      await navigate({ to: "/experiments" });
    });

  return (
    <div className={classes.actions}>
      {!over && ours && (
        <Button variant="default" leftSection={<Square size={13} aria-hidden />} onClick={() => setAsking("stop")}>
          Stop
        </Button>
      )}
      {ours && (
        <>
          <Button variant="default" leftSection={<Play size={13} aria-hidden />} onClick={() => setAsking("rerun")}>
            Rerun
          </Button>
          <Button
            variant="default"
            leftSection={<Copy size={13} aria-hidden />}
            renderRoot={(props) => <Link to="/create" search={{ from: experiment.id } as never} {...props} />}
          >
            Clone
          </Button>
        </>
      )}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="default" aria-label="more" size={30}>
            <EllipsisVertical size={15} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item
            leftSection={<GitCompareArrows size={14} aria-hidden />}
            onClick={() => void navigate({ to: "/compare", search: { ids: experiment.id } as never })}
          >
            Compare with …
          </Menu.Item>
          <Menu.Item
            color="red"
            leftSection={<Trash2 size={14} aria-hidden />}
            disabled={!over && ours}
            onClick={() => setAsking("delete")}
          >
            Delete …
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Confirm
        opened={asking !== null}
        title={TITLES[asking ?? "stop"].replace("ID", experiment.id)}
        keep={asking === "rerun" ? "Not now" : asking === "delete" ? "Keep it" : "Let it run"}
        onClose={close}
        error={error}
        actions={
          <>
            {asking === "stop" && (
              <>
                <Button variant="default" loading={busy} onClick={() => void stop(0)}>
                  Kill now
                </Button>
                <Button loading={busy} onClick={() => void stop()}>
                  Stop
                </Button>
              </>
            )}
            {asking === "rerun" && (
              <Button loading={busy} onClick={() => void rerun()}>
                Rerun
              </Button>
            )}
            {asking === "delete" && (
              <Button color="red" loading={busy} onClick={() => void remove()}>
                Delete
              </Button>
            )}
          </>
        }
      >
        {asking === "stop" &&
          "Its replicas get SIGTERM, and SIGKILL when they are still there after the grace of the file."}
        {asking === "rerun" && (
          <>
            <Text mb="sm">The same files with the same params become a new experiment.</Text>
            <Checkbox
              mb={6}
              label="Go on from its newest complete checkpoint"
              checked={resume}
              onChange={(event) => setResume(event.currentTarget.checked)}
            />
            <Checkbox
              label="Only if its code and data are exactly what they were"
              checked={exact}
              onChange={(event) => setExact(event.currentTarget.checked)}
            />
          </>
        )}
        {asking === "delete" &&
          "Its logs, metrics and outputs are removed and cannot be brought back. Models that were registered from it stay."}
      </Confirm>
    </div>
  );
}

const TITLES = { stop: "Stop ID?", rerun: "Run ID again?", delete: "Delete ID?" };
