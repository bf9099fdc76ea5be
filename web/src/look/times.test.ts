import { expect, test } from "vitest";
import { absolute, ago, clock, duration, elapsed, showUtc, stamp, zone } from "./times";

test.each([
  [0, "0s"],
  [0.84, "0.8s"],
  [9.96, "10.0s"],
  [45.4, "45s"],
  [60, "1m"],
  [125, "2m 5s"],
  [3600, "1h"],
  [7980, "2h 13m"],
  [86400 * 3 + 3600 * 4, "3d 4h"],
  [-1, "0s"],
  [null, ""],
])("%s seconds are %s", (seconds, shown) => {
  expect(duration(seconds)).toBe(shown);
});

test.each([
  [1000, "now"],
  [988, "12s ago"],
  [700, "5m ago"],
  [1000 - 3 * 3600, "3h ago"],
  [1000 - 50 * 3600, "2d ago"],
  [1300, "in 5m"],
  [null, ""],
])("%s, seen at 1000, is %s", (time, shown) => {
  expect(ago(time, 1000)).toBe(shown);
});

test("what runs counts on, what is over does not, what has not begun has nothing to count", () => {
  expect(elapsed({ started: 10, finished: null }, 25)).toBe(15);
  expect(elapsed({ started: 10, finished: 12 }, 25)).toBe(2);
  expect(elapsed({ started: null }, 25)).toBeNull();
});

test("the zone is written as a distance from UTC", () => {
  expect(zone(0)).toMatch(/^UTC([+−]\d{1,2}(:\d{2})?)?$/);
});

test("whoever wants UTC sees UTC, wherever the browser is", () => {
  showUtc(true);
  expect(absolute(1_800_000_000)).toBe("2027-01-15 08:00:00 UTC");
  expect([stamp(0), clock(86_399)]).toEqual(["1970-01-01 00:00:00", "23:59:59"]);
  showUtc(false);
  expect(absolute(1_800_000_000)).toContain(zone(1_800_000_000));
});
