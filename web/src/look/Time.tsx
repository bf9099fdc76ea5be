/** Times that grow while they are looked at. */

import { useSyncExternalStore } from "react";
import { absolute, ago, duration, elapsed } from "./times";

/** `5m ago`, with the whole date as tooltip. */
export function Ago({ time }: { time: number | null | undefined }) {
  const known = time ?? null;
  const words = useClock((now) => (known === null ? "" : ago(known, now)));
  if (known === null) return null;
  return (
    <time dateTime={new Date(known * 1000).toISOString()} title={absolute(known)}>
      {words}
    </time>
  );
}

/** `2h 13m`, counting while it is not finished. */
export function Elapsed({ of }: { of: { started?: number | null; finished?: number | null } }) {
  const words = useClock((now) => {
    const seconds = elapsed(of, now);
    return seconds === null ? "" : duration(seconds);
  });
  if (!words) return null;
  const title = of.finished ? `${absolute(of.started)} – ${absolute(of.finished)}` : `since ${absolute(of.started)}`;
  return <span title={title}>{words}</span>;
}

/** The time in seconds, renewed every second while the page is seen: one clock for all who ask. It may stand still. */
export function useNow(still = false): number {
  return useClock((now) => (still ? 0 : now));
}

/** What is said of the time: who shows it is drawn again only when the words change. */
function useClock<T extends string | number>(said: (now: number) => T): T {
  return useSyncExternalStore(watch, () => said(second));
}

let second = Math.floor(Date.now() / 1000);
let timer: ReturnType<typeof setInterval> | undefined;
const watchers = new Set<() => void>();

function watch(told: () => void): () => void {
  watchers.add(told);
  if (timer === undefined) {
    second = Math.floor(Date.now() / 1000);
    timer = setInterval(tick, 1000);
  }
  return () => {
    watchers.delete(told);
    if (watchers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

function tick() {
  if (document.hidden) return;
  second = Math.floor(Date.now() / 1000);
  for (const told of watchers) told();
}
