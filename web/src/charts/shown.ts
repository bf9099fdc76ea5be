/** What all charts of a page share, and where a tooltip stands. */

import type uPlot from "uplot";
import type { Mark } from "./options";
import type { Curve } from "./packed";

export type Mode = "band" | "lines" | "heat";

export interface Shown {
  id: string;
  over: boolean;
  replicas: string[];
  attempt: number | null;
  kind?: string;
  x: string;
  from: number | null;
  until: number | null;
  smooth: number;
  logarithmic: boolean;
  /** The 95th percentile of the ranks as a line of its own. */
  p95?: boolean;
  mode: Mode;
  deviating: boolean;
  byMean: boolean;
  pinned: string[];
  slowest: string | null;
  syncKey: string;
  zoom: (from: number, until: number) => void;
  reset: () => void;
  pin: (rank: string) => void;
}

/** What every kind of plot is given. */
export interface PlotProps {
  title: string;
  shown: Shown;
  height: number;
  marks: readonly Mark[];
  say: (value: number) => string;
  limit?: number;
  onPlot: (plot: uPlot | null) => void;
}

export interface Tip {
  index: number;
  left: number;
  top: number;
  right: boolean;
}

/** Beside the cursor, on the side with more room; null when it is not over this plot. */
export function tipOf(plot: uPlot): Tip | null {
  const { idx, left = -1, top = 0 } = plot.cursor;
  if (idx === null || idx === undefined || left < 0 || !plot.over.matches(":hover")) return null;
  const inset = plot.over.offsetLeft;
  const right = left > plot.over.clientWidth / 2;
  return {
    index: idx,
    left: right ? plot.width - inset - left + 14 : inset + left + 14,
    top: Math.max(0, top - 20),
    right,
  };
}

export function rangeOf(shown: Shown): [number, number] | null {
  return shown.from !== null && shown.until !== null ? [shown.from, shown.until] : null;
}

export function rankName(replica: string, process: number, curve: Curve): string {
  return curve.members?.some((member) => member.process > 0) ? `${replica}:${process}` : replica;
}
