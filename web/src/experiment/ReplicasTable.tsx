/** A row for each replica: its state, how fast it is beside the others, what it uses, and its signs of life. */

import { useMemo } from "react";
import { type Column, DataTable, tableColumns } from "../look/DataTable";
import { EmptyState } from "../look/Notes";
import { bytes, columnNumbers, count, several } from "../look/numbers";
import { StateMark } from "../look/StateMark";
import { Elapsed } from "../look/Time";
import { duration } from "../look/times";
import { useRemembered } from "../url/remembered";
import { exitName } from "./exits";
import classes from "./overview.module.css";
import type { RankView } from "./ranks";

const LATE_BEAT = 30; // seconds; a launcher samples every few
const TAG = 60; // pixels of the word `slowest`
const LETTER = 9; // and of a letter of a name, in the widest of usual fonts

interface Props {
  ranks: RankView[];
  slowest: string | undefined;
  over: boolean;
}

export function ReplicasTable({ ranks, slowest, over }: Props) {
  const columns = useMemo(() => replicaColumns(ranks, slowest, over), [ranks, slowest, over]);
  const [dense] = useRemembered("dense", false);
  return (
    <div className={classes.replicas}>
      <DataTable
        grow
        label="replicas"
        columns={columns}
        rows={ranks}
        idOf={(rank) => rank.replica.replica}
        rowHeight={dense ? 26 : 30}
        empty={<EmptyState title="No replica is meant by the selector" />}
      />
    </div>
  );
}

