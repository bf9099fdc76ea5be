/** Metrics of several experiments over each other: for each a band over its ranks and their mean. */

import { NativeSelect, Switch, TextInput, useComputedColorScheme } from "@mantine/core";
import { useQueries, useQueryClient } from "@tanstack/react-query";
import { memo, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import type uPlot from "uplot";
import { Smoothing, WholeRange } from "../charts/ChartTools";
import chartClasses from "../charts/charts.module.css";
import { inOrder, patternOf, wantedNames } from "../charts/names";
import { drawOdd, frameOptions, INK, xWord } from "../charts/options";
import { Plot } from "../charts/Plot";
import { pointsOf } from "../charts/packed";
import { rangeIn } from "../charts/ranks";
import { type Choice, seriesQuery } from "../charts/series";
import { TipBox } from "../charts/TipBox";
import { ErrorBox } from "../look/Notes";
import { count, number, several } from "../look/numbers";
import { useTurn } from "../look/turns";
import classes from "./compare.module.css";
import { hovered, isLine, overlaid } from "./overlay";
import type { Compared } from "./rows";
import type { SetView, View } from "./view";

/** An experiment as charts draw it. */
export interface Drawn {
  id: string;
  label: string;
  colour: string;
  dash: number[];
  over: boolean;
}

interface Props {
  drawn: readonly Drawn[];
  compared: readonly Compared[];
  view: View;
  setView: SetView;
}

const HEIGHT = 240;

export function Overlays({ drawn, compared, view, setView }: Props) {
  const [typed, setTyped] = useState(view.names);
  const text = useDeferredValue(typed);
  const all = useMemo(
    () => inOrder(new Set(compared.flatMap((one) => Object.keys(one.experiment.metrics ?? {})))),
    [compared],
  );
  const names = wantedNames(all, text, "");
  const axis: Axis = {
    x: view.x === "relative" || view.x === "time" ? view.x : "step",
    smooth: view.smooth,
    logarithmic: view.log,
    ...rangeIn(view, setView),
  };
  return (
    <div className={classes.charts} data-scrolls>
      <div className={classes.tools}>
        <TextInput
          aria-label="filter metrics, a regular expression"
          placeholder="filter metrics (regex)"
          w={180}
          value={typed}
          error={patternOf(typed) === null}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            setView({ names: event.currentTarget.value });
          }}
        />
        <NativeSelect
          size="xs"
          aria-label="x axis"
          value={axis.x}
          onChange={(event) => setView({ x: event.currentTarget.value, from: "", until: "" })}
          data={[
            { value: "step", label: "step" },
            { value: "relative", label: "time since start" },
            { value: "time", label: "time of day" },
          ]}
        />
        <Smoothing value={view.smooth} onChange={(smooth) => setView({ smooth })} />
        <Switch label="log y" checked={view.log} onChange={(event) => setView({ log: event.currentTarget.checked })} />
        {view.from !== "" && <WholeRange reset={axis.reset} />}
        <span className="dim">
          {names.length === all.length
            ? several(all.length, "metric")
            : `${count(names.length)} of ${several(all.length, "metric")}`}
          {drawn.length > 0 && ": mean over ranks, shaded from least to largest"}
        </span>
      </div>
      {all.length === 0 ? (
        <p className={`dim ${classes.nothing}`}>None of them logged a metric.</p>
      ) : names.length === 0 ? (
        <p className={`dim ${classes.nothing}`}>No metric has such a name.</p>
      ) : (
        <div className={classes.grid}>
          {names.map((name) => (
            <OverlayCard key={name} name={name} drawn={drawn} axis={axis} />
          ))}
        </div>
      )}
    </div>
  );
}

interface Axis {
  x: string;
  from: number | null;
  until: number | null;
  smooth: number;
  logarithmic: boolean;
  zoom: (from: number, until: number) => void;
  reset: () => void;
}

interface CardProps {
  name: string;
  drawn: readonly Drawn[];
  axis: Axis;
}

/** Asks for its points when it comes near the screen: hundreds of metrics cost nothing below it. */
function OverlayCard({ name, drawn, axis }: CardProps) {
  const place = useRef<HTMLElement>(null);
  const [near, setNear] = useState(false);
  useEffect(() => {
    const watcher = new IntersectionObserver((entries) => setNear(entries.some((entry) => entry.isIntersecting)), {
      rootMargin: "300px",
    });
    watcher.observe(place.current!);
    return () => watcher.disconnect();
  }, []);
  return (
    <section ref={place} className={chartClasses.card} aria-label={name} style={{ minHeight: HEIGHT + 40 }}>
      <header className={chartClasses.head}>
        <h3 className={`${chartClasses.title} clip`} title={name}>
          {name}
        </h3>
      </header>
      {near && <InTurn name={name} drawn={drawn} axis={axis} />}
    </section>
  );
}

function InTurn(props: CardProps) {
  return useTurn() ? <OverlayChart {...props} /> : null;
}

