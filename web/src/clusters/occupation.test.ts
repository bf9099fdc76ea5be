import { describe, expect, test } from "vitest";
import { amount, bare, type Cluster, nodesOf, type Occupant, queueOf, requested, shareOf, slotsOf } from "./occupation";

const replica = (name: string, node = "here", state = "running", devices: number[] = []) => ({
  replica: name,
  node,
  state,
  devices,
  cpu: 1,
  memory: 512,
  gpu: devices.length,
});

const one = (id: string, more: Partial<Occupant> = {}): Occupant =>
  ({
    id,
    name: null,
    state: "running",
    cpu: 2,
    memory: 1024,
    gpu: 0,
    oversubscribe: false,
    replicas: [],
    ...more,
  }) as Occupant;

const machine = (...experiments: Occupant[]) =>
  ({ cpu: 8, memory: 16384, gpus: [0, 1, 2], experiments }) as unknown as Cluster;

describe("how much is taken", () => {
  test("by everything that has left the queue", () => {
    const share = shareOf(machine(one("a"), one("b", { cpu: 1 }), one("c", { state: "queued" })), "cpu")!;
    expect([share.used, share.free, share.total]).toEqual([3, 5, 8]);
    expect(share.parts.map((part) => [part.id, part.part])).toEqual([
      ["a", 0.25],
      ["b", 0.125],
    ]);
  });

  test("but not by what oversubscribes, except for the devices it was given", () => {
    const greedy = one("a", { oversubscribe: true, cpu: 100, replicas: [replica("worker-0", "here", "running", [1])] });
    expect(shareOf(machine(greedy), "cpu")!.used).toBe(0);
    expect(shareOf(machine(greedy), "gpu")!.used).toBe(1);
  });

  test("and nobody counts it on a cluster with a scheduler of its own", () => {
    expect(shareOf({ ...machine(), cpu: null } as Cluster, "cpu")).toBeNull();
    expect(shareOf({ ...machine(), gpus: null } as Cluster, "gpu")).toBeNull();
  });
});

test("every GPU is somebody's or free", () => {
  const holder = one("a", { replicas: [replica("worker-0", "here", "running", [2])] });
  expect(slotsOf(machine(holder)).map((slot) => [slot.device, slot.owner?.replica ?? null])).toEqual([
    [0, null],
    [1, null],
    [2, "worker-0"],
  ]);
});

test("nodes hold what is not over; what has no node comes last", () => {
  const spread = one("a", {
    replicas: [
      replica("worker-0", ""),
      replica("worker-1", "node-b"),
      replica("worker-2", "node-a"),
      replica("worker-3", "node-a", "succeeded"),
    ],
  });
  const waiting = one("b", { state: "queued", replicas: [replica("worker-0", "")] });
  const found = nodesOf(machine(spread, waiting));
  expect(found.map((node) => [node.name, node.replicas.map((each) => each.replica.replica)])).toEqual([
    ["node-a", ["worker-2"]],
    ["node-b", ["worker-1"]],
    ["", ["worker-0"]],
  ]);
  expect(queueOf(machine(spread, waiting)).map((each) => each.id)).toEqual(["b"]);
});

test.each([
  [1, "cpu", "1 core"],
  [2.5, "cpu", "2.5 cores"],
  [512, "memory", "512 MiB"],
  [1536, "memory", "1.5 GiB"],
  [1, "gpu", "1 GPU"],
] as const)("%s of %s is %s", (value, resource, said) => {
  expect(amount(value, resource)).toBe(said);
});

test("below a header the unit is left out", () => {
  expect([bare(0.4, "cpu"), bare(2, "gpu"), bare(2048, "memory")]).toEqual(["0.4", "2", "2 GiB"]);
});

test("what is requested in one line", () => {
  expect(requested({ cpu: 2, memory: 512, gpu: 0 })).toBe("2 cores, 512 MiB");
  expect(requested({ cpu: 0, memory: 0, gpu: 0 })).toBe("nothing");
});
