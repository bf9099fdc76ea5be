/** All experiments: a query, an order, columns, pins, all of it in the URL; rows change in place while they run. */

import { Button } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { ArrowUp } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, type Experiment } from "../api/client";
import { MOST } from "../compare/view";
import { type Key, useKeys } from "../frame/keys";
import { DataTable, type Sort } from "../look/DataTable";
import { CommandHint, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { several } from "../look/numbers";
import { remember, remembered, useRemembered } from "../url/remembered";
import type { Search } from "../url/search";
import { useView } from "../url/view";
import { BulkBar } from "./BulkBar";
import { ColumnPicker } from "./ColumnPicker";
import { columnsOf, type Manners, mannersOf } from "./cells";
import { DEFAULT, namesOf, suggested } from "./columns";
import type { Vocabulary } from "./completion";
import classes from "./experiments.module.css";
import { useList, useSome } from "./list";
import { QueryBar } from "./QueryBar";
import { SavedViews } from "./SavedViews";
import { readSort, writeSort } from "./sorting";

const VIEW = {
  q: "",
  sort: "",
  columns: [] as string[],
  /** Columns that stay at the left. */
  left: ["state", "name"],
  /** Rows that stay above. */
  pins: [] as string[],
  baseline: "",
};

export function ExperimentsPage() {
  useLastView();
  const navigate = useNavigate();
  const [view, setView] = useView(VIEW);
  const [dense, setDense] = useRemembered("dense", false);
  const [ticked, setTicked] = useState<Set<string>>(new Set());
  const [current, setCurrent] = useState<string>();
  const [scrolled, setScrolled] = useState(false);
  const queryInput = useRef<HTMLInputElement>(null);
  const list = useList(view.q, view.sort);
  const { known } = list;

  const seen = useMemo(() => [...known.values()].map((one) => one.row), [known]);
  const names = useNames(seen);
  const metrics = useMemo(() => new Set(names.metrics), [names]);
  const first = useRef<string[]>(undefined);
  if (!first.current && seen.length) first.current = suggested(seen.slice(0, 200));
  const shown = view.columns.length ? view.columns : (first.current ?? DEFAULT);

  const left = useMemo(() => view.left.filter((id) => shown.includes(id)), [view.left, shown]);
  const pins = useMemo(() => new Set(view.pins), [view.pins]);
  const top = useSome(view.pins);
  const baseline = useSome(useMemo(() => (view.baseline ? [view.baseline] : []), [view.baseline]))[0];
  const below = useMemo(
    () => (pins.size ? list.rows.filter((row) => !pins.has(row.id)) : list.rows),
    [list.rows, pins],
  );
  const away = view.pins.flatMap((id) => known.get(id)?.place ?? []); // pinned rows are not in their places
  const manners = JSON.stringify(useMemo(() => mannersOf(shown, seen, metrics), [shown, seen, metrics]));
  const columns = useMemo(
    () => columnsOf(shown, JSON.parse(manners) as Manners, metrics, baseline, pins),
    [shown, manners, metrics, baseline, pins],
  );
  const sort = useMemo(() => readSort(view.sort), [view.sort]);
  const words = useMemo(() => vocabulary(seen, names), [seen, names]);
  const [tickedAll, setTickedAll] = useState<readonly Experiment[]>([]);
  const chosen = useMemo(() => {
    const rowsById = new Map([...tickedAll, ...top].map((row) => [row.id, row]));
    for (const { row } of known.values()) rowsById.set(row.id, row);
    return [...ticked].flatMap((id) => rowsById.get(id) ?? []);
  }, [known, tickedAll, top, ticked]);
  const tickAll = async () => {
    try {
      const all = await list.all();
      setTickedAll(all);
      setTicked(new Set(all.map((row) => row.id)));
      if (all.length < list.total)
        notifications.show({ message: `Of ${list.total}, the first ${all.length} are ticked` });
    } catch (error) {
      notifications.show({ color: "red", title: "They could not be ticked", message: (error as Error).message });
    }
  };

  const newest = !view.q && !view.sort && !scrolled && ticked.size === 0;
  const { newcomers, renew } = list;
  useEffect(() => {
    if (newcomers && newest) renew();
  }, [newcomers, newest, renew]);

  const table = useRef<HTMLDivElement>(null);
  const move = (by: number) => {
    const place = below.findIndex((row) => row.id === current);
    setCurrent(below[Math.max(0, Math.min(below.length - 1, place + by))]?.id);
    table.current?.querySelector<HTMLElement>("[role=grid]")?.focus({ preventScroll: true }); // Enter is for the row now
  };
  const open = (row: Experiment) => void navigate({ to: "/experiments/$id", params: { id: row.id } });
  const keys: Key[] = [
    { keys: "/", does: "the query", run: () => queryInput.current?.focus() },
    { keys: "j", does: "next row", run: () => move(1) },
    { keys: "k", does: "row before", run: () => move(-1) },
    {
      keys: "x",
      does: "tick the row",
      run: () => {
        if (!current) return;
        const next = new Set(ticked);
        if (!next.delete(current)) next.add(current);
        setTicked(next);
      },
    },
    {
      keys: "Enter",
      does: "open the row",
      run: () => {
        const row = below.find((one) => one.id === current);
        if (row) open(row);
      },
    },
    {
      keys: "c",
      does: "compare what is ticked",
      run: () => {
        if (ticked.size > 1 && ticked.size <= MOST)
          void navigate({ to: "/compare", search: { ids: [...ticked].join(",") } as never });
      },
    },
  ];
  useKeys(keys);

  const refused = list.error instanceof ApiError && list.error.status === 422;
  return (
    <div className={classes.page}>
      <h1 className={classes.said}>Experiments</h1>
      <div className={classes.tools}>
        <QueryBar
          query={view.q}
          onQuery={(q) => setView({ q }, { push: true })}
          words={words}
          error={list.error}
          inputRef={queryInput}
        />
        <SavedViews />
        <ColumnPicker
          shown={shown}
          onShown={(next) => setView({ columns: next })}
          left={left}
          onLeft={(next) => setView({ left: next })}
          onReset={() => setView({ columns: [], left: VIEW.left })}
          params={names.params}
          metrics={names.metrics}
          dense={dense}
          onDense={setDense}
        />
      </div>
      {chosen.length > 0 && (
        <BulkBar
          ticked={chosen}
          onDone={() => setTicked(new Set())}
          pins={view.pins}
          onPins={(next) => setView({ pins: next })}
          baseline={view.baseline}
          onBaseline={(id) => setView({ baseline: id })}
        />
      )}
      {list.error && !refused ? <ErrorBox error={list.error} retry={renew} /> : null}
      <div ref={table} className={classes.table}>
        {newcomers > 0 && !newest && (
          <Button
            size="compact-sm"
            className={classes.newcomers}
            leftSection={<ArrowUp size={13} aria-hidden />}
            onClick={renew}
          >
            {several(newcomers, "new experiment")}
          </Button>
        )}
        {list.waiting && !list.error ? (
          <Waiting what="experiments" />
        ) : (
          <DataTable
            label="experiments"
            columns={columns}
            rows={below}
            offset={list.offset - away.filter((place) => place < list.offset).length}
            top={top}
            idOf={idOf}
            total={list.total - away.length}
            pinned={left}
            sort={sort}
            onSort={(next: Sort[]) => setView({ sort: writeSort(next) })}
            ticked={ticked}
            onTick={setTicked}
            onTickAll={list.total > list.rows.length ? () => void tickAll() : undefined}
            current={current}
            onOpen={open}
            onSeen={list.look}
            onScrolled={setScrolled}
            rowHeight={dense ? 26 : 32}
            rowClass={() => (list.old ? "stale" : undefined)}
            empty={refused ? null : view.q ? <NoMatch onClear={() => setView({ q: "" })} /> : <NoneYet />}
          />
        )}
      </div>
      <footer className={classes.foot}>
        <span>{several(list.total, "experiment")}</span>
        <span style={{ flex: 1 }} />
        <CommandHint command={command(view.q, view.sort)} />
      </footer>
    </div>
  );
}

function NoMatch({ onClear }: { onClear: () => void }) {
  return (
    <EmptyState title="No experiment matches">
      There are experiments, but none that the query finds.{" "}
      <Button variant="subtle" size="compact-sm" onClick={onClear}>
        Clear the query
      </Button>
    </EmptyState>
  );
}

function NoneYet() {
  return (
    <EmptyState title="No experiments yet" command="shoal run examples/quickstart">
      What you run, here or on the command line, is listed on this page.
    </EmptyState>
  );
}

/** Without a view in the URL, the last one of this browser; "All" in the views means none. */
function useLastView() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const began = useRef(false);
  useEffect(() => {
    if (!began.current) {
      began.current = true;
      const last = remembered<Search>("experiments", {});
      if (Object.keys(search).length === 0 && Object.keys(last).length > 0) {
        void navigate({ to: "/experiments", search: last as never, replace: true });
        return;
      }
    }
    remember("experiments", search);
  }, [search, navigate]);
}

