/** What each version was worth: a metric over the versions of a model. */

import { useComputedColorScheme } from "@mantine/core";
import { useMemo, useRef } from "react";
import type uPlot from "uplot";
import { INK, tick } from "../charts/options";
import { Plot } from "../charts/Plot";
import { lineColour } from "../look/colours";
import { overVersions, saidOver, type Version, versionTicks } from "./versions";

interface Props {
  versions: readonly Version[];
  metric: string;
  /** The version that is looked at: a line. */
  shown: number;
  onVersion: (version: number) => void;
}

export function VersionChart({ versions, metric, shown, onVersion }: Props) {
  const scheme = useComputedColorScheme();
  const data = useMemo(() => overVersions(versions, metric), [versions, metric]);
  const newest = useRef({ data, shown, onVersion });
  newest.current = { data, shown, onVersion };
  const options = (): Omit<uPlot.Options, "width" | "height"> => {
    const ink = INK[scheme];
    const axis: uPlot.Axis = {
      stroke: ink.text,
      font: "11px system-ui, sans-serif",
      grid: { stroke: ink.grid, width: 1 },
      ticks: { stroke: ink.grid, width: 1, size: 4 },
    };
    const colour = lineColour(0, scheme);
    return {
      legend: { show: false },
      padding: [10, 16, 0, 0],
      scales: {
        x: {
          time: false,
          range: () => {
            const known = newest.current.data[0];
            return [(known[0] ?? 1) - 0.5, (known.at(-1) ?? 1) + 0.5];
          },
        },
      },
      axes: [
        {
          ...axis,
          size: 28,
          incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
          splits: (_plot, _axis, _low, _high, apart) => {
            const known = newest.current.data[0];
            return versionTicks(known[0] ?? 1, known.at(-1) ?? 1, apart);
          },
          values: (_, splits) => splits.map((value) => `v${value}`),
        },
        { ...axis, size: 64, values: (_, splits) => splits.map(tick) },
      ],
      series: [
        {},
        {
          label: metric,
          stroke: colour,
          width: 1.5,
          spanGaps: true,
          points: { show: true, size: 7, fill: ink.surface, stroke: colour, width: 2 },
        },
      ],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 10, fill: colour } },
      hooks: {
        ready: [
          (plot) =>
            plot.over.addEventListener("click", () => {
              const place = plot.cursor.idx;
              const version = place == null ? undefined : newest.current.data[0][place];
              if (version !== undefined) newest.current.onVersion(version);
            }),
        ],
        draw: [
          (plot) => {
            const x = plot.valToPos(newest.current.shown, "x", true);
            const { ctx, bbox } = plot;
            ctx.save();
            ctx.strokeStyle = ink.text;
            ctx.lineWidth = devicePixelRatio;
            ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
            ctx.restore();
          },
        ],
      },
    };
  };
  return (
    <Plot
      options={options}
      structure={`${metric} ${scheme} ${shown}`}
      data={data as uPlot.AlignedData}
      height={200}
      label={saidOver(metric, data)}
    />
  );
}
