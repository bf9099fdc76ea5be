import { describe, expect, test } from "vitest";
import type { Replica } from "../api/client";
import type { Change } from "../api/live";
import { exitName, exitWords } from "./exits";
import { axisMarks, axisStep, timeline } from "./timeline";

let numbers = 0;
function change(time: number, from: string, to: string, more: Partial<Change> = {}): Change {
  numbers += 1;
  return {
    number: numbers,
    time,
    id: "e1",
    attempt: 0,
    replica: null,
    try: null,
    from_state: from,
    to_state: to,
    reason: "",
    ...more,
  };
}

function tried(
  name: string,
  attempt: number,
  try_: number,
  state: string,
  started: number | null,
  finished: number | null,
): Replica {
  const rank = Number(name.split("-")[1]);
  return {
    replica: name, role: "worker", index: rank, rank, attempt, try: try_, state, reason: "", exit_code: state === "failed" ? 1 : null,
    signal: null, node: "", started, finished,
  }; // biome-ignore format: one line
}

const EVENTS = [
  change(0, "created", "queued"),
  change(4, "queued", "starting"),
  change(5, "starting", "running"),
  change(9, "running", "restarting", { reason: "worker-0 failed" }),
  change(10, "restarting", "running", { attempt: 1 }),
];
const EXPERIMENT = {
  created: 0, started: 5, finished: null, state: "running", reason: "", attempt: 1,
  replicas: [tried("worker-0", 1, 0, "running", 10, null), tried("worker-1", 1, 0, "created", null, null)],
  history: [tried("worker-0", 0, 0, "failed", 5, 8), tried("worker-1", 0, 0, "stopped", 5, 9)],
}; // biome-ignore format: one line

describe("a timeline", () => {
  const drawn = timeline(EXPERIMENT, EVENTS, 20);

  test("shows the wait in the queue and every state after it, up to now", () => {
    expect(drawn.experiment.blocks.map((block) => [block.state, block.from, block.to, block.open])).toEqual([
      ["queued", 0, 4, false],
      ["starting", 4, 5, false],
      ["running", 5, 9, false],
      ["restarting", 9, 10, false],
      ["running", 10, 20, true],
    ]);
  });

  test("has a row for each replica with all of its tries", () => {
    expect(drawn.rows.map((row) => [row.name, row.blocks.map((block) => `${block.attempt}:${block.state}`)])).toEqual([
      ["worker-0", ["0:failed", "1:running"]],
      ["worker-1", ["0:stopped"]],
    ]);
  });

  test("marks failures and where attempts begin", () => {
    expect(drawn.rows[0]!.ticks).toEqual([{ time: 8, what: "exit code 1", state: "failed" }]);
    expect(drawn.attempts).toEqual([{ attempt: 1, time: 10 }]);
  });

  test("ends with the last of what happened, not with now, when it is over", () => {
    const over = {
      ...EXPERIMENT,
      state: "succeeded",
      finished: 12,
      replicas: [tried("worker-0", 1, 0, "succeeded", 10, 11.5)],
    };
    const done = timeline(over, [...EVENTS, change(12.5, "running", "succeeded")], 99);
    expect([done.from, done.to]).toEqual([0, 12.5]);
    expect(done.experiment.blocks.at(-1)).toMatchObject({ state: "running", from: 10, to: 12.5, open: false });
  });

  test("is there before anything happened", () => {
    const nothing = { ...EXPERIMENT, state: "queued", attempt: 0, replicas: [], history: [] };
    const waits = timeline(nothing, [], 3);
    expect(waits.experiment.blocks).toMatchObject([{ state: "queued", from: 0, to: 3, open: true }]);
  });
});

test.each([1, 7, 60, 3600, 86400, 86400 * 30])("an axis of %s seconds has a handful of marks", (span) => {
  const marks = span / axisStep(span);
  expect(marks).toBeLessThanOrEqual(8);
  expect(marks).toBeGreaterThanOrEqual(2);
});

test.each([
  [10, [0, 2, 4, 6, 8]],
  [8, [0, 1, 2, 3, 4, 5, 6, 7]],
  [0.5, [0, 0.1, 0.2, 0.3, 0.4]],
])("the words of an axis of %s seconds stand at %j", (span, marks) => {
  expect(axisMarks(span)).toEqual(marks.map((mark) => expect.closeTo(mark, 9)));
});

test.each([
  [{ exit_code: 137, signal: "SIGKILL" }, "SIGKILL (137)", /killed/],
  [{ exit_code: 137, signal: "SIGKILL", reason: "OOMKilled: 2 GiB of 1 GiB" }, "OOMKilled", /2 GiB/],
  [{ exit_code: 3 }, "exit code 3", /^$/],
  [{ exit_code: 127 }, "exit code 127", /not found/],
  [{ reason: "its launcher was killed" }, "its launcher was killed", /launcher/],
  [{}, "an unknown end", /^$/],
])("%o is %s", (ended, name, words) => {
  expect(exitName(ended)).toBe(name);
  expect(exitWords(ended)).toMatch(words);
});
