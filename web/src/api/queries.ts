/**
 * What pages ask for, each under one key. Everything of one experiment is below ["experiment", id].
 * Events tell what has changed or grown; then it is asked for, if somebody shows it.
 */

import { keepPreviousData, QueryClient, useQuery } from "@tanstack/react-query";
import { FINAL } from "../look/states";
import { ApiError, api, asked, type Experiment, type ExperimentDetail, type Stragglers, type Why } from "./client";
import { type Change, live, type Tracked } from "./live";

export const STACKS = "stacks"; // the key of what only a person asks for
export const RUNNING_AGAIN = 2500; // ms between looks at what grows, at least

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: (failures, error) => !(error instanceof ApiError) && failures < 3,
      retryDelay: (attempt) => Math.min(5000, 400 * 2 ** attempt),
      refetchOnWindowFocus: false, // `live` tells what was missed
      networkMode: "always", // the server may be on this machine: what a browser thinks of the network is no matter
    },
  },
});

/** One experiment with its replicas, by id, number or name; kept fresh while it runs. */
export function useExperiment(id: string) {
  return useQuery(experimentOf(id));
}

export function experimentOf(id: string) {
  return { queryKey: ["experiment", id], queryFn: () => experiment(id) };
}

export function experiment(id: string): Promise<ExperimentDetail> {
  return asked(api.GET("/api/experiments/{word}", { params: { path: { word: id } } }));
}

/** Which rank holds the others up; undefined while fewer than two log steps. Part of the answer to `useWhy`. */
export function useStragglers(id: string, over: boolean) {
  return useQuery({ ...renewed(id, over), select: stragglersIn });
}

/** What every rank printed last, and when. */
export function useWhy(id: string, over: boolean) {
  return useQuery(renewed(id, over));
}

/** What every rank of an earlier attempt did last; of none when it is null. */
export function useEarlierWhy(id: string, attempt: number | null) {
  return useQuery({
    queryKey: ["experiment", id, "why", attempt],
    queryFn: () =>
      asked(api.GET("/api/experiments/{word}/why", { params: { path: { word: id }, query: { attempt: attempt! } } })),
    enabled: attempt !== null,
  });
}

export function whyOf(id: string) {
  return {
    queryKey: ["experiment", id, "why"],
    queryFn: () => asked(api.GET("/api/experiments/{word}/why", { params: { path: { word: id } } })),
  };
}

function renewed(id: string, over: boolean) {
  return {
    ...whyOf(id),
    refetchInterval: over ? (false as const) : 2 * RUNNING_AGAIN,
    placeholderData: keepPreviousData as <T>(before: T | undefined) => T | undefined,
  };
}

function stragglersIn(why: Why): Stragglers | undefined {
  return why.stragglers ?? undefined;
}

