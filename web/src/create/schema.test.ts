import { describe, expect, test } from "vitest";
import { meaningOf, offersAt, type Schema, spotAt } from "./schema";

const SCHEMA: Schema = {
  properties: {
    name: { type: "string", description: "How it is called." },
    framework: { enum: ["pytorch", "none"], description: "Which." },
    run: { $ref: "#/$defs/Run" },
    data: { items: { oneOf: [{ $ref: "#/$defs/Dataset" }, { $ref: "#/$defs/External" }] } },
    replicas: { $ref: "#/$defs/Replicas" },
  },
  $defs: {
    Run: {
      description: "What runs.",
      properties: { cmd: { anyOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] } },
    },
    Dataset: { properties: { dataset: { type: "string" }, at: { type: "string" } } },
    External: { properties: { uri: { type: "string" }, at: { type: "string" }, anonymous: { type: "boolean" } } },
    Replicas: {
      properties: {
        n_ps: { type: "integer" },
        master: { type: "boolean" },
        worker: { items: { properties: { index: {}, deep: { properties: { x: {} } } } } },
      },
    },
  },
};

/** `|` is the cursor. */
function offered(marked: string): string[] | null {
  const cursor = marked.indexOf("|");
  const spot = spotAt(marked.replace("|", ""), cursor);
  return spot && offersAt(SCHEMA, spot).map((offer) => offer.text);
}

test.each([
  ["an empty file", "|", ["name", "framework", "run", "data", "replicas"]],
  ["what is there already is not offered", "name: x\n|\nrun:\n  cmd: a\n", ["framework", "data", "replicas"]],
  ["values of a key", "framework: |", ["pytorch", "none"]],
  ["values after a beginning", "framework: py|", ["pytorch", "none"]],
  ["keys of a section", "name: a\nreplicas:\n  |", ["n_ps", "master", "worker"]],
  ["keys beside others", "replicas:\n  n_ps: 1\n  |\n  master: true\nname: x", ["worker"]],
  ["truth", "replicas:\n  master: |", ["true", "false"]],
  ["a new entry of a list", "data:\n  - |", ["dataset", "at", "uri", "anonymous"]],
  ["further keys of an entry", "data:\n- uri: b\n  |", ["dataset", "at", "anonymous"]],
  ["the second entry begins anew", "data:\n- uri: b\n- |", ["dataset", "at", "uri", "anonymous"]],
  ["a section within an entry", "replicas:\n  worker:\n    - index: 0\n      deep:\n        |", ["x"]],
  ["after comments and empty lines", "replicas: # these\n\n  # or those\n  |", ["n_ps", "master", "worker"]],
  ["nothing within braces", "replicas: {|", null],
  ["nothing in a comment", "# na|", null],
  ["nothing in a comment behind a value", "framework: none # |", null],
  ["nothing below a value", "name: x\n  |", []],
])("%s", (_, marked, expected) => expect(offered(marked)).toEqual(expected));

test("nothing in a text of several lines", () => {
  const text = "run:\n  cmd: |\n    pyt";
  expect(spotAt(text, text.length)).toBeNull();
});

describe("a word that is being typed", () => {
  test("is replaced from where it begins", () =>
    expect(spotAt("name: x\nfra", 11)).toMatchObject({ from: 8, word: "fra" }));
  test("of a value, too", () =>
    expect(spotAt("framework: py", 13)).toMatchObject({ from: 11, word: "py", path: ["framework"] }));
});

test.each([
  [["framework"], "Which."],
  [["run"], "What runs."],
  [["run", "cmd"], ""],
  [["nonsense"], ""],
])("%j means %s", (path, meaning) => expect(meaningOf(SCHEMA, path)).toBe(meaning));
