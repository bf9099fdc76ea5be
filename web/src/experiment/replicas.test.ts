import { describe, expect, test } from "vitest";
import type { FirstFailure, Replica } from "../api/client";
import { along } from "./context";
import { metricsIn, ranksOf, spreadOf, stepMetric } from "./ranks";
import { asPattern, attemptsOf, byRole, chosen, failureOf, neighbour, replicasOf, slowest, toggled } from "./replicas";

function replica(name: string, rank: number, more: Partial<Replica> = {}): Replica {
  const [role, index] = name.split("-");
  const blank = {
    attempt: 0,
    try: 0,
    state: "running",
    reason: "",
    exit_code: null,
    signal: null,
    node: "",
    started: 1,
    finished: null,
  };
  return { replica: name, role: role!, index: Number(index), rank, ...blank, ...more };
}

const ALL = [
  replica("master-0", 0),
  replica("worker-0", 1),
  replica("worker-1", 2, { state: "failed" }),
  replica("ps-0", 3),
];
const names = (found: Replica[]) => found.map((one) => one.replica).join(" ");
const times = (mean: number) => ({ count: 9, mean, p50: mean, p95: mean, max: mean });
const ranked = (name: string, mean: number) => ({
  rank: 0, replica: name, process: 0, name, step_time: times(mean), busy: null, cpu: null, gpu: null,
  score: null,
}); // biome-ignore format: one line

describe("the selector", () => {
  test.each([
    ["", "master-0 worker-0 worker-1 ps-0"],
    ["worker", "worker-0 worker-1"],
    ["worker-*", "worker-0 worker-1"],
    ["*-0", "master-0 worker-0 ps-0"],
    ["worker-1", "worker-1"],
    ["ps-0,master-0", "master-0 ps-0"],
    ["failed", "worker-1"],
    ["slowest", "worker-0"],
    ["worker-9", ""],
    ["work.r-0", ""],
  ])("%s means %s", (selection, expected) => {
    const held = { slowest: null, ranks: [ranked("master-0", 1), ranked("worker-0", 3)] };
    expect(names(chosen(ALL, selection, held))).toBe(expected);
  });

  test.each([
    ["", "*"],
    ["worker", "worker-*"],
    ["worker-*", "worker-*"],
    ["worker-1", "worker-1"],
    ["failed", null],
    ["ps-0,master-0", null],
  ])("%s is the pattern %s", (selection, pattern) => {
    expect(asPattern(selection)).toBe(pattern);
  });

  test("goes from replica to replica, and past the last to all", () => {
    expect(neighbour(ALL, "", 1)).toBe("master-0");
    expect(neighbour(ALL, "master-0", 1)).toBe("worker-0");
    expect(neighbour(ALL, "ps-0", 1)).toBe("");
    expect(neighbour(ALL, "", -1)).toBe("ps-0");
    expect(neighbour(ALL, "master-0", -1)).toBe("");
  });

  test("takes one more, and leaves it again", () => {
    expect(toggled("", "ps-0")).toBe("ps-0");
    expect(toggled("ps-0", "worker-1")).toBe("ps-0,worker-1");
    expect(toggled("ps-0,worker-1", "ps-0")).toBe("worker-1");
  });
});

test("without a verdict the slowest is who has the longest steps; without steps nobody is", () => {
  expect(slowest({ slowest: null, ranks: [ranked("a-0", 1), ranked("b-0", 2)] })).toBe("b-0");
  expect(slowest({ slowest: null, ranks: [] })).toBeUndefined();
  expect(slowest(undefined)).toBeUndefined();
});

describe("attempts", () => {
  const history = [
    replica("worker-1", 2, { attempt: 0, try: 0, state: "failed", finished: 5, exit_code: 1 }),
    replica("worker-1", 2, { attempt: 0, try: 1, state: "failed", finished: 9, exit_code: 3 }),
    replica("worker-0", 1, { attempt: 0, state: "stopped", finished: 9 }),
  ];
  const again = {
    attempt: 1,
    replicas: ALL.map((one) => ({ ...one, attempt: 1, state: "running" })),
    history,
    first_failure: null,
  };

  test("are counted from 0", () => {
    expect(attemptsOf(again)).toEqual([0, 1]);
  });

  test("show the newest try of each replica, in the order of ranks", () => {
    expect(replicasOf(again, 0).map((one) => [one.replica, one.try])).toEqual([
      ["worker-0", 0],
      ["worker-1", 1],
    ]);
    expect(replicasOf(again, 1)).toBe(again.replicas);
  });

  test("have their own first failure", () => {
    expect(failureOf(again, 0)).toMatchObject({ replica: "worker-1", try: 0, exit_code: 1, time: 5, lines: [] });
    expect(failureOf(again, 1)).toBeNull();
  });

  test("the server's word goes before ours", () => {
    const said: FirstFailure = {
      replica: "worker-0", process: 1, attempt: 1, try: 0, exit_code: 137, signal: "SIGKILL", reason: null, time: 3, lines: ["x"],
    }; // biome-ignore format: one line
    expect(failureOf({ ...again, first_failure: said }, 1)).toBe(said);
  });
});

test("roles come in the order of ranks", () => {
  expect(byRole(ALL).map(([role, of]) => [role, of.length])).toEqual([
    ["master", 1],
    ["worker", 2],
    ["ps", 1],
  ]);
});

