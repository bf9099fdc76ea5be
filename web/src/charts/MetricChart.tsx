/** One metric: a band over all ranks, a line for each, or a heat map; with its table and what is odd about it. */

import { Tooltip, useComputedColorScheme } from "@mantine/core";
import { memo, useMemo, useRef, useState } from "react";
import type uPlot from "uplot";
import { ErrorBox } from "../look/Notes";
import { count, number, several } from "../look/numbers";
import { BandPlot } from "./BandPlot";
import { ChartMenu } from "./ChartMenu";
import classes from "./charts.module.css";
import { bucketsFor, type Odd, oddOf } from "./drawing";
import { HeatMap } from "./HeatMap";
import { LinesPlot } from "./LinesPlot";
import { NumbersTable } from "./NumbersTable";
import { INK, type Mark } from "./options";
import { download, picture } from "./Plot";
import { type Curve, pointsOf, settled } from "./packed";
import { type Choice, seriesPath, useSeries } from "./series";
import { type Mode, rangeOf, type Shown } from "./shown";

interface Props {
  name: string;
  title?: string;
  shown: Shown;
  height: number;
  marks: readonly Mark[];
  say?: (value: number) => string;
  /** A limit to draw as a line. */
  limit?: number;
  enlarged?: boolean;
  enlarge?: () => void;
}

const MOST_LINES = 64;
const RAREST = 6; // seconds: a launcher samples more often than that

