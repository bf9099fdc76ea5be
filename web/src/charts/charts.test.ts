import { describe, expect, it } from "vitest";
import { viridis } from "../look/colours";
import { alignedTo, bandOf, bucketsFor, described, linesOf, nearest, oddOf, smoothed, widthFor } from "./drawing";
import { deviations, filled, gridOf, labelledRows, median, pixelsOf, rangeOf, table } from "./heat";
import { attemptMarks, frameOptions, labelsOf, short, tick } from "./options";
import { type Curve, extended, pointsOf, settled, unpacked } from "./packed";

const floats = (...values: number[]) => Float64Array.from(values);

function curve(more: Partial<Curve> = {}): Curve {
  return {
    name: "loss",
    kind: "metric",
    replica: "worker-0",
    process: 0,
    rank: 0,
    attempt: 0,
    start: floats(0, 1),
    x_first: floats(0, 1),
    x_last: floats(0, 1),
    min: floats(1, 2),
    max: floats(1, 2),
    min_x: floats(0, 1),
    max_x: floats(0, 1),
    mean: floats(1, 2),
    count: floats(1, 1),
    ...more,
  };
}

/** What shoal/server/tracking.py writes. */
function packed(head: object, numbers: number[]): ArrayBuffer {
  let text = JSON.stringify(head);
  text += " ".repeat((8 - ((4 + text.length) % 8)) % 8);
  const buffer = new ArrayBuffer(4 + text.length + numbers.length * 8);
  new DataView(buffer).setUint32(0, text.length, true);
  new Uint8Array(buffer, 4).set(new TextEncoder().encode(text));
  new Float64Array(buffer, 4 + text.length).set(numbers);
  return buffer;
}

describe("the packed answer", () => {
  const head = {
    x: "step",
    width: 2,
    agg: "all",
    series: [{ name: "loss", kind: "metric", members: [], start: [0, 2], count: [2, 2], min: [4, 2] }],
  };
  it("gives arrays where they lie", () => {
    const chart = unpacked(packed(head, [0, 2, 5, 6, Number.NaN, 1]));
    expect(chart).toMatchObject({ x: "step", width: 2, agg: "all" });
    expect([...chart.series[0]!.start]).toEqual([0, 2]);
    expect([...chart.series[0]!.min!]).toEqual([Number.NaN, 1]);
    expect(pointsOf(chart.series[0]!)).toBe(11);
  });
  it.each([
    ["without its arrays", packed(head, [0, 2])],
    ["without its end", packed(head, [1, 2, 3, 4, 5, 6]).slice(0, 20)],
    ["of nothing", new ArrayBuffer(0)],
  ])("an answer %s is refused", (_, buffer) => expect(() => unpacked(buffer)).toThrow("cut off"));
});

describe("what came since", () => {
  const known = { x: "step", width: 1, agg: null, series: [curve()] };
  it("replaces the last bucket and follows it", () => {
    const fresh = { ...known, series: [curve({ start: floats(1, 2), mean: floats(9, 3), count: floats(2, 1) })] };
    const whole = extended(known, fresh, 1)!;
    expect([...whole.series[0]!.start]).toEqual([0, 1, 2]);
    expect([...whole.series[0]!.mean!]).toEqual([1, 9, 3]);
  });
  it.each([
    ["another width", { ...known, width: 2 }],
    ["another attempt", { ...known, series: [curve({ attempt: 1 })] }],
    ["a new rank", { ...known, series: [curve({ replica: "worker-9" })] }],
  ])("%s asks for the whole again", (_, fresh) => expect(extended(known, fresh, 1)).toBeNull());
});

describe("a band", () => {
  it("draws a bucket between its first and its last point", () =>
    expect(bandOf(curve({ x_first: floats(0, 4), x_last: floats(2, 4) })).x).toEqual([1, 4]));
  it("leaves out what cannot be drawn", () => {
    const band = bandOf(curve({ max: floats(Number.POSITIVE_INFINITY, 2), mean: floats(Number.NaN, -1) }), true);
    expect(band.max).toEqual([null, 2]);
    expect(band.mean).toEqual([null, null]);
  });
  it.each([
    ["an infinite maximum is marked", { max: floats(Infinity, 2), finite: floats(0, 1) }, ["∞"]],
    ["a NaN among finite values is marked", { count: floats(3, 1), finite: floats(2, 1) }, ["NaN"]],
    ["a bucket of NaN is marked", { min: floats(NaN, 2), max: floats(NaN, 2) }, ["NaN"]],
    ["finite values have no mark", { finite: floats(1, 1) }, []],
  ])("%s", (_, more, expected) => expect(oddOf(curve(more)).map((odd) => odd.what)).toEqual(expected));
});

