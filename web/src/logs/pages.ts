/**
 * A list of a million lines, of which a few pages are here. It knows how many lines there are, loads the pages that
 * are looked at, and forgets those that are not. No React.
 */

import { fetched } from "../api/client";
import { anchorOf, type LogLine, type LogOf, type Place } from "./lines";

export const PAGE = 100;
const KEPT = 60; // pages, beside those that are wanted
const FIRST = 3 * PAGE;
const MOST = 10; // pages of one request
/** Lines of several replicas may come a little late: the newest pages are asked for again. So many lines, and of each replica. */
const UNSETTLED = 400;
const UNSETTLED_EACH = 8;
/** Lines of each replica that tell where equal lines of others belong. */
const WARM_EACH = 8;

/** Which lines. With `filter` only those that match, counted by themselves. */
export interface LogChoice {
  id: string;
  replicas: readonly string[];
  attempt: number | null;
  stream: number | null;
  filter: string;
  regex: boolean;
  collapse: boolean;
}

export interface Window {
  total: number;
  first: number;
  lines: LogLine[];
  logs: LogOf[];
}

export interface Page {
  lines: LogLine[];
}

/** A request that is on its way. */
interface Asked {
  numbers: number[];
  abort: AbortController;
  done: Promise<void>;
}

/** How lines are asked for; tests give their own. */
export interface Source {
  window(start: number, count: number, signal?: AbortSignal): Promise<Window>;
  /** The last lines, however many there are. */
  tail(count: number, signal?: AbortSignal): Promise<Window>;
  /** The place of a line in the list, or where it would be. */
  locate(where: Place | { time: number }): Promise<number>;
}

export class LogPages {
  total = 0;
  logs: LogOf[] = [];
  /** Whether the first answer has come. */
  known = false;
  error: unknown = null;
  /** Whether somebody looks at the end: then that is what a refresh brings. */
  following = false;
  /** Grows with each change, for React. */
  version = 0;
  private readonly pages = new Map<number, Page>();
  private readonly asked = new Map<number, Asked>();
  private readonly watchers = new Set<() => void>();
  private readonly abort = new AbortController();
  private wanted = new Set<number>();
  private refreshing: Promise<void> | null = null;

  constructor(
    readonly source: Source,
    readonly collapse: boolean,
  ) {}

  watch = (told: () => void): (() => void) => {
    this.watchers.add(told);
    return () => this.watchers.delete(told);
  };

  close(): void {
    this.abort.abort();
    this.watchers.clear();
  }

  get count(): number {
    return Math.ceil(this.total / PAGE);
  }

  page(number: number): Page | undefined {
    return this.pages.get(number);
  }

  /** How many pages before those that are shown tell which of their lines belong to earlier rows. */
  get warm(): number {
    return this.collapse && this.logs.length > 1 ? Math.min(MOST, Math.ceil((WARM_EACH * this.logs.length) / PAGE)) : 0;
  }

  /** The pages around one that are here without a hole, within others; none when it is not here itself. */
  here(page: number, from: number, to: number): { from: number; to: number } | null {
    if (!this.pages.has(page)) return null;
    let first = page;
    let last = page;
    while (first > from && this.pages.has(first - 1)) first -= 1;
    while (last < to && this.pages.has(last + 1)) last += 1;
    return { from: first, to: last };
  }

  line(index: number): LogLine | undefined {
    return this.pages.get(Math.floor(index / PAGE))?.lines[index % PAGE];
  }

  /** Loads these pages if they are not here, neighbours at once; what was on its way and is not wanted any more is given up. */
  async want(numbers: readonly number[]): Promise<void> {
    this.wanted = new Set(numbers);
    for (const asked of new Set(this.asked.values()))
      if (!asked.numbers.some((number) => this.wanted.has(number))) asked.abort.abort();
    const missing = numbers.filter((number) => number >= 0 && !this.pages.has(number) && !this.asked.has(number));
    for (let i = 0; i < missing.length; ) {
      let end = i + 1;
      while (end < i + MOST && missing[end] === missing[end - 1]! + 1) end += 1;
      this.load(missing.slice(i, end));
      i = end;
    }
    await Promise.all(numbers.map((number) => this.asked.get(number)?.done));
  }

