/** Everything that matters on one page: failure, verdict, ranks, metrics, params, where it comes from. */

import { Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, asked } from "../api/client";
import { RUNNING_AGAIN, useEarlierWhy, useSteps, useStragglers, useWhy } from "../api/queries";
import { Copied, ErrorBox, Waiting } from "../look/Notes";
import { columnNumbers, count, number, percent, plain, several } from "../look/numbers";
import { Columns, Facts, Part } from "../look/Page";
import { duration } from "../look/times";
import { along, useShown } from "./context";
import { FailureBanner } from "./FailureBanner";
import classes from "./overview.module.css";
import { ReplicasTable } from "./ReplicasTable";
import { metricsIn, ranksOf, spreadOf, stepMetric } from "./ranks";
import { slowest as slowestOf } from "./replicas";

const MOST_METRICS = 40;

export function OverviewTab() {
  const { experiment, over, all, newest, attempt, selected, selection } = useShown();
  const now = useWhy(experiment.id, over);
  const then = useEarlierWhy(experiment.id, newest ? null : attempt);
  const why = newest ? now : then;
  const past = over || !newest;
  const stragglers = useStragglers(experiment.id, over);
  const resources = useQuery({
    queryKey: ["experiment", experiment.id, "resources now", attempt],
    queryFn: () =>
      asked(
        api.GET("/api/experiments/{word}/metrics", {
          params: { path: { word: experiment.id }, query: { kind: "resource", attempt } },
        }),
      ),
    refetchInterval: over ? false : 2 * RUNNING_AGAIN,
  });
  const steps = useSteps(experiment.id, stepMetric(Object.keys(experiment.metrics ?? {})), attempt, over);
  const ranks = useMemo(
    () =>
      ranksOf(
        selection ? selected : all,
        why.data,
        newest ? stragglers.data : undefined,
        resources.data,
        steps.data,
        steps.dataUpdatedAt / 1000,
        past ? "max" : "last",
      ),
    [
      all,
      selected,
      selection,
      newest,
      why.data,
      stragglers.data,
      resources.data,
      steps.data,
      steps.dataUpdatedAt,
      past,
    ],
  );
  const spread = spreadOf(ranks);
  const silent = ranks.filter((rank) => rank.silent);
  const slowest = newest
    ? (stragglers.data?.slowest?.replica ?? (over ? undefined : slowestOf(stragglers.data)))
    : undefined;
  const verdict = newest && stragglers.data && stragglers.data.ranks.length > 1 ? stragglers.data.verdict : "";

  return (
    <div className={classes.overview}>
      <FailureBanner whole />
      {experiment.state === "queued" && experiment.reason && (
        <p className={classes.waits}>
          {sentence(experiment.reason)} <Link to="/clusters">Who occupies what</Link>
        </p>
      )}
      <div className={classes.body}>
        <Part
          title="Replicas"
          note={
            <>
              {silent.length > 0 && (
                <span className={classes.warn}>
                  {several(silent.length, "rank")} silent:{" "}
                  {silent
                    .map((one) => one.replica.replica)
                    .slice(0, 4)
                    .join(", ")}
                  {silent.length > 4 ? " …" : ""}
                </span>
              )}
              {spread && spread.high > spread.low && (
                <span title={`furthest behind: ${spread.behind.join(", ")}`}>
                  {`steps ${count(spread.low)} to ${count(spread.high)}, ${count(spread.high - spread.low)} apart`}
                </span>
              )}
              {verdict && (
                <span
                  className={stragglers.data?.slowest ? classes.warn : undefined}
                  title={stragglers.data?.guess ? "a guess" : undefined}
                >
                  {verdict}
                </span>
              )}
            </>
          }
        >
          <ReplicasTable ranks={ranks} slowest={slowest} over={past} />
        </Part>
        <Columns
          wide={<Metrics />}
          narrow={
            <>
              {newest && experiment.progress && !(over && experiment.progress.fraction >= 1) && (
                <Part title="Progress">
                  <p className={classes.big}>
                    {percent(experiment.progress.fraction)}
                    {experiment.progress.eta !== null && !over && (
                      <small className="dim"> {duration(experiment.progress.eta)} left</small>
                    )}
                  </p>
                </Part>
              )}
              <Params />
              <Provenance />
            </>
          }
        />
      </div>
    </div>
  );
}

