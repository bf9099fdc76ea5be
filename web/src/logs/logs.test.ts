import { describe, expect, it } from "vitest";
import { anchorOf, copied, type LogLine, merged, placeOf } from "./lines";
import { kept, rowsOf, rowWith, whoOf, widest } from "./repeats";
import { overwritten, paletteColour, plainText, spansOf, tellsError, withHit, withWords } from "./text";

function line(replica: string, number: number, time: number, text: string, more: Partial<LogLine> = {}): LogLine {
  return {
    replica,
    attempt: 0,
    try: 0,
    line: number,
    offset: number * 10,
    time,
    stream: 1,
    text,
    length: text.length,
    complete: true,
    gap: 0,
    ...more,
  };
}

describe("what a terminal would leave of a line", () => {
  it.each([
    ["a line without returns stays", "loss 0.5", "loss 0.5"],
    ["the last state of a progress bar is the line", " 10%|#\r 50%|##\r100%|####", "100%|####"],
    ["a return at the end does not empty the line", "done\r", "done"],
    ["a bar that clears itself leaves what it said before", "90%\r100%\r\u001b[K", "100%"],
    ["only returns are nothing", "\r\r", ""],
  ])("%s", (_, text, expected) => expect(overwritten(text)).toBe(expected));

  it.each([
    ["colours go", "\u001b[1;31merror\u001b[0m: x", "error: x"],
    ["moves of the cursor go", "a\u001b[2Kb\u001b[1Ac", "abc"],
    ["titles and links go", "\u001b]0;title\u0007a\u001b]8;;http://x\u001b\\b", "ab"],
    ["a lone escape at the end goes", "a\u001b", "a"],
    ["tabs stay", "a\tb", "a\tb"],
    ["control characters are seen", "a\u0000b\u0007", "a␀b␇"],
  ])("%s", (_, text, expected) => expect(plainText(text)).toBe(expected));
});

describe("colours as spans", () => {
  it("plain text is one span", () => expect(spansOf("plain")).toEqual([{ text: "plain" }]));
  it("a colour has a class, so that the theme decides", () =>
    expect(spansOf("\u001b[33mWARNING\u001b[0m slow")).toEqual([
      { text: "WARNING", fg: "ansi-yellow" },
      { text: " slow" },
    ]));
  it("weight and background", () =>
    expect(spansOf("\u001b[1;44mx\u001b[0m")).toEqual([{ text: "x", bg: "ansi-blue", bold: true }]));
  it("a colour of the program's own choice is kept", () =>
    expect(spansOf("\u001b[38;2;1;2;3mx\u001b[0m")[0]).toMatchObject({ fgColour: "rgb(1, 2, 3)" }));
  it("markup is text", () => expect(spansOf("<b>\u001b[31m<script>")[0]!.text).toBe("<b>"));
  it.each([
    ["the first of the cube is black", 16, "rgb(0, 0, 0)"],
    ["the last of the cube is white", 231, "rgb(255, 255, 255)"],
    ["greys follow", 232, "rgb(8, 8, 8)"],
  ])("%s", (_, index, expected) => expect(paletteColour(index)).toBe(expected));
});

describe("hits in a line", () => {
  const texts = (spans: { text: string; hit?: boolean }[]) =>
    spans.map((span) => (span.hit ? `[${span.text}]` : span.text)).join("|");
  it("a hit is cut out", () =>
    expect(texts(withHit(spansOf("a needle here"), "a needle here", [2, 8]))).toBe("a |[needle]| here"));
  it("a hit over two colours is two pieces", () => {
    const raw = "\u001b[31mnee\u001b[0mdle";
    expect(texts(withHit(spansOf(raw), raw, [5, 15]))).toBe("[nee]|[dle]");
  });
  it("the server counts characters, not halves of them", () =>
    expect(texts(withHit(spansOf("🐟 fish"), "🐟 fish", [2, 6]))).toBe("🐟 |[fish]"));
  it("a hit that returns have wiped out is not shown", () =>
    expect(texts(withHit(spansOf("abc\rdef"), "abc\rdef", [0, 3]))).toBe("def"));
  it("all words of a filter are marked", () => expect(texts(withWords(spansOf("a b a"), /a/g))).toBe("[a]| b |[a]"));
});

describe("lines that tell of an error", () => {
  it.each([
    ["RuntimeError: CUDA error", true],
    ["Traceback (most recent call last):", true],
    ["finished with 0 errors", false],
    ["loss 0.3", false],
  ])("%s: %s", (text, expected) => expect(tellsError(text)).toBe(expected));
});

describe("places", () => {
  it("come back from their text", () => {
    const place = { attempt: 1, replica: "worker-2", try: 0, line: 12345 };
    expect(placeOf(anchorOf(place))).toEqual(place);
  });
  it.each(["", "x", "0:worker-1:0", "0:a b:0:1", "0:worker-1:0:-1"])("%j is none", (text) =>
    expect(placeOf(text)).toBeNull(),
  );
});

