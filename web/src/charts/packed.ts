/** Reads the packed answer of `GET /api/experiments/{word}/series?format=binary`. Pure. */

export interface Member {
  replica: string;
  process: number;
  rank: number;
  attempt: number;
}

/** One curve in buckets of the chart's width; arrays have one entry for each bucket that is not empty. */
export interface Curve {
  name: string;
  kind: string;
  replica?: string | null;
  process?: number | null;
  rank?: number | null;
  attempt?: number | null;
  members?: Member[];
  start: Float64Array;
  x_first: Float64Array;
  x_last: Float64Array;
  min?: Float64Array;
  min_x?: Float64Array;
  min_of?: Float64Array;
  max?: Float64Array;
  max_x?: Float64Array;
  max_of?: Float64Array;
  last?: Float64Array;
  mean?: Float64Array;
  p50?: Float64Array;
  p95?: Float64Array;
  count: Float64Array;
  curves?: Float64Array;
  finite?: Float64Array;
}

export interface ChartData {
  x: string;
  width: number;
  agg: string | null;
  series: Curve[];
}

export const COLUMNS = [
  "start",
  "x_first",
  "x_last",
  "min",
  "min_x",
  "min_of",
  "max",
  "max_x",
  "max_of",
  "last",
  "mean",
  "p50",
  "p95",
  "count",
  "curves",
  "finite",
] as const;

/** 4 bytes: the length of the JSON; the JSON; then all arrays as float64. Arrays are views, nothing is copied. */
export function unpacked(buffer: ArrayBuffer): ChartData {
  if (buffer.byteLength < 4) throw new Error("a chart is cut off");
  const length = new DataView(buffer).getUint32(0, true);
  if (4 + length > buffer.byteLength) throw new Error("a chart is cut off");
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const begin = 4 + length;
  const most = (buffer.byteLength - begin) / 8;
  const series = (head.series as Record<string, unknown>[]).map((entry) => {
    const curve: Record<string, unknown> = { ...entry };
    for (const name of COLUMNS) {
      const place = entry[name];
      if (!Array.isArray(place)) continue;
      const [first, size] = place as [number, number];
      if (first + size > most) throw new Error("a chart is cut off");
      curve[name] = new Float64Array(buffer, begin + first * 8, size);
    }
    return curve as unknown as Curve;
  });
  return { x: head.x, width: head.width, agg: head.agg ?? null, series };
}

/**
 * A chart with what came since: `fresh` was asked for from the start of the last bucket on, with the same width. Null
 * when it does not fit (another width, another attempt): then the whole is to be asked for again.
 */
export function extended(known: ChartData, fresh: ChartData, from: number): ChartData | null {
  if (known.width !== fresh.width || known.x !== fresh.x || known.agg !== fresh.agg) return null;
  const series: Curve[] = known.series.map((curve) => cutBefore(curve, from));
  for (const curve of fresh.series) {
    const at = series.findIndex((other) => identity(other) === identity(curve));
    if (at < 0) {
      if (known.agg === null) return null;
      return null;
    }
    const old = series[at]!;
    if (!sameMembers(old, curve)) return null;
    series[at] = appended(old, curve);
  }
  return { ...known, series };
}

/**
 * A curve over ranks without the end that not all of them have reached: the newest steps are those of the fastest
 * ranks alone, and would look like a turn.
 */
export function settled(curve: Curve): Curve {
  const ranks = curve.curves;
  if (!ranks) return curve;
  let end = ranks.length;
  while (end > 1 && ranks[end - 1]! < ranks[end - 2]!) end -= 1;
  return end === ranks.length ? curve : mapped(curve, (column) => column.subarray(0, end));
}

/** How many points the buckets stand for. */
export function pointsOf(curve: Curve): number {
  let sum = 0;
  for (const count of curve.count) sum += count;
  return sum;
}

function identity(curve: Curve): string {
  return `${curve.kind}\u0000${curve.name}\u0000${curve.replica ?? ""}\u0000${curve.process ?? ""}\u0000${curve.attempt ?? ""}`;
}

function sameMembers(a: Curve, b: Curve): boolean {
  if (!a.members && !b.members) return true;
  const names = (curve: Curve) => (curve.members ?? []).map((m) => `${m.replica}:${m.process}:${m.attempt}`).join(" ");
  return names(a) === names(b);
}

function cutBefore(curve: Curve, from: number): Curve {
  let end = curve.start.length;
  while (end > 0 && curve.start[end - 1]! >= from) end -= 1;
  return mapped(curve, (column) => column.subarray(0, end));
}

function appended(old: Curve, fresh: Curve): Curve {
  return mapped(old, (column, name) => {
    const more = fresh[name] ?? new Float64Array(0);
    const joined = new Float64Array(column.length + more.length);
    joined.set(column);
    joined.set(more, column.length);
    return joined;
  });
}

function mapped(curve: Curve, make: (column: Float64Array, name: (typeof COLUMNS)[number]) => Float64Array): Curve {
  const made: Curve = { ...curve };
  for (const name of COLUMNS) {
    const column = curve[name];
    if (column) made[name] = make(column, name);
  }
  return made;
}
