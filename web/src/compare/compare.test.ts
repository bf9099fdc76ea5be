import { describe, expect, test } from "vitest";
import type { ExperimentDetail } from "../api/client";
import type { Curve } from "../charts/packed";
import { folded, inside, sideBySide } from "./diff";
import { dashOf, hovered, isLine, labels, overlaid } from "./overlay";
import { flat, rolesOf, rowsOf, shownRows } from "./rows";
import { pairOf } from "./view";

function experiment(more: object): ExperimentDetail {
  return {
    id: "e1",
    name: "a",
    state: "succeeded",
    reason: "",
    framework: "none",
    backend: "native",
    cluster: "local",
    attempt: 0,
    created: 1,
    started: 2,
    finished: 5,
    params: {},
    metrics: {},
    tags: [],
    command: "c",
    replicas: [],
    first_failure: null,
    ...more,
  } as unknown as ExperimentDetail;
}

describe("rows", () => {
  const all = [
    {
      experiment: experiment({
        params: { lr: 0.1, net: { depth: 2 }, same: 1 },
        metrics: { loss: { last: 1, min: 0.5, max: "NaN" } },
      }),
      provenance: {
        git: { commit: "abc", diff_hash: "", untracked: ["x"] },
        packages: { numpy: "2.0" },
        host: { name: "h" },
        datasets: [{ at: "d", name: "cifar", version: 1, digest: "0123456789abcdef" }],
      },
    },
    {
      experiment: experiment({
        params: { lr: 0.2, net: { depth: 2 }, same: 1 },
        metrics: { loss: { last: 1, min: 0.4, max: 2 } },
        state: "failed",
        first_failure: { replica: "worker-1", signal: "SIGKILL", exit_code: 137 },
      }),
      provenance: {
        git: { commit: "abd", diff_hash: "ff00", untracked: [] },
        packages: { numpy: "2.1" },
        host: { name: "h" },
      },
    },
  ];
  const of = (rows: ReturnType<typeof rowsOf>, name: string) => rows.find((row) => row.name === name)!;
  const rows = rowsOf(all, "min", 10);

  test.each([
    ["lr", [0.1, 0.2], true],
    ["net.depth", [2, 2], false],
    ["loss", [0.5, 0.4], true],
    ["commit", ["abc", "abd"], true],
    ["changes since the commit", ["none", "ff00"], true],
    ["numpy", ["2.0", "2.1"], true],
    ["d", ["cifar@v1 0123456789ab", undefined], true],
    ["ran", [3, 3], false],
    ["first failure", [undefined, "worker-1: SIGKILL"], true],
    ["name", ["h", "h"], false],
  ])("%s", (name, values, differs) => expect(of(rows, name)).toMatchObject({ values, differs }));

  test("the statistic is what was asked for", () => {
    expect(of(rowsOf(all, "last", 10), "loss").differs).toBe(false);
    expect(of(rowsOf(all, "max", 10), "loss").values).toEqual(["NaN", 2]);
  });
  test("only what differs is shown, and how much does not is told", () => {
    const { shown, equal } = shownRows(rows, false, "");
    expect(shown.every((row) => row.differs)).toBe(true);
    expect(shownRows(rows, true, "").shown).toHaveLength(shown.length + equal);
  });
  test("rows are found by name and group", () =>
    expect(shownRows(rows, true, "params").shown.map((row) => row.name)).toEqual(["lr", "net.depth", "same"]));
  test("what nobody has is no row", () =>
    expect(shownRows(rows, true, "").shown.some((row) => row.name === "tags")).toBe(false));
  test("one experiment alone differs from nothing", () =>
    expect(shownRows(rowsOf(all.slice(0, 1), "last", 10), false, "").shown).toEqual([]));
  test("empty mappings stay", () => expect(flat({ a: {}, b: { c: [1] } })).toEqual({ a: {}, "b.c": [1] }));
  test("roles are counted", () =>
    expect(rolesOf({ replicas: ["master", "worker", "worker", "ps"].map((role) => ({ role })) } as never)).toBe(
      "1 master, 2 workers, 1 ps",
    ));
});

