import { describe, expect, test } from "vitest";
import { deviation, HUE, lineColour, roleDash, type Scheme, viridis } from "./colours";
import { counted, FINAL, HUES, hueOf, STATES, worst } from "./states";

const BACK: Record<Scheme, string> = { light: "#ffffff", dark: "#1a1b1e" };

describe("the hue of every state can be read", () => {
  test.each(
    (["light", "dark"] as const).flatMap((scheme) =>
      (["grey", "blue", "green", "red"] as const).map((hue) => [hue, scheme] as const),
    ),
  )("%s on %s", (hue, scheme) => {
    expect(contrast(HUE[scheme][hue], BACK[scheme])).toBeGreaterThanOrEqual(4.5);
  });
});

test("only what failed is red", () => {
  expect(STATES.filter((state) => HUES[state] === "red")).toEqual(["failed"]);
});

test("a state that is not known is grey, not green", () => {
  expect(hueOf("dreaming")).toBe("grey");
});

test("many states are told with what needs attention first", () => {
  expect(counted(["running", "failed", "running", "stopped"])).toEqual([
    ["failed", 1],
    ["running", 2],
    ["stopped", 1],
  ]);
  expect(worst(["succeeded", "lost", "running"])).toBe("lost");
  expect(worst([])).toBeUndefined();
});

test("what is over is over", () => {
  expect(STATES.filter((state) => FINAL.has(state))).toEqual(["succeeded", "failed", "stopped"]);
});

test("seven lines have seven colours, and the eighth begins again", () => {
  for (const scheme of ["light", "dark"] as const) {
    const colours = Array.from({ length: 7 }, (_, place) => lineColour(place, scheme));
    expect(new Set(colours).size).toBe(7);
    expect(lineColour(7, scheme)).toBe(colours[0]);
    for (const colour of colours) expect(contrast(colour, BACK[scheme])).toBeGreaterThan(1.9);
  }
});

test("roles differ by dash", () => {
  expect(new Set(["master", "worker", "ps"].map((role) => roleDash(role).join())).size).toBe(3);
});

test("heat maps begin, end and do not leave their scale", () => {
  expect([viridis(0), viridis(1), viridis(-3), viridis(9), viridis(Number.NaN)]).toEqual([
    "rgb(68, 1, 84)",
    "rgb(253, 231, 37)",
    "rgb(68, 1, 84)",
    "rgb(253, 231, 37)",
    "rgb(68, 1, 84)",
  ]);
  expect([deviation(-1), deviation(0), deviation(1)]).toEqual([
    "rgb(11, 95, 165)",
    "rgb(245, 245, 245)",
    "rgb(190, 80, 10)",
  ]);
});

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high! + 0.05) / (low! + 0.05);
}

function luminance(colour: string): number {
  const parts = [1, 3, 5].map((place) => {
    const part = Number.parseInt(colour.slice(place, place + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0]! + 0.7152 * parts[1]! + 0.0722 * parts[2]!;
}
