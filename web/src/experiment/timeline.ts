/** States over time, as blocks: from tries of replicas and events to what the timeline draws. Pure. */

import type { ExperimentDetail, Replica } from "../api/client";
import type { Change } from "../api/live";
import { FINAL } from "../look/states";

export interface Block {
  state: string;
  from: number;
  /** Until now when it goes on. */
  to: number;
  open: boolean;
  attempt: number;
  try: number;
  reason: string;
  exit_code: number | null;
  signal: string | null;
}

export interface Row {
  name: string;
  rank: number;
  blocks: Block[];
  /** Moments worth a mark: ends that were failures. */
  ticks: { time: number; what: string; state: string }[];
}

export interface Timeline {
  from: number;
  to: number;
  /** The experiment itself: queued, starting, running, … */
  experiment: Row;
  rows: Row[];
  /** Where attempts begin, the first left out. */
  attempts: { attempt: number; time: number }[];
}

export function timeline(
  experiment: Pick<
    ExperimentDetail,
    "created" | "started" | "finished" | "state" | "reason" | "replicas" | "history" | "attempt"
  >,
  events: readonly Change[],
  now: number,
): Timeline {
  const to = Math.max(
    FINAL.has(experiment.state) ? (experiment.finished ?? experiment.created) : now,
    experiment.created,
  );
  const own = events.filter((event) => event.replica === null);
  const rows = new Map<string, Row>();
  const tries = [...(experiment.history ?? []), ...experiment.replicas];
  tries.sort((a, b) => a.attempt - b.attempt || a.try - b.try);
  for (const one of tries) {
    const row = rows.get(one.replica) ?? { name: one.replica, rank: one.rank, blocks: [], ticks: [] };
    rows.set(one.replica, row);
    if (one.started === null || one.started === undefined) continue;
    row.blocks.push(...blocksOf(one, events, to));
    if (one.state === "failed" && one.finished)
      row.ticks.push({
        time: one.finished,
        what: one.reason || one.signal || `exit code ${one.exit_code}`,
        state: "failed",
      });
  }
  const states = whole(experiment, own, to);
  return {
    from: experiment.created,
    to: Math.max(to, ...states.map((one) => one.to), ...tries.map((one) => one.finished ?? 0)),
    experiment: { name: "experiment", rank: -1, blocks: states, ticks: [] },
    rows: [...rows.values()].sort((a, b) => a.rank - b.rank || a.name.localeCompare(b.name)),
    attempts: beginnings(tries),
  };
}

/** A try: what it did until it ended, the whole of it in the colour of how it ended. */
function blocksOf(one: Replica, events: readonly Change[], to: number): Block[] {
  const common = {
    attempt: one.attempt,
    try: one.try,
    reason: one.reason,
    exit_code: one.exit_code,
    signal: one.signal,
  };
  const started = one.started!;
  const ended = one.finished ?? to;
  const starting = events.find(
    (event) =>
      event.replica === one.replica &&
      event.attempt === one.attempt &&
      event.try === one.try &&
      event.to_state === "starting" &&
      event.time < started,
  );
  const before: Block[] = starting
    ? [{ ...common, state: "starting", from: starting.time, to: started, open: false }]
    : [];
  return [
    ...before,
    { ...common, state: one.state, from: started, to: Math.max(ended, started), open: one.finished === null },
  ];
}

/** The experiment's own states, one after the other; queued is the wait. */
function whole(
  experiment: Pick<ExperimentDetail, "created" | "state" | "reason" | "finished">,
  events: readonly Change[],
  to: number,
): Block[] {
  const changes = [...events].sort((a, b) => a.number - b.number);
  const blocks: Block[] = [];
  let from = experiment.created;
  let state = changes[0]?.from_state || "queued";
  let last = { reason: "", attempt: 0 };
  if (state === "created") state = "queued";
  for (const change of changes) {
    if (change.time > from) blocks.push(block(state, from, change.time, last, false));
    from = Math.max(from, change.time);
    state = change.to_state;
    last = { reason: change.reason, attempt: change.attempt };
  }
  if (!FINAL.has(state)) blocks.push(block(state, from, to, last, true));
  return blocks;
}

function block(
  state: string,
  from: number,
  to: number,
  last: { reason: string; attempt: number },
  open: boolean,
): Block {
  return { state, from, to: Math.max(from, to), open, ...last, try: 0, exit_code: null, signal: null };
}

function beginnings(tries: readonly Replica[]): { attempt: number; time: number }[] {
  const first = new Map<number, number>();
  for (const one of tries)
    if (one.started && one.attempt > 0)
      first.set(one.attempt, Math.min(one.started, first.get(one.attempt) ?? Number.POSITIVE_INFINITY));
  return [...first].map(([attempt, time]) => ({ attempt, time })).sort((a, b) => a.attempt - b.attempt);
}

/** Round distances for an axis of so many seconds: about five of them. */
/** Where the axis has words, in seconds from its beginning; at its very end there is no room for one. */
export function axisMarks(span: number): number[] {
  const step = axisStep(span);
  const all = Array.from({ length: Math.floor(span / step) + 1 }, (_, n) => n * step);
  return all.filter((seconds) => seconds <= span * LAST_WORD);
}

const LAST_WORD = 0.91; // of the width: a time of day is 60 pixels wide, in a window of 900 a tenth of the axis

export function axisStep(span: number): number {
  const steps = [
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400,
  ];
  return steps.find((step) => span / step <= 8) ?? Math.ceil(span / 8 / 86400) * 86400;
}
