import { describe, expect, it } from "vitest";
import { changedBy, held, written } from "./tags";

const SOME = [{ tags: ["b", "a"] }, { tags: ["b"] }, { tags: [] }];

describe("tags of several experiments", () => {
  it("are counted, the most common first", () =>
    expect(held(SOME)).toEqual([
      { tag: "b", count: 2 },
      { tag: "a", count: 1 },
    ]));

  it("are the words between commas, each once", () => {
    expect(written(" baseline, lr sweep,,baseline ,")).toEqual(["baseline", "lr sweep"]);
    expect(written(" , ")).toEqual([]);
  });

  it("are asked for only where they change something", () => {
    expect(changedBy(SOME, ["b"], [])).toEqual([SOME[2]]);
    expect(changedBy(SOME, [], ["a"])).toEqual([SOME[0]]);
    expect(changedBy(SOME, ["c"], [])).toEqual(SOME);
    expect(changedBy(SOME, [], [])).toEqual([]);
  });
});