describe("merging", () => {
  it("goes by time, then by rank, and never reorders one log", () => {
    const rank = (name: string) => Number(name.split("-")[1]);
    const a = [line("w-1", 0, 1, "a"), line("w-1", 1, 1, "b"), line("w-1", 2, 5, "e")];
    const b = [line("w-0", 0, 1, "c"), line("w-0", 1, 0.5, "d")];
    expect(merged([a, b], rank).map((l) => l.text)).toEqual(["c", "d", "a", "b", "e"]);
  });
  it("what is copied names the replica only when there are several", () => {
    expect(copied([line("w-1", 0, 0, "\u001b[1mx")], plainText, false)).toBe("x");
    expect(copied([line("w-1", 0, 0, "x"), line("w-0", 0, 0, "y")], plainText, true)).toBe(
      "1970-01-01T00:00:00.000Z w-1 | x\n1970-01-01T00:00:00.000Z w-0 | y",
    );
  });
});

describe("the same line on several ranks", () => {
  const shown = (lines: LogLine[], collapse = true) =>
    rowsOf(lines, 100, collapse).map((row) => `${row.index} ${row.line.text} ${whoOf(row).join("+")}`);
  it("is one row, also when other lines come between", () =>
    expect(shown([line("a", 0, 0, "hi"), line("b", 0, 0, "x"), line("c", 0, 0, "hi"), line("b", 1, 0, "hi")])).toEqual([
      "100 hi a+c",
      "101 x b",
      "103 hi b",
    ]));
  it("keeps the order of each replica's lines", () =>
    expect(shown([line("a", 0, 0, "1"), line("a", 1, 0, "2"), line("b", 0, 0, "2"), line("b", 1, 0, "1")])).toEqual([
      "100 1 a",
      "101 2 a+b",
      "103 1 b",
    ]));
  it("a replica's own repeats are rows of their own", () =>
    expect(shown([line("a", 0, 0, "x"), line("a", 1, 0, "x")])).toEqual(["100 x a", "101 x a"]));
  it("what is far apart in time is not joined", () =>
    expect(shown([line("a", 0, 0, "x"), line("b", 0, 60, "x")])).toHaveLength(2));
  it("stdout and stderr are not joined", () =>
    expect(shown([line("a", 0, 0, "x"), line("b", 0, 0, "x", { stream: 2 })])).toHaveLength(2));
  it("is off when it is not wanted", () =>
    expect(shown([line("a", 0, 0, "x"), line("b", 0, 0, "x")], false)).toHaveLength(2));

  /** Equal lines of several ranks; one of them is always late, and prints each after the next line of the others. */
  const late = (steps: number) =>
    Array.from({ length: steps }, (_, step) => [
      ...["a", "b", "c"].map((name) => line(name, step, step, `step ${step}`)),
      ...(step ? [line("d", step - 1, step, `step ${step - 1}`)] : []),
    ]).flat();
  it("a rank that is late is joined, wherever the list is cut", () => {
    const lines = late(12);
    for (let cut = 0; cut < 20; cut += 1)
      for (const row of rowsOf(lines.slice(cut), cut, true, 12).slice(0, -1))
        expect(whoOf(row), `${row.line.text} after ${cut}`).toEqual(["a", "b", "c", "d"]);
  });
  it("rows are the same, whatever was read before them", () => {
    const lines = late(30);
    const all = rowsOf(lines, 0, true);
    expect(rowsOf(lines.slice(40), 40, true, 20)).toEqual(all.filter((row) => row.index >= 60));
  });
  it("a line that belongs to an earlier row makes none", () =>
    expect(rowsOf([line("a", 0, 0, "x"), line("b", 0, 0, "x"), line("a", 1, 0, "y")], 0, true, 1)).toMatchObject([
      { index: 2 },
    ]));
  it("a row is found by each of its lines", () => {
    const rows = rowsOf(late(10), 0, true);
    const row = rows[3]!;
    for (const index of [row.index, ...row.also]) expect(rowWith(rows, index)).toBe(row);
    expect(rowWith(rows.slice(4), row.index)).toBeUndefined();
    expect(rowWith(rows.slice(4), row.also.at(-1)!)).toBeUndefined();
  });
  it("rows stay the same objects until somebody joins", () => {
    const lines = late(6);
    const before = rowsOf(lines.slice(0, -1), 0, true);
    const now = kept(before, rowsOf(lines, 0, true));
    expect(now.map((row, i) => row === before[i])).toEqual([true, true, true, true, false, true]);
  });

  /** Ranks that began one after another, each `apart` seconds later, and print the same since. */
  const staggered = (ranks: number, steps: number, apart: number) =>
    Array.from({ length: ranks * steps }, (_, i) => {
      const [rank, step] = [i % ranks, Math.floor(i / ranks)];
      return line(`w-${rank}`, step, step + rank * apart + ((rank * 31 + step * 7) % 10) / 50, `step ${step}`);
    }).sort((a, b) => a.time - b.time);
  it.each([0, 137, 400])("ranks that began far apart are joined after line %i when enough is read before", (begin) => {
    const rows = rowsOf(staggered(16, 100, 0.7).slice(begin), begin, true, 300).filter((row) => row.index < 1200);
    expect(new Set(rows.map((row) => whoOf(row).length))).toEqual(new Set([16]));
  });
  it("how much is read before is told by rows that are torn", () => {
    const lines = staggered(16, 100, 0.7);
    const whole = widest(rowsOf(lines, 0, true));
    const torn = rowsOf(lines.slice(400), 400, true, 20);
    expect(torn.length).toBeGreaterThan(100);
    expect(widest(torn)).toBeGreaterThan(40);
    expect(widest(torn)).toBeLessThanOrEqual(whole);
    expect(widest(rowsOf([line("a", 0, 0, "x"), line("a", 1, 0, "x")], 0, true))).toBe(0);
  });
});
