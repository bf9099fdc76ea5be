/** Options of uPlot, made of what a chart shows. Pure: they hold no data. */

import type uPlot from "uplot";
import type { Scheme } from "../look/colours";
import { number } from "../look/numbers";
import { clock, duration, stamp } from "../look/times";
import type { Odd } from "./drawing";

/** Colours of what surrounds curves. */
export interface Ink {
  text: string;
  grid: string;
  surface: string;
  mark: string;
}

export const INK: Record<Scheme, Ink> = {
  light: { text: "#5f636b", grid: "#eceef0", surface: "#ffffff", mark: "#8a3b9c" },
  dark: { text: "#9a9da4", grid: "#2b2e33", surface: "#1a1b1e", mark: "#d59be0" },
};

const TWO_LINES = 44; // of the axis of time, whose first tick has its day below
const FONT = "11px system-ui, sans-serif";

/** A value of the x axis in words: `step 1200`, `2m 5s`, `14:03:22`. */
export function xWord(x: string, value: number): string {
  if (x === "step") return `step ${number(Math.round(value))}`;
  if (x === "relative") return duration(value);
  if (x === "time") return stamp(value);
  return `${x} ${number(value)}`;
}

/** Splits of the axis, written as short as they can be. */
export function xTicks(x: string, splits: readonly number[]): string[] {
  if (x === "relative") return splits.map((value) => (value < 0 ? `−${brief(-value)}` : brief(value)));
  if (x === "time") {
    const day = (value: number) => stamp(value).slice(5, 10);
    return splits.map((value, i) =>
      i === 0 || day(value) !== day(splits[i - 1]!) ? `${clock(value)}\n${day(value)}` : clock(value),
    );
  }
  return splits.map((value) => short(value));
}

/** Numbers of the y axis: no more digits than tell them apart. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e5)) return size >= 1e5 ? short(value) : number(value);
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

/** `1.2k`, `3M`: steps are many. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e15) return number(value);
  if (size >= 1e12) return `${trim(value / 1e12)}T`;
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  return number(Number(value.toPrecision(6)));
}

export interface Frame {
  x: string;
  scheme: Scheme;
  logarithmic: boolean;
  syncKey: string;
  /** How values of y are written. */
  say: (value: number) => string;
  /** What is looked at, when it is not everything. */
  range: () => [number, number] | null;
  zoom: (from: number, until: number) => void;
  reset: () => void;
  moved: (plot: uPlot) => void;
  drawn?: (plot: uPlot) => void;
}

/** What all charts share: axes, cursor, brush. */
export function frameOptions(frame: Frame): Omit<uPlot.Options, "width" | "height" | "series"> {
  const ink = INK[frame.scheme];
  const axis: uPlot.Axis = {
    stroke: ink.text,
    font: FONT,
    grid: { stroke: ink.grid, width: 1 },
    ticks: { stroke: ink.grid, width: 1, size: 4 },
    border: { show: false },
  };
  return {
    legend: { show: false },
    padding: [8, frame.x === "step" ? 12 : 24, 0, 0], // half of the last word of the axis
    scales: {
      x: {
        time: false,
        range: (_, low, high) => frame.range() ?? padded(low, high),
      },
      y: frame.logarithmic
        ? { distr: 3 }
        : { range: (_, low, high) => (low === null || high === null ? [0, 1] : roomy(low, high)) },
    },
    axes: [
      {
        ...axis,
        size: frame.x === "time" ? TWO_LINES : 30,
        space: frame.x === "time" ? 80 : 60,
        values: (_, splits) => xTicks(frame.x, splits),
      },
      {
        ...axis,
        size: (_, values) => Math.max(44, 14 + 6.4 * Math.max(0, ...(values ?? []).map((value) => value?.length ?? 0))),
        values: (_, splits) =>
          splits.map((value) => (value === null ? "" : frame.say === number ? tick(value) : frame.say(value))),
      },
    ],
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false, dist: 4 },
      sync: {
        key: frame.syncKey,
        setSeries: false,
        scales: ["x", null],
        filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
      },
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          frame.reset();
          return null;
        },
      },
    },
    hooks: {
      setCursor: [frame.moved],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          frame.zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      draw: frame.drawn ? [frame.drawn] : [],
    },
  };
}

/** Vertical lines with a word: attempts, moments. */
export interface Mark {
  x: number;
  word: string;
}

