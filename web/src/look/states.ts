/** States, their hue, and what follows from several of them. Pure. */

export const STATES = [
  "created",
  "queued",
  "starting",
  "running",
  "restarting",
  "succeeded",
  "failed",
  "stopped",
  "lost",
] as const;
export type State = (typeof STATES)[number];
export type Hue = "grey" | "blue" | "green" | "red";

export const HUES: Record<State, Hue> = {
  created: "grey",
  queued: "grey",
  starting: "blue",
  running: "blue",
  restarting: "blue",
  succeeded: "green",
  failed: "red",
  stopped: "grey",
  lost: "grey",
};

/** What cannot change any more. */
export const FINAL: ReadonlySet<string> = new Set(["succeeded", "failed", "stopped"]);

export function isState(word: string): word is State {
  return (STATES as readonly string[]).includes(word);
}

/** A state that this console does not know is shown as lost, with its own word. */
export function known(word: string): State {
  return isState(word) ? word : "lost";
}

export function hueOf(word: string): Hue {
  return HUES[known(word)];
}

/** Worst first: what a person has to look at, then what goes on, then what is over. */
const ATTENTION: readonly State[] = [
  "failed",
  "lost",
  "restarting",
  "starting",
  "queued",
  "created",
  "running",
  "stopped",
  "succeeded",
];

/** [["failed", 1], ["running", 7]] of many states, what needs attention first. */
export function counted(states: Iterable<string>): [State, number][] {
  const counts = new Map<State, number>();
  for (const word of states) counts.set(known(word), (counts.get(known(word)) ?? 0) + 1);
  return ATTENTION.filter((state) => counts.has(state)).map((state) => [state, counts.get(state)!]);
}

/** The one state that stands for many. */
export function worst(states: Iterable<string>): State | undefined {
  return counted(states)[0]?.[0];
}
