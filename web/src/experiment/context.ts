/** What the tabs of an experiment share: the experiment, the attempt, the replicas that are meant. */

import { createContext, useContext } from "react";
import type { ExperimentDetail, Replica } from "../api/client";
import type { Selection } from "./replicas";

export interface ExperimentView {
  experiment: ExperimentDetail;
  /** Whether it cannot change any more. */
  over: boolean;
  /** The attempt that is looked at, and whether it is the newest. */
  attempt: number;
  newest: boolean;
  setAttempt: (attempt: number | null) => void;
  /** All replicas of that attempt, in the order of ranks, in their newest try. */
  all: Replica[];
  /** Those that the selector means. */
  selected: Replica[];
  selection: Selection;
  setSelection: (selection: Selection) => void;
  /** The selection as the API's `replica` parameter, null when one pattern cannot say it. */
  pattern: string | null;
}

export const ExperimentContext = createContext<ExperimentView | null>(null);

/** What links to other tabs take along: the replicas and the attempt that are looked at. */
export function along({ selection, attempt, newest }: Pick<ExperimentView, "selection" | "attempt" | "newest">) {
  return { ...(selection ? { replicas: selection } : {}), ...(newest ? {} : { attempt: String(attempt) }) };
}

/** In a tab: the experiment it belongs to. */
export function useShown(): ExperimentView {
  const view = useContext(ExperimentContext);
  if (!view) throw new Error("useShown is for tabs of an experiment");
  return view;
}

/** In a tab: which replicas are meant, and how to mean others. */
export function useReplicas() {
  const { all, selected, selection, setSelection, pattern, attempt } = useShown();
  return { all, selected, selection, setSelection, pattern, attempt };
}
