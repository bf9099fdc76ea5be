/** What every rank used: a heat map for each resource, who differs from the others, who ran out of memory. */

import { SegmentedControl, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, asked } from "../api/client";
import { RUNNING_AGAIN } from "../api/queries";
import { useShown } from "../experiment/context";
import { EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { several } from "../look/numbers";
import { absolute } from "../look/times";
import { useView } from "../url/view";
import { HeatSwitches, WholeRange } from "./ChartTools";
import classes from "./charts.module.css";
import { MetricChart } from "./MetricChart";
import type { Mark } from "./options";
import { useRanks } from "./ranks";
import { type Resource, resourcesOf, type Sampled, spanOf, tileOf } from "./resources";

const MOST_TILES = 6;
const DEFAULTS = {
  as: "heat",
  deviation: false,
  bymean: false,
  x: "relative",
  from: "",
  until: "",
  pin: [] as string[],
};

export function ResourcesTab() {
  const { experiment, over, newest, attempt, selected } = useShown();
  const [wish, setWish] = useView(DEFAULTS);
  const x = wish.x === "time" ? "time" : "relative";
  const { shown, stragglers } = useRanks(wish, setWish, {
    attempt: newest && experiment.attempt === 0 ? null : attempt,
    kind: "resource",
    x,
    smooth: 0,
    logarithmic: false,
    syncKey: `resources ${x}`,
  });
  const { replicas } = shown;
  const sampled = useQuery({
    queryKey: ["experiment", experiment.id, "resources", attempt, replicas.join(" ")],
    queryFn: () =>
      asked(
        api.GET("/api/experiments/{word}/metrics", {
          params: {
            path: { word: experiment.id },
            query: { kind: "resource", attempt, ...(replicas.length ? { replica: replicas } : {}) },
          },
        }),
      ),
    refetchInterval: over ? false : 2 * RUNNING_AGAIN,
  });
  const local = experiment.cluster === "local";
  const found = useMemo(
    () =>
      resourcesOf(
        (sampled.data ?? []).map((row) => row.name),
        local,
      ),
    [sampled.data, local],
  );
  const killed = useMemo(() => selected.filter((one) => /oom|out of memory/i.test(one.reason)), [selected]);

  if (selected.length === 0)
    return <EmptyState title="No replica is meant">The selector above matches none of them.</EmptyState>;
  if (sampled.error) return <ErrorBox error={sampled.error} retry={() => void sampled.refetch()} />;
  if (!sampled.data) return <Waiting what="resources" />;
  if (found.length === 0)
    return (
      <EmptyState title="No samples yet" command={`shoal top ${experiment.id}`}>
        {over
          ? "It was over before the first sample, or ran where Shoal does not measure."
          : "The first sample comes within seconds."}
      </EmptyState>
    );
  const rows = sampled.data as Sampled[];
  const limits = rows
    .filter((row) => row.name === "memory_limit" && typeof row.last === "number")
    .map((row) => row.last as number);
  return (
    <div style={{ padding: "12px 16px 32px" }}>
      <div className={classes.tiles}>
        {found.slice(0, MOST_TILES).map((resource) => (
          <Tile
            key={resource.name}
            resource={resource}
            rows={rows}
            limits={resource.name === "memory" ? limits : []}
            over={over}
          />
        ))}
        {killed.length > 0 && (
          <div className={classes.tile}>
            <div className="hue-red" style={{ fontWeight: 600 }}>
              Out of memory
            </div>
            <div className={classes.tilevalue}>
              {killed
                .map((one) => one.replica)
                .slice(0, 3)
                .join(", ")}
            </div>
            <div className="dim">
              {killed.length > 3 ? `and ${killed.length - 3} others` : absolute(killed[0]!.finished)}
            </div>
          </div>
        )}
      </div>
      <div className={classes.tools}>
        <SegmentedControl
          aria-label="how ranks are shown"
          value={wish.as}
          onChange={(as) => setWish({ as })}
          data={[
            { value: "heat", label: "Heat map" },
            { value: "band", label: "Band" },
            { value: "lines", label: "Lines" },
          ]}
        />
        <SegmentedControl
          aria-label="x axis"
          value={shown.x}
          onChange={(next) => setWish({ x: next, from: "", until: "" })}
          data={[
            { value: "relative", label: "Since start" },
            { value: "time", label: "Time of day" },
          ]}
        />
        {wish.as === "heat" && <HeatSwitches wish={wish} setWish={setWish} />}
        {wish.from !== "" && <WholeRange reset={shown.reset} />}
        {stragglers?.slowest && <span className={classes.verdict}>▸ {stragglers.verdict}</span>}
      </div>
      <div className={classes.pairs}>
        {found.map((resource) => (
          <MetricChart
            key={resource.name}
            name={resource.name}
            title={
              resource.name === "memory" && limits.length
                ? `Memory (limit ${limitWord(limits, resource)})`
                : resource.title
            }
            shown={shown}
            height={190}
            say={resource.say}
            marks={resource.name === "memory" ? oomMarks(killed, shown.x) : []}
            limit={resource.name === "memory" && limits.length ? Math.min(...limits) : undefined}
          />
        ))}
      </div>
    </div>
  );
}

interface TileProps {
  resource: Resource;
  rows: readonly Sampled[];
  limits: number[];
  over: boolean;
}

function Tile({ resource, rows, limits, over }: TileProps) {
  const tile = tileOf(rows, resource.name, over ? "max" : "last");
  if (!tile) return null;
  const one = tile.low === tile.high;
  return (
    <Tooltip
      label={
        over
          ? `the highest sample of each of ${several(tile.ranks, "rank")}: least and largest (${tile.who})`
          : `the newest sample of ${several(tile.ranks, "rank")}: least and largest (${tile.who}); highest ever ${resource.say(tile.peak)}`
      }
    >
      <div className={classes.tile} tabIndex={0}>
        <div className={`dim ${classes.tilename}`}>{resource.title}</div>
        <div className={classes.tilevalue}>
          {one ? resource.say(tile.high) : spanOf(resource.say(tile.low), resource.say(tile.high))}
        </div>
        <div className="dim">
          {over ? (tile.ranks > 1 ? "peaks of the ranks" : "peak") : `peak ${resource.say(tile.peak)}`}
          {limits.length > 0 && ` of ${limitWord(limits, resource)}`}
        </div>
      </div>
    </Tooltip>
  );
}

function limitWord(limits: number[], resource: Resource): string {
  const [low, high] = [Math.min(...limits), Math.max(...limits)];
  return low === high ? resource.say(low) : spanOf(resource.say(low), resource.say(high));
}

/** Where replicas ran out of memory, in their rows. */
function oomMarks(
  killed: readonly { replica: string; started: number | null; finished: number | null }[],
  x: string,
): (Mark & { replica: string })[] {
  return killed.flatMap((one) => {
    if (one.finished === null) return [];
    const at = x === "time" ? one.finished : one.finished - (one.started ?? one.finished);
    return [{ x: at, word: "OOM", replica: one.replica }];
  });
}
