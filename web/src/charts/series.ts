/** Asks for curves, packed. While an experiment runs only what came since is asked for. */

import { keepPreviousData, type QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { fetched } from "../api/client";
import { live } from "../api/live";
import { RUNNING_AGAIN } from "../api/queries";
import type { ExperimentView } from "../experiment/context";
import { type ChartData, extended, unpacked } from "./packed";

/** Which curves, on which axis, in how many buckets. */
export interface Choice {
  names: readonly string[];
  /** Names or patterns; none is all. */
  replicas: readonly string[];
  attempt: number | null;
  kind?: string;
  x: string;
  from?: number | null;
  until?: number | null;
  buckets: number;
  /** One curve over all ranks, or one for each. */
  together: boolean;
  width?: number;
}

/** A metric's name as a pattern that means only itself. */
export function exactly(name: string): string {
  return name.replace(/[[*?]/g, "[$&]");
}

/** The `replica` parameters that say what the selector means. */
export function replicaParams(view: Pick<ExperimentView, "pattern" | "selected">): string[] {
  if (view.pattern === "*") return [];
  return view.pattern === null ? view.selected.map((one) => one.replica) : [view.pattern];
}

/** The address of curves; `points` with a format is every point, to download. */
export function seriesPath(
  id: string,
  choice: Choice,
  what: "series" | "points" = "series",
  format = "binary",
): string {
  const query = new URLSearchParams();
  for (const name of choice.names) query.append("name", exactly(name));
  for (const replica of choice.replicas) query.append("replica", replica);
  if (choice.attempt !== null) query.set("attempt", String(choice.attempt));
  if (choice.kind) query.set("kind", choice.kind);
  query.set("x", choice.x);
  if (choice.from !== null && choice.from !== undefined) query.set("from", String(choice.from));
  if (choice.until !== null && choice.until !== undefined) query.set("to", String(choice.until));
  if (what === "series") {
    query.set("buckets", String(choice.buckets));
    if (choice.together) query.set("agg", "all");
    if (choice.width) query.set("width", String(choice.width));
  }
  query.set("format", format);
  return `/api/experiments/${encodeURIComponent(id)}/${what}?${query}`;
}

/** Curves that keep up with a running experiment. */
export function useSeries(id: string, choice: Choice, over: boolean, enabled = true) {
  const client = useQueryClient();
  const key = ["experiment", id, "series", choice] as const;
  const text = JSON.stringify(choice);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the text is the choice
  useEffect(() => {
    if (!enabled || over) return;
    return live.on<{ experiments: { id: string; points: boolean }[] }>("tracked", ({ experiments }) => {
      if (experiments.some((one) => one.id === id && one.points))
        void client.invalidateQueries({ queryKey: key, exact: true });
    });
  }, [client, id, text, enabled, over]);
  return useQuery(seriesQuery(client, id, choice, over, enabled));
}

/** The same as options, for whoever asks for several experiments at once. */
export function seriesQuery(client: QueryClient, id: string, choice: Choice, over: boolean, enabled = true) {
  const key = ["experiment", id, "series", choice] as const;
  return {
    queryKey: key,
    queryFn: ({ signal }: { signal: AbortSignal }) => renewed(client, key, id, choice, signal),
    enabled,
    staleTime: over ? 60_000 : 0,
    refetchInterval: over ? (false as const) : RUNNING_AGAIN,
    placeholderData: keepPreviousData<ChartData>,
    structuralSharing: false,
  };
}

async function renewed(
  client: QueryClient,
  key: readonly unknown[],
  id: string,
  choice: Choice,
  signal: AbortSignal,
): Promise<ChartData> {
  const known = client.getQueryData<ChartData>(key);
  if (known && (choice.until === null || choice.until === undefined)) {
    const from = secondLast(known);
    const most = Math.max(0, ...known.series.map((curve) => curve.start.length));
    if (from !== null && most <= choice.buckets) {
      const fresh = await asked(id, { ...choice, from, width: known.width }, signal);
      const whole = extended(known, fresh, from);
      if (whole) return whole;
    }
  }
  return asked(id, choice, signal);
}

async function asked(id: string, choice: Choice, signal: AbortSignal): Promise<ChartData> {
  return unpacked(await (await fetched(seriesPath(id, choice), { signal })).arrayBuffer());
}

/** Where the last buckets of all curves begin: what came since can only have changed those. */
function secondLast(chart: ChartData): number | null {
  const found = chart.series.map((curve) => curve.start.at(-2)).filter((start) => start !== undefined);
  return found.length && found.length === chart.series.length ? Math.min(...found) : null;
}