/** Only columns that tell something. All of them together fit into a window of 1280 pixels. */
export function replicaColumns(ranks: RankView[], slowest: string | undefined, over: boolean): Column<RankView>[] {
  const has = (key: keyof RankView) => ranks.some((rank) => rank[key] !== undefined);
  const step = columnNumbers(ranks.map((rank) => (rank.step ?? 0) * 1000));
  const busy = columnNumbers(ranks.map((rank) => (rank.busy ?? 0) * 1000));
  const looked = over ? "the highest of all samples" : "at the last look";
  const longest = Math.max(0, ...ranks.map((rank) => rank.replica.replica.length));
  const columns: (Column<RankView> | false)[] = [
    {
      id: "replica",
      header: "Replica",
      size: Math.min(180, Math.max(76, 12 + LETTER * longest) + (slowest ? TAG : 0)),
      accessorFn: (rank) => rank.replica.rank,
      cell: ({ row: { original: rank } }) => (
        <>
          <b className="clip" style={{ fontWeight: 550 }} title={rank.replica.replica}>
            {rank.replica.replica}
          </b>
          {slowest === rank.replica.replica && <small className={classes.slow}>slowest</small>}
        </>
      ),
    },
    {
      id: "state",
      header: "State",
      size: 102,
      accessorFn: (rank) => rank.replica.state,
      cell: ({ row: { original: rank } }) => <StateMark state={rank.replica.state} title={rank.replica.reason} />,
    },
    ranks.some((rank) => note(rank, over)) && {
      id: "end",
      header: over ? "Ended with" : "Note",
      size: over ? 114 : 92,
      accessorFn: (rank) => note(rank, over),
      cell: ({ row }) => (
        <span className="clip" title={row.original.replica.reason}>
          {note(row.original, over)}
        </span>
      ),
    },
    new Set(ranks.map((rank) => rank.replica.node)).size > 1 && {
      id: "node",
      header: "Node",
      size: 72,
      accessorFn: (rank) => rank.replica.node,
      cell: ({ row }) => (
        <span className="clip" title={row.original.replica.node}>
          {row.original.replica.node}
        </span>
      ),
    },
    {
      id: "ran",
      header: "Ran",
      size: 66,
      meta: { number: true },
      accessorFn: (rank) => rank.replica.started ?? 0,
      cell: ({ row }) => <Elapsed of={row.original.replica} />,
    },
    has("at") && {
      id: "at",
      header: "At step",
      size: 64,
      meta: { number: true, title: "the newest step that it logged" },
      accessorFn: (rank) => rank.at,
      cell: ({ row: { original: rank } }) => (rank.at === undefined ? "" : count(rank.at)),
    },
    has("step") && {
      id: "step",
      header: "Step time",
      size: 80,
      meta: { number: true, title: "mean time from step to step" },
      accessorFn: (rank) => rank.step,
      cell: ({ row: { original: rank } }) => (rank.step === undefined ? "" : `${step(rank.step * 1000)} ms`),
    },
    has("busy") && {
      id: "busy",
      header: "Own part",
      size: 86,
      meta: { number: true, title: "mean time of its own work in a step, before it waits for the others" },
      accessorFn: (rank) => rank.busy,
      cell: ({ row: { original: rank } }) =>
        rank.busy === undefined ? (
          ""
        ) : (
          <span className={slowest === rank.replica.replica ? classes.warn : undefined}>
            {`${busy(rank.busy * 1000)} ms`}
          </span>
        ),
    },
    has("score") && {
      id: "score",
      header: "Score",
      size: ranks.some((rank) => rank.score?.pattern) ? 98 : 56,
      meta: {
        number: true,
        title: "the best rank's time divided by its own; below 0.75 in three windows in sequence it is flagged",
      },
      accessorFn: (rank) => rank.score?.relative,
      cell: ({ row: { original: rank } }) => <ScoreCell score={rank.score} />,
    },
    has("cpu") && {
      id: "cpu",
      header: over ? "CPU peak" : "CPU",
      size: over ? 78 : 48,
      meta: { number: true, title: `cores, ${looked}` },
      accessorFn: (rank) => rank.cpu,
      cell: ({ row: { original: rank } }) => (rank.cpu === undefined ? "" : rank.cpu.toFixed(2)),
    },
    has("memory") && {
      id: "memory",
      header: over ? "Mem. peak" : "Memory",
      size: over ? 92 : 74,
      meta: { number: true, title: `memory, ${looked}` },
      accessorFn: (rank) => rank.memory,
      cell: ({ row: { original: rank } }) => bytes(rank.memory),
    },
    has("gpu") && {
      id: "gpu",
      header: over ? "GPU peak" : "GPU",
      size: over ? 78 : 54,
      meta: { number: true, title: `busiest of its GPUs, ${looked}` },
      accessorFn: (rank) => rank.gpu,
      cell: ({ row: { original: rank } }) => (rank.gpu === undefined ? "" : `${Math.round(rank.gpu)} %`),
    },
    has("metricAge") &&
      !over && {
        id: "tracked",
        header: "Tracked",
        size: 68,
        meta: { number: true, title: "how long ago anything that it tracks was heard" },
        accessorFn: (rank) => rank.metricAge,
        cell: ({ row: { original: rank } }) => <Age of={rank.metricAge} late={rank.silent} />,
      },
    has("beatAge") &&
      !over && {
        id: "beat",
        header: "Heartbeat",
        size: 82,
        meta: { number: true, title: "how long ago its launcher was heard, which samples what it uses" },
        accessorFn: (rank) => rank.beatAge,
        cell: ({ row: { original: rank } }) => <Age of={rank.beatAge} late={(rank.beatAge ?? 0) > LATE_BEAT} />,
      },
    {
      id: "said",
      header: "Last line",
      size: 62,
      meta: { grows: true },
      accessorFn: (rank) => rank.age,
      cell: ({ row: { original: rank } }) => (
        <span className="clip" title={rank.lastLine ?? undefined}>
          {rank.age !== undefined && !over && (
            <span className={rank.silent ? classes.warn : "dim"}>{duration(rank.age)} ago </span>
          )}
          <span className="mono">{rank.lastLine}</span>
        </span>
      ),
    },
  ];
  return tableColumns(columns.filter((column) => column !== false));
}

function Age({ of, late }: { of: number | undefined; late: boolean }) {
  return of === undefined ? null : (
    <span className={late ? classes.warn : "dim"} title={`${duration(of)} ago`}>
      {duration(of)}
    </span>
  );
}

/** Only who is slow now stands out: on a busy machine each is for a while. */
function ScoreCell({ score }: { score: RankView["score"] }) {
  if (!score || score.relative === null) return null;
  const own = score.individual === null ? "" : `${score.individual.toFixed(2)} of its own best; `;
  return (
    <span
      className={score.now ? classes.warn : undefined}
      title={`${own}slow in ${score.slow} of ${several(score.windows, "window")}`}
    >
      {score.relative.toFixed(2)}
      {score.pattern && <small className={score.now ? undefined : "dim"}> {score.pattern}</small>}
    </span>
  );
}

function note(rank: RankView, over: boolean): string {
  const { replica } = rank;
  if (replica.state === "failed" || (over && replica.exit_code)) return exitName(replica);
  const notes = [replica.try > 0 ? `try ${replica.try}` : "", rank.silent ? "silent" : ""];
  return notes.filter(Boolean).join(", ");
}
