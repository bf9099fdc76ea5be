import { describe, expect, it } from "vitest";
import { around, FAR, fitted, NEAR, type Sight, type Span, turned } from "./span";

const LAST = 999;

/** What a pane of 700 pixels at a height sees of pages that are equally high. */
function sight(now: Span, perPage: number, warm: number, top: number): Sight {
  const first = now.from === 0 ? 0 : now.from + warm;
  const page = (height: number) => Math.max(first, Math.min(now.to, Math.floor(height / perPage)));
  return {
    above: top - first * perPage,
    below: (now.to + 1) * perPage - (top + 700),
    perPage,
    needed: { from: page(top - FAR), to: page(top + 700 + FAR) },
  };
}

/** The pages when nothing changes any more. */
function settled(begin: Span, perPage: number, warm: number, top: number): Span {
  let now = begin;
  for (let times = 0; times < 50; times += 1) {
    const next = fitted(now, sight(now, perPage, warm, top), LAST, warm);
    if (next.from === now.from && next.to === now.to) return now;
    now = next;
  }
  throw new Error("it never rests");
}

describe("the pages that exist", () => {
  it.each([
    ["a page of single lines", 1800, 0],
    ["a page of the lines of 8 ranks", 225, 1],
    ["a page of the lines of 64 ranks", 28, 4],
  ])("are enough to scroll and not many more: %s", (_, perPage, warm) => {
    for (const page of [0, 1, 17, 500, 990]) {
      const top = page * perPage;
      const now = settled(around(page, LAST, warm), perPage, warm, top);
      const { above, below } = sight(now, perPage, warm, top);
      if (now.from > 0) expect(above).toBeGreaterThanOrEqual(NEAR);
      if (now.to < LAST) expect(below).toBeGreaterThanOrEqual(NEAR);
      expect(above).toBeLessThan(FAR + 2 * perPage);
      expect(below).toBeLessThan(FAR + 2 * perPage);
    }
  });
  it("are those of the beginning at the beginning", () => {
    expect(settled({ from: 0, to: 2 }, 28, 4, 0).from).toBe(0);
    expect(settled({ from: 0, to: 2 }, 1800, 0, 0)).toEqual({ from: 0, to: 0 });
  });
  it("are given up when they are far", () => {
    const now = settled({ from: 0, to: 60 }, 1800, 0, 30 * 1800);
    expect(now.from).toBeGreaterThanOrEqual(28);
    expect(now.to).toBeLessThanOrEqual(32);
  });
  it("are not without end where nothing fills the pane", () => {
    const { from, to } = settled(around(500, LAST, 10), 0.5, 10, 250);
    expect(to - from + 1).toBeLessThanOrEqual(150);
  });
  it.each([
    [{ from: 0, to: 9 }, 1, { from: 5, to: 14 }],
    [{ from: 20, to: 29 }, -1, { from: 15, to: 24 }],
    [{ from: 2, to: 11 }, -1, { from: 0, to: 9 }],
    [{ from: 990, to: 999 }, 1, { from: 990, to: 999 }],
  ] as const)("are turned over: %o by %i", (now, by, next) => expect(turned(now, by, LAST)).toEqual(next));
  it.each([
    [0, 0, { from: 0, to: 1 }],
    [50, 4, { from: 45, to: 51 }],
    [LAST, 0, { from: LAST - 2, to: LAST }],
  ])("are those around page %i at first", (page, warm, expected) => expect(around(page, LAST, warm)).toEqual(expected));
});