describe("a rank is silent", () => {
  const rank = (name: string, age: number | null) => ({
    replica: name, state: "running", reason: "", exit_code: null, signal: null, last_line: "x", last_line_age: age,
    last_metric_age: null, heartbeat_age: null, pid: null,
  }); // biome-ignore format: one line
  const going = ["worker-0", "worker-1", "worker-2"].map((name, place) => replica(name, place));
  const silent = (ages: (number | null)[]) =>
    ranksOf(going, { ranks: ages.map((age, place) => rank(`worker-${place}`, age)) }, undefined)
      .filter((one) => one.silent)
      .map((one) => one.replica.replica);

  test.each([
    ["when it has said nothing for much longer than the others", [2, 3, 60], ["worker-2"]],
    ["but not when all of them are quiet", [300, 310, 320], []],
    ["but not within half a minute", [0.1, 0.1, 25], []],
    ["but not when it never said anything", [1, 1, null], []],
  ])("%s", (_, ages, expected) => {
    expect(silent(ages)).toEqual(expected);
  });
});

describe("steps of ranks", () => {
  const going = ["worker-0", "worker-1", "worker-2"].map((name, place) => replica(name, place));
  const quiet = going.map((one) => ({
    replica: one.replica, state: "running", reason: "", exit_code: null, signal: null, last_line: "x", last_line_age: 90,
    last_metric_age: null, heartbeat_age: null, pid: null,
  })); // biome-ignore format: one line
  const point = (name: string, last_step: number, last_time: number) => ({ replica: name, last_step, last_time });

  test("keep a rank from being silent that logs and does not print", () => {
    const steps = [point("worker-0", 40, 999), point("worker-1", 38, 998), point("worker-2", 7, 905)];
    const ranks = ranksOf(going, { ranks: quiet }, undefined, [], steps, 1000);
    expect(ranks.map((one) => [one.at, one.pointAge, one.silent])).toEqual([
      [40, 1, false],
      [38, 2, false],
      [7, 95, true],
    ]);
    expect(spreadOf(ranks)).toEqual({ low: 7, high: 40, behind: ["worker-2"] });
  });

  test("of a replica with several processes are those of the newest", () => {
    const steps = [point("worker-0", 3, 10), point("worker-0", 4, 11)];
    expect(ranksOf(going, undefined, undefined, [], steps, 12)[0]).toMatchObject({ at: 4, pointAge: 1 });
  });

  test("of one rank alone have no spread", () => {
    expect(spreadOf(ranksOf(going, undefined, undefined, [], [point("worker-1", 5, 1)], 2))).toBeNull();
  });

  test.each([
    [["loss", "shoal/step_time"], "shoal/step_time"],
    [["shoal/step_busy", "loss"], "loss"],
    [[], undefined],
  ])("are read from a metric of %o", (names, expected) => {
    expect(stepMetric(names)).toBe(expected);
  });
});

test("signs of life and scores come with a rank; of several processes the slowest counts", () => {
  const score = (relative: number, pattern: "chronic" | null) => ({
    relative, individual: 1, windows: 9, slow: pattern ? 9 : 0, slower: 0, pattern, now: pattern !== null,
  }); // biome-ignore format: one line
  const why = {
    replica: "worker-0", state: "running", reason: "", exit_code: null, signal: null, last_line: null,
    last_line_age: null, last_metric_age: 3, heartbeat_age: 1.5, pid: 77,
  }; // biome-ignore format: one line
  const ranks = [ranked("worker-0", 1), ranked("worker-0", 2)].map((rank, place) => ({
    ...rank,
    score: place ? score(0.4, "chronic") : score(0.9, null),
  }));
  const [found] = ranksOf([replica("worker-0", 1)], { ranks: [why] }, { ranks });
  expect(found).toMatchObject({ metricAge: 3, beatAge: 1.5, pid: 77, score: { relative: 0.4, pattern: "chronic" } });
});

test("a rank that tracks and does not print is not silent", () => {
  const going = ["worker-0", "worker-1"].map((name, place) => replica(name, place));
  const why = going.map((one, place) => ({
    replica: one.replica, state: "running", reason: "", exit_code: null, signal: null, last_line: "x",
    last_line_age: place ? 500 : 1, last_metric_age: place ? 2 : null, heartbeat_age: 1, pid: null,
  })); // biome-ignore format: one line
  expect(ranksOf(going, { ranks: why }, undefined).map((one) => one.silent)).toEqual([false, false]);
});

test("the metrics of one attempt: last of the lowest rank, least and largest of all", () => {
  const row = (name: string, rank: number, last: unknown, min: unknown, max: unknown, kind = "metric") => ({
    ...{ name, rank, last, min, max, kind, last_step: 10 + rank },
  });
  const rows = [
    row("loss", 1, 0.3, 0.1, 0.9),
    row("loss", 0, 0.2, 0.2, "NaN"),
    row("cpu", 0, 1, 1, 1, "resource"),
    row("acc", 2, "NaN", "NaN", "Infinity"),
  ] as Parameters<typeof metricsIn>[0];
  expect(metricsIn(rows)).toEqual({
    loss: { last: 0.2, min: 0.1, max: 0.9, step: 10 },
    acc: { last: "NaN", min: "NaN", max: "Infinity", step: 12 },
  });
});

test("links take along which replicas and which attempt are looked at", () => {
  expect(along({ selection: "worker-*", attempt: 0, newest: false })).toEqual({ replicas: "worker-*", attempt: "0" });
  expect(along({ selection: "", attempt: 3, newest: true })).toEqual({});
});
