/** Rank × time: a row for each rank, a column for each bucket. Straight on the canvas of uPlot. */

import { useComputedColorScheme } from "@mantine/core";
import { useMemo, useRef, useState } from "react";
import type uPlot from "uplot";
import { deviation, viridis } from "../look/colours";
import classes from "./charts.module.css";
import {
  deviations,
  filled,
  type Grid,
  gridOf,
  labelledRows,
  type Order,
  pixelsOf,
  rangeOf,
  table,
  type Value,
} from "./heat";
import { drawMarks, frameOptions, INK, type Mark, xWord } from "./options";
import { Plot } from "./Plot";
import type { ChartData } from "./packed";
import { TipBox } from "./TipBox";

const VIRIDIS = table(viridis);
const DEVIATION = table((part) => deviation(part * 2 - 1));

interface Props {
  chart: ChartData;
  name: string;
  say: (value: number) => string;
  /** Value, or distance from the median of the ranks. */
  deviating: boolean;
  order: Order;
  value?: Value;
  /** The rank that the others wait for. */
  slowest?: string | null;
  /** How long a value may hold until the next, as x counts it. */
  holds?: number;
  marks?: readonly (Mark & { replica?: string })[];
  syncKey: string;
  range: [number, number] | null;
  zoom: (from: number, until: number) => void;
  reset: () => void;
  pick?: (replica: string) => void;
  onPlot?: (plot: uPlot | null) => void;
}

export function HeatMap(props: Props) {
  const { chart, name, deviating, order, value = "mean", slowest, holds, say } = props;
  const scheme = useComputedColorScheme();
  const grid = useMemo(
    () => filled(gridOf(chart.series, chart.width, value, order), holds),
    [chart, value, order, holds],
  );
  const shown = useMemo(() => (deviating ? deviations(grid) : grid.values), [grid, deviating]);
  const extremes = useMemo<[number, number]>(() => {
    const range = rangeOf(shown) ?? [0, 1];
    if (!deviating) return range;
    const most = Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
    return [-most, most];
  }, [shown, deviating]);
  const image = useMemo(() => painted(grid, shown, extremes, deviating), [grid, shown, extremes, deviating]);
  const [hover, setHover] = useState<Hover | null>(null);
  const height = Math.min(560, Math.max(70, grid.rows.length * (grid.rows.length > 32 ? 8 : 16)) + 38);

  const newest = useRef({ ...props, grid, shown, image });
  newest.current = { ...props, grid, shown, image };
  const data = useMemo<uPlot.AlignedData>(() => {
    const last = grid.starts.at(-1);
    const ends = last === undefined ? [0, 1] : [grid.starts[0]!, last + grid.width];
    return [ends, [0, grid.rows.length]];
  }, [grid]);

  const options = (): Omit<uPlot.Options, "width" | "height"> => {
    const ink = INK[scheme];
    const frame = frameOptions({
      x: chart.x,
      scheme,
      logarithmic: false,
      syncKey: props.syncKey,
      say: String,
      range: () => newest.current.range,
      zoom: (from, until) => newest.current.zoom(from, until),
      reset: () => newest.current.reset(),
      moved: (plot) => setHover(hoverOf(plot, newest.current.grid)),
    });
    const rows = () => newest.current.grid.rows;
    return {
      ...frame,
      scales: { ...frame.scales, y: { range: () => [0, Math.max(1, rows().length)], dir: -1 } },
      axes: [
        { ...frame.axes![0]!, grid: { show: false } },
        {
          ...frame.axes![1]!,
          grid: { show: false },
          ticks: { show: false },
          size: () => 18 + 6.2 * Math.max(6, ...rows().map((row) => row.label.length)),
          splits: (plot) =>
            labelledRows(rows().length, plot.bbox.height / devicePixelRatio, 12).map((row) => row + 0.5),
          values: (_, splits) =>
            splits.map((place) => {
              const row = rows()[Math.floor(place)];
              return row ? (row.replica === newest.current.slowest ? `▸ ${row.label}` : row.label) : "";
            }),
          filter: (_, splits) => splits,
        },
      ],
      cursor: { ...frame.cursor, y: true, points: { show: false } },
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        ...frame.hooks,
        draw: [
          (plot) => {
            draw(plot, newest.current.grid, newest.current.image);
            const { marks = [], grid } = newest.current;
            drawMarks(
              plot,
              marks.filter((mark) => !mark.replica),
              ink.mark,
            );
            drawRowMarks(
              plot,
              marks.filter((mark) => mark.replica),
              grid,
            );
          },
        ],
        ready: [
          (plot) =>
            plot.over.addEventListener("click", () => {
              const found = hoverOf(plot, newest.current.grid);
              if (found && plot.select.width < 4) newest.current.pick?.(newest.current.grid.rows[found.row]!.replica);
            }),
        ],
      },
    };
  };

  const structure = `${scheme} ${chart.x} ${grid.rows.map((row) => row.label).join(" ")} ${slowest ?? ""}`;
  const words = `${name}: ${grid.rows.length} ranks over ${grid.starts.length} buckets, from ${say(extremes[0])} to ${say(extremes[1])}${deviating ? " away from the median" : ""}`;
  return (
    <div className={classes.heat}>
      <Plot
        options={options}
        structure={structure}
        data={useRedrawn(data, image)}
        height={height}
        label={words}
        onPlot={props.onPlot}
      />
      {hover && <HeatTip hover={hover} grid={grid} shown={shown} x={chart.x} say={say} deviating={deviating} />}
      <div className={classes.legend} aria-hidden>
        {extremes[0] === extremes[1] ? (
          <span>{`${say(extremes[0])} everywhere`}</span>
        ) : (
          <>
            <span>{deviating ? signed(extremes[0], say) : say(extremes[0])}</span>
            <span className={classes.ramp} style={{ background: ramp(deviating) }} />
            <span>{deviating ? signed(extremes[1], say) : say(extremes[1])}</span>
          </>
        )}
        <span className="dim">{deviating ? "from the median of all ranks" : ""}</span>
      </div>
    </div>
  );
}