const OverlayChart = memo(function OverlayChart({ name, drawn, axis }: CardProps) {
  const scheme = useComputedColorScheme();
  const client = useQueryClient();
  const choice: Choice = {
    names: [name],
    replicas: [],
    attempt: null,
    x: axis.x,
    from: axis.from,
    until: axis.until,
    buckets: 512,
    together: true,
  };
  const asked = useQueries({ queries: drawn.map((one) => seriesQuery(client, one.id, choice, one.over)) });
  const curves = asked.map((one) => one.data?.series[0]);
  const stamp = asked.map((one) => one.dataUpdatedAt).join(" ");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the times of the answers stand for the curves
  const overlay = useMemo(
    () => overlaid(curves, axis.logarithmic, axis.smooth),
    [stamp, axis.logarithmic, axis.smooth],
  );
  const data = useMemo<uPlot.AlignedData>(() => [overlay.x, ...overlay.columns], [overlay]);
  const [tip, setTip] = useState<{ x: number; left: number; right: boolean } | null>(null);
  const newest = useRef({ overlay, axis, curves });
  newest.current = { overlay, axis, curves };

  const options = (): Omit<uPlot.Options, "width" | "height"> => ({
    ...frameOptions({
      x: axis.x,
      scheme,
      logarithmic: axis.logarithmic,
      syncKey: `compare ${axis.x}`,
      say: number,
      range: () => {
        const { from, until } = newest.current.axis;
        return from !== null && until !== null ? [from, until] : null;
      },
      zoom: (from, until) => newest.current.axis.zoom(from, until),
      reset: () => newest.current.axis.reset(),
      moved: (plot) => setTip(tipOf(plot)),
      drawn: (plot) => drawOdd(plot, newest.current.overlay.odd, INK[scheme].mark),
    }),
    bands: drawn.map((one, i) => ({
      series: [3 * i + 2, 3 * i + 1],
      fill: `${one.colour}${scheme === "dark" ? "38" : "26"}`,
    })),
    series: [
      {},
      ...drawn.flatMap((one, i): uPlot.Series[] => {
        const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        const few = (newest.current.curves[i]?.start.length ?? 0) <= 40;
        return [
          edge,
          { ...edge },
          {
            stroke: one.colour,
            dash: one.dash,
            width: 1.75,
            spanGaps: true,
            points: { show: few && isLine(newest.current.curves[i]), size: 4, fill: one.colour },
          },
        ];
      }),
    ],
  });
  const error = asked.find((one) => one.error)?.error;
  if (error) return <ErrorBox error={error} compact />;
  if (asked.every((one) => !one.data))
    return <div style={{ height: HEIGHT }} role="status" aria-label={`loading ${name}`} />;
  if (overlay.x.length === 0)
    return (
      <div className={chartClasses.nothing} style={{ height: HEIGHT }}>
        {axis.from !== null ? "Nothing in this range." : "None of the ticked experiments logged it."}
      </div>
    );
  const structure = [
    scheme,
    axis.x,
    axis.logarithmic,
    ...drawn.map((one, i) => `${one.id}${(curves[i]?.start.length ?? 0) <= 40}`),
  ].join(" ");
  return (
    <div className={chartClasses.plot} data-points={curves.map((curve) => (curve ? pointsOf(curve) : 0)).join(" ")}>
      <Plot options={options} structure={structure} data={data} height={HEIGHT} label={words(name, drawn, curves)} />
      {tip && (
        <TipBox place={{ ...tip, top: 8 }}>
          <div className="dim">{xWord(axis.x, tip.x)}</div>
          <table className={chartClasses.tiptable}>
            <tbody>
              {drawn.map((one, i) => {
                const at = hovered(curves[i], tip.x);
                return (
                  at && (
                    <tr key={one.id}>
                      <td style={{ color: one.colour }}>━</td>
                      <td>{one.label}</td>
                      <td className="number">{number(at.mean)}</td>
                      <td className="dim">
                        {at.least !== at.largest && `${number(at.least)} … ${number(at.largest)}`}
                      </td>
                    </tr>
                  )
                );
              })}
            </tbody>
          </table>
        </TipBox>
      )}
    </div>
  );
});

function tipOf(plot: uPlot): { x: number; left: number; right: boolean } | null {
  const { idx, left = -1 } = plot.cursor;
  if (idx === null || idx === undefined || left < 0 || !plot.over.matches(":hover")) return null;
  const right = left > plot.over.clientWidth / 2;
  const inset = plot.over.offsetLeft;
  return { x: plot.data[0][idx]!, left: right ? plot.width - inset - left + 14 : inset + left + 14, right };
}

/** What a screen reader says of it. */
function words(name: string, drawn: readonly Drawn[], curves: readonly Parameters<typeof hovered>[0][]): string {
  const said = drawn.map((one, i) => {
    const curve = curves[i];
    const last = curve?.mean?.at(-1);
    return `${one.label}: ${last === undefined ? "no points" : `last mean ${number(last)} of ${several(curve?.members?.length ?? 1, "rank")}`}`;
  });
  return `${name}. ${said.join("; ")}`;
}
