import { expect, test } from "vitest";
import { metricColumn, metricOf, metricValue, nameOf, namesOf, paramOf, paramValue, suggested } from "./columns";
import { readSort, writeSort } from "./sorting";

const KNOWN = new Set(["loss", "val/acc", "odd.max"]);

test.each([
  ["metrics.loss", { name: "loss", statistic: "last" }],
  ["metrics.loss.min", { name: "loss", statistic: "min" }],
  ["metrics.odd.max", { name: "odd.max", statistic: "last" }],
  ["metrics.odd.max.max", { name: "odd.max", statistic: "max" }],
  ['metrics."a:b".max', { name: "a:b", statistic: "max" }],
  ["params.lr", null],
])("%s is %o", (id, expected) => {
  expect(metricOf(id, KNOWN)).toEqual(expected);
});

test("a column is named as its field is", () => {
  for (const name of ["loss", "a:b", "odd.max"])
    for (const statistic of ["last", "min", "max"] as const)
      expect(metricOf(metricColumn(name, statistic), new Set(["loss", "a:b", "odd.max"]))).toEqual({ name, statistic });
});

test("values are found, also inside params; NaN is a value", () => {
  const row = { params: { lr: 0.1, model: { layers: 3 }, "a.b": 1 }, metrics: { loss: { last: "NaN", min: 0.1 } } };
  expect([
    paramValue(row, "lr"),
    paramValue(row, "model.layers"),
    paramValue(row, "a.b"),
    paramValue(row, "no"),
  ]).toEqual([0.1, 3, 1, undefined]);
  expect(metricValue(row, { name: "loss", statistic: "last" })).toBeNaN();
  expect(metricValue(row, { name: "loss", statistic: "min" })).toBe(0.1);
  expect(metricValue(row, { name: "acc", statistic: "last" })).toBeUndefined();
  expect(paramOf("params.model.layers")).toBe("model.layers");
});

test("a list begins with what most have, and with params that differ", () => {
  const rows = [
    { params: { lr: 0.1, seed: 1, epochs: 3 }, metrics: { "shoal/step_time": {}, loss: {} } },
    { params: { lr: 0.2, seed: 2, epochs: 3 }, metrics: { "shoal/step_time": {}, loss: {}, acc: {} } },
  ];
  expect(namesOf(rows).metrics).toEqual(["loss", "acc", "shoal/step_time"]);
  expect(suggested(rows).slice(-4)).toEqual(["metrics.loss", "metrics.acc", "params.lr", "params.seed"]);
});

test.each(["", "-metrics.acc,created", '-metrics."a,b",name'])("the order %s is read and written", (text) => {
  expect(writeSort(readSort(text))).toBe(text);
});

test("the first key is the first", () => {
  expect(readSort("-metrics.acc, created")).toEqual([
    { id: "metrics.acc", desc: true },
    { id: "created", desc: false },
  ]);
});

test("a param and a metric of one name are told apart, where both are shown", () => {
  const shown = ["params.lr", "metrics.lr", "metrics.lr.min", "params.seed"];
  expect(shown.map((id) => nameOf(id, shown))).toEqual(["param lr", "metric lr", "lr.min", "seed"]);
  expect(nameOf("params.lr", ["params.lr", "metrics.loss"])).toBe("lr");
});

test.each([
  ["duration", "Ran"],
  ["metrics.loss.min", "loss.min"],
  ['params."a b"', "a b"],
])("the column %s is called %s", (id, name) => expect(nameOf(id)).toBe(name));
