import { expect, test } from "vitest";
import { parse } from "yaml";
import { meant, treeOf, typedAt, valueAt, withItem, without, withValue } from "./document";

const FILE = `# What it is for
version: 1   # the only one
name: "first"   # quoted

params:
  lr: 2e-3   # small
  ids: 08
run:
  # how it starts
  cmd: python train.py --lr {{ lr }}
environment:
  resources:
    cpu: {requests: 0.10}   # a tenth
  replicas:
    n_workers: 2
  # the end of the environment
data:
- dataset: a@v1
  at: here   # beside
- {uri: "s3://b/c"}
# the very end
`;

const lines = (text: string) => text.split("\n");

/** The lines that are in one text only: what a change did. */
function difference(before: string, after: string): string[] {
  const [a, b] = [lines(before), lines(after)];
  return [
    ...a.filter((line) => !b.includes(line)).map((line) => `-${line}`),
    ...b.filter((line) => !a.includes(line)).map((line) => `+${line}`),
  ];
}

test.each([
  ["a number behind a comment", ["params", "lr"], 0.1, ["-  lr: 2e-3   # small", "+  lr: 0.1   # small"]],
  ["a text in quotes", ["name"], "second", ['-name: "first"   # quoted', "+name: second   # quoted"]],
  ["a key that was not there", ["environment", "replicas", "n_ps"], 1, ["+    n_ps: 1"]],
  ["a key at its usual place", ["framework"], "pytorch", ["+framework: pytorch"]],
  [
    "a value within braces",
    ["environment", "resources", "cpu", "limits"],
    2,
    ["-    cpu: {requests: 0.10}   # a tenth", "+    cpu: {requests: 0.10, limits: 2}   # a tenth"],
  ],
  [
    "keys within keys",
    ["environment", "replicas", "default_worker", "resources", "gpu", "requests"],
    1,
    ["+    default_worker:", "+      resources:", "+        gpu:", "+          requests: 1"],
  ],
  ["an entry of a list", ["data", 0, "at"], "there", ["-  at: here   # beside", "+  at: there   # beside"]],
  ["an entry of a list within braces", ["data", 1, "at"], "c", ['-- {uri: "s3://b/c"}', '+- {uri: "s3://b/c", at: c}']],
  [
    "several lines",
    ["run", "cmd"],
    "a\nb\n",
    ["-  cmd: python train.py --lr {{ lr }}", "+  cmd: |", "+    a", "+    b"],
  ],
  [
    "a text that YAML would take for something else",
    ["name"],
    "7",
    ['-name: "first"   # quoted', '+name: "7"   # quoted'],
  ],
  [
    "braces where a value was",
    ["version"],
    { git: "u" },
    ["-version: 1   # the only one", "+version: {git: u}   # the only one"],
  ],
])("%s changes, and nothing else", (_, path, value, expected) => {
  const after = withValue(FILE, path, value)!;
  expect(difference(FILE, after)).toEqual(expected);
  expect(valueAt(treeOf(after)!, path)).toEqual(value);
});

test("a key takes its usual place among the others", () => {
  expect(lines(withValue(FILE, ["framework"], "jax")!).slice(1, 4)).toEqual([
    "version: 1   # the only one",
    'name: "first"   # quoted',
    "framework: jax",
  ]);
  expect(lines(withValue("run: {cmd: a}\n", ["name"], "x")!)[0]).toBe("name: x");
});

test.each([
  ["a line with a comment", ["params", "lr"], ["-  lr: 2e-3   # small", "+  # small"]],
  [
    "the only key of a section takes the section along",
    ["run", "cmd"],
    ["-run:", "-  # how it starts", "-  cmd: python train.py --lr {{ lr }}"],
  ],
  ["an entry of a list", ["data", 1], ['-- {uri: "s3://b/c"}']],
  ["an entry of several lines", ["data", 0], ["-- dataset: a@v1", "-  at: here   # beside", "+  # beside"]],
])("what is taken away: %s", (_, path, expected) => {
  expect(difference(FILE, without(FILE, path)!)).toEqual(expected);
});

