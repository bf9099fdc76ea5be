/** All metrics of an experiment: names on the left, a grid of charts that share axis, cursor and zoom. */

import { Button, NativeSelect, SegmentedControl, Switch, TextInput, UnstyledButton } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ChevronDown, ChevronRight, X } from "lucide-react";
import { memo, type RefObject, useCallback, useDeferredValue, useLayoutEffect, useMemo, useRef, useState } from "react";
import { api, asked } from "../api/client";
import { useShown } from "../experiment/context";
import { EmptyState } from "../look/Notes";
import { several } from "../look/numbers";
import { useTurn } from "../look/turns";
import { useView } from "../url/view";
import { HeatSwitches, Smoothing, WholeRange } from "./ChartTools";
import classes from "./charts.module.css";
import { MetricChart } from "./MetricChart";
import { type Branch, inOrder, patternOf, treeOf, wantedNames } from "./names";
import { attemptMarks, type Mark } from "./options";
import { useRanks } from "./ranks";
import { exactly } from "./series";
import type { Shown } from "./shown";

const DEFAULTS = {
  names: "",
  group: "",
  x: "step",
  smooth: 0,
  log: false,
  p95: false,
  as: "band",
  deviation: false,
  bymean: false,
  from: "",
  until: "",
  pin: [] as string[],
  large: "",
  cursor: "",
};

const HEIGHT = 210;
const CARD = HEIGHT + 46;

export function MetricsTab() {
  const { experiment, over, newest, attempt, selected } = useShown();
  const [wish, setWish] = useView(DEFAULTS);
  const { shown, stragglers } = useRanks(wish, setWish, {
    attempt: newest ? null : attempt,
    x: wish.x,
    smooth: wish.smooth,
    logarithmic: wish.log,
    p95: wish.p95,
    syncKey: `metrics ${wish.x}`,
  });
  const enlarge = useCallback((large: string) => setWish({ large }), [setWish]);
  const [typed, setTyped] = useState(wish.names);
  const text = useDeferredValue(typed);
  const all = useMemo(() => inOrder(Object.keys(experiment.metrics ?? {})), [experiment.metrics]);
  const known = all.join("\u0000");
  // biome-ignore lint/correctness/useExhaustiveDependencies: values change all the time, names rarely
  const tree = useMemo(() => treeOf(all), [known]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: values change all the time, names rarely
  const names = useMemo(() => wantedNames(all, text, wish.group), [known, text, wish.group]);
  if (all.length === 0)
    return (
      <EmptyState title="No metrics yet" command={`shoal metrics ${experiment.id}`}>
        {over ? "No replica logged a number." : "Nothing has been logged so far."} In a training script:{" "}
        <code>shoal.log(loss=0.3)</code>
      </EmptyState>
    );
  return (
    <div className={classes.page}>
      <aside className={classes.side} aria-label="metrics">
        <TextInput
          aria-label="filter names, a regular expression"
          placeholder="filter names (regex)"
          value={typed}
          error={patternOf(typed) === null}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            setWish({ names: event.currentTarget.value });
          }}
        />
        <nav aria-label="groups of metrics">
          <Branches root={tree} open={wish.group} choose={(group) => setWish({ group })} />
        </nav>
      </aside>
      <div className={classes.main}>
        <Tools
          wish={wish}
          setWish={setWish}
          names={all}
          verdict={wish.as === "heat" ? stragglers?.verdict : undefined}
        />
        {selected.length === 0 ? (
          <EmptyState title="No replica is meant">The selector above matches none of them.</EmptyState>
        ) : names.length === 0 ? (
          <EmptyState title="No metric matches">{`None of ${several(all.length, "metric")} matches “${text}”.`}</EmptyState>
        ) : (
          <ChartGrid
            names={names}
            total={all.length}
            shown={shown}
            large={wish.large}
            enlarge={enlarge}
            cursor={wish.cursor}
          />
        )}
      </div>
    </div>
  );
}

type Wish = typeof DEFAULTS;

