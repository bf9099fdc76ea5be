import { describe, expect, it } from "vitest";
import { resourcesOf, spanOf, tileOf } from "./resources";

describe("resources", () => {
  it("come in the order in which people ask for them, limits within what they limit", () =>
    expect(
      resourcesOf(["processes", "net_in", "memory_limit", "gpu1/memory", "cpu", "odd", "memory", "gpu0/memory"]).map(
        (one) => one.title,
      ),
    ).toEqual(["CPU", "Memory", "GPU 0, memory", "GPU 1, memory", "Network in", "Processes", "odd"]));
  it("traffic of this machine is that of all its replicas", () => {
    const titles = (local: boolean) => resourcesOf(["net_out", "cpu"], local).map((one) => one.title);
    expect(titles(true)).toEqual(["CPU", "Network out, whole machine"]);
    expect(titles(false)).toEqual(["CPU", "Network out"]);
  });
  it.each([
    ["cpu", 1.23456, "1.23 cores"],
    ["memory", 1536 * 1024, "1.50 MiB"],
    ["disk_write", 1024, "1.00 KiB/s"],
  ])("%s %d is %s", (name, value, expected) => expect(resourcesOf([name])[0]!.say(value)).toBe(expected));
  it("tiles tell least, largest, who, and the peak", () =>
    expect(
      tileOf(
        [
          { name: "cpu", replica: "worker-0", last: 1, max: 4 },
          { name: "cpu", replica: "worker-1", last: 3, max: 3 },
          { name: "memory", replica: "worker-1", last: 9, max: 9 },
          { name: "cpu", replica: "worker-2", last: "NaN", max: "NaN" },
        ],
        "cpu",
      ),
    ).toEqual({ low: 1, high: 3, who: "worker-1", peak: 4, ranks: 2 }));
  it("tiles of what is over tell the peaks of ranks, not their last samples", () =>
    expect(
      tileOf(
        [
          { name: "cpu", replica: "worker-0", last: 0, max: 4 },
          { name: "cpu", replica: "worker-1", last: 0, max: 3 },
        ],
        "cpu",
        "max",
      ),
    ).toEqual({ low: 3, high: 4, who: "worker-0", peak: 4, ranks: 2 }));
  it.each([
    ["1 cores", "3 cores", "1 – 3 cores"],
    ["0 B/s", "380 KiB/s", "0 B/s – 380 KiB/s"],
    ["1", "4", "1 – 4"],
  ])("from %s to %s is %s", (low, high, expected) => expect(spanOf(low, high)).toBe(expected));
  it("nothing sampled has no tile", () => expect(tileOf([], "cpu")).toBeNull());
});
