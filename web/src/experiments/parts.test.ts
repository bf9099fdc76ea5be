import { describe, expect, test } from "vitest";
import { PART, partFor } from "./parts";

const here = (offset: number, total = 10_000, length = PART) => ({ offset, rows: { length }, total });

describe("which part of a list is kept", () => {
  test.each([
    ["the beginning", 0, 30, here(0), null],
    ["the middle of what is here", 130, 170, here(0), null],
    ["a short list to its end", 20, 40, here(0, 41, 41), null],
    ["the very end", 9970, 9999, here(9700), null],
    ["near the end of what is here", 230, 260, here(0), 100],
    ["near the beginning of what is here", 1020, 1050, here(1000), 900],
    ["far below", 5000, 5030, here(0), 4850],
    ["far above", 3, 33, here(9700), 0],
    ["the end, from afar", 9970, 9999, here(0), 9700],
  ])("%s", (_, first, last, part, wanted) => {
    expect(partFor(first, last, part)).toBe(wanted);
  });

  test("every row can be reached, and what is taken holds what is seen", () => {
    let part = here(0, 1234);
    for (let first = 0; first + 30 < 1234; first += 17) {
      const next = partFor(first, first + 30, part);
      if (next !== null) part = here(next, 1234, Math.min(PART, 1234 - next));
      expect(part.offset).toBeLessThanOrEqual(first);
      expect(part.offset + part.rows.length).toBeGreaterThan(first + 30);
    }
  });
});
