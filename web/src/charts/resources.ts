/** What samplers record, in the order in which people ask for it, and how it is written. Pure. */

import { bytes, number } from "../look/numbers";

/** `0.05 – 0.16 cores`: a unit that both share is said once. */
export function spanOf(low: string, high: string): string {
  const [, number, unit] = /^(.*?)( [^ ]+)$/.exec(low) ?? [];
  return unit && high.endsWith(unit) ? `${number} – ${high}` : `${low} – ${high}`;
}

export interface Resource {
  name: string;
  title: string;
  say: (value: number) => string;
}

const KNOWN: [RegExp, (match: RegExpExecArray) => Omit<Resource, "name">][] = [
  [/^cpu$/, () => ({ title: "CPU", say: (value) => `${value.toFixed(2)} cores` })],
  [/^memory$/, () => ({ title: "Memory", say: bytes })],
  [/^gpu(\d+)\/utilization$/, ([, gpu]) => ({ title: `GPU ${gpu}, use`, say: (value) => `${few(value)} %` })],
  [/^gpu(\d+)\/memory$/, ([, gpu]) => ({ title: `GPU ${gpu}, memory`, say: bytes })],
  [/^net_in$/, () => ({ title: "Network in", say: perSecond })],
  [/^net_out$/, () => ({ title: "Network out", say: perSecond })],
  [/^disk_read$/, () => ({ title: "Disk read", say: perSecond })],
  [/^disk_write$/, () => ({ title: "Disk written", say: perSecond })],
  [/^gpu(\d+)\/power$/, ([, gpu]) => ({ title: `GPU ${gpu}, power`, say: (value) => `${few(value)} W` })],
  [/^gpu(\d+)\/temperature$/, ([, gpu]) => ({ title: `GPU ${gpu}, temperature`, say: (value) => `${few(value)} °C` })],
  [/^processes$/, () => ({ title: "Processes", say: number })],
];

/** Limits are drawn into what they limit, not by themselves. */
const LIMITS = /^memory_limit$|_total$/;

/** What replicas of this machine share: each samples the traffic of all of it. */
const SHARED = /^net_/;

/**
 * Each resource that was sampled; what is not known comes last, as it is called. `local`: the replicas ran as processes
 * of one machine.
 */
export function resourcesOf(names: Iterable<string>, local = false): Resource[] {
  const found = [...new Set(names)]
    .filter((name) => !LIMITS.test(name))
    .map((name) => ({ place: placeOf(name), resource: known(name, local) }));
  return found
    .sort((a, b) => a.place - b.place || a.resource.name.localeCompare(b.resource.name))
    .map((one) => one.resource);
}

/** One row of GET …/metrics?kind=resource. */
export interface Sampled {
  name: string;
  replica: string;
  last: unknown;
  max: unknown;
}

/**
 * Least and largest over ranks, and the highest ever: never a mean alone. Of each rank its newest value, or its peak:
 * the last sample of a run that is over is that of a process which has stopped working.
 */
export function tileOf(
  rows: readonly Sampled[],
  name: string,
  of: "last" | "max" = "last",
): { low: number; high: number; who: string; peak: number; ranks: number } | null {
  let tile: { low: number; high: number; who: string; peak: number; ranks: number } | null = null;
  for (const row of rows) {
    const value = row[of];
    if (row.name !== name || typeof value !== "number") continue;
    const peak = typeof row.max === "number" ? row.max : value;
    tile ??= { low: value, high: value, who: row.replica, peak, ranks: 0 };
    if (value > tile.high) tile.who = row.replica;
    tile.low = Math.min(tile.low, value);
    tile.high = Math.max(tile.high, value);
    tile.peak = Math.max(tile.peak, peak);
    tile.ranks += 1;
  }
  return tile;
}

function known(name: string, local: boolean): Resource {
  for (const [pattern, make] of KNOWN) {
    const match = pattern.exec(name);
    if (!match) continue;
    const { title, say } = make(match);
    return { name, title: local && SHARED.test(name) ? `${title}, whole machine` : title, say };
  }
  return { name, title: name, say: number };
}

function placeOf(name: string): number {
  const place = KNOWN.findIndex(([pattern]) => pattern.test(name));
  return place < 0 ? KNOWN.length : place;
}

function perSecond(value: number): string {
  return `${bytes(value)}/s`;
}

function few(value: number): string {
  return Math.abs(value) < 1e-3 && value !== 0 ? number(value) : String(Number(value.toPrecision(3)));
}