/** Names of params and metrics; the same object while they are the same. */
function useNames(rows: readonly Experiment[]): { params: string[]; metrics: string[] } {
  const names = JSON.stringify(useMemo(() => namesOf(rows), [rows]));
  return useMemo(() => JSON.parse(names), [names]);
}

function vocabulary(rows: readonly Experiment[], names: { params: string[]; metrics: string[] }): Vocabulary {
  const some = rows.slice(0, 1000);
  const distinct = (values: Iterable<string>) => [...new Set(values)].slice(0, 50);
  const params = Object.fromEntries(
    names.params.map((name) => [
      `params.${name}`,
      distinct(some.flatMap((row) => (row.params[name] === undefined ? [] : [String(row.params[name])]))).slice(0, 12),
    ]),
  );
  return {
    ...names,
    values: {
      ...params,
      name: distinct(some.flatMap((row) => row.name ?? [])),
      cluster: distinct(some.map((row) => row.cluster)),
      tags: distinct(some.flatMap((row) => row.tags)),
    },
  };
}

function command(q: string, sort: string): string {
  const quoted = (text: string) => `'${text.replace(/'/g, "'\\''")}'`;
  return `shoal ls${q ? ` -q ${quoted(q)}` : ""}${sort ? ` --sort ${quoted(sort)}` : ""}`;
}

function idOf(row: Experiment): string {
  return row.id;
}
