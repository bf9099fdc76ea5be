/** Colours: state hues, rank lines, heat maps. Pure; components take them from CSS variables or by theme. */

import type { Hue } from "./states";

export type Scheme = "light" | "dark";

/** Measured: at least 5.1:1 on white and on #1a1b1e. */
export const HUE: Record<Scheme, Record<Hue, string>> = {
  light: { grey: "#6e6e73", blue: "#0b5fa5", green: "#00785a", red: "#b8420a" },
  dark: { grey: "#9a9aa2", blue: "#4aa3ea", green: "#35b48f", red: "#ff7a45" },
};

/** Okabe and Ito's colours: distinct for every kind of sight. The yellow is left out on white, black on dark. */
const RANKS: Record<Scheme, readonly string[]> = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"],
  dark: ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#ffffff"],
};

/** The colour of the n-th line. Lines repeat after seven: the dash tells roles apart. */
export function lineColour(index: number, scheme: Scheme): string {
  const choice = RANKS[scheme];
  return choice[((index % choice.length) + choice.length) % choice.length]!;
}

/** Roles by dash: solid workers, dashed master, dotted parameter servers. */
export function roleDash(role: string): number[] {
  return role === "master" ? [8, 4] : role === "ps" ? [2, 3] : [];
}

/** Points of viridis, from low to high. */
const VIRIDIS = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [110, 206, 88],
  [181, 222, 43],
  [253, 231, 37],
] as const;

/** Blue, white, orange: below, at, above the median. */
const DEVIATION = [
  [11, 95, 165],
  [120, 176, 222],
  [245, 245, 245],
  [244, 170, 110],
  [190, 80, 10],
] as const;

/** 0…1 -> a colour of viridis. */
export function viridis(fraction: number): string {
  return between(VIRIDIS, fraction);
}

/** −1…1 -> blue … white … orange. */
export function deviation(part: number): string {
  return between(DEVIATION, (part + 1) / 2);
}

function between(stops: readonly (readonly [number, number, number])[], fraction: number): string {
  const place = Math.min(1, Math.max(0, Number.isFinite(fraction) ? fraction : 0)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const part = place - low;
  const mix = [0, 1, 2].map((i) => Math.round(stops[low]![i]! * (1 - part) + stops[low + 1]![i]! * part));
  return `rgb(${mix.join(", ")})`;
}
