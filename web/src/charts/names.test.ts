import { describe, expect, it } from "vitest";
import { inOrder, treeOf, wantedNames } from "./names";

const NAMES = ["loss", "train/loss", "train/lr", "layers/0/norm", "layers/10/norm", "layers/2/norm", "shoal/step_time"];

describe("names of metrics", () => {
  it("are a tree", () => {
    const tree = treeOf(NAMES);
    expect(tree.count).toBe(7);
    expect(tree.leaves).toEqual(["loss"]);
    expect(tree.branches.map((branch) => [branch.name, branch.count])).toEqual([
      ["train", 2],
      ["layers", 3],
      ["shoal", 1],
    ]);
    expect(tree.branches[1]!.branches[0]).toMatchObject({ path: "layers/0", leaves: ["layers/0/norm"] });
  });
  it("are in an order that people expect", () =>
    expect(inOrder(NAMES)).toEqual([
      "loss",
      "train/loss",
      "layers/0/norm",
      "layers/2/norm",
      "layers/10/norm",
      "train/lr",
      "shoal/step_time",
    ]));
  it.each([
    ["nothing wanted is everything", "", "", 7],
    ["a regular expression", "^train/", "", 2],
    ["letters of any case", "LOSS", "", 2],
    ["what is no expression is a text", "lr(", "", 0],
    ["a branch", "", "layers", 3],
    ["a branch and an expression", "1", "layers", 1],
  ])("%s", (_, text, branch, expected) => expect(wantedNames(NAMES, text, branch)).toHaveLength(expected));
});
