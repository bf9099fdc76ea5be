/** What charts of ranks share, as the address of the page says it: which replicas, which part of the axis, who is pinned. */

import { useMemo } from "react";
import { useStragglers } from "../api/queries";
import { useShown } from "../experiment/context";
import { replicaParams } from "./series";
import type { Mode, Shown } from "./shown";

/** The part of the axis that is looked at; all of it when empty. */
export interface RangeWish {
  from: string;
  until: string;
}

export interface RanksWish extends RangeWish {
  as: string;
  deviation: boolean;
  bymean: boolean;
  pin: string[];
}

type SetWish<T> = (change: Partial<T>, how?: { push?: boolean }) => void;

const MOST_PINNED = 6;

/** What a page of charts adds to it. */
type Own = Pick<Shown, "attempt" | "kind" | "x" | "smooth" | "logarithmic" | "p95" | "syncKey">;

export function useRanks(wish: RanksWish, setWish: SetWish<RanksWish>, own: Own) {
  const view = useShown();
  const { experiment, over } = view;
  const stragglers = useStragglers(experiment.id, over).data;
  const slowest = stragglers?.slowest?.replica ?? null;
  const params = replicaParams(view).join(" ");
  const { attempt, kind, x, smooth, logarithmic, p95, syncKey } = own;
  const shown = useMemo<Shown>(
    () => ({
      ...{ attempt, kind, x, smooth, logarithmic, p95, syncKey },
      ...rangeIn(wish, setWish),
      id: experiment.id,
      over,
      replicas: params ? params.split(" ") : [],
      mode: wish.as as Mode,
      deviating: wish.deviation,
      byMean: wish.bymean,
      pinned: wish.pin,
      slowest,
      pin: (rank) =>
        setWish({
          pin: wish.pin.includes(rank)
            ? wish.pin.filter((one) => one !== rank)
            : [...wish.pin, rank].slice(-MOST_PINNED),
        }),
    }),
    [experiment.id, over, params, attempt, kind, x, smooth, logarithmic, p95, syncKey, wish, setWish, slowest],
  );
  return { shown, stragglers };
}

export function rangeIn(
  wish: RangeWish,
  setWish: SetWish<RangeWish>,
): Pick<Shown, "from" | "until" | "zoom" | "reset"> {
  return {
    from: wish.from === "" ? null : Number(wish.from),
    until: wish.until === "" ? null : Number(wish.until),
    zoom: (from, until) => setWish({ from: String(tidy(from)), until: String(tidy(until)) }, { push: true }),
    reset: () => setWish({ from: "", until: "" }),
  };
}

/** Zoomed edges need no more digits than a screen has pixels. */
function tidy(value: number): number {
  return Number(value.toPrecision(14));
}
