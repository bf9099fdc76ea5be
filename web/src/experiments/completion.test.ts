import { describe, expect, test } from "vitest";
import { completions, fieldOf, located, taken, type Vocabulary } from "./completion";

const WORDS: Vocabulary = {
  params: ["lr", "a b"],
  metrics: ["loss", "val/acc"],
  values: { cluster: ["local", "big"] },
};

describe("completions", () => {
  test.each([
    ["the beginning of a field", "sta", 0, ["state:", "started:"]],
    ["a field after a comma", "state:failed, metrics.l", 14, ["metrics.loss:"]],
    ["a value of a known field", "state:fa", 6, ["failed"]],
    ["the second of several values", "state:failed|sto", 13, ["stopped"]],
    ["a value after not", "state:~lo", 7, ["lost"]],
    ["values that the experiments have", "cluster:b", 8, ["big"]],
    ["a name in quotes", 'params."a', 0, ['params."a b":']],
    ["nothing inside quotes that hold a comma", 'name:"a, st', 5, []],
    ["nothing when it is there already", "cluster:local", 8, []],
  ])("%s", (_, text, from, expected) => {
    const found = completions(text, text.length, WORDS);
    expect(found.from).toBe(from);
    expect(found.items.map((item) => item.text).slice(0, 2)).toEqual(expected);
  });

  test("an empty query offers fields, states first", () => {
    expect(completions("", 0, WORDS).items[0]!.text).toBe("state:");
  });

  test("what is taken replaces the word up to the cursor", () => {
    expect(taken("sta, name:x", 3, 0, "state:")).toEqual({ text: "state:, name:x", cursor: 6 });
  });
});

test.each([
  ["query:1:28", "state:failed, metrics.loss:low", ["state:failed, metrics.loss:", "low", ""]],
  ["query:1:1", "stat:failed, a:b", ["", "stat:failed", ", a:b"]],
  ["query:1:99", "state:", ["state:", " ", ""]],
])("the place %s of %s is shown", (where, text, expected) => {
  expect(located(where, text)).toEqual(expected);
});

test("an error that is about no query has no place in it", () => {
  expect(located("exp.yml:3:1", "state:failed")).toBeNull();
  expect(located(null, "state:failed")).toBeNull();
});

test.each([
  ["loss", "metrics.loss"],
  ["a:b", 'metrics."a:b"'],
  ['say "x"', "metrics.'say \"x\"'"],
])("the field of metric %s is %s", (name, field) => {
  expect(fieldOf("metrics", name)).toBe(field);
});
