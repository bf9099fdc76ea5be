import { describe, expect, test } from "vitest";
import { bytes, columnNumbers, delta, number, percent, plain, several } from "./numbers";

test.each([
  [0.70314718, "0.7031"],
  [12.3456, "12.35"],
  [99999.4, "99999"],
  [100000.5, "1e5"],
  [123456.7, "1.235e5"],
  [0.0001, "0.0001000"],
  [0.00001234, "1.234e−5"],
  [-0.5, "−0.5000"],
  [0, "0"],
  [300, "300"],
  [1234567, "1234567"],
  ["NaN", "NaN"],
  [Number.NaN, "NaN"],
  ["Infinity", "∞"],
  ["-Infinity", "−∞"],
  ["adam", "adam"],
  [null, ""],
  [undefined, ""],
])("%s is shown as %s", (value, shown) => {
  expect(number(value)).toBe(shown);
});

describe("numbers of a column", () => {
  test.each([
    ["share their decimals", [1.5, 12.25], ["1.50", "12.25"]],
    ["are whole when all are", [1, 20, 300], ["1", "20", "300"]],
    ["keep three digits of the smallest", [1.019, 0.0401], ["1.0190", "0.0401"]],
    ["are shown one by one when they are too far apart", [0.00001, 3.5], ["1e−5", "3.500"]],
    ["leave NaN and nothing as they are", [0.5, "NaN", null], ["0.5000", "NaN", ""]],
    ["show a zero as a zero", [0.5, 0], ["0.5000", "0"]],
  ])("%s", (_, values, shown) => {
    const format = columnNumbers(values);
    expect(values.map(format)).toEqual(shown);
  });

  test("no value but zero is rounded to zero", () => {
    for (const small of [1e-4, 3e-4, 0.002, 0.04, 0.6]) {
      const text = columnNumbers([small, 99.5])(small);
      expect(Number(text)).toBeGreaterThan(0);
    }
  });
});

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1536, "1.50 KiB"],
  [1024 ** 3 * 12.34, "12.3 GiB"],
  [1024 ** 2 * 512, "512 MiB"],
  [-2048, "−2.00 KiB"],
  [null, ""],
])("%s bytes are %s", (value, shown) => {
  expect(bytes(value)).toBe(shown);
});

test.each([
  [0.3, 0.2, "+0.1000"],
  [0.2, 0.3, "−0.1000"],
  [1, 1, "="],
  ["NaN", 1, ""],
  [1, undefined, ""],
])("%s against %s is %s", (value, baseline, shown) => {
  expect(delta(value, baseline)).toBe(shown);
});

test("what a person typed is shown as typed", () => {
  expect([0.01, 1e-5, "adam", true, [1, 2], { a: 1 }].map(plain)).toEqual([
    "0.01",
    "0.00001",
    "adam",
    "true",
    "[1,2]",
    '{"a":1}',
  ]);
  expect(plain(0.123456789)).toBe("0.1235");
});

test("nothing is done before it is done", () => {
  expect([0, 0.004, 0.5, 0.9999, 1].map(percent)).toEqual(["0 %", "0.4 %", "50 %", "99 %", "100 %"]);
});

test("one is not several", () => {
  expect([several(1, "replica"), several(12345, "replica"), several(0, "match", "matches")]).toEqual([
    "1 replica",
    "12,345 replicas",
    "0 matches",
  ]);
});
