/** Which replicas are meant: attempts, tries, and the selector that all tabs share. Pure. */

import type { ExperimentDetail, FirstFailure, Replica, Stragglers } from "../api/client";

/** `failed`, `slowest`, `worker`, `worker-*`, `worker-0,ps-1`; empty is all of them. */
export type Selection = string;

export const SPECIAL = ["failed", "slowest"] as const;

/** Attempts from 0 to the newest. */
export function attemptsOf(experiment: Pick<ExperimentDetail, "attempt">): number[] {
  return Array.from({ length: experiment.attempt + 1 }, (_, number) => number);
}

/** The newest try of each replica of one attempt, in the order of ranks. */
export function replicasOf(
  experiment: Pick<ExperimentDetail, "attempt" | "replicas" | "history">,
  attempt: number,
): Replica[] {
  if (attempt === experiment.attempt) return experiment.replicas;
  const newest = new Map<string, Replica>();
  for (const one of experiment.history ?? []) {
    if (one.attempt !== attempt) continue;
    const known = newest.get(one.replica);
    if (!known || known.try < one.try) newest.set(one.replica, one);
  }
  return [...newest.values()].sort((a, b) => a.rank - b.rank);
}

/** The names that a selection means, in the order of ranks. What means nothing here means none. */
export function chosen(
  replicas: readonly Replica[],
  selection: Selection,
  stragglers?: Pick<Stragglers, "slowest" | "ranks"> | null,
): Replica[] {
  if (!selection) return [...replicas];
  const tests = selection.split(",").map((part) => test(part.trim(), stragglers));
  return replicas.filter((replica) => tests.some((meant) => meant(replica)));
}

/** The selection as the `replica` parameter of the API, when one pattern can say it; else null. */
export function asPattern(selection: Selection): string | null {
  if (!selection) return "*";
  if (selection.includes(",") || (SPECIAL as readonly string[]).includes(selection)) return null;
  return ROLES.test(selection) ? `${selection}-*` : selection;
}

/** The selection with one replica more, or less when it has it already. */
export function toggled(selection: Selection, name: string): Selection {
  const parts = selection ? selection.split(",") : [];
  const next = parts.includes(name) ? parts.filter((part) => part !== name) : [...parts, name];
  return next.join(",");
}

/** The replica after (or before) the one that is chosen; after the last come all of them. */
export function neighbour(replicas: readonly Replica[], selection: Selection, by: 1 | -1): Selection {
  const place = replicas.findIndex((replica) => replica.replica === selection);
  const next = place === -1 ? (by === 1 ? 0 : replicas.length - 1) : place + by;
  return replicas[next]?.replica ?? "";
}

/**
 * The failure to show while one attempt is looked at: the server's, when it is of that attempt or of the last one;
 * else the earliest of the attempt, whose last lines are not kept with it.
 */
export function failureOf(
  experiment: Pick<ExperimentDetail, "attempt" | "replicas" | "history" | "first_failure">,
  attempt: number,
): FirstFailure | null {
  const known = experiment.first_failure;
  if (known && known.attempt === attempt) return known;
  const failed = [...experiment.replicas, ...(experiment.history ?? [])]
    .filter((one) => one.attempt === attempt && one.state === "failed")
    .sort((a, b) => (a.finished ?? 0) - (b.finished ?? 0))[0];
  if (!failed) return attempt === experiment.attempt ? known : null;
  const { replica, exit_code, signal, reason, finished } = failed;
  return {
    replica,
    attempt,
    try: failed.try,
    exit_code,
    signal,
    reason: reason || null,
    time: finished,
    process: null,
    lines: [],
  };
}

/** [["master", […]], ["worker", […]], ["ps", […]]], in the order of ranks. */
export function byRole(replicas: readonly Replica[]): [string, Replica[]][] {
  const roles = new Map<string, Replica[]>();
  for (const replica of replicas) roles.set(replica.role, [...(roles.get(replica.role) ?? []), replica]);
  return [...roles];
}

const ROLES = /^(master|worker|ps)$/;

function test(part: string, stragglers?: Pick<Stragglers, "slowest" | "ranks"> | null): (replica: Replica) => boolean {
  if (part === "failed") return (replica) => replica.state === "failed" || replica.state === "lost";
  if (part === "slowest") {
    const name = slowest(stragglers);
    return (replica) => replica.replica === name;
  }
  if (ROLES.test(part)) return (replica) => replica.role === part;
  if (!part.includes("*")) return (replica) => replica.replica === part;
  const pattern = new RegExp(`^${part.split("*").map(escaped).join(".*")}$`);
  return (replica) => pattern.test(replica.replica);
}

/** The rank that the others wait for; when none stands out, the one with the longest steps. */
export function slowest(stragglers?: Pick<Stragglers, "slowest" | "ranks"> | null): string | undefined {
  if (stragglers?.slowest) return stragglers.slowest.replica;
  const timed = (stragglers?.ranks ?? []).flatMap((rank) => {
    const mean = (rank.busy ?? rank.step_time)?.mean;
    return mean === undefined ? [] : [{ name: rank.replica, mean }];
  });
  return timed.sort((a, b) => b.mean - a.mean)[0]?.name;
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
