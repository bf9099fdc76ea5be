/**
 * What happens on the server, while it happens: one EventSource for the whole page.
 *
 * It remembers the id of the last event, so nothing is missed when the connection breaks, the server restarts, or
 * the tab was hidden (a hidden tab holds no connection: browsers allow six per host).
 */

import { useEffect, useSyncExternalStore } from "react";

export type Status = "connecting" | "live" | "broken" | "paused";

/** One change of a state, as /api/events tells it. */
export interface Change {
  number: number;
  time: number;
  id: string;
  attempt: number;
  replica: string | null;
  try: number | null;
  from_state: string;
  to_state: string;
  reason: string;
}

/** Who has new points, records or log lines: ask for what you lack. */
export interface Tracked {
  experiments: { id: string; points: boolean; records: boolean; logs: boolean }[];
}

type Handler = (data: never) => void;

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;

export class Live {
  status: Status = "connecting";
  /** When the last word of the server came, in ms. */
  heard = 0;
  /** Up to when nothing was missed, in ms: when a connection that lived was lost. */
  lost = 0;
  private source: EventSource | undefined;
  private cursor = "";
  private pause = FIRST_PAUSE;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private missed = false;
  private readonly watchers = new Set<() => void>();
  private readonly handlers = new Map<string, Set<Handler>>();

  constructor(private readonly path = "/api/events?tracked=true") {}

  start(): () => void {
    const seen = () => (document.hidden ? this.close("paused") : this.open());
    document.addEventListener("visibilitychange", seen);
    seen();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      this.close("paused");
    };
  }

  /** Calls `handler` with the data of each event of this kind: change, tracked; healed when more may have been missed. */
  on<T>(kind: string, handler: (data: T) => void): () => void {
    const known = this.handlers.get(kind);
    const handlers = known ?? new Set<Handler>();
    this.handlers.set(kind, handlers.add(handler as Handler));
    if (!known && this.source && !["change", "tracked", "stale"].includes(kind)) this.listen(this.source, kind);
    return () => handlers.delete(handler as Handler);
  }

  watch = (told: () => void): (() => void) => {
    this.watchers.add(told);
    return () => this.watchers.delete(told);
  };

  private open(): void {
    if (this.source) return;
    clearTimeout(this.timer);
    this.become("connecting");
    const source = new EventSource(this.cursor ? `${this.path}&cursor=${this.cursor}` : this.path);
    this.source = source;
    source.onopen = () => {
      this.pause = FIRST_PAUSE;
      this.heard = Date.now();
      this.become("live");
      if (this.missed) this.tell("healed", undefined);
      this.missed = false;
    };
    source.onerror = () => {
      if (this.status === "live") this.lost = Date.now();
      // Also for refusals, after which a browser does not try again by itself.
      this.close("broken");
      this.missed = true; // what was asked for meanwhile has failed, too
      this.timer = setTimeout(() => !document.hidden && this.open(), this.pause);
      this.pause = Math.min(LONGEST_PAUSE, this.pause * 2);
    };
    for (const kind of new Set(["change", "tracked", "stale", ...this.handlers.keys()])) this.listen(source, kind);
  }

  private listen(source: EventSource, kind: string): void {
    if (kind === "healed") return;
    source.addEventListener(kind, (event) => {
      this.heard = Date.now();
      if (event.lastEventId) this.cursor = event.lastEventId; // opaque: it is only given back
      if (kind === "stale") this.tell("healed", undefined);
      else this.tell(kind, event.data ? JSON.parse(event.data) : undefined);
    });
  }

  private close(status: Status): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
    if (!this.cursor) this.missed = true; // with one, what happens meanwhile is told from there on
    this.become(status);
  }

  private tell(kind: string, data: unknown): void {
    for (const handler of this.handlers.get(kind) ?? []) handler(data as never);
  }

  private become(status: Status): void {
    if (status === this.status) return;
    this.status = status;
    for (const told of this.watchers) told();
  }
}

export const live = new Live();

/** Whether what is shown is up to date. */
export function useLive(): Status {
  return useSyncExternalStore(live.watch, () => live.status);
}

/** Calls the handler with each change of a state, of all experiments or of one. Give a stable handler (useCallback). */
export function useChanges(handler: (change: Change) => void, id?: string): void {
  useEffect(
    () =>
      live.on<Change>("change", (change) => {
        if (id === undefined || change.id === id) handler(change);
      }),
    [handler, id],
  );
}
