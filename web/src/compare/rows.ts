/** Experiments side by side: one row for each fact, param, metric and origin, with a value for each experiment. Pure. */

import type { ExperimentDetail } from "../api/client";
import { inOrder } from "../charts/names";
import { FINAL } from "../look/states";

export type Statistic = "last" | "min" | "max";
export const STATISTICS: readonly Statistic[] = ["last", "min", "max"];

export interface Row {
  group: string;
  name: string;
  /** One for each experiment; undefined: it has none. */
  values: unknown[];
  differs: boolean;
  as: "text" | "number" | "state" | "time" | "duration";
}

/** What `/provenance` gives; all of it may be missing. */
export type Provenance = Record<string, unknown>;

export interface Compared {
  experiment: ExperimentDetail;
  provenance: Provenance | undefined;
}

export const GROUPS = ["Facts", "Params", "Metrics", "Code", "Data", "Machine", "Packages"] as const;

/** All rows, those of a group together, in the order in which somebody looks for them. */
export function rowsOf(all: readonly Compared[], statistic: Statistic, now: number): Row[] {
  const facts: [string, Row["as"], (one: ExperimentDetail) => unknown][] = [
    ["state", "state", (one) => one.state],
    ["reason", "text", (one) => one.reason || undefined],
    ["first failure", "text", (one) => failureOf(one)],
    ["framework", "text", (one) => one.framework],
    ["backend", "text", (one) => one.backend],
    ["cluster", "text", (one) => one.cluster],
    ["replicas", "text", (one) => rolesOf(one)],
    ["attempts", "number", (one) => one.attempt + 1],
    ["created", "time", (one) => one.created],
    [
      "ran",
      "duration",
      (one) => (one.started ? (one.finished ?? (FINAL.has(one.state) ? one.started : now)) - one.started : undefined),
    ],
    ["tags", "text", (one) => one.tags.join(", ") || undefined],
    ["command", "text", (one) => one.command || undefined],
  ];
  return [
    ...facts.map(([name, as, of]) =>
      row(
        "Facts",
        name,
        all.map((one) => of(one.experiment)),
        as,
      ),
    ),
    ...table(
      "Params",
      all.map((one) => flat(one.experiment.params)),
    ),
    ...metricRows(all, statistic),
    ...table(
      "Code",
      all.map((one) => codeOf(one.provenance)),
    ),
    ...table(
      "Data",
      all.map((one) => dataOf(one.provenance)),
    ),
    ...table(
      "Machine",
      all.map((one) => machineOf(one.provenance)),
    ),
    ...table(
      "Packages",
      all.map((one) => flat(asRecord(one.provenance?.packages))),
    ),
  ];
}

/** The rows that are shown: those that differ, or all; by name. How many of them are equal is told. */
export function shownRows(rows: readonly Row[], everything: boolean, find: string): { shown: Row[]; equal: number } {
  const wanted = find.trim().toLowerCase();
  const found = wanted ? rows.filter((one) => `${one.group} ${one.name}`.toLowerCase().includes(wanted)) : [...rows];
  const known = found.filter((one) => one.values.some((value) => value !== undefined));
  const shown = everything ? known : known.filter((one) => one.differs);
  return { shown, equal: known.length - known.filter((one) => one.differs).length };
}

/** {model: {depth: 3}} -> {"model.depth": 3} */
export function flat(data: Record<string, unknown> | undefined, before = ""): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(data ?? {})) {
    const inner = asRecord(value);
    if (inner && Object.keys(inner).length) Object.assign(found, flat(inner, `${before}${name}.`));
    else found[`${before}${name}`] = value ?? undefined;
  }
  return found;
}

/** `1 master, 3 workers` */
export function rolesOf(one: Pick<ExperimentDetail, "replicas">): string {
  const counts = new Map<string, number>();
  for (const replica of one.replicas) counts.set(replica.role, (counts.get(replica.role) ?? 0) + 1);
  return [...counts].map(([role, count]) => `${count} ${role}${count === 1 || role === "ps" ? "" : "s"}`).join(", ");
}

function row(group: string, name: string, values: unknown[], as: Row["as"] = "text"): Row {
  const first = JSON.stringify(values[0]);
  return { group, name, values, as, differs: values.some((value) => JSON.stringify(value) !== first) };
}

/** Rows by name, in the order in which names first appear. */
function table(group: string, columns: readonly Record<string, unknown>[]): Row[] {
  const names = [...new Set(columns.flatMap((column) => Object.keys(column)))];
  return names.map((name) => {
    const values = columns.map((column) => column[name]);
    const numbers = values.every((value) => value === undefined || typeof value === "number");
    return row(group, name, values, numbers ? "number" : "text");
  });
}

function metricRows(all: readonly Compared[], statistic: Statistic): Row[] {
  const names = inOrder(new Set(all.flatMap((one) => Object.keys(one.experiment.metrics ?? {}))));
  return names.map((name) => {
    const values = all.map((one) => asRecord((one.experiment.metrics as Record<string, unknown>)?.[name])?.[statistic]);
    return row(
      "Metrics",
      name,
      values.map((value) => value ?? undefined),
      "number",
    );
  });
}

function failureOf(one: ExperimentDetail): string | undefined {
  const failure = one.first_failure;
  if (!failure) return undefined;
  const how = failure.signal ?? (failure.exit_code === null ? "" : `exit code ${failure.exit_code}`);
  return [failure.replica, how || failure.reason].filter(Boolean).join(": ");
}

function codeOf(provenance: Provenance | undefined): Record<string, unknown> {
  const git = asRecord(provenance?.git);
  const fetched = asRecord(provenance?.code);
  const untracked = Array.isArray(git?.untracked) ? git.untracked : [];
  return clean({
    directory: provenance?.directory,
    ...flat(fetched),
    commit: git?.commit,
    branch: git?.branch,
    "changes since the commit": git?.commit ? (git.diff_hash ? String(git.diff_hash).slice(0, 12) : "none") : undefined,
    "files not in git": git?.commit ? untracked.length : undefined,
    python: provenance?.python,
    shoal: provenance?.shoal,
    user: provenance?.user,
  });
}

function dataOf(provenance: Provenance | undefined): Record<string, unknown> {
  const mounts = Array.isArray(provenance?.datasets) ? (provenance.datasets as Record<string, unknown>[]) : [];
  return Object.fromEntries(
    mounts.map((mount) => [
      String(mount.at),
      `${mount.name ? `${mount.name}@v${mount.version}` : mount.uri} ${String(mount.digest ?? "").slice(0, 12)}`.trim(),
    ]),
  );
}

function machineOf(provenance: Provenance | undefined): Record<string, unknown> {
  return flat(asRecord(provenance?.host));
}

function clean(data: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(data).filter(([, value]) => value !== undefined && value !== null && value !== ""),
  );
}

function asRecord(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;
}
