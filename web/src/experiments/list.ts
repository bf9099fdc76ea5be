/**
 * The rows of the list: of all that match, the part around what is looked at is here. Asked for once, then kept fresh
 * in place.
 */

import { keepPreviousData, replaceEqualDeep, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api, asked, type Experiment } from "../api/client";
import { type Listed, onChanged } from "../api/queries";
import { PART, partFor } from "./parts";

const MOST = 10_000; // what the server gives at once
const REST = 60; // ms that somebody who scrolls far has to rest before rows are asked for

/** Rows of one query, and where in the list they begin. */
interface Part extends Listed {
  of: string;
  offset: number;
}

export function useList(q: string, sort: string) {
  const client = useQueryClient();
  const of = `${sort} ${q}`;
  const [wanted, want] = useState({ of, offset: 0 });
  const offset = wanted.of === of ? wanted.offset : 0;
  const [fresh, setFresh] = useState({ of, count: 0 });
  const list = useQuery<Part>({ ...partOf(q, sort, offset), placeholderData: keepPreviousData });
  const part = list.data;
  const { rows, known } = useKnown(part);
  const total = part?.total ?? rows.length;

  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const newest = useRef({ of, part, known, total });
  newest.current = { of, part, known, total };
  /** Told which rows are seen: what lies around them is asked for. */
  const look = useCallback((first: number, last: number) => {
    const { of, part } = newest.current;
    clearTimeout(timer.current);
    if (part?.of !== of) return;
    const next = partFor(first, last, part);
    if (next === null) return;
    const near = first <= part.offset + part.rows.length && last >= part.offset;
    timer.current = setTimeout(() => want({ of, offset: next }), near ? 0 : REST);
  }, []);
  useEffect(() => () => clearTimeout(timer.current), []);

  // The list holds a part of what matches: whether one that is not here is new to it, only the server can tell.
  useEffect(
    () =>
      onChanged(async (ids) => {
        if (ids.every((id) => newest.current.known.has(id))) return;
        const now = await listed(q, "", 0, 1).catch(() => null);
        if (now?.total == null || newest.current.of !== of) return;
        setFresh({ of, count: Math.max(0, now.total - newest.current.total) });
      }),
    [q, of],
  );

  return {
    rows,
    /** The place of the first of them in the list. */
    offset: part?.offset ?? 0,
    total,
    /** Every row that has been here, with its place: what it is called and how numbers are written depends on all. */
    known,
    error: list.error,
    /** The very first answer is on its way. */
    waiting: list.isPending,
    /** What is shown belongs to the query before. */
    old: part !== undefined && part.of !== of,
    look,
    /** All that match, for those who tick all. */
    all: () => listed(q, sort, 0, MOST).then((found) => found.rows),
    /** How many came to match since. */
    newcomers: fresh.of === of ? fresh.count : 0,
    renew: () => {
      setFresh({ of, count: 0 });
      void client.invalidateQueries({ queryKey: ["experiments"] });
    },
  };
}

/** What the list begins with, asked for while its page is still being loaded. */
export function firstPart(q: string, sort: string) {
  return partOf(q, sort, 0);
}

/** Some experiments by id, e.g. pinned ones: they may be far from what is looked at. */
export function useSome(ids: readonly string[]): Experiment[] {
  const word = [...ids].sort().join("|");
  const some = useQuery<Listed>({
    queryKey: ["experiments", "some", word],
    queryFn: () => listed(`id:${word}`, "", 0, Math.max(1, ids.length)),
    enabled: ids.length > 0,
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });
  const rows = some.data?.rows ?? NONE;
  return useMemo(() => rows.filter((row) => ids.includes(row.id)), [rows, ids]);
}

export interface Known {
  row: Experiment;
  place: number;
}

/** The rows that are here, and all that were: a row that came again unchanged is the same object, and so not drawn again. */
function useKnown(part: Part | undefined): { rows: Experiment[]; known: ReadonlyMap<string, Known> } {
  const kept = useRef<{ of: string; known: ReadonlyMap<string, Known> }>({ of: "", known: new Map() });
  return useMemo(() => {
    if (!part) return { rows: NONE, known: kept.current.known };
    const known = new Map(kept.current.of === part.of ? kept.current.known : []);
    const rows = part.rows.map((one, at) => {
      const row = replaceEqualDeep(kept.current.known.get(one.id)?.row, one) as Experiment;
      known.set(row.id, { row, place: part.offset + at });
      return row;
    });
    kept.current = { of: part.of, known };
    return { rows, known };
  }, [part]);
}

const NONE: Experiment[] = [];

function partOf(q: string, sort: string, offset: number) {
  return {
    queryKey: ["experiments", q, sort, offset],
    queryFn: async ({ signal }: { signal: AbortSignal }): Promise<Part> => {
      const found = await listed(q, sort, offset, PART, signal);
      return { ...found, of: `${sort} ${q}`, offset };
    },
    staleTime: 60_000, // events keep it fresh
  };
}

async function listed(q: string, sort: string, offset: number, limit: number, signal?: AbortSignal): Promise<Listed> {
  const answer = api.GET("/api/experiments", { params: { query: { q, sort, offset, limit, roles: true } }, signal });
  const rows = await asked(answer);
  const total = Number((await answer).response.headers.get("x-total-count") ?? Number.NaN);
  return { rows, total: Number.isFinite(total) ? total : null };
}
