/** What versions of models were worth, and what aliases mean. Pure. */

import type { Schemas } from "../api/client";
import { numeric } from "../look/numbers";

export type Version = Schemas["Model"];

/** [alias, version] of all versions, in the order of aliases. */
export function aliasesOf(versions: readonly Version[]): [string, number][] {
  return versions
    .flatMap((one) => one.aliases.map((alias): [string, number] => [alias, one.version]))
    .sort(([a], [b]) => a.localeCompare(b));
}

/** Names of metrics that are numbers in at least one version, those of most versions first. */
export function metricNames(versions: readonly Version[]): string[] {
  const counts = new Map<string, number>();
  for (const { metrics } of versions)
    for (const [name, value] of Object.entries(metrics))
      if (numeric(value) !== null) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort(([a, n], [b, m]) => m - n || a.localeCompare(b)).map(([name]) => name);
}

/** A metric over versions: [versions from the oldest on, its values]; null where a version has none. */
export function overVersions(versions: readonly Version[], metric: string): [number[], (number | null)[]] {
  const ordered = [...versions].sort((a, b) => a.version - b.version);
  const value = (one: Version) => {
    const read = numeric(one.metrics[metric]);
    return read !== null && Number.isFinite(read) ? read : null;
  };
  return [ordered.map((one) => one.version), ordered.map(value)];
}

/** Versions to write below a chart: whole numbers of those that there are, so many apart. */
export function versionTicks(first: number, last: number, apart: number): number[] {
  const step = Math.max(1, Math.round(apart));
  const from = Math.ceil(first / step) * step;
  const ticks = Array.from({ length: Math.max(0, Math.floor((last - from) / step) + 1) }, (_, n) => from + n * step);
  return ticks.length ? ticks : [first];
}

/** In words, for whoever does not see the chart. */
export function saidOver(metric: string, [versions, values]: [number[], (number | null)[]]): string {
  const known = versions.flatMap((version, place) =>
    values[place] === null ? [] : [[version, values[place]!] as const],
  );
  if (!known.length) return `${metric}: no version has it`;
  const low = known.reduce((best, one) => (one[1] < best[1] ? one : best));
  const high = known.reduce((best, one) => (one[1] > best[1] ? one : best));
  const last = known.at(-1)!;
  return `${metric} over ${known.length} versions: lowest ${low[1]} in v${low[0]}, highest ${high[1]} in v${high[0]}, newest ${last[1]} in v${last[0]}`;
}

/** Why a word cannot be an alias, or empty. */
export function wrongAlias(alias: string): string {
  if (!alias) return "";
  if (/^v?\d+$/.test(alias)) return "a number would be read as a version";
  if (alias === "latest") return "latest always means the newest version";
  return /^[A-Za-z][A-Za-z0-9._-]{0,63}$/.test(alias) ? "" : "letters, digits, . - and _, a letter first";
}