/** One mark for each place where attempts began: attempts that began at the same one share it. */
export function attemptMarks(starts: Iterable<readonly [attempt: number, x: number]>): Mark[] {
  const places = new Map<number, number[]>();
  for (const [attempt, x] of [...starts].sort(([a], [b]) => a - b)) places.set(x, [...(places.get(x) ?? []), attempt]);
  return [...places].map(([x, attempts]) => ({
    x,
    word: attempts.length > 1 ? `attempts ${attempts[0]}–${attempts.at(-1)}` : `attempt ${attempts[0]}`,
  }));
}

export interface Label {
  /** Where it begins, or ends when there is no room at the right. */
  x: number;
  align: "left" | "right";
  /** The line of text it stands in; null when there is no room for it. */
  row: number | null;
}

const ROWS = 3;

/** Where the words of marks stand: beside their lines, within the chart, and none over another. */
export function labelsOf(
  marks: readonly { at: number; width: number }[],
  right: number,
  gap: number,
): (Label & { index: number })[] {
  const taken: [number, number][][] = Array.from({ length: ROWS }, () => []);
  const order = marks.map((_, index) => index).sort((a, b) => marks[a]!.at - marks[b]!.at);
  return order.map((index) => {
    const { at, width } = marks[index]!;
    const fits = at + gap + width <= right;
    const [from, to] = fits ? [at + gap, at + gap + width] : [at - gap - width, at - gap];
    const row = taken.findIndex((row) => row.every(([low, high]) => to + gap <= low || high + gap <= from));
    taken[row]?.push([from, to]);
    return { index, x: fits ? from : to, align: fits ? "left" : "right", row: row < 0 ? null : row };
  });
}

export function drawMarks(plot: uPlot, marks: readonly Mark[], colour: string): void {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = scale;
  ctx.setLineDash([4 * scale, 3 * scale]);
  ctx.font = `${10 * scale}px system-ui, sans-serif`;
  ctx.textBaseline = "top";
  const seen = marks
    .map((mark) => ({ word: mark.word, at: plot.valToPos(mark.x, "x", true), width: ctx.measureText(mark.word).width }))
    .filter(({ at }) => at >= bbox.left && at <= right);
  for (const { at } of seen) {
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  for (const { index, x, align, row } of labelsOf(seen, right, 3 * scale)) {
    if (row === null) continue;
    ctx.textAlign = align; // uPlot leaves that of its axis
    ctx.fillText(seen[index]!.word, x, bbox.top + (1 + 12 * row) * scale);
  }
  ctx.restore();
}

/** A line across the chart, where it is in sight: what may not be passed. */
export function drawLimit(plot: uPlot, value: number, word: string, colour: string): void {
  const { ctx, bbox } = plot;
  const y = plot.valToPos(value, "y", true);
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  const scale = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = scale;
  ctx.setLineDash([6 * scale, 4 * scale]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `${10 * scale}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "top";
  ctx.fillText(`limit ${word}`, bbox.left + bbox.width - 4 * scale, y + 2 * scale);
  ctx.restore();
}

/** Values that no line can show stand at the edge of the chart: ∞ above, NaN and −∞ below. */
export function drawOdd(plot: uPlot, odd: readonly Odd[], colour: string): void {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  ctx.save();
  ctx.fillStyle = colour;
  ctx.font = `bold ${9 * scale}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  const free = { above: Number.NEGATIVE_INFINITY, below: Number.NEGATIVE_INFINITY };
  for (const { x, what } of odd) {
    const place = plot.valToPos(x, "x", true);
    if (place < bbox.left || place > bbox.left + bbox.width) continue;
    const above = what === "∞";
    const side = above ? "above" : "below";
    const edge = above ? bbox.top : bbox.top + bbox.height;
    const to = above ? 6 * scale : -6 * scale;
    ctx.beginPath();
    ctx.moveTo(place - 4 * scale, edge);
    ctx.lineTo(place + 4 * scale, edge);
    ctx.lineTo(place, edge + to);
    ctx.fill();
    if (place < free[side]) continue;
    ctx.textBaseline = above ? "top" : "bottom";
    ctx.fillText(what, place, edge + to * 1.3);
    free[side] = place + 26 * scale;
  }
  ctx.restore();
}

function brief(seconds: number): string {
  return duration(seconds).replace(/\.0s$/, "s");
}

function padded(low: number, high: number): [number, number] {
  if (low === null || high === null) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function roomy(low: number, high: number): [number, number] {
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    return [low - room, high + room];
  }
  const room = (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function trim(value: number): string {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}
