import { describe, expect, it } from "vitest";
import type { LogLine } from "./lines";
import { LogPages, PAGE, type Source } from "./pages";

/** A log that grows when it is told to; it counts what it is asked. */
function growing(total: number) {
  const asked: [number, number][] = [];
  const source: Source & { total: number; asked: [number, number][] } = {
    total,
    asked,
    async window(start, count) {
      asked.push([start, count]);
      const first = Math.min(start, source.total);
      const lines = Array.from({ length: Math.max(0, Math.min(count, source.total - first)) }, (_, i) =>
        made(first + i),
      );
      return { total: source.total, first, lines, logs: [] };
    },
    tail: (count) => source.window(Math.max(0, source.total - count), count),
    async locate() {
      return 0;
    },
  };
  return source;
}

function made(number: number): LogLine {
  return {
    replica: "worker-0",
    attempt: 0,
    try: 0,
    line: number,
    offset: 0,
    time: number,
    stream: 1,
    text: `line ${number}`,
    length: 8,
    complete: true,
    gap: 0,
  };
}

describe("pages of a long log", () => {
  it("are loaded where somebody looks, and nowhere else", async () => {
    const source = growing(1_000_000);
    const pages = new LogPages(source, false);
    await pages.want([2500]);
    expect(pages.total).toBe(1_000_000);
    expect(pages.line(2500 * PAGE + 3)!.text).toBe(`line ${2500 * PAGE + 3}`);
    expect(pages.line(0)).toBeUndefined();
    expect(source.asked).toEqual([[2500 * PAGE, PAGE]]);
  });
  it("are asked for once, however many want them", async () => {
    const source = growing(PAGE);
    const pages = new LogPages(source, false);
    await Promise.all([pages.want([0]), pages.want([0])]);
    await pages.want([0]);
    expect(source.asked).toHaveLength(1);
  });
  it("beside each other are one request", async () => {
    const source = growing(1000 * PAGE);
    const pages = new LogPages(source, false);
    await pages.want([4, 5, 6, 9]);
    expect(source.asked).toEqual([
      [4 * PAGE, 3 * PAGE],
      [9 * PAGE, PAGE],
    ]);
    expect(pages.page(6)!.lines[0]!.line).toBe(6 * PAGE);
  });
  it("that somebody only passed by are given up", async () => {
    const source = growing(1000 * PAGE);
    const answer = source.window;
    const given: number[] = [];
    source.window = (start, count, signal) =>
      new Promise((resolve, reject) => {
        signal?.addEventListener("abort", () => {
          given.push(start / PAGE);
          reject(new DOMException("", "AbortError"));
        });
        if (start === 8 * PAGE) resolve(answer(start, count));
      });
    const pages = new LogPages(source, false);
    const passed = pages.want([3]);
    await pages.want([8]);
    await passed;
    expect(given).toEqual([3]);
    expect(pages.page(8)).toBeDefined();
    expect(pages.error).toBeNull();
  });
  it("that are not looked at are forgotten", async () => {
    const pages = new LogPages(growing(100 * PAGE), false);
    for (let i = 0; i < 80; i += 1) await pages.want([i]);
    expect(pages.page(0)).toBeUndefined();
    expect(pages.page(79)).toBeDefined();
  });
  it("at the end grow", async () => {
    const source = growing(PAGE + 10);
    const pages = new LogPages(source, false);
    await pages.refresh();
    expect(pages.page(1)!.lines).toHaveLength(10);
    source.total += 5;
    await pages.refresh();
    expect(pages.total).toBe(PAGE + 15);
    await pages.want([1]);
    expect(pages.page(1)!.lines).toHaveLength(15);
    expect(pages.line(PAGE + 14)!.text).toBe(`line ${PAGE + 14}`);
  });
  it("tell nobody when nothing changed", async () => {
    const pages = new LogPages(growing(30), false);
    await pages.refresh();
    let told = 0;
    pages.watch(() => {
      told += 1;
    });
    const version = pages.version;
    await pages.refresh();
    expect(pages.version).toBe(version);
    expect(told).toBe(0);
  });
  it("keep what is here when the server does not answer", async () => {
    const source = growing(30);
    const pages = new LogPages(source, false);
    await pages.refresh();
    source.window = () => Promise.reject(new Error("away"));
    await pages.refresh();
    expect(pages.error).toBeInstanceOf(Error);
    expect(pages.line(29)).toBeDefined();
  });
  it("give any range to copy", async () => {
    const lines = await new LogPages(growing(5000), false).range(10, 2509);
    expect(lines).toHaveLength(2500);
    expect(lines.at(-1)!.line).toBe(2509);
  });
  it("of a long range are several requests", async () => {
    const source = growing(1000 * PAGE);
    const pages = new LogPages(source, false);
    await pages.want(Array.from({ length: 25 }, (_, i) => i));
    expect(source.asked).toEqual([
      [0, 10 * PAGE],
      [10 * PAGE, 10 * PAGE],
      [20 * PAGE, 5 * PAGE],
    ]);
  });
  it("that are wanted are not forgotten, however many they are", async () => {
    const pages = new LogPages(growing(1000 * PAGE), false);
    const numbers = Array.from({ length: 100 }, (_, i) => i);
    await pages.want(numbers);
    await pages.refresh();
    expect(pages.here(50, 0, 99)).toEqual({ from: 0, to: 99 });
    await pages.want([500]);
    expect(pages.page(0)).toBeUndefined();
  });
  it("that are here without a hole", async () => {
    const pages = new LogPages(growing(1000 * PAGE), false);
    await pages.want([2, 3, 4, 6]);
    expect(pages.here(3, 0, 9)).toEqual({ from: 2, to: 4 });
    expect(pages.here(3, 3, 9)).toEqual({ from: 3, to: 4 });
    expect(pages.here(5, 0, 9)).toBeNull();
  });
  it.each([250, 3000, 100_000])(
    "at the end are here for who follows, also when %i lines came at once",
    async (more) => {
      const source = growing(5000);
      const pages = new LogPages(source, false);
      pages.following = true;
      await pages.refresh();
      expect(pages.line(4999)!.text).toBe("line 4999");
      source.total += more;
      await pages.refresh();
      expect(pages.total).toBe(5000 + more);
      expect(pages.here(pages.count - 1, pages.count - 3, pages.count - 1)!.from).toBe(pages.count - 3);
      expect(pages.line(4999)!.text, "what was here stays").toBe("line 4999");
    },
  );
  it("at the end come with their number, though the log grows meanwhile", async () => {
    const source = growing(5000);
    const pages = new LogPages(source, false);
    pages.following = true;
    await pages.refresh();
    source.total += 33;
    await pages.want([10]);
    expect(pages.total, "only a refresh tells of more, and brings it").toBe(5000);
    await pages.refresh();
    expect(pages.line(5032)!.text).toBe("line 5032");
  });
  it("at the end are here for who follows, also while a long way there is asked for", async () => {
    const source = growing(5000);
    const pages = new LogPages(source, false);
    pages.following = true;
    await pages.refresh();
    const seen: unknown[] = [];
    const tail = source.tail;
    source.tail = (count) => {
      seen.push(pages.page(pages.count - 1));
      return tail(count);
    };
    source.total += 3000;
    await pages.refresh();
    expect(seen).toHaveLength(1);
    expect(seen[0], "else nothing would be shown meanwhile").toBeDefined();
  });
  it("that come late take nothing away from what came before them", async () => {
    const source = growing(5 * PAGE + 10);
    const pages = new LogPages(source, false);
    await pages.refresh();
    const answer = source.window;
    let come = () => {};
    source.window = async (start, count) => {
      const found = await answer(start, count);
      await new Promise<void>((resolve) => {
        come = resolve;
      });
      return found;
    };
    const late = pages.want([5]);
    await Promise.resolve();
    source.window = answer;
    source.total += 5;
    await pages.refresh();
    expect(pages.page(5)!.lines).toHaveLength(15);
    come();
    await late;
    expect(pages.page(5)!.lines).toHaveLength(15);
  });
  it("keep the lines that they have", async () => {
    const source = growing(PAGE + 10);
    const pages = new LogPages(source, false);
    await pages.refresh();
    const line = pages.line(PAGE + 5);
    source.total += 5;
    await pages.refresh();
    expect(pages.line(PAGE + 5)).toBe(line);
  });
});
