/** The grid behind a rank × time heat map. Pure. */

import type { Curve } from "./packed";

export type Order = "rank" | "mean";
export type Value = "mean" | "min" | "max";

/** Rows are ranks, columns are buckets; NaN where a rank has no points. */
export interface Grid {
  rows: { label: string; replica: string; process: number; rank: number; mean: number }[];
  starts: number[];
  width: number;
  values: Float64Array;
}

export function gridOf(curves: readonly Curve[], width: number, value: Value = "mean", order: Order = "rank"): Grid {
  const starts = columnsOf(curves, width);
  const place = new Map(starts.map((start, i) => [start, i]));
  const several = curves.some((curve) => (curve.process ?? 0) > 0);
  const rows = curves.map((curve) => {
    const numbers = Array.from(curve[value] ?? []).filter(Number.isFinite);
    return {
      curve,
      label: several ? `${curve.replica}:${curve.process}` : `${curve.replica}`,
      replica: curve.replica ?? "",
      process: curve.process ?? 0,
      rank: curve.rank ?? 0,
      mean: numbers.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : Number.NaN,
    };
  });
  rows.sort((a, b) =>
    order === "mean" ? (b.mean || 0) - (a.mean || 0) || a.rank - b.rank : a.rank - b.rank || a.process - b.process,
  );
  const values = new Float64Array(rows.length * starts.length).fill(Number.NaN);
  rows.forEach(({ curve }, row) => {
    curve.start.forEach((start, i) => {
      values[row * starts.length + place.get(start)!] = curve[value]?.[i] ?? Number.NaN;
    });
  });
  return { rows: rows.map(({ curve: _, ...row }) => row), starts, width, values };
}

/**
 * A value holds until the next one: a rank that is sampled every second has no holes between. At most twice as long as
 * is usual, for the row or around there: samples become rarer in a long run. `holds` is how long that may be anyway, as
 * x counts it.
 */
export function filled(grid: Grid, holds = 0): Grid {
  const columns = grid.starts.length;
  const least = Math.ceil(holds / grid.width);
  const values = grid.values.slice();
  for (let row = 0; row < grid.rows.length; row += 1) {
    const at: number[] = [];
    for (let i = 0; i < columns; i += 1) if (!Number.isNaN(grid.values[row * columns + i]!)) at.push(i);
    const gaps = at.slice(1).map((place, i) => place - at[i]!);
    const usual = median(gaps) || 1;
    at.forEach((place, i) => {
      const around = Math.max(usual, gaps[i - 1] ?? 0, gaps[i + 1] ?? 0);
      const end = Math.min(at[i + 1] ?? columns, place + Math.max(least, Math.ceil(around * 2)));
      values.fill(grid.values[row * columns + place]!, row * columns + place, row * columns + end);
    });
  }
  return { ...grid, values };
}

/** Each cell as its distance from the median of its column: who differs from the others, and when. */
export function deviations(grid: Grid): Float64Array {
  const columns = grid.starts.length;
  const found = new Float64Array(grid.values.length).fill(Number.NaN);
  for (let column = 0; column < columns; column += 1) {
    const present: number[] = [];
    for (let row = 0; row < grid.rows.length; row += 1) {
      const value = grid.values[row * columns + column]!;
      if (Number.isFinite(value)) present.push(value);
    }
    const middle = median(present);
    for (let row = 0; row < grid.rows.length; row += 1) {
      const at = row * columns + column;
      found[at] = grid.values[at]! - middle;
    }
  }
  return found;
}

export function median(values: readonly number[]): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

/** Least and largest of what is finite. */
export function rangeOf(values: Float64Array): [number, number] | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** One pixel a cell, RGBA, transparent where there is nothing. `colours` has 256 entries, low to high. */
export function pixelsOf(
  values: Float64Array,
  [low, high]: readonly [number, number],
  colours: readonly (readonly [number, number, number])[],
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(values.length * 4);
  const spread = high - low;
  values.forEach((value, i) => {
    if (Number.isNaN(value)) return;
    const part = spread > 0 ? (value - low) / spread : 0;
    const colour = colours[Math.round(Math.min(1, Math.max(0, part)) * (colours.length - 1))]!;
    pixels.set(colour, i * 4);
    pixels[i * 4 + 3] = 255;
  });
  return pixels;
}

/** The 256 colours of a scale, from `rgb(1, 2, 3)` strings. */
export function table(colour: (fraction: number) => string): [number, number, number][] {
  return Array.from({ length: 256 }, (_, i) => {
    const numbers = colour(i / 255)
      .match(/\d+/g)!
      .map(Number);
    return [numbers[0]!, numbers[1]!, numbers[2]!];
  });
}

/** Every n-th row has a label when there is no room for all. */
export function labelledRows(count: number, pixels: number, least = 13): number[] {
  const every = Math.max(1, Math.ceil((count * least) / Math.max(1, pixels)));
  return Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every);
}

const MOST_COLUMNS = 20_000;

/** All buckets from the first to the last, also the empty ones: the picture has one pixel for each. */
function columnsOf(curves: readonly Curve[], width: number): number[] {
  const all = [...new Set(curves.flatMap((curve) => Array.from(curve.start)))].sort((a, b) => a - b);
  if (all.length === 0) return [];
  const count = Math.round((all.at(-1)! - all[0]!) / width) + 1;
  if (count > MOST_COLUMNS) return all;
  return Array.from({ length: count }, (_, i) => all[0]! + i * width);
}