describe("texts", () => {
  const kinds = (left: string, right: string) =>
    sideBySide(left, right)
      .map((pair) => pair.kind[0])
      .join("");
  test.each([
    ["the same", "a\nb\n", "a\nb\n", "ss"],
    ["another value", "a\nb\nc", "a\nx\nc", "scs"],
    ["a new line", "a\nc", "a\nb\nc", "sas"],
    ["a line less", "a\nb\nc", "a\nc", "srs"],
    ["nothing and something", "", "a\n", "a"],
    ["nothing in common", "a\nb", "c\nd\ne", "cca"],
    ["a line that moved", "a\nb\nc\nd", "b\nc\na\nd", "rssas"],
  ])("%s", (_, left, right, expected) => expect(kinds(left, right)).toBe(expected));
  test("both texts can be put together again", () => {
    const words = "a b c d e f a b".split(" ");
    let seed = 7;
    const next = (most: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % most;
    };
    for (let round = 0; round < 200; round += 1) {
      const [left, right] = [0, 1].map(() => Array.from({ length: next(12) }, () => words[next(8)]).join("\n")) as [
        string,
        string,
      ];
      const pairs = sideBySide(left, right);
      expect(pairs.flatMap((pair) => pair.left?.text ?? []).join("\n")).toBe(left);
      expect(pairs.flatMap((pair) => pair.right?.text ?? []).join("\n")).toBe(right);
      for (const pair of pairs) if (pair.kind === "same") expect(pair.left!.text).toBe(pair.right!.text);
    }
  });
  test("long runs are folded, with some lines around a change", () => {
    const left = Array.from({ length: 20 }, (_, n) => `l${n}`);
    const right = left.with(10, "new");
    const rows = folded(sideBySide(left.join("\n"), right.join("\n")));
    expect(rows.map((row) => row.kind)).toEqual([
      "fold",
      "same",
      "same",
      "same",
      "changed",
      "same",
      "same",
      "same",
      "fold",
    ]);
    expect(rows[0]).toEqual({ kind: "fold", count: 7, left: 1, right: 1 });
  });
  test.each([
    ["lr: 0.10 # x", "lr: 0.25 # x", ["lr: 0.", "10", " # x"]],
    ["name: a", "run: {cmd: python train.py}", ["name: a", "", ""]],
  ])("the part of %s that is not in %s", (text, other, expected) => expect(inside(text, other)).toEqual(expected));
  test.each([
    ["the first two, when nothing is wanted", "", "", ["a", "b"]],
    ["those that are wanted", "c", "a", ["c", "a"]],
    ["not one twice", "b", "b", ["b", "a"]],
    ["not one that is gone", "x", "a", ["b", "a"]],
  ])("files are shown of %s", (_, left, right, expected) =>
    expect(pairOf(["a", "b", "c"], { left, right })).toEqual(expected),
  );
});

const floats = (...values: number[]) => Float64Array.from(values);

function curve(start: number[], mean: number[], more: Partial<Curve> = {}): Curve {
  const column = floats(...start);
  return {
    name: "loss",
    kind: "metric",
    start: column,
    x_first: column,
    x_last: column,
    min: floats(...mean.map((v) => v - 1)),
    max: floats(...mean.map((v) => v + 1)),
    mean: floats(...mean),
    count: floats(...start.map(() => 1)),
    ...more,
  };
}

describe("curves over each other", () => {
  const two = [curve([0, 2], [1, 3]), curve([1, 2], [5, 6])];
  test("share an axis and keep their places", () =>
    expect(overlaid(two, false, 0)).toEqual({
      x: [0, 1, 2],
      odd: [],
      columns: [
        [0, null, 2],
        [2, null, 4],
        [1, null, 3],
        [null, 4, 5],
        [null, 6, 7],
        [null, 5, 6],
      ],
    }));
  test("one that has not come yet takes its place", () =>
    expect(overlaid([undefined, two[1]], false, 0).columns).toHaveLength(6));
  test.each([
    [0, { least: 0, mean: 1, largest: 2, ranks: 1 }],
    [1.2, { least: 2, mean: 3, largest: 4, ranks: 1 }],
    [9, null],
  ])("at %d", (x, expected) => expect(hovered(two[0], x)).toEqual(expected));
  test("of one rank and single points are lines", () => {
    expect(isLine(two[0])).toBe(true);
    expect(isLine({ ...two[0]!, count: floats(2, 1) })).toBe(false);
  });
  test("are named so that they can be told apart", () =>
    expect([
      ...labels([
        { id: "1", name: "a" },
        { id: "2", name: "a" },
        { id: "3", name: null },
      ]).values(),
    ]).toEqual(["a 1", "a 2", "3"]));
  test("beyond seven have dashes", () => expect([dashOf(6), dashOf(7), dashOf(14)]).toEqual([[], [7, 4], [2, 3]]));
});
