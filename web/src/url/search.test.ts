import { describe, expect, test } from "vitest";
import { parseSearch, readView, stringifySearch, writeView } from "./search";

const DEFAULTS = { q: "", wrap: false, buckets: 500, columns: ["name", "state"] };

describe("a search is what a person can read", () => {
  test.each([
    [{ q: "state:failed, metrics.loss:<0.3" }, "?q=state:failed,+metrics.loss:%3C0.3"],
    [{ replicas: "worker-*" }, "?replicas=worker-*"],
    [{ a: "", b: undefined }, ""],
    [{ "a&b": "c=d&e+f#g" }, "?a%26b=c%3Dd%26e%2Bf%23g"],
  ])("%o", (search, text) => {
    expect(stringifySearch(search)).toBe(text);
    const kept = Object.fromEntries(Object.entries(search).filter(([, value]) => value));
    expect(parseSearch(text)).toEqual(kept);
  });
});

describe("a view", () => {
  test("is its defaults when the URL says nothing", () => {
    expect(readView(DEFAULTS, {})).toEqual(DEFAULTS);
  });

  test.each([
    [{ q: "a" }, { q: "a" }],
    [{ wrap: true }, { wrap: "yes" }],
    [{ buckets: 12.5 }, { buckets: "12.5" }],
    [{ columns: ["a,b", "50%", "c"] }, { columns: "a%2Cb,50%25,c" }],
    [{ columns: [] as string[] }, { columns: "-" }],
  ])("%o is written and read back", (change, search) => {
    const written = writeView(DEFAULTS, {}, change);
    expect(written).toEqual(search);
    expect(readView(DEFAULTS, parseSearch(stringifySearch(written)))).toEqual({ ...DEFAULTS, ...change });
  });

  test("does not write defaults, and keeps what belongs to others", () => {
    expect(writeView(DEFAULTS, { q: "a", replicas: "worker-0" }, { q: "" })).toEqual({ replicas: "worker-0" });
    expect(writeView(DEFAULTS, {}, { columns: ["name", "state"], wrap: false })).toEqual({});
  });

  test.each([
    ["wrap", "perhaps"],
    ["buckets", "many"],
    ["buckets", ""],
  ])("with a wrong %s (%s) is the default", (key, said) => {
    expect(readView(DEFAULTS, { [key]: said })).toEqual(DEFAULTS);
  });
});