function Tools({
  wish,
  setWish,
  names,
  verdict,
}: {
  wish: Wish;
  setWish: (change: Partial<Wish>) => void;
  names: string[];
  verdict?: string;
}) {
  return (
    <div className={classes.tools}>
      <SegmentedControl
        aria-label="how ranks are shown"
        value={wish.as}
        onChange={(as) => setWish({ as })}
        data={[
          { value: "band", label: "Band" },
          { value: "lines", label: "Lines" },
          { value: "heat", label: "Heat map" },
        ]}
      />
      <NativeSelect
        size="xs"
        aria-label="x axis"
        value={wish.x}
        onChange={(event) => setWish({ x: event.currentTarget.value, from: "", until: "" })}
        data={[
          {
            group: "x axis",
            items: [
              { value: "step", label: "step" },
              { value: "relative", label: "time since start" },
              { value: "time", label: "time of day" },
            ],
          },
          { group: "another metric", items: names.slice(0, 500) },
        ]}
      />
      {wish.as === "heat" ? (
        <HeatSwitches wish={wish} setWish={setWish} />
      ) : (
        <>
          <Smoothing value={wish.smooth} onChange={(smooth) => setWish({ smooth })} />
          <Switch
            label="log y"
            checked={wish.log}
            onChange={(event) => setWish({ log: event.currentTarget.checked })}
          />
          {wish.as === "band" && (
            <Switch
              label="p95"
              checked={wish.p95}
              onChange={(event) => setWish({ p95: event.currentTarget.checked })}
            />
          )}
        </>
      )}
      {wish.from !== "" && <WholeRange reset={() => setWish({ from: "", until: "" })} />}
      {wish.pin.map((rank) => (
        <Button
          key={rank}
          variant="default"
          rightSection={<X size={12} aria-hidden />}
          aria-label={`unpin ${rank}`}
          onClick={() => setWish({ pin: wish.pin.filter((one) => one !== rank) })}
        >
          {rank}
        </Button>
      ))}
      {verdict && <span className={classes.verdict}>{verdict}</span>}
    </div>
  );
}

function Branches({ root, open, choose }: { root: Branch; open: string; choose: (path: string) => void }) {
  return (
    <ul className={classes.tree}>
      <li>
        <UnstyledButton className={classes.branch} aria-current={open === ""} onClick={() => choose("")}>
          <span className="clip">all</span>
          <span className={`dim ${classes.spacer}`}>{root.count}</span>
        </UnstyledButton>
      </li>
      <Below branch={root} open={open} choose={choose} />
    </ul>
  );
}

function Below({ branch, open, choose }: { branch: Branch; open: string; choose: (path: string) => void }) {
  return (
    <>
      {branch.branches.map((one) => {
        const inside = open === one.path || open.startsWith(`${one.path}/`);
        return (
          <li key={one.path}>
            <UnstyledButton
              className={classes.branch}
              aria-current={open === one.path}
              aria-expanded={inside}
              onClick={() => choose(open === one.path ? "" : one.path)}
            >
              {inside ? <ChevronDown size={12} aria-hidden /> : <ChevronRight size={12} aria-hidden />}
              <span className="clip">{one.name}</span>
              <span className={`dim ${classes.spacer}`}>{one.count}</span>
            </UnstyledButton>
            {inside && (
              <ul className={classes.tree}>
                <Below branch={one} open={open} choose={choose} />
              </ul>
            )}
          </li>
        );
      })}
      {branch.leaves.map((name) => (
        <li key={name}>
          <UnstyledButton
            className={classes.branch}
            aria-current={open === name}
            title={name}
            onClick={() => choose(open === name ? "" : name)}
          >
            <span className="clip">{name.split("/").at(-1)}</span>
          </UnstyledButton>
        </li>
      ))}
    </>
  );
}

interface GridProps {
  names: string[];
  shown: Shown;
  large: string;
  /** Keep it the same function. */
  enlarge: (name: string) => void;
  cursor: string;
}

function ChartGrid({ total, ...grid }: GridProps & { total: number }) {
  const { ref, width } = useElementSize();
  const place = useRef<HTMLDivElement>(null);
  const [margin, setMargin] = useState(0);
  const { names } = grid;
  useLayoutEffect(() => {
    const top = scrollerOf(place.current);
    if (top && place.current)
      setMargin(place.current.getBoundingClientRect().top - top.getBoundingClientRect().top + top.scrollTop);
  });
  return (
    <div ref={ref}>
      <p className="dim" style={{ margin: "0 0 8px" }}>
        {names.length === total ? several(total, "metric") : `${names.length} of ${several(total, "metric")}`}
      </p>
      <div ref={place}>{width > 0 && <ChartRows {...grid} width={width} margin={margin} place={place} />}</div>
    </div>
  );
}

