/** Curves of several experiments on one axis: a band for each, least to largest over its ranks, and its mean. Pure. */

import { bandOf, type Column, nearest, type Odd, smoothed } from "../charts/drawing";
import { type Curve, pointsOf } from "../charts/packed";

export interface Overlay {
  x: number[];
  /** least, largest, mean of each curve, one after the other. */
  columns: Column[];
  odd: Odd[];
}

/** Places that a curve does not have are null; lines go on over them. */
export function overlaid(curves: readonly (Curve | undefined)[], logarithmic: boolean, smooth: number): Overlay {
  const bands = curves.map((curve) => (curve ? bandOf(curve, logarithmic) : undefined));
  const x = [...new Set(bands.flatMap((band) => band?.x ?? []))].sort((a, b) => a - b);
  const place = new Map(x.map((value, at) => [value, at]));
  const spread = (xs: readonly number[], column: Column): Column => {
    const wide: Column = new Array(x.length).fill(null);
    column.forEach((value, at) => {
      wide[place.get(xs[at]!)!] = value;
    });
    return wide;
  };
  const columns = bands.flatMap((band) =>
    band
      ? [spread(band.x, band.min), spread(band.x, band.max), spread(band.x, smoothed(band.mean, smooth))]
      : [0, 1, 2].map((): Column => new Array(x.length).fill(null)),
  );
  return { x, columns, odd: bands.flatMap((band) => band?.odd ?? []) };
}

export interface Hover {
  least: number;
  mean: number;
  largest: number;
  ranks: number;
}

/** What a curve says nearest to an x; null when the x is not between its ends. */
export function hovered(curve: Curve | undefined, x: number): Hover | null {
  if (!curve || curve.start.length === 0) return null;
  if (x < curve.x_first[0]! || x > curve.x_last.at(-1)!) return null;
  const xs = Array.from(curve.start, (_, at) => (curve.x_first[at]! + curve.x_last[at]!) / 2);
  const at = nearest(xs, x);
  return {
    least: curve.min?.[at] ?? Number.NaN,
    mean: curve.mean?.[at] ?? Number.NaN,
    largest: curve.max?.[at] ?? Number.NaN,
    ranks: curve.curves?.[at] ?? 1,
  };
}

/** One point at each place: then a line says all, and a band would be nothing. */
export function isLine(curve: Curve | undefined): boolean {
  return !curve || ((curve.members?.length ?? 1) <= 1 && pointsOf(curve) <= curve.start.length);
}

/** Experiments of the same name are told apart by their ids. */
export function labels(all: readonly { id: string; name: string | null }[]): Map<string, string> {
  const names = all.map((one) => one.name ?? one.id);
  return new Map(
    all.map((one, at) => {
      const name = names[at]!;
      return [one.id, names.filter((other) => other === name).length > 1 ? `${name} ${one.id}` : name];
    }),
  );
}

/** Seven colours; then the same with dashes. */
export function dashOf(place: number): number[] {
  return [[], [7, 4], [2, 3]][Math.floor(place / 7) % 3]!;
}
