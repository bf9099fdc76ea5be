/** From curves in buckets to the columns that uPlot draws. Pure. */

import type { Curve } from "./packed";

/** uPlot draws nothing at null. */
export type Column = (number | null)[];

export interface Band {
  x: number[];
  min: Column;
  max: Column;
  mean: Column;
  p95: Column;
  /** Places of `x` where some value is no number, or infinite. */
  odd: Odd[];
}

/** Something that no line can show. */
export interface Odd {
  x: number;
  what: "NaN" | "∞" | "−∞";
}

/** Where a bucket is drawn: at its points, not at its edge; a bucket of one x is exactly there. */
export function bucketX(curve: Curve, index: number): number {
  return (curve.x_first[index]! + curve.x_last[index]!) / 2;
}

/** An aggregated curve as a band: least, largest, mean. */
export function bandOf(curve: Curve, logarithmic = false): Band {
  const size = curve.start.length;
  const x = Array.from({ length: size }, (_, i) => bucketX(curve, i));
  const shown = (column: Float64Array | undefined): Column =>
    Array.from({ length: size }, (_, i) => drawable(column?.[i], logarithmic));
  return {
    x,
    min: shown(curve.min),
    max: shown(curve.max),
    mean: shown(curve.mean),
    p95: shown(curve.p95),
    odd: oddOf(curve),
  };
}

/** Values that are no number or infinite, one mark for each bucket that has any. */
export function oddOf(curve: Curve): Odd[] {
  const found: Odd[] = [];
  for (let i = 0; i < curve.start.length; i += 1) {
    const low = curve.min?.[i];
    const high = curve.max?.[i];
    const missing = curve.finite ? curve.count[i]! - curve.finite[i]! : 0;
    const x = bucketX(curve, i);
    let infinite = 0;
    if (high === Number.POSITIVE_INFINITY) {
      found.push({ x, what: "∞" });
      infinite += 1;
    }
    if (low === Number.NEGATIVE_INFINITY) {
      found.push({ x, what: "−∞" });
      infinite += 1;
    }
    if ((low !== undefined && Number.isNaN(low)) || missing > infinite) {
      if (missing > infinite || infinite === 0) found.push({ x, what: "NaN" });
    }
  }
  return found;
}

export interface Lines {
  x: number[];
  /** One column for each curve. */
  y: Column[];
  odd: Odd[];
}

/**
 * Several curves of one width on one x. Where a bucket has several points it takes two places, in the order in which
 * minimum and maximum came: no spike is lost, and curves stay comparable.
 */
export function linesOf(curves: readonly Curve[], width: number, logarithmic = false): Lines {
  const starts = unionOf(curves.map((curve) => curve.start));
  const single = curves.every((curve) => curve.count.every((count) => count <= 1));
  const per = single ? 1 : 2;
  const place = new Map<number, number>();
  starts.forEach((start, i) => {
    place.set(start, i);
  });
  const x = new Array<number>(starts.length * per);
  starts.forEach((start, i) => {
    if (single) x[i] = start;
    else {
      x[2 * i] = start + width / 4;
      x[2 * i + 1] = start + (3 * width) / 4;
    }
  });
  if (single)
    for (const curve of curves)
      curve.start.forEach((start, i) => {
        x[place.get(start)!] = curve.x_first[i]!;
      });
  const y = curves.map((curve) => {
    const column: Column = new Array(x.length).fill(null);
    curve.start.forEach((start, i) => {
      const at = place.get(start)! * per;
      const low = drawable(curve.min?.[i], logarithmic);
      const high = drawable(curve.max?.[i], logarithmic);
      if (single) column[at] = high;
      else {
        const rising = (curve.min_x?.[i] ?? 0) <= (curve.max_x?.[i] ?? 0);
        column[at] = rising ? low : high;
        column[at + 1] = rising ? high : low;
      }
    });
    return column;
  });
  return { x, y, odd: curves.flatMap(oddOf) };
}

/** The mean of one curve on the x of another chart's buckets, by the starts of the buckets. */
export function alignedTo(starts: Float64Array, curve: Curve, logarithmic = false): Column {
  const found: Column = new Array(starts.length).fill(null);
  let j = 0;
  for (let i = 0; i < starts.length; i += 1) {
    while (j < curve.start.length && curve.start[j]! < starts[i]!) j += 1;
    if (curve.start[j] === starts[i]) found[i] = drawable(curve.mean?.[j], logarithmic);
  }
  return found;
}

/** An exponential moving average that is right from its first value on; what is missing stays missing. */
export function smoothed(column: Column, weight: number): Column {
  if (weight <= 0) return column;
  let sum = 0;
  let norm = 0;
  return column.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

/** The index of the x that is nearest; -1 for nothing. */
export function nearest(x: ArrayLike<number>, wanted: number): number {
  if (x.length === 0) return -1;
  let low = 0;
  let high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle]! < wanted) low = middle;
    else high = middle;
  }
  return wanted - x[low]! <= x[high]! - wanted ? low : high;
}

/** Least and largest finite values of columns; null when there are none. */
export function extentOf(columns: readonly Column[]): [number, number] | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const column of columns)
    for (const value of column) {
      if (value === null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return low <= high ? [low, high] : null;
}

/** About how many buckets a width in pixels can show; steps of 2^k, so that a resize rarely asks again. */
export function bucketsFor(pixels: number): number {
  const wanted = Math.max(64, Math.min(2048, pixels));
  return 2 ** Math.round(Math.log2(wanted));
}

/** The least power of two of which at most `most` cover low to high: what the server takes, too. */
export function widthFor(low: number, high: number, most: number, smallest = 0): number {
  const spread = (high - low) / Math.max(2, most);
  let width = spread > 0 ? 2 ** Math.ceil(Math.log2(spread)) : smallest || 1;
  if (width < smallest) width = smallest;
  while (Math.floor(high / width) - Math.floor(low / width) >= Math.max(2, most)) width *= 2;
  return width;
}

/** What a screen reader is told of a chart. */
export function described(name: string, curve: Curve | undefined, say: (value: number) => string): string {
  if (!curve || curve.start.length === 0) return `${name}: no points.`;
  const size = curve.start.length;
  const { min, max } = bandOf(curve);
  const extent = extentOf([min, max]);
  const ranks = curve.members?.length ?? 1;
  const last = curve.mean?.[size - 1] ?? Number.NaN;
  const parts = [
    `${name} of ${ranks === 1 ? "one rank" : `${ranks} ranks`}, from ${say(curve.x_first[0]!)} to ${say(curve.x_last[size - 1]!)}`,
    extent ? `least ${say(extent[0])}, largest ${say(extent[1])}` : "no finite value",
    `last mean ${say(last)}`,
  ];
  const odd = oddOf(curve).length;
  if (odd) parts.push(`${odd} ${odd === 1 ? "bucket has" : "buckets have"} values that are no finite numbers`);
  return `${parts.join("; ")}.`;
}

function unionOf(columns: readonly Float64Array[]): number[] {
  if (columns.length === 1) return Array.from(columns[0]!);
  const all = new Set<number>();
  for (const column of columns) for (const value of column) all.add(value);
  return [...all].sort((a, b) => a - b);
}

function drawable(value: number | undefined, logarithmic: boolean): number | null {
  if (value === undefined || !Number.isFinite(value)) return null;
  return logarithmic && value <= 0 ? null : value;
}