describe("the end of a band that grows", () => {
  const ranks = (...curves: number[]) => {
    const numbers = floats(...curves.map((_, i) => i));
    return [...settled(curve({ start: numbers, mean: numbers, curves: floats(...curves) })).mean!];
  };
  it.each([
    ["not all ranks have reached is left out", [3, 3, 3, 2, 1], [0, 1, 2]],
    ["all ranks have reached stays", [3, 3, 3], [0, 1, 2]],
    ["the living ranks have reached stays", [3, 3, 2, 2], [0, 1, 2, 3]],
    ["is its only bucket stays", [1], [0]],
  ])("which %s", (_, curves, expected) => expect(ranks(...curves)).toEqual(expected));
  it("of one rank stays", () => expect(settled(curve())).toEqual(curve()));
});

describe("axes", () => {
  it.each([
    [99_999, "99999"],
    [2e5, "200k"],
    [-3e9, "−3G"],
    [5e13, "50T"],
    [1e15, "1e15"],
    [2.5e20, "2.5e20"],
    [0.00001, "1e−5"],
  ])("%d is written %s", (value, word) => expect(tick(value)).toBe(word));
  it("steps are written short", () => expect([900, 12_000, 3e6, 4e12].map(short)).toEqual(["900", "12k", "3M", "4T"]));
  it.each([
    ["time", 2],
    ["step", 1],
  ])("the axis of %s has room for %d lines", (x, lines) => {
    const frame = { x, scheme: "light", say: String, range: () => null } as unknown as Parameters<
      typeof frameOptions
    >[0];
    expect(frameOptions(frame).axes![0]!.size).toBeGreaterThanOrEqual(16 + 14 * lines);
  });
});

describe("marks", () => {
  it("attempts that began at one place share a mark", () =>
    expect(
      attemptMarks([
        [2, 40],
        [1, 40],
        [3, 40],
        [4, 90],
      ]),
    ).toEqual([
      { x: 40, word: "attempts 1–3" },
      { x: 90, word: "attempt 4" },
    ]));
  it.each([
    [
      "stand at the right of their lines",
      [10, 200],
      [
        [13, "left", 0],
        [203, "left", 0],
      ],
    ],
    [
      "at the edge stand at the left",
      [10, 280],
      [
        [13, "left", 0],
        [277, "right", 0],
      ],
    ],
    [
      "that would cover each other stand below",
      [10, 30, 31],
      [
        [13, "left", 0],
        [33, "left", 1],
        [34, "left", 2],
      ],
    ],
    [
      "for which there is no room are left out",
      [10, 11, 12, 13],
      [
        [13, "left", 0],
        [14, "left", 1],
        [15, "left", 2],
        [16, "left", null],
      ],
    ],
    [
      "come in any order",
      [200, 10],
      [
        [13, "left", 0],
        [203, "left", 0],
      ],
    ],
  ])("words %s", (_, places, expected) => {
    const labels = labelsOf(places.map((at) => ({ at, width: 50 })), 300, 3); // biome-ignore format: one line
    expect(labels.map(({ x, align, row }) => [x, align, row])).toEqual(expected);
  });
});

describe("lines", () => {
  it("of single points lie at their x", () => {
    const two = curve({ start: floats(1, 2), x_first: floats(1, 2), max: floats(5, 6) });
    expect(linesOf([curve(), two], 1)).toMatchObject({
      x: [0, 1, 2],
      y: [
        [1, 2, null],
        [null, 5, 6],
      ],
    });
  });
  it("keep a spike of a bucket, in the order in which it came", () => {
    const spiky = curve({
      min: floats(1, 1),
      max: floats(9, 1),
      min_x: floats(1, 2),
      max_x: floats(0, 2),
      count: floats(2, 2),
    });
    expect(linesOf([spiky], 2).y[0]).toEqual([9, 1, 1, 1]);
    expect(linesOf([spiky], 2).x).toEqual([0.5, 1.5, 1.5, 2.5]);
  });
  it("a pinned rank lies on the band's buckets", () =>
    expect(alignedTo(floats(0, 1, 2), curve({ start: floats(1, 2), mean: floats(5, 6) }))).toEqual([null, 5, 6]));
});

describe("smoothing", () => {
  it("begins at the first value", () =>
    expect(smoothed([4, 4, 4], 0.9)).toEqual([4, 4, 4].map((v) => expect.closeTo(v, 10))));
  it("goes over holes", () => expect(smoothed([1, null, 3], 0.5)).toEqual([1, null, expect.closeTo(7 / 3, 10)]));
  it("of weight 0 is nothing", () => expect(smoothed([1, 2], 0)).toEqual([1, 2]));
});