  /** How many lines there are now; the newest pages are looked at again. */
  refresh(): Promise<void> {
    this.refreshing ??= this.look().finally(() => {
      this.refreshing = null;
    });
    return this.refreshing;
  }

  /** Lines from one place to another, both included, however far apart; at most `most`. */
  async range(first: number, last: number, most = 20_000): Promise<LogLine[]> {
    const found: LogLine[] = [];
    const end = Math.min(last + 1, first + most);
    for (let at = first; at < end; at += 1000) {
      const window = await this.source.window(at, Math.min(1000, end - at));
      found.push(...window.lines);
    }
    return found;
  }

  private async look(): Promise<void> {
    const before = this.total;
    try {
      const window = this.known
        ? await this.source.window(this.unsettled, MOST * PAGE, this.abort.signal)
        : this.following
          ? await this.source.tail(FIRST, this.abort.signal)
          : await this.source.window(0, FIRST, this.abort.signal); // who looks first sees the first pages, or the end
      // Much was printed since: what is between is loaded when somebody goes there. The list is as long as it was until
      // its end is here, too: who follows would see nothing meanwhile.
      const far = this.following && window.first + window.lines.length < window.total;
      const end = far ? await this.source.tail(MOST * PAGE, this.abort.signal) : null;
      const same = window.total === before && this.known && unchanged(this.line(before - 1), window.lines.at(-1));
      this.take(window);
      if (same) return;
      this.put(window);
      if (end) {
        this.take(end);
        this.put(end);
      }
    } catch (error) {
      this.failed(error);
    }
    this.changed();
  }

  /** From which line on the order may still change. */
  private get unsettled(): number {
    const lines = Math.min(Math.max(UNSETTLED, UNSETTLED_EACH * this.logs.length), (MOST * PAGE) / 2);
    return Math.max(0, Math.floor((this.total - lines) / PAGE) * PAGE);
  }

  private load(numbers: number[]): void {
    const abort = new AbortController();
    const asked: Asked = { numbers, abort, done: Promise.resolve() };
    asked.done = this.source
      .window(numbers[0]! * PAGE, numbers.length * PAGE, AbortSignal.any([this.abort.signal, abort.signal]))
      .then((window) => {
        // How long the list is now is told by a refresh alone, which brings the pages that this changes.
        this.take(this.known ? { ...window, total: Math.max(this.total, window.first + window.lines.length) } : window);
        this.put(window, (number) => !this.pages.has(number)); // what came meanwhile is newer
      })
      .catch((error) => this.failed(error))
      .finally(() => {
        for (const number of numbers) if (this.asked.get(number) === asked) this.asked.delete(number);
        if (!abort.signal.aborted) this.changed();
      });
    for (const number of numbers) this.asked.set(number, asked);
  }

  private take(window: Window): void {
    this.total = window.total;
    if (window.logs.length) this.logs = window.logs;
    this.known = true;
    this.error = null;
  }

  private put(window: Window, wanted: (number: number) => boolean = () => true): void {
    const end = window.first + window.lines.length;
    for (let number = Math.ceil(window.first / PAGE); number * PAGE < end; number += 1) {
      const lines = window.lines.slice(number * PAGE - window.first, (number + 1) * PAGE - window.first);
      const whole = lines.length === PAGE || end >= this.total;
      if (!whole || !wanted(number)) continue;
      const before = this.pages.get(number)?.lines;
      this.pages.delete(number);
      this.pages.set(number, { lines: before ? lines.map((line, i) => known(before[i], line)) : lines });
    }
    for (const number of [...this.pages.keys()]) if (number * PAGE >= this.total) this.pages.delete(number);
    const others = [...this.pages.keys()].filter((number) => !this.wanted.has(number)); // the oldest first
    for (const number of others.slice(0, Math.max(0, others.length - KEPT))) this.pages.delete(number);
  }