test.each([
  ["behind lines", FILE, ["data"], { dataset: "b", at: "x" }, ["+- dataset: b", "+  at: x"]],
  [
    "within brackets",
    "data: [{uri: a}] # these\n",
    ["data"],
    { uri: "b" },
    ["-data: [{uri: a}] # these", "+data: [{uri: a}, {uri: b}] # these"],
  ],
  ["where there was none", "run: {cmd: a}\n", ["data"], { uri: "b" }, ["+data:", "+  - uri: b"]],
])("a new entry %s", (_, text, path, value, expected) => {
  const after = withItem(text, path, value)!;
  expect(difference(text, after)).toEqual(expected);
  expect((valueAt(treeOf(after)!, path) as unknown[]).at(-1)).toEqual(value);
});

test.each([
  ["an empty file", "", "name: x\n"],
  ["only a comment", "# why\n", "# why\nname: x\n"],
  ["a key without a value", "name:   # soon\n", "name: x   # soon\n"],
  ["no line end", "version: 1", "version: 1\nname: x"],
  ["a block of text", "name: |\n  old\n\n# next\nversion: 1\n", "name: x\n\n# next\nversion: 1\n"],
])("a name for %s", (_, text, expected) => expect(withValue(text, ["name"], "x")).toBe(expected));

test("a section without a value gets its first key", () => {
  expect(withValue("environment: # later\nrun: {cmd: a}\n", ["environment", "replicas", "n_ps"], 1)).toBe(
    "environment: # later\n  replicas:\n    n_ps: 1\nrun: {cmd: a}\n",
  );
});

test.each([
  ["what is no YAML", "a: [1\n", ["a"]],
  ["a list", "- a\n", ["a"]],
  ["a path through a number", "environment: 3\n", ["environment", "replicas"]],
  ["a path through something that stands elsewhere", "x: &e {a: 1}\nenvironment: *e\n", ["environment", "b"]],
])("%s is left to its author", (_, text, path) => expect(withValue(text, path, 1)).toBeNull());

test("every change of every value of the file means what it says, and keeps each comment", () => {
  const leaves: (string | number)[][] = [];
  const walk = (value: unknown, path: (string | number)[]) => {
    if (typeof value !== "object" || value === null) leaves.push(path);
    else
      for (const [key, inner] of Object.entries(value))
        walk(inner, [...path, Array.isArray(value) ? Number(key) : key]);
  };
  walk(parse(FILE), []);
  expect(leaves).toHaveLength(10);
  for (const path of leaves)
    for (const value of [7, "text", "a: b # c", "", true, "two\nlines", "  odd\n\n", [1], { a: [1, { b: 2 }] }]) {
      const after = withValue(FILE, path, value)!;
      expect(valueAt(treeOf(after)!, path), `${path} ${JSON.stringify(value)}`).toEqual(value);
      for (const comment of FILE.match(/#.*/g)!) expect(after, `${path} ${JSON.stringify(value)}`).toContain(comment);
    }
});

test("values are shown as they were typed", () => {
  const tree = treeOf(FILE)!;
  expect(["lr", "ids", "nothing"].map((name) => typedAt(tree, ["params", name]))).toEqual(["2e-3", "08", ""]);
  expect(typedAt(tree, ["data", 1])).toBe("{uri: s3://b/c}");
  expect(typedAt(tree, ["run", "cmd"])).toBe("python train.py --lr {{ lr }}");
});

test.each([
  ["0.1", 0.1],
  ["[1, 2]", [1, 2]],
  ["a: b", "a: b"],
  ["true", true],
  ["{{ lr }}", "{{ lr }}"],
  ["[1", "[1"],
])("%s means %j", (typed, value) => expect(meant(typed)).toEqual(value));
