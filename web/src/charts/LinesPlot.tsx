/** A line for each rank. */

import { useComputedColorScheme } from "@mantine/core";
import { useMemo } from "react";
import type uPlot from "uplot";
import { lineColour, roleDash } from "../look/colours";
import { several } from "../look/numbers";
import classes from "./charts.module.css";
import { linesOf, smoothed } from "./drawing";
import { useFrame } from "./frame";
import { xWord } from "./options";
import { Plot } from "./Plot";
import type { Curve } from "./packed";
import type { PlotProps, Shown, Tip } from "./shown";
import { TipBox } from "./TipBox";

export function LinesPlot(props: PlotProps & { curves: Curve[]; width: number }) {
  const { title, curves, width, shown, height, say, onPlot } = props;
  const lines = useMemo(() => linesOf(curves, width, shown.logarithmic), [curves, width, shown.logarithmic]);
  const { scheme, tip, frame, structure } = useFrame(props, lines.odd);
  const smooth = shown.smooth > 0;
  const few = lines.x.length <= 40;
  const data = useMemo<uPlot.AlignedData>(
    () => [lines.x, ...lines.y, ...(smooth ? lines.y.map((column) => smoothed(column, shown.smooth)) : [])],
    [lines, smooth, shown.smooth],
  );
  const options = (): Omit<uPlot.Options, "width" | "height"> => {
    const style = (curve: Curve, i: number, faded: boolean) => ({
      stroke: `${lineColour(curve.rank ?? i, scheme)}${faded ? "50" : ""}`,
      dash: roleDash(curve.replica?.split("-")[0] ?? ""),
      width: faded ? 1 : 1.5,
      spanGaps: true,
      points: { show: !faded && few, size: 4 },
    });
    return {
      ...frame(),
      series: [
        {},
        ...curves.map((curve, i) => style(curve, i, smooth)),
        ...(smooth ? curves.map((curve, i) => style(curve, i, false)) : []),
      ],
    };
  };
  const words = `${title}: ${several(curves.length, "line")}. ${curves.map((curve) => `${curve.replica} last ${say(curve.last?.at(-1) ?? Number.NaN)}`).join(", ")}`;
  return (
    <div className={classes.plot}>
      <Plot
        options={options}
        structure={[...structure, few, ...curves.map((one) => `${one.replica}:${one.process}`)].join(" ")}
        data={data}
        height={height}
        label={words}
        onPlot={onPlot}
      />
      {tip && <LinesTip tip={tip} curves={curves} lines={data} shown={shown} say={say} />}
    </div>
  );
}

function LinesTip({
  tip,
  curves,
  lines,
  shown,
  say,
}: {
  tip: Tip;
  curves: Curve[];
  lines: uPlot.AlignedData;
  shown: Shown;
  say: (value: number) => string;
}) {
  const scheme = useComputedColorScheme();
  const rows = curves
    .map((curve, i) => ({ curve, value: lines[i + 1]?.[tip.index] ?? null }))
    .filter((row): row is { curve: Curve; value: number } => row.value !== null)
    .sort((a, b) => b.value - a.value);
  const most = 8;
  const shownRows = rows.length > most ? [...rows.slice(0, most / 2), ...rows.slice(-most / 2)] : rows;
  return (
    <TipBox place={tip}>
      <div className="dim">{xWord(shown.x, lines[0]![tip.index] ?? 0)}</div>
      <table className={classes.tiptable}>
        <tbody>
          {shownRows.map(({ curve, value }) => (
            <tr key={`${curve.replica}:${curve.process}`}>
              <td style={{ color: lineColour(curve.rank ?? 0, scheme) }}>━</td>
              <td>{curve.replica}</td>
              <td className="number">{say(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > most && <div className="dim">{`largest and least of ${rows.length}`}</div>}
    </TipBox>
  );
}
