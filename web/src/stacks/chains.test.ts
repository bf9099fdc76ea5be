import { describe, expect, test } from "vitest";
import { chains, moved, own, replicaOf, type Stacks, who } from "./chains";

const call = (name: string, ranks: string[], children: ReturnType<typeof node>[] = []) => node(name, ranks, children);
function node(name: string, ranks: string[], children: unknown[]): Stacks["tree"][number] {
  return { file: "/a/train.py", line: 1, function: name, ranks, children: children as Stacks["tree"] };
}

const everybody = ["worker-0", "worker-1", "worker-2"];
const tree = [
  call("<module>", everybody, [
    call("train", everybody, [call("all_reduce", ["worker-0", "worker-2"]), call("next_batch", ["worker-1"])]),
  ]),
];

describe("chains", () => {
  test("calls that the same ranks are in are one", () => {
    const [root] = chains(tree, () => true);
    expect(root!.calls.map((one) => one.function)).toEqual(["<module>", "train"]);
    expect(root!.children.map((child) => [child.calls[0]!.function, child.ranks])).toEqual([
      ["all_reduce", ["worker-0", "worker-2"]],
      ["next_batch", ["worker-1"]],
    ]);
  });

  test("of the ranks that are meant only", () => {
    const [root] = chains(tree, (rank) => rank === "worker-1");
    expect(root!.calls.map((one) => one.function)).toEqual(["<module>", "train", "next_batch"]);
    expect(chains(tree, () => false)).toEqual([]);
  });
});

test("who has moved since the look before", () => {
  const at = (lines: Record<string, number>) =>
    ({
      ranks: Object.entries(lines).map(([name, line]) => ({ name, frames: [{ file: "a", line, function: "f" }] })),
    }) as unknown as Stacks;
  expect(moved(undefined, at({ a: 1 }))).toBeNull();
  expect(moved(at({ a: 1, b: 2 }), at({ a: 1, b: 3, c: 1 }))).toEqual(["b", "c"]);
});

test("names", () => {
  expect(["worker-2", "worker-2:1", "worker-2:1 (pid 7)"].map(replicaOf)).toEqual(["worker-2", "worker-2", "worker-2"]);
  expect(who(["a"], 1)).toBe("a");
  expect(who(["a", "b"], 2)).toBe("all 2 ranks");
  expect(who(["a", "b"], 3)).toBe("a, b");
  expect(who([..."abcdefgh"], 9)).toBe("8 ranks: a, b, c, d, …");
  expect(own("/home/me/train.py")).toBe(true);
  expect(own("/venv/lib/python3.11/site-packages/torch/x.py")).toBe(false);
  expect(own("<string>")).toBe(false);
});
