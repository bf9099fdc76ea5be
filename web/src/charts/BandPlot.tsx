/** All ranks as one band: least to largest, the mean as a line, pinned ranks on top. */

import { useMemo, useRef } from "react";
import type uPlot from "uplot";
import { lineColour, roleDash } from "../look/colours";
import { several } from "../look/numbers";
import classes from "./charts.module.css";
import { alignedTo, bandOf, type Column, described, smoothed } from "./drawing";
import { useFrame } from "./frame";
import { xWord } from "./options";
import { Plot } from "./Plot";
import type { Curve } from "./packed";
import { type PlotProps, rankName, type Shown, type Tip } from "./shown";
import { TipBox } from "./TipBox";

export function BandPlot(props: PlotProps & { curve: Curve; pins: Curve[] }) {
  const { title, curve, pins, shown, height, say, onPlot } = props;
  const band = useMemo(() => bandOf(curve, shown.logarithmic), [curve, shown.logarithmic]);
  const { scheme, tip, frame, structure } = useFrame(props, band.odd);
  const pinned = useMemo(
    () => pins.map((one) => alignedTo(curve.start, one, shown.logarithmic)),
    [pins, curve, shown.logarithmic],
  );
  const smooth = shown.smooth > 0;
  const p95 = shown.p95 === true && (curve.members?.length ?? 1) > 1;
  const data = useMemo<uPlot.AlignedData>(
    () => [
      band.x,
      band.min,
      band.max,
      band.mean,
      ...(smooth ? [smoothed(band.mean, shown.smooth)] : []),
      ...pinned.map((column) => smoothed(column, shown.smooth)),
      ...(p95 ? [band.p95] : []),
    ],
    [band, pinned, smooth, p95, shown.smooth],
  );
  const newest = useRef({ curve, shown });
  newest.current = { curve, shown };
  const single = (curve.members?.length ?? 1) === 1 && curve.count.every((points) => points <= 1);
  const colour = lineColour(0, scheme);
  const few = band.x.length <= 40;

  const options = (): Omit<uPlot.Options, "width" | "height"> => {
    const shared = frame();
    const edge = { stroke: single ? "transparent" : `${colour}48`, width: 1, points: { show: false } };
    return {
      ...shared,
      bands: [{ series: [2, 1], fill: `${colour}${scheme === "dark" ? "44" : "30"}` }],
      series: [
        {},
        edge,
        { ...edge },
        {
          stroke: smooth ? `${colour}80` : colour,
          width: smooth ? 1 : 1.75,
          points: { show: few && !smooth, size: 4, fill: colour },
        },
        ...(smooth ? [{ stroke: colour, width: 2, points: { show: false } }] : []),
        ...pins.map((one, i) => ({
          stroke: lineColour(i + 1, scheme),
          dash: roleDash(one.replica?.split("-")[0] ?? ""),
          width: 1.5,
          spanGaps: true,
          points: { show: false },
        })),
        ...(p95 ? [{ stroke: colour, width: 1, dash: [5, 4], points: { show: false } }] : []),
      ],
      hooks: { ...shared.hooks, ready: [(plot) => plot.over.addEventListener("click", () => clicked(plot))] },
    };
  };
  /** A click pins the rank whose extreme is nearest. */
  const clicked = (plot: uPlot) => {
    const { idx, top = 0 } = plot.cursor;
    const { curve, shown } = newest.current;
    if (idx === null || idx === undefined || plot.select.width >= 4) return;
    const value = plot.posToVal(top, "y");
    const low = curve.min?.[idx] ?? Number.NaN;
    const high = curve.max?.[idx] ?? Number.NaN;
    const which = Math.abs(high - value) <= Math.abs(value - low) ? curve.max_of : curve.min_of;
    const member = curve.members?.[which?.[idx] ?? -1];
    if (member) shown.pin(rankName(member.replica, member.process, curve));
  };

  return (
    <div className={classes.plot}>
      <Plot
        options={options}
        structure={[...structure, single, few, p95, ...pins.map((one) => one.replica)].join(" ")}
        data={data}
        height={height}
        label={described(title, curve, say)}
        onPlot={onPlot}
      />
      {pins.length > 0 && (
        <div className={classes.pins}>
          {pins.map((one, i) => (
            <span key={`${one.replica}:${one.process}`} style={{ color: lineColour(i + 1, scheme) }}>
              ━ <span className={classes.pinword}>{one.replica}</span>
            </span>
          ))}
        </div>
      )}
      {tip && (
        <BandTip
          tip={tip}
          curve={curve}
          pins={pins}
          shown={shown}
          say={say}
          smooth={smooth ? (data[4] as Column) : null}
        />
      )}
    </div>
  );
}

function BandTip({
  tip,
  curve,
  pins,
  shown,
  say,
  smooth,
}: {
  tip: Tip;
  curve: Curve;
  pins: Curve[];
  shown: Shown;
  say: (value: number) => string;
  smooth: Column | null;
}) {
  const i = tip.index;
  if (i >= curve.start.length) return null;
  const who = (of: Float64Array | undefined) => {
    const member = curve.members?.[of?.[i] ?? -1];
    return member ? rankName(member.replica, member.process, curve) : "";
  };
  const many = (curve.members?.length ?? 1) > 1;
  const wide = curve.x_last[i]! > curve.x_first[i]!;
  return (
    <TipBox place={tip}>
      <div className="dim">
        {xWord(shown.x, curve.x_first[i]!)}
        {wide && ` – ${xWord(shown.x, curve.x_last[i]!).replace("step ", "")}`}
      </div>
      <table className={classes.tiptable}>
        <tbody>
          <TipRow word="max" value={say(curve.max?.[i] ?? Number.NaN)} who={many ? who(curve.max_of) : ""} />
          {many && <TipRow word="p95" value={say(curve.p95?.[i] ?? Number.NaN)} who="" />}
          <TipRow
            word="mean"
            value={say(curve.mean?.[i] ?? Number.NaN)}
            who={many ? several(curve.curves?.[i] ?? 0, "rank") : ""}
          />
          {smooth && <TipRow word="smoothed" value={say(smooth[i] ?? Number.NaN)} who="" />}
          <TipRow word="min" value={say(curve.min?.[i] ?? Number.NaN)} who={many ? who(curve.min_of) : ""} />
          {pins.map((one) => {
            const at = one.start.indexOf(curve.start[i]!);
            return (
              <TipRow
                key={one.replica}
                word={one.replica ?? ""}
                value={at < 0 ? "–" : say(one.mean?.[at] ?? Number.NaN)}
                who="pinned"
              />
            );
          })}
        </tbody>
      </table>
      {(curve.finite?.[i] ?? 1) < (curve.count[i] ?? 1) && (
        <div>{several(curve.count[i]! - (curve.finite?.[i] ?? 0), "value")} not finite</div>
      )}
      {many && <div className="dim">click pins the nearer one</div>}
    </TipBox>
  );
}

function TipRow({ word, value, who }: { word: string; value: string; who: string }) {
  return (
    <tr>
      <td className="dim">{word}</td>
      <td className="number">{value}</td>
      <td>{who}</td>
    </tr>
  );
}
