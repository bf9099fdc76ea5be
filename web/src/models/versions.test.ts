import { expect, test } from "vitest";
import { aliasesOf, metricNames, overVersions, saidOver, type Version, versionTicks, wrongAlias } from "./versions";

const made = (name: string, version: number, metrics: Record<string, unknown> = {}, aliases: string[] = []) =>
  ({ name, version, metrics, aliases }) as Version;

const versions = [
  made("net", 1, { loss: 0.5, note: "first" }),
  made("net", 3, { loss: 0.2, accuracy: 0.9 }, ["production"]),
  made("net", 2, { loss: "NaN" }, ["staging", "best"]),
];

test("what aliases mean, in their order", () => {
  expect(aliasesOf(versions)).toEqual([
    ["best", 2],
    ["production", 3],
    ["staging", 2],
  ]);
});

test("metrics are those that are numbers, the most common first", () => {
  expect(metricNames(versions)).toEqual(["loss", "accuracy"]);
});

test("a metric over versions has gaps where there is no number to draw", () => {
  expect(overVersions(versions, "loss")).toEqual([
    [1, 2, 3],
    [0.5, null, 0.2],
  ]);
  expect(saidOver("loss", overVersions(versions, "loss"))).toBe(
    "loss over 2 versions: lowest 0.2 in v3, highest 0.5 in v1, newest 0.2 in v3",
  );
  expect(saidOver("none", overVersions(versions, "none"))).toBe("none: no version has it");
});

test.each([
  [1, 1, 1, [1]],
  [1, 1, 2, [1]],
  [1, 3, 1, [1, 2, 3]],
  [1, 12, 5, [5, 10]],
  [4, 5, 0.5, [4, 5]],
])("below versions %d to %d, %d apart, stand %j", (first, last, apart, ticks) =>
  expect(versionTicks(first, last, apart)).toEqual(ticks),
);

test.each([
  ["production", true],
  ["v2.best_one-x", true],
  ["", true],
  ["latest", false],
  ["3", false],
  ["v3", false],
  ["1a", false],
  ["a b", false],
])("%j can be an alias: %s", (alias, can) => {
  expect(wrongAlias(alias) === "").toBe(can);
});