function Metrics() {
  const view = useShown();
  const { experiment, over, newest, attempt } = view;
  const earlier = useQuery({
    queryKey: ["experiment", experiment.id, "metrics of", attempt],
    queryFn: () =>
      asked(
        api.GET("/api/experiments/{word}/metrics", { params: { path: { word: experiment.id }, query: { attempt } } }),
      ),
    enabled: !newest,
  });
  const known = newest ? (experiment.metrics ?? {}) : metricsIn(earlier.data ?? []);
  const metrics = Object.entries(known) as [string, Record<string, unknown>][];
  const losses = experiment.losses.filter((loss) => newest || loss.attempt === attempt);
  metrics.sort(([a], [b]) => Number(a.startsWith("shoal/")) - Number(b.startsWith("shoal/")));
  return (
    <Part
      title="Metrics"
      note={
        metrics.length > MOST_METRICS
          ? `${MOST_METRICS} of ${count(metrics.length)}`
          : `${newest ? "" : `of attempt ${attempt}: `}last of the lowest rank; min and max over all`
      }
    >
      {earlier.error ? <ErrorBox error={earlier.error} compact retry={() => void earlier.refetch()} /> : null}
      {losses.map((loss) => (
        <p key={`${loss.replica}/${loss.process}/${loss.attempt}`} role="note">
          Not recorded of {loss.replica}, process {loss.process}, attempt {loss.attempt}: {count(loss.dropped)} calls it
          could not write, {count(loss.gaps)} gaps.
        </p>
      ))}
      {earlier.isLoading ? (
        <Waiting what="metrics" />
      ) : metrics.length === 0 ? (
        <p className="dim">
          {over || !newest ? "None." : "None yet."} A script logs them with{" "}
          <code className="mono">shoal.log(loss=0.3, step=10)</code>.
        </p>
      ) : (
        <Table striped={false} highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Name</Table.Th>
              <Table.Th className="number">Last</Table.Th>
              <Table.Th className="number">Min</Table.Th>
              <Table.Th className="number">Max</Table.Th>
              <Table.Th className="number">Step</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {metrics.slice(0, MOST_METRICS).map(([name, entry]) => {
              const head = entry.value ?? entry.last; // what its script chose to stand for it goes first
              const shown = columnNumbers([head, entry.min, entry.max]);
              return (
                <Table.Tr key={name}>
                  <Table.Td>
                    <Link
                      to="/experiments/$id/$tab"
                      params={{ id: experiment.id, tab: "metrics" }}
                      search={{ ...along(view), group: name } as never}
                      className="plainlink"
                    >
                      {name}
                    </Link>
                  </Table.Td>
                  <Table.Td
                    className="number"
                    title={
                      entry.value === undefined ? String(head) : `${head}, chosen by its script; last ${entry.last}`
                    }
                  >
                    {shown(head)}
                  </Table.Td>
                  {(["min", "max"] as const).map((key) => (
                    <Table.Td key={key} className="number" title={String(entry[key])}>
                      {shown(entry[key])}
                    </Table.Td>
                  ))}
                  <Table.Td className="number">{number(entry.step)}</Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      )}
    </Part>
  );
}

function Params() {
  const { experiment } = useShown();
  const params = Object.entries(experiment.params);
  return (
    <Part title="Params">
      {params.length === 0 ? (
        <p className="dim">None.</p>
      ) : (
        <Facts facts={Object.fromEntries(params.map(([name, value]) => [name, plain(value) || "–"]))} />
      )}
    </Part>
  );
}

/** The command, the commit, the machine; all of it is in Config. */
function Provenance() {
  const view = useShown();
  const { experiment } = view;
  const known = experiment.provenance as Known;
  const commit = known.git?.commit;
  const host = known.host?.name && `${known.host.name}, ${known.host.cpu ?? "?"} cores, ${known.host.os ?? ""}`;
  const data = (known.datasets ?? []).map(
    (set) => `${set.name ?? set.uri ?? ""} ${set.version ? `v${set.version}` : ""}`,
  );
  return (
    <Part title="Comes from">
      <Facts
        facts={{
          command: <Copied text={experiment.command} />,
          directory: <Copied text={experiment.directory} />,
          commit: commit && (
            <span>
              <Copied text={commit} shown={commit.slice(0, 10)} />
              {known.git?.branch ? ` on ${known.git.branch}` : ""}
              {known.git?.dirty ? <span className={classes.warn}> with changes</span> : ""}
            </span>
          ),
          python: known.python,
          host,
          user: known.user,
          data: data.join(", "),
        }}
      />
      <Link
        to="/experiments/$id/$tab"
        params={{ id: experiment.id, tab: "config" }}
        search={{ ...along(view), show: "provenance" } as never}
        className="textlink"
      >
        all of it
      </Link>
    </Part>
  );
}

/** `waits for 2 cpu` -> `Waits for 2 cpu.` */
function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;
}

interface Known {
  git?: { commit?: string; branch?: string; dirty?: boolean } | null;
  python?: string;
  user?: string;
  host?: { name?: string; cpu?: number; os?: string };
  datasets?: { name?: string; uri?: string; version?: number | string }[];
}
