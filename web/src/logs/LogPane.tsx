/**
 * Shows a list of any length: a few pages of it exist at a time and scroll as browsers do; the bar at the side stands
 * for all of it. What is looked at stays where it is when pages come and go above it.
 */

import { Button } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { ArrowDown } from "lucide-react";
import {
  type ReactNode,
  type Ref,
  useCallback,
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { ErrorBox, Waiting } from "../look/Notes";
import { count } from "../look/numbers";
import { Bar, type BarHandle } from "./LogBar";
import { PageRows, type RowsLook } from "./LogRows";
import type { LogLine } from "./lines";
import classes from "./logs.module.css";
import { type LogPages, PAGE } from "./pages";
import { kept as keptRows, type Row, rowsOf, rowWith, widest } from "./repeats";
import { around, FAR, fitted, type Span as Pages, turned, warmFor } from "./span";

/** What the page around it can ask for. */
export interface PaneHandle {
  goTo: (index: number) => void;
  /** The first line that is seen. */
  top: () => LogLine | undefined;
  focus: () => void;
}

interface Props extends RowsLook {
  pages: LogPages;
  label: string;
  wrap: boolean;
  follow: boolean;
  setFollow: (follow: boolean) => void;
  empty: ReactNode;
  ref?: Ref<PaneHandle>;
}

const LINE = 18; // pixels
const FURTHEST = 60; // pages before a line in which its row is looked for
const AWAY = 2000; // ms until what could not be loaded is asked for again
const BACK_KEYS = ["PageUp", "ArrowUp"];
const ON_KEYS = ["PageDown", "ArrowDown", " "];

export function LogPane(props: Props) {
  const { pages, follow, setFollow, ref } = props;
  useSyncExternalStore(pages.watch, () => pages.version);
  const box = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState<Pages & { centre: number }>({ from: 0, to: 2, centre: 0 });
  const [reach, setReach] = useState(2); // pages before the last, while that is followed
  const seen = useRef({ first: 0, last: 0 });
  const bar = useRef<BarHandle>(null);
  const target = useRef<number | null>(null);
  const held = useRef<{ index: number; offset: number } | null>(null);
  const top = useRef(0); // where we left it: if it is elsewhere, the reader has scrolled
  const [leftAt, setLeftAt] = useState<number | null>(null);
  const [wide, setWide] = useState(0); // pages of warming up that ranks far apart need
  const widening = useRef(0);
  const grown = useRef(false); // since something else changed: then nothing is taken away, or it might go on for ever
  const [, again] = useState(0);

  const { version } = pages;
  const warm = Math.max(pages.warm, wide);
  const last = Math.max(0, pages.count - 1);
  const to = follow ? last : Math.min(place.to, last);
  const from = Math.max(0, follow ? last - Math.max(reach, warm) : Math.min(place.from, to));
  const centre = follow ? last : Math.min(Math.max(place.centre, from), to);
  const here = pages.here(centre, from, to);
  const first = here && (here.from === 0 ? 0 : Math.min(here.from + warm, here.to));
  const shown = useRows(pages, here, first ?? 0, version);

  // Whoever drags the bar passes many pages: only those where it rests are loaded.
  // biome-ignore lint/correctness/useExhaustiveDependencies: a refresh may have dropped pages
  useEffect(() => {
    if (!pages.known || (here?.from === from && here.to === to)) return; // the first look brings the first pages
    const numbers = Array.from({ length: to - from + 1 }, (_, i) => from + i);
    const pause = pages.error ? AWAY : target.current === null ? 0 : 60;
    const timer = setTimeout(() => void pages.want(numbers), pause);
    return () => clearTimeout(timer);
  }, [pages, from, to, version]);

  const goTo = useCallback(
    (index: number) => {
      const wanted = Math.max(0, pages.known ? Math.min(index, pages.total - 1) : index);
      const page = Math.floor(wanted / PAGE);
      target.current = wanted;
      held.current = null;
      setFollow(false);
      setPlace({ ...around(page, pages.known ? pages.count - 1 : page + 1, pages.warm), centre: page });
      again((times) => times + 1);
    },
    [pages, setFollow],
  );
  useImperativeHandle(ref, () => ({
    goTo,
    top: () => pages.line(seen.current.first),
    focus: () => box.current?.focus(),
  }));

  /** Which rows are seen; the first of them is held in its place. */
  const look = () => {
    const host = box.current!;
    const rows = rowsIn(host);
    top.current = host.scrollTop;
    const begin = firstBelow(rows, host.scrollTop);
    if (!rows[begin]) return;
    held.current = { index: indexOf(rows[begin]), offset: rows[begin].offsetTop - host.scrollTop };
    const next = rows[firstFrom(rows, host.scrollTop + host.clientHeight)];
    // A row shows lines that come later in the list, too: all up to the next row are seen.
    const end = next ? indexOf(next) - 1 : Math.min(pages.total, (here!.to + 1) * PAGE) - 1;
    seen.current = { first: held.current.index, last: Math.max(end, held.current.index) };
    bar.current?.show(seen.current);
  };

  const within = (next: Pages) => ({
    ...next,
    centre: Math.min(Math.max(centre, next.from + (next.from ? warm : 0)), next.to),
  });
  const move = (next: Pages) => {
    if (next.from === from && next.to === to) return false;
    if (follow) setReach(last - next.from);
    else setPlace(within(next));
    return true;
  };

  /** Takes more pages, or fewer, as the height of their rows asks for; whether that changes anything. */
  const refit = (): boolean => {
    const host = box.current!;
    if (here?.from !== from || here.to !== to) return true; // they are on their way
    if (target.current !== null && !rowWith(shown, target.current) && from > Math.max(0, centre - FURTHEST))
      return move({ from: Math.max(0, from - Math.max(1, warm)), to }); // its row began before
    const wider = pages.warm > 0 ? warmFor(widest(shown) / PAGE) : 0;
    if (wider > warm) {
      // More pages come before, and are shown; then they only tell what belongs where: what is seen never goes away.
      if (from > 0 && widening.current !== wider) {
        widening.current = wider;
        return move({ from: Math.max(0, from - (wider - warm)), to });
      }
      setWide(wider);
      return true;
    }
    const rows = rowsIn(host);
    const end = rows.length ? rows.at(-1)!.offsetTop + rows.at(-1)!.offsetHeight : 0;
    const bottom = host.scrollTop + host.clientHeight;
    const near = rows[firstBelow(rows, host.scrollTop - FAR)];
    const beyond = rows[firstFrom(rows, bottom + FAR)];
    const sight = {
      above: rows.length ? host.scrollTop - rows[0]!.offsetTop : 0,
      below: end - bottom,
      perPage: Math.max(LINE, (end - (rows[0]?.offsetTop ?? 0)) / (to - first! + 1)),
      needed: {
        from: near ? Math.floor(indexOf(near) / PAGE) : from,
        to: beyond ? Math.floor(indexOf(beyond) / PAGE) : to,
      },
    };
    const next = fitted({ from, to }, sight, last, warm);
    if (follow) next.to = to;
    if (grown.current) {
      next.from = Math.min(next.from, from);
      next.to = Math.max(next.to, to);
    }
    if (next.from < from || next.to > to) grown.current = true;
    return move(next);
  };

  // biome-ignore lint/correctness/useExhaustiveDependencies: with each version there may be fewer
  useLayoutEffect(() => {
    grown.current = false;
  }, [version]);
  // After each change of what exists: go where somebody wants to go, else hold what was seen.
  useLayoutEffect(() => {
    pages.following = follow;
    const host = box.current;
    if (!host) return;
    const index = target.current ?? held.current?.index;
    const row = index === undefined ? undefined : rowWith(shown, index);
    const element = row && host.querySelector<HTMLElement>(`[data-index="${row.index}"]`);
    if (follow) host.scrollTop = host.scrollHeight;
    else if (element && target.current !== null) host.scrollTop = element.offsetTop - host.clientHeight / 3;
    else if (element) host.scrollTop = element.offsetTop - held.current!.offset;
    top.current = host.scrollTop;
    if (!here) return;
    if (target.current === null || element) look();
    if (!refit()) target.current = null;
  });

  const scrolled = () => {
    const host = box.current!;
    const by = host.scrollTop - top.current;
    if (by === 0) return; // sideways, or by ourselves
    target.current = null;
    grown.current = false;
    const rest = host.scrollHeight - host.scrollTop - host.clientHeight;
    if (!here) return;
    look();
    if (follow) {
      if (rest > 24) leave({ from, to });
    } else if (by > 0 && rest < 4 && here.to === last) setFollow(true);
    else refit();
  };
  const leave = (next: Pages) => {
    setPlace(within(next));
    setLeftAt(pages.total);
    setFollow(false);
  };
  /** Where so many ranks print the same that all pages together fill no pane, nothing scrolls: pages are turned instead. */
  const turn = (by: 1 | -1) => {
    const host = box.current!;
    const rest = host.scrollHeight - host.scrollTop - host.clientHeight;
    if (here?.from !== from || here.to !== to || (by < 0 ? host.scrollTop > 0 : rest > 1)) return;
    const next = turned({ from, to }, by, last);
    if (next.from === from) return;
    target.current = null;
    if (follow) leave(next);
    else move(next);
  };

  const navigate = useNavigate();
  /** A press on a time: links of the router are too heavy for every row. */
  const clicked = (event: React.MouseEvent) => {
    const time = (event.target as HTMLElement).dataset.time;
    if (!time || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const search = (before: Record<string, string>) => ({
      replicas: before.replicas,
      attempt: before.attempt,
      x: "time",
      cursor: time,
    });
    void navigate({
      to: "/experiments/$id/$tab",
      params: { id: props.experiment, tab: "metrics" },
      search: search as never,
    });
  };
  const keys = (event: React.KeyboardEvent) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey) return;
    if (event.key === "Home") goTo(0);
    else if (event.key === "End") setFollow(true);
    else {
      if (BACK_KEYS.includes(event.key)) turn(-1);
      if (ON_KEYS.includes(event.key)) turn(1);
      return;
    }
    event.preventDefault();
  };

  const fresh = !follow && leftAt !== null ? Math.max(0, pages.total - leftAt) : 0;
  useEffect(() => {
    if (follow) setLeftAt(null);
    else if (pages.known) setLeftAt((before) => before ?? pages.total);
  }, [follow, pages, pages.known]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another list has other new lines, and other ranks
  useEffect(() => {
    setLeftAt(null);
    setWide(0);
    widening.current = 0;
  }, [pages]);

  if (!pages.known)
    return (
      <div className={classes.pane}>
        {pages.error ? <ErrorBox error={pages.error} retry={() => void pages.refresh()} /> : <Waiting what="the log" />}
      </div>
    );
  if (pages.total === 0) return <div className={classes.pane}>{props.empty}</div>;
  return (
    <div className={classes.pane}>
      <div
        ref={box}
        className={classes.lines}
        data-wrap={props.wrap || undefined}
        role="log"
        aria-live="off"
        aria-label={props.label}
        tabIndex={0}
        onScroll={scrolled}
        onWheel={(event) => event.deltaY && turn(event.deltaY > 0 ? 1 : -1)}
        onKeyDown={keys}
        onClick={clicked}
      >
        {!here && <div className={classes.loading} style={{ height: "100%" }} aria-hidden />}
        {byPage(shown).map((rows) => (
          <PageRows
            key={Math.floor(rows[0]!.index / PAGE)}
            rows={rows}
            experiment={props.experiment}
            names={props.names}
            times={props.times}
            at={props.at}
            hit={props.hit}
            chosen={props.chosen}
            words={props.words}
            pick={props.pick}
            rankOf={props.rankOf}
          />
        ))}
      </div>
      <Bar ref={bar} total={pages.total} goTo={goTo} label={props.label} />
      {fresh > 0 && (
        <Button
          className={classes.fresh}
          radius="xl"
          leftSection={<ArrowDown size={13} aria-hidden />}
          onClick={() => setFollow(true)}
        >
          {count(fresh)} new
        </Button>
      )}
    </div>
  );
}

/** The rows of these pages from one on; those before it only tell which lines belong to earlier rows. */
function useRows(pages: LogPages, here: Pages | null, first: number, version: number): Row[] {
  const before = useRef<Row[]>([]);
  const [from, to] = here ? [here.from, here.to] : [0, -1];
  // biome-ignore lint/correctness/useExhaustiveDependencies: with each version the pages may be others
  const rows = useMemo(() => {
    const lines = Array.from({ length: to - from + 1 }, (_, i) => pages.page(from + i)!.lines).flat();
    return keptRows(before.current, rowsOf(lines, from * PAGE, pages.collapse, (first - from) * PAGE));
  }, [pages, from, to, first, version]);
  useEffect(() => {
    before.current = rows;
  }, [rows]);
  return rows;
}

const grouped = new WeakMap<Row, Row[]>();

/** Rows in groups by the page of their first line; a group whose rows are those of before is the one of before. */
function byPage(rows: readonly Row[]): Row[][] {
  const groups: Row[][] = [];
  for (const row of rows) {
    const group = groups.at(-1);
    if (group && Math.floor(group[0]!.index / PAGE) === Math.floor(row.index / PAGE)) group.push(row);
    else groups.push([row]);
  }
  return groups.map((group) => {
    const before = grouped.get(group[0]!);
    if (before?.length === group.length && before.every((row, i) => row === group[i])) return before;
    grouped.set(group[0]!, group);
    return group;
  });
}

function rowsIn(host: HTMLElement): HTMLElement[] {
  return [...host.querySelectorAll<HTMLElement>("[data-index]")];
}

function indexOf(row: HTMLElement): number {
  return Number(row.dataset.index);
}

/** The number of the first row that ends below a height. */
function firstBelow(rows: readonly HTMLElement[], height: number): number {
  return lowest(rows.length, (i) => rows[i]!.offsetTop + rows[i]!.offsetHeight > height);
}

/** The number of the first row that begins at a height or below it. */
function firstFrom(rows: readonly HTMLElement[], height: number): number {
  return lowest(rows.length, (i) => rows[i]!.offsetTop >= height);
}

/** The first number for which something is true that is true for all after it. */
function lowest(size: number, true_: (i: number) => boolean): number {
  let low = 0;
  let high = size;
  while (low < high) {
    const half = (low + high) >> 1;
    if (true_(half)) high = half;
    else low = half + 1;
  }
  return low;
}