/** How far each rank is: one row for each that logs this metric. */
export function useSteps(id: string, metric: string | undefined, attempt: number, over: boolean) {
  return useQuery({
    queryKey: ["experiment", id, "steps", metric, attempt],
    queryFn: () =>
      asked(
        api.GET("/api/experiments/{word}/metrics", {
          params: { path: { word: id }, query: { name: [metric!.replace(/[[*?]/g, "[$&]")], attempt } },
        }),
      ),
    enabled: metric !== undefined,
    refetchInterval: over ? false : 2 * RUNNING_AGAIN,
    placeholderData: keepPreviousData,
  });
}

export function useServer() {
  return useQuery({ queryKey: ["server"], queryFn: () => asked(api.GET("/api/server")), staleTime: 60_000 });
}

/** A list of experiments in its cache: rows in the order of the answer, and how many there are beyond them. */
export interface Listed {
  rows: Experiment[];
  /** How many match, if the server says. */
  total: number | null;
}

/**
 * Brings changes into what is shown: each experiment that changed is asked for once, however many of its replicas
 * did, and takes its row's place in every list.
 */
export function followChanges(client: QueryClient): () => void {
  const changed = new Set<string>();
  const over = new Set<string>();
  const grown = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let growing: ReturnType<typeof setTimeout> | undefined;

  const bring = async () => {
    timer = undefined;
    if (document.hidden) return;
    const ids = [...changed];
    const ended = [...over];
    changed.clear();
    over.clear();
    for (const id of ids) void client.invalidateQueries({ queryKey: ["experiment", id], exact: true });
    for (const id of ended) void client.invalidateQueries({ queryKey: ["experiment", id] });
    if (client.getQueryCache().findAll({ queryKey: ["experiments"], type: "active" }).length)
      await renewRows(client, ids);
    void client.invalidateQueries({ queryKey: ["clusters"] });
  };
  const grow = () => {
    growing = undefined;
    if (document.hidden) return;
    const ids = [...grown];
    grown.clear();
    for (const id of ids) void client.invalidateQueries({ queryKey: ["experiment", id], exact: true });
    void renewRows(client, shownRows(client, ids));
    tell(ids); // what they logged may make them match a query
  };
  const offs = [
    live.on<Tracked>("tracked", ({ experiments }) => {
      for (const one of experiments) if (one.points || one.records) grown.add(one.id);
      if (grown.size) growing ??= setTimeout(grow, RUNNING_AGAIN);
    }),
    live.on<Change>("change", (change) => {
      changed.add(change.id);
      if (change.replica === null && FINAL.has(change.to_state)) over.add(change.id);
      timer ??= setTimeout(bring, 150);
    }),
    live.on("healed", () => void renewAll(client)),
  ];
  /** A hidden tab asks for nothing: what it heard last is asked for when somebody looks again. */
  const seen = () => {
    if (document.hidden) return;
    if (changed.size) timer ??= setTimeout(bring, 150);
    if (grown.size) growing ??= setTimeout(grow, RUNNING_AGAIN);
  };
  document.addEventListener("visibilitychange", seen);
  return () => {
    document.removeEventListener("visibilitychange", seen);
    clearTimeout(timer);
    clearTimeout(growing);
    for (const off of offs) off();
  };
}

/** Asks anew for everything that is shown, but not where ranks are: to look stops each of them for a moment. */
export function renewAll(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ predicate: (query) => query.queryKey[0] !== STACKS });
}

/** Those of the ids that a list shows. */
function shownRows(client: QueryClient, ids: string[]): string[] {
  const shown = new Set<string>();
  for (const query of client.getQueryCache().findAll({ queryKey: ["experiments"], type: "active" }))
    for (const row of (query.state.data as Listed | undefined)?.rows ?? []) shown.add(row.id);
  return ids.filter((id) => shown.has(id));
}

/** Asks for these experiments and puts them in place; who asked by onChanged hears which. */
export async function renewRows(client: QueryClient, ids: string[]): Promise<void> {
  for (let start = 0; start < ids.length; start += 100) {
    const part = ids.slice(start, start + 100);
    const rows = await asked(
      api.GET("/api/experiments", {
        params: { query: { q: `id:${part.join("|")}`, limit: part.length, roles: true } },
      }),
    ).catch(() => []);
    client.setQueriesData<Listed>({ queryKey: ["experiments"] }, (list) =>
      list?.rows ? { ...list, rows: inPlace(list.rows, rows) } : list,
    );
    tell(rows.map((row) => row.id));
  }
}

function tell(ids: string[]) {
  if (ids.length) for (const told of listeners) told(ids);
}

const listeners = new Set<(ids: string[]) => void>();

/** Calls back with the ids of experiments that have changed, new ones too. */
export function onChanged(told: (ids: string[]) => void): () => void {
  listeners.add(told);
  return () => listeners.delete(told);
}

/** The rows, with newer ones in the place of older; the same array when nothing changed. Pure. */
export function inPlace<T extends { id: string }>(rows: readonly T[], newer: readonly T[]): T[] {
  const byId = new Map(newer.map((row) => [row.id, row]));
  if (!rows.some((row) => byId.has(row.id))) return rows as T[];
  return rows.map((row) => byId.get(row.id) ?? row);
}
