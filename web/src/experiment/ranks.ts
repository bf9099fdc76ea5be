/** What each rank does: age of its last line, whether it is silent, its steps and its resources. Pure. */

import type { Replica, Schemas, Stragglers, Why } from "../api/client";
import { numeric } from "../look/numbers";

export type Metric = Schemas["SeriesView"];

type Sample = Pick<Metric, "name" | "replica" | "last" | "max">;

export interface RankView {
  replica: Replica;
  lastLine: string | null;
  /** Seconds since its last line, at the time of the answer. */
  age?: number;
  /** Seconds since anything that it tracks was heard, and since its launcher was. */
  metricAge?: number;
  beatAge?: number;
  /** Of its script, if that tracks anything; else of its launcher. */
  pid?: number;
  /** How fast it is beside the best rank, and whether it is slow always or for a while. */
  score?: Schemas["RankScore"];
  /** Seconds since its last point of `steps`. */
  pointAge?: number;
  /** The step of that point. */
  at?: number;
  /** It runs, and has neither printed nor logged anything for much longer than the others. */
  silent: boolean;
  /** Mean seconds of a step, and of its own part of it. */
  step?: number;
  busy?: number;
  cpu?: number;
  memory?: number;
  gpu?: number;
}

const SILENT = 30; // seconds that are never too long
const LONGER = 4; // times the median age

export function ranksOf(
  replicas: readonly Replica[],
  why: Pick<Why, "ranks"> | undefined,
  stragglers: Pick<Stragglers, "ranks"> | undefined,
  resources: readonly Sample[] = [],
  steps: readonly Pick<Metric, "replica" | "last_step" | "last_time">[] = [],
  now = 0,
  /** Of what was sampled: the newest, or the highest of all. */
  sample: "last" | "max" = "last",
): RankView[] {
  const said = new Map(why?.ranks.map((rank) => [rank.replica, rank]));
  const heard = new Map<string, { age: number; at: number }>();
  for (const one of steps) {
    const age = Math.max(0, now - one.last_time);
    const known = heard.get(one.replica);
    if (!known || age < known.age) heard.set(one.replica, { age, at: one.last_step });
  }
  /** The age of the newest sign of life. */
  const quiet = (name: string) =>
    least([said.get(name)?.last_line_age, said.get(name)?.last_metric_age, heard.get(name)?.age]);
  const ages = replicas.filter((one) => one.state === "running").flatMap((one) => quiet(one.replica) ?? []);
  const limit = Math.max(SILENT, LONGER * median(ages));
  return replicas.map((replica) => {
    const known = said.get(replica.replica);
    const age = known?.last_line_age ?? undefined;
    const since = quiet(replica.replica);
    const times = (stragglers?.ranks ?? []).filter((rank) => rank.replica === replica.replica);
    const last = (name: string) =>
      numeric(resources.find((one) => one.name === name && one.replica === replica.replica)?.[sample]) ?? undefined;
    return {
      replica,
      lastLine: known?.last_line ?? null,
      age,
      metricAge: known?.last_metric_age ?? undefined,
      beatAge: known?.heartbeat_age ?? undefined,
      pid: known?.pid ?? undefined,
      score: slowestScore(times),
      pointAge: heard.get(replica.replica)?.age,
      at: heard.get(replica.replica)?.at,
      silent: replica.state === "running" && since !== undefined && ages.length > 1 && since > limit,
      step: largest(times.map((rank) => rank.step_time?.mean)),
      busy: largest(times.map((rank) => rank.busy?.mean)),
      cpu: last("cpu"),
      memory: last("memory"),
      gpu: largest(gpus(resources, replica.replica, sample)),
    };
  });
}

/** How far apart the ranks are that log steps: `behind` are the last; null when fewer than two do. */
export function spreadOf(ranks: readonly RankView[]): { low: number; high: number; behind: string[] } | null {
  const logging = ranks.filter((rank) => rank.at !== undefined);
  if (logging.length < 2) return null;
  const places = logging.map((rank) => rank.at!);
  const low = Math.min(...places);
  const high = Math.max(...places);
  return { low, high, behind: logging.filter((rank) => rank.at === low).map((rank) => rank.replica.replica) };
}

/** The metric whose steps tell how far each rank is: Shoal's own if there is one, else the first. */
export function stepMetric(names: readonly string[]): string | undefined {
  return names.includes("shoal/step_time") ? "shoal/step_time" : names.find((name) => !name.startsWith("shoal/"));
}

/** Metrics of one attempt, as an experiment tells them: the last value of the lowest rank, least and largest of all. */
export function metricsIn(
  rows: readonly Pick<Metric, "name" | "kind" | "rank" | "last" | "min" | "max" | "last_step">[],
): Record<string, { last: unknown; min: unknown; max: unknown; step: number }> {
  const found: Record<string, { last: unknown; min: unknown; max: unknown; step: number }> = {};
  for (const row of [...rows].sort((a, b) => a.rank - b.rank)) {
    if (row.kind === "resource") continue;
    const known = found[row.name];
    found[row.name] = {
      last: known ? known.last : row.last,
      step: known ? known.step : row.last_step,
      min: further(known?.min, row.min, -1),
      max: further(known?.max, row.max, 1),
    };
  }
  return found;
}

/** Of two values the one that is further up (1) or down (−1); what is no number gives way. */
function further(one: unknown, other: unknown, way: 1 | -1): unknown {
  const [a, b] = [numeric(one), numeric(other)];
  if (a === null || Number.isNaN(a)) return other;
  if (b === null || Number.isNaN(b)) return one;
  return (b - a) * way > 0 ? other : one;
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)]! : 0;
}

/** Of several processes of a replica, that of the slowest. */
function slowestScore(times: Stragglers["ranks"]): RankView["score"] {
  const known = times.flatMap((rank) => rank.score ?? []);
  return known.sort((a, b) => (a.relative ?? 1) - (b.relative ?? 1))[0];
}

function least(values: (number | null | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined && value !== null);
  return known.length ? Math.min(...known) : undefined;
}

function largest(values: (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length ? Math.max(...known) : undefined;
}

/** Utilisation of each of its GPUs, percent. */
function gpus(resources: readonly Sample[], name: string, sample: "last" | "max"): (number | undefined)[] {
  return resources
    .filter((one) => one.replica === name && /^gpu\d+\/utilization$/.test(one.name))
    .map((one) => numeric(one[sample]) ?? undefined);
}
