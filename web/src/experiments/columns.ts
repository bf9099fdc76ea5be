/** Which columns the list can have: fixed ones, params, metrics. Ids are fields of the query language. Pure. */

import type { Experiment } from "../api/client";
import { numeric } from "../look/numbers";
import { fieldOf } from "./completion";

export const FIXED = {
  state: { name: "State", width: 118 },
  name: { name: "Name", width: 250 },
  number: { name: "#", width: 56 },
  replicas: { name: "Replicas", width: 190 },
  duration: { name: "Ran", width: 84 },
  created: { name: "Created", width: 88 },
  started: { name: "Started", width: 88 },
  finished: { name: "Finished", width: 88 },
  progress: { name: "Progress", width: 120 },
  framework: { name: "Framework", width: 100 },
  cluster: { name: "Cluster", width: 90 },
  backend: { name: "Backend", width: 90 },
  attempt: { name: "Attempt", width: 76 },
  tags: { name: "Tags", width: 140 },
  origin: { name: "Origin", width: 80 },
  reason: { name: "Reason", width: 280 },
} as const;
export type Fixed = keyof typeof FIXED;

export const DEFAULT: readonly string[] = ["state", "name", "number", "replicas", "duration", "created", "cluster"];

export const STATISTICS = ["last", "min", "max"] as const;
export type Statistic = (typeof STATISTICS)[number];

/** `metrics.val/acc.max` -> the metric and what of it. A name may end in `.max` itself: known names go first. */
export interface MetricColumn {
  name: string;
  statistic: Statistic;
}

export function metricOf(id: string, known: ReadonlySet<string>): MetricColumn | null {
  const rest = nameIn("metrics", id);
  if (rest === null) return null;
  if (known.has(rest)) return { name: rest, statistic: "last" };
  for (const statistic of STATISTICS)
    if (rest.endsWith(`.${statistic}`)) return { name: unquoted(rest.slice(0, -statistic.length - 1)), statistic };
  return { name: rest, statistic: "last" };
}

export function metricColumn(name: string, statistic: Statistic): string {
  return statistic === "last" ? fieldOf("metrics", name) : `${fieldOf("metrics", name)}.${statistic}`;
}

export function paramOf(id: string): string | null {
  return nameIn("params", id);
}

export function isFixed(id: string): id is Fixed {
  return id in FIXED;
}

/** What a person calls a column: `Ran`, `loss.min`, `lr`; `param lr` where others are called so, too. */
export function nameOf(id: string, among: readonly string[] = []): string {
  const word = groupWord(id, among);
  return word ? `${word} ${bareName(id)}` : bareName(id);
}

/** `param` or `metric`, where a param and a metric among the columns have the same name; else nothing. */
export function groupWord(id: string, among: readonly string[]): string {
  const twice = among.some((other) => other !== id && bareName(other) === bareName(id));
  return !twice ? "" : id.startsWith("params.") ? "param" : id.startsWith("metrics.") ? "metric" : "";
}

function bareName(id: string): string {
  return isFixed(id) ? FIXED[id].name : id.replace(/^(metrics|params)\./, "").replace(/["']/g, "");
}

/** The value of a metric in a row: a number, NaN included, or undefined. */
export function metricValue(row: Pick<Experiment, "metrics">, column: MetricColumn): number | undefined {
  const entry = (row.metrics as Record<string, Record<string, unknown>> | undefined)?.[column.name];
  return numeric(entry?.[column.statistic]) ?? undefined;
}

/** `model.layers` looks into a param, if no param has that very name. */
export function paramValue(row: Pick<Experiment, "params">, name: string): unknown {
  const params = row.params as Record<string, unknown>;
  if (name in params) return params[name];
  let value: unknown = params;
  for (const step of name.split("."))
    value = typeof value === "object" && value !== null ? (value as Record<string, unknown>)[step] : undefined;
  return value;
}

/** Names of params and metrics that the rows have, the most frequent first; Shoal's own metrics last. */
export function namesOf(rows: readonly Pick<Experiment, "params" | "metrics">[]): {
  params: string[];
  metrics: string[];
} {
  const params = new Map<string, number>();
  const metrics = new Map<string, number>();
  for (const row of rows) {
    for (const name of Object.keys(row.params)) params.set(name, (params.get(name) ?? 0) + 1);
    for (const name of Object.keys(row.metrics ?? {})) metrics.set(name, (metrics.get(name) ?? 0) + 1);
  }
  const own = (name: string) => (name.startsWith("shoal/") ? 1 : 0);
  const ordered = (counts: Map<string, number>) =>
    [...counts].sort((a, b) => own(a[0]) - own(b[0]) || b[1] - a[1]).map(([name]) => name);
  return { params: ordered(params), metrics: ordered(metrics) };
}

/** The columns that a list begins with: the fixed ones, two metrics, and three params that differ between rows. */
export function suggested(rows: readonly Pick<Experiment, "params" | "metrics">[]): string[] {
  const names = namesOf(rows);
  const metrics = names.metrics.filter((name) => !name.startsWith("shoal/")).slice(0, 2);
  const differing = names.params.filter(
    (name) => new Set(rows.map((row) => JSON.stringify(row.params[name]))).size > 1,
  );
  return [
    ...DEFAULT,
    ...metrics.map((name) => fieldOf("metrics", name)),
    ...differing.slice(0, 3).map((name) => fieldOf("params", name)),
  ];
}

function nameIn(group: string, id: string): string | null {
  return id.startsWith(`${group}.`) ? unquoted(id.slice(group.length + 1)) : null;
}

function unquoted(name: string): string {
  return /^(["']).*\1$/.test(name) ? name.slice(1, -1) : name;
}