interface Hover {
  row: number;
  column: number;
  left: number;
  top: number;
  right: boolean;
}

function HeatTip({
  hover,
  grid,
  shown,
  x,
  say,
  deviating,
}: {
  hover: Hover;
  grid: Grid;
  shown: Float64Array;
  x: string;
  say: (value: number) => string;
  deviating: boolean;
}) {
  const at = hover.row * grid.starts.length + hover.column;
  const value = grid.values[at]!;
  return (
    <TipBox place={hover}>
      <b>{grid.rows[hover.row]!.label}</b>
      <div className="dim">{xWord(x, grid.starts[hover.column]!)}</div>
      <div>{Number.isNaN(value) ? "nothing" : say(value)}</div>
      {deviating && !Number.isNaN(value) && <div className="dim">{signed(shown[at]!, say)} from the median</div>}
    </TipBox>
  );
}

function hoverOf(plot: uPlot, grid: Grid): Hover | null {
  const { left, top } = plot.cursor;
  if (left === undefined || top === undefined || left < 0 || top < 0 || grid.starts.length === 0) return null;
  if (!plot.over.matches(":hover")) return null; // the cursor of a chart beside
  const row = Math.floor(plot.posToVal(top, "y"));
  const column = Math.floor((plot.posToVal(left, "x") - grid.starts[0]!) / grid.width);
  if (!grid.rows[row] || column < 0 || column >= grid.starts.length) return null;
  const inset = plot.over.offsetLeft;
  const right = left > plot.over.clientWidth / 2;
  return {
    row,
    column,
    left: right ? plot.width - inset - left + 12 : inset + left + 12,
    top: Math.min(top + 12, plot.height - 90),
    right,
  };
}

/** One pixel a cell; the canvas makes it large. */
function painted(
  grid: Grid,
  shown: Float64Array,
  extremes: [number, number],
  deviating: boolean,
): HTMLCanvasElement | null {
  if (grid.starts.length === 0 || grid.rows.length === 0) return null;
  const canvas = document.createElement("canvas");
  canvas.width = grid.starts.length;
  canvas.height = grid.rows.length;
  const pixels = pixelsOf(shown, extremes, deviating ? DEVIATION : VIRIDIS);
  canvas.getContext("2d")!.putImageData(new ImageData(pixels, canvas.width, canvas.height), 0, 0);
  return canvas;
}

function draw(plot: uPlot, grid: Grid, image: HTMLCanvasElement | null): void {
  if (!image) return;
  const { ctx, bbox } = plot;
  const left = plot.valToPos(grid.starts[0]!, "x", true);
  const right = plot.valToPos(grid.starts.at(-1)! + grid.width, "x", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(image, left, bbox.top, right - left, bbox.height);
  const row = bbox.height / grid.rows.length;
  if (row > 10) {
    ctx.fillStyle = "rgba(128, 128, 128, 0.25)";
    for (let i = 1; i < grid.rows.length; i += 1) ctx.fillRect(bbox.left, bbox.top + i * row, bbox.width, 1);
  }
  ctx.restore();
}

/** A word in the row of one rank: where it ran out of memory. */
function drawRowMarks(plot: uPlot, marks: readonly (Mark & { replica?: string })[], grid: Grid): void {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  const height = bbox.height / Math.max(1, grid.rows.length);
  ctx.save();
  ctx.font = `bold ${10 * scale}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  for (const mark of marks) {
    const row = grid.rows.findIndex((one) => one.replica === mark.replica);
    const x = plot.valToPos(mark.x, "x", true);
    if (row < 0 || x < bbox.left) continue;
    const width = ctx.measureText(mark.word).width + 8 * scale;
    const left = Math.min(x, bbox.left + bbox.width - width);
    const middle = bbox.top + (row + 0.5) * height;
    ctx.fillStyle = "#b8420a";
    ctx.fillRect(left, middle - 7 * scale, width, 14 * scale);
    ctx.fillStyle = "#ffffff";
    ctx.fillText(mark.word, left + 4 * scale, middle);
  }
  ctx.restore();
}

/** uPlot draws again when its data is another: so it has to be when only colours are. */
function useRedrawn(data: uPlot.AlignedData, image: unknown): uPlot.AlignedData {
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new picture needs a new drawing
  return useMemo(() => [...data] as uPlot.AlignedData, [data, image]);
}

function ramp(deviating: boolean): string {
  const colours = Array.from({ length: 11 }, (_, i) => (deviating ? deviation(i / 5 - 1) : viridis(i / 10)));
  return `linear-gradient(to right, ${colours.join(", ")})`;
}

function signed(value: number, say: (value: number) => string): string {
  return value > 0 ? `+${say(value)}` : say(value);
}