  private failed(error: unknown): void {
    if (error instanceof DOMException && error.name === "AbortError") return;
    this.error = error;
  }

  private changed(): void {
    this.version += 1;
    for (const told of this.watchers) told();
  }
}

/** Lines of a server. */
export function served(choice: LogChoice): Source {
  const path = (what: "window" | "search") => {
    const query = parameters(choice);
    if (what === "search") {
      query.set(choice.regex ? "regex" : "text", choice.filter);
      query.set("ignore_case", "true");
    }
    return { base: `/api/experiments/${encodeURIComponent(choice.id)}/logs/${what}`, query };
  };
  if (!choice.filter)
    return {
      async window(start, count, signal) {
        const { base, query } = path("window");
        query.set("line", String(start));
        query.set("before", "0");
        query.set("after", String(count));
        return (await fetched(`${base}?${query}`, { signal })).json();
      },
      async tail(count, signal) {
        const { base, query } = path("window");
        query.set("line", "-1");
        query.set("before", String(count));
        query.set("after", "0");
        return (await fetched(`${base}?${query}`, { signal })).json();
      },
      async locate(where) {
        const { base, query } = path("window");
        if ("line" in where) query.set("anchor", anchorOf(where));
        else query.set("time", String(where.time));
        query.set("before", "0");
        query.set("after", "0");
        return ((await (await fetched(`${base}?${query}`)).json()) as Window).first;
      },
    };
  const hits = async (start: number, count: number, signal?: AbortSignal): Promise<Window> => {
    const { base, query } = path("search");
    query.set("from", String(start));
    query.set("limit", String(Math.min(1000, count)));
    const found = await (await fetched(`${base}?${query}`, { signal })).json();
    return { total: found.count, first: found.first, lines: found.hits, logs: found.logs };
  };
  return {
    window: hits,
    async tail(count, signal) {
      const { total } = await hits(0, 0, signal);
      return hits(Math.max(0, total - count), 1000, signal);
    },
    async locate(where) {
      const { base, query } = path("search");
      if (!("line" in where)) return 0;
      query.set("anchor", anchorOf(where));
      query.set("limit", "0");
      return (await (await fetched(`${base}?${query}`)).json()).first;
    },
  };
}

/** One hit of a search, and how many there are. */
export interface Found {
  count: number;
  /** Its number among the hits. */
  at: number;
  hit: LogLine | null;
}

/** The n-th hit, or the first at or after a line. */
export async function search(
  choice: LogChoice,
  words: { text: string; regex: boolean },
  where: { from: number } | { anchor: string },
): Promise<Found> {
  const query = parameters(choice);
  query.set(words.regex ? "regex" : "text", words.text);
  query.set("ignore_case", "true");
  query.set("limit", "1");
  if ("from" in where) query.set("from", String(where.from));
  else query.set("anchor", where.anchor);
  const found = await (await fetched(`/api/experiments/${encodeURIComponent(choice.id)}/logs/search?${query}`)).json();
  return { count: found.count, at: found.first, hit: found.hits[0] ?? null };
}

function parameters(choice: LogChoice): URLSearchParams {
  const query = new URLSearchParams();
  for (const replica of choice.replicas) query.append("replica", replica);
  if (choice.attempt !== null) query.set("attempt", String(choice.attempt));
  if (choice.stream) query.set("stream", String(choice.stream));
  return query;
}

/** The line as it is known already, unless it has changed: what is the same need not be drawn again. */
function known(before: LogLine | undefined, now: LogLine): LogLine {
  return before && before.attempt === now.attempt && before.try === now.try && unchanged(before, now) ? before : now;
}

function unchanged(known: LogLine | undefined, now: LogLine | undefined): boolean {
  return (
    known?.text === now?.text &&
    known?.line === now?.line &&
    known?.replica === now?.replica &&
    known?.complete === now?.complete
  );
}