export const MetricChart = memo(function MetricChart({
  name,
  title = name,
  shown,
  height,
  marks,
  say = number,
  limit,
  enlarged = false,
  enlarge,
}: Props) {
  const scheme = useComputedColorScheme();
  const [own, setOwn] = useState<Mode | null>(null);
  const [asTable, setAsTable] = useState(false);
  const mode = own ?? shown.mode;
  const plot = useRef<uPlot | null>(null);

  const choice: Choice = {
    names: [name],
    replicas: shown.replicas,
    attempt: shown.attempt,
    kind: shown.kind,
    x: shown.x,
    from: shown.from,
    until: shown.until,
    buckets: mode === "heat" ? 256 : bucketsFor(enlarged ? 1200 : 500),
    together: mode === "band",
  };
  const asked = useSeries(shown.id, choice, shown.over);
  const pinnedNames = mode === "band" ? shown.pinned : [];
  const pins = useSeries(
    shown.id,
    { ...choice, together: false, replicas: pinnedNames.map((rank) => rank.split(":")[0]!), width: asked.data?.width },
    shown.over,
    pinnedNames.length > 0 && asked.data !== undefined,
  );

  const chart = asked.data;
  const curves = chart?.series ?? [];
  const odd = useMemo(() => curves.flatMap(oddOf), [curves]);
  const points = curves.reduce((sum, curve) => sum + pointsOf(curve), 0);
  const buckets = curves.reduce((sum, curve) => sum + curve.start.length, 0);
  /** What is drawn one by one: with a point of each rank in each bucket, nothing is sampled. */
  const drawn = curves.reduce((sum, curve) => sum + (curve.curves ? total(curve.curves) : curve.start.length), 0);
  const ranks = mode === "band" ? (curves[0]?.members?.length ?? 0) : curves.length;
  const drawnRanks = mode === "lines" ? Math.min(MOST_LINES, ranks) : ranks;

  const grows = !shown.over && shown.until === null && (shown.attempt === null || shown.kind === "resource");
  const band = useMemo(() => (grows && curves[0] ? settled(curves[0]) : curves[0]), [grows, curves]);

  const savePicture = async () => {
    const blob = plot.current && (await picture(plot.current, title, INK[scheme]));
    if (blob) download(blob, `${shown.id}-${name.replaceAll("/", "-")}.png`);
  };

  return (
    <section className={classes.card} aria-label={title}>
      <header className={classes.head}>
        <h3 className={`${classes.title} clip`} title={name}>
          {title}
        </h3>
        {odd.length > 0 && (
          <Tooltip
            label={`${several(odd.length, "bucket has", "buckets have")} values that are no finite numbers; marked at the edge of the chart`}
          >
            <span className={classes.badge}>{oddWord(odd)}</span>
          </Tooltip>
        )}
        {drawnRanks < ranks && <span className={classes.badge}>{`${drawnRanks} of ${ranks} ranks`}</span>}
        {points > drawn && mode !== "heat" && (
          <Tooltip
            label={`${count(points)} points of ${several(ranks, "rank")} in ${count(buckets)} buckets of ${xWidth(shown.x, chart!.width)}. Least and largest of each are kept: nothing is hidden. Zoom in for single points.`}
          >
            <span className={classes.badge} tabIndex={0}>
              sampled {shortCount(drawn)} of {shortCount(points)}
            </span>
          </Tooltip>
        )}
        <ChartMenu
          title={title}
          mode={mode}
          setMode={(next) => {
            setOwn(next === shown.mode ? null : next);
            setAsTable(false);
          }}
          asTable={asTable}
          toggleTable={() => setAsTable(!asTable)}
          csv={seriesPath(shown.id, { ...choice, buckets: 0 }, "points", "csv")}
          png={() => void savePicture()}
          enlarged={enlarged}
          enlarge={enlarge}
        />
      </header>
      {asked.error ? (
        <ErrorBox error={asked.error} compact retry={() => void asked.refetch()} />
      ) : !chart ? (
        <div style={{ height }} role="status" aria-label={`loading ${title}`} />
      ) : buckets === 0 ? (
        <div className={classes.nothing} style={{ height }}>
          {shown.from !== null || shown.until !== null
            ? "Nothing in this range."
            : "The chosen replicas did not log it."}
        </div>
      ) : asTable ? (
        <NumbersTable curves={curves} x={shown.x} height={height} say={say} />
      ) : mode === "heat" ? (
        <HeatMap
          chart={chart}
          name={title}
          say={say}
          deviating={shown.deviating}
          order={shown.byMean ? "mean" : "rank"}
          slowest={shown.slowest}
          holds={shown.kind === "resource" ? RAREST : 0}
          marks={marks}
          syncKey={shown.syncKey}
          range={rangeOf(shown)}
          zoom={shown.zoom}
          reset={shown.reset}
          pick={shown.pin}
          onPlot={(made) => (plot.current = made)}
        />
      ) : mode === "band" ? (
        <BandPlot
          title={title}
          curve={band!}
          pins={pinnedNames.length ? (pins.data?.series ?? []).filter((one) => isPinned(one, pinnedNames)) : []}
          shown={shown}
          height={height}
          marks={marks}
          say={say}
          limit={limit}
          onPlot={(made) => (plot.current = made)}
        />
      ) : (
        <LinesPlot
          title={title}
          curves={curves.slice(0, MOST_LINES)}
          width={chart.width}
          shown={shown}
          height={height}
          marks={marks}
          say={say}
          limit={limit}
          onPlot={(made) => (plot.current = made)}
        />
      )}
    </section>
  );
});

function isPinned(curve: Curve, pinned: readonly string[]): boolean {
  return pinned.includes(curve.replica ?? "") || pinned.includes(`${curve.replica}:${curve.process}`);
}

function total(column: Float64Array): number {
  return column.reduce((sum, value) => sum + value, 0);
}

function oddWord(odd: readonly Odd[]): string {
  const kinds = [...new Set(odd.map((one) => one.what))];
  return `${kinds.join(", ")} × ${odd.length}`;
}

function shortCount(value: number): string {
  return value >= 1e6
    ? `${number(Number((value / 1e6).toPrecision(3)))}M`
    : value >= 1e4
      ? `${Math.round(value / 1e3)}k`
      : count(value);
}

function xWidth(x: string, width: number): string {
  return x === "step"
    ? several(width, "step")
    : x === "time" || x === "relative"
      ? `${number(width)} s`
      : number(width);
}