describe("buckets", () => {
  it.each([
    [0, 999, 1000, 1, 1],
    [0, 1_000_000, 1024, 1, 1024],
    [0, 1_000_000, 1000, 1, 1024],
    [5, 5, 10, 1, 1],
    [0, 1, 4, 0, 0.5],
  ])("%d to %d in %d of at least %d are %d wide", (low, high, most, smallest, expected) =>
    expect(widthFor(low, high, most, smallest)).toBe(expected),
  );
  it.each([
    [10, 64],
    [700, 512],
    [800, 1024],
    [9000, 2048],
  ])("%d pixels ask for %d", (pixels, expected) => expect(bucketsFor(pixels)).toBe(expected));
  it.each([
    [[0, 10, 20], 14, 1],
    [[0, 10, 20], 16, 2],
    [[], 1, -1],
    [[3], 9, 0],
  ])("nearest of %j to %d is %d", (x, wanted, expected) =>
    expect(nearest(x as number[], wanted as number)).toBe(expected),
  );
});

describe("a chart in words", () => {
  it("tells ranks, extremes and what is odd", () =>
    expect(
      described(
        "loss",
        curve({
          members: [1, 2].map((rank) => ({ replica: `w-${rank}`, process: 0, rank, attempt: 0 })),
          max: floats(Infinity, 2),
          finite: floats(0, 1),
        }),
        String,
      ),
    ).toBe(
      "loss of 2 ranks, from 0 to 1; least 1, largest 2; last mean 2; 1 bucket has values that are no finite numbers.",
    ));
  it("without points says so", () => expect(described("loss", undefined, String)).toBe("loss: no points."));
});

describe("a heat map", () => {
  const slow = curve({ replica: "worker-1", rank: 1, mean: floats(9, 9) });
  const third = curve({ replica: "worker-2", rank: 2, start: floats(1), mean: floats(3) });
  it("has a row a rank and nothing where a rank has nothing", () => {
    const grid = gridOf([third, slow, curve()], 1);
    expect(grid.rows.map((row) => row.label)).toEqual(["worker-0", "worker-1", "worker-2"]);
    expect([...grid.values]).toEqual([1, 2, 9, 9, Number.NaN, 3]);
  });
  it("ordered by mean begins with the largest", () =>
    expect(gridOf([curve(), slow, third], 1, "mean", "mean").rows.map((row) => row.rank)).toEqual([1, 2, 0]));
  it("several processes are told apart", () =>
    expect(gridOf([curve(), curve({ process: 1, rank: 1 })], 1).rows.map((row) => row.label)).toEqual([
      "worker-0:0",
      "worker-0:1",
    ]));
  it("buckets without points are columns, and a value holds until the next", () => {
    const sampled = curve({ start: floats(0, 2, 4, 12), mean: floats(1, 2, 3, 4) });
    expect([...gridOf([sampled], 1).values].filter(Number.isNaN)).toHaveLength(9);
    expect([...filled(gridOf([sampled], 1)).values]).toEqual([1, 1, 2, 2, 3, 3, 3, 3, NaN, NaN, NaN, NaN, 4]);
  });
  it("samples that become rarer leave no holes", () => {
    const rarer = curve({ start: floats(0, 1, 2, 3, 8, 13, 18), mean: floats(1, 1, 1, 1, 2, 3, 4) });
    expect([...filled(gridOf([rarer], 1)).values].filter(Number.isNaN)).toEqual([]);
  });
  it.each([
    [7, 0, 3, "unusually late"],
    [7, 6, 0, "late, but not for a sample"],
    [30, 6, 22, "silence"],
  ])("a value at 2 and the next at %d, holding %d, leave %d holes: %s", (last, holds, holes) => {
    const late = curve({ start: floats(0, 1, 2, last), mean: floats(1, 1, 1, 2) });
    expect([...filled(gridOf([late], 1), holds).values].filter(Number.isNaN)).toHaveLength(holes);
  });
  it("deviations are from the median of each column", () =>
    expect([...deviations(gridOf([curve(), slow, third], 1))]).toEqual([-4, -1, 4, 6, Number.NaN, 0]));
  it.each([
    [[1, 9], 5],
    [[3, 1, 2], 2],
    [[], Number.NaN],
  ])("the median of %j is %d", (values, expected) => expect(median(values as number[])).toBe(expected));
  it("the range leaves out what is not finite", () => expect(rangeOf(floats(NaN, 2, Infinity, -1))).toEqual([-1, 2]));
  it("paints one pixel a cell, nothing for nothing", () => {
    const pixels = pixelsOf(floats(0, NaN, 10), [0, 10], table(viridis));
    expect([...pixels]).toEqual([68, 1, 84, 255, 0, 0, 0, 0, 253, 231, 37, 255]);
  });
  it("paints what is the same everywhere as low", () =>
    expect([...pixelsOf(floats(5), [5, 5], table(viridis))]).toEqual([68, 1, 84, 255]));
  it.each([
    [8, 200, 8],
    [256, 260, 20],
  ])("%d rows in %d pixels have %d labels", (rows, pixels, expected) =>
    expect(labelledRows(rows, pixels)).toHaveLength(expected),
  );
});