interface RowsProps extends GridProps {
  width: number;
  /** How far below the top of what scrolls they begin. */
  margin: number;
  place: RefObject<HTMLDivElement | null>;
}

/** Only rows of charts that are seen exist. Scrolling draws this part again, and no chart. */
function ChartRows({ names, shown, large, enlarge, cursor, width, margin, place }: RowsProps) {
  const columns = Math.max(1, Math.min(4, Math.floor((width + 12) / 380)));
  const rows = useMemo(() => {
    const rest = names.filter((name) => name !== large);
    const found: string[][] = names.includes(large) ? [[large]] : [];
    for (let i = 0; i < rest.length; i += columns) found.push(rest.slice(i, i + columns));
    return found;
  }, [names, large, columns]);
  const isLarge = (row: number) => rows[row]?.length === 1 && rows[row][0] === large;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scrollerOf(place.current),
    estimateSize: (row) => (isLarge(row) ? CARD + 200 : CARD) + 12,
    getItemKey: (row) => rows[row]!.join(" "),
    scrollMargin: margin,
    overscan: 1,
  });
  return (
    <div className={classes.grid} style={{ height: virtual.getTotalSize() }}>
      {virtual.getVirtualItems().map((item) => (
        <div
          key={item.key}
          ref={virtual.measureElement}
          data-index={item.index}
          className={classes.gridrow}
          style={{
            transform: `translateY(${item.start - margin}px)`,
            gridTemplateColumns: isLarge(item.index) ? "1fr" : `repeat(${columns}, minmax(0, 1fr))`,
            paddingBottom: 12,
          }}
        >
          {rows[item.index]!.map((name) => (
            <Marked key={name} name={name} shown={shown} large={name === large} enlarge={enlarge} cursor={cursor} />
          ))}
        </div>
      ))}
    </div>
  );
}

function scrollerOf(place: HTMLElement | null): HTMLElement | null {
  return place?.closest<HTMLElement>("[data-scrolls]") ?? null;
}

interface MarkedProps extends Pick<GridProps, "shown" | "enlarge" | "cursor"> {
  name: string;
  large: boolean;
}

/** A chart with the places where attempts began, and the moment that was clicked in the logs. */
const Marked = memo(function Marked({ name, shown, large, enlarge, cursor }: MarkedProps) {
  const { experiment } = useShown();
  const several = experiment.attempt > 0 && shown.attempt === null && (shown.x === "step" || shown.x === "time");
  const listed = useQuery({
    queryKey: ["experiment", shown.id, "listed", name, experiment.attempt],
    queryFn: () =>
      asked(
        api.GET("/api/experiments/{word}/metrics", {
          params: { path: { word: shown.id }, query: { name: [exactly(name)] } },
        }),
      ),
    enabled: several,
    staleTime: 60_000,
  });
  const marks = useMemo<Mark[]>(() => {
    const found = new Map<number, number>();
    for (const row of several ? (listed.data ?? []) : []) {
      if (row.attempt === 0) continue;
      const at = shown.x === "step" ? row.min_step : row.first_time;
      found.set(row.attempt, Math.min(at, found.get(row.attempt) ?? Number.POSITIVE_INFINITY));
    }
    const marks = attemptMarks(found);
    if (cursor && shown.x === "time") marks.push({ x: Number(cursor), word: "log line" });
    return marks;
  }, [several, listed.data, shown.x, cursor]);
  const toggle = useCallback(() => enlarge(large ? "" : name), [enlarge, large, name]);
  const turn = useTurn();
  if (!turn) return <div style={{ height: large ? CARD + 200 : CARD }} />;
  return (
    <MetricChart
      name={name}
      shown={shown}
      height={large ? HEIGHT + 200 : HEIGHT}
      marks={marks}
      enlarged={large}
      enlarge={toggle}
    />
  );
});
