import { describe, expect, it } from "vitest";
import { cells, sniffed, treeOf, wholeSize } from "./files";

const bytes = (text: string) => new TextEncoder().encode(text);

describe("what is in a file", () => {
  it.each([
    ["a PNG, whatever it is called", Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 13), "x.txt", "image"],
    ["a WebP", bytes("RIFF....WEBPVP8 "), "x", "image"],
    ["text without an extension", bytes("hello"), "README", "text"],
    ["a picture's name does not make one", bytes("hello"), "x.png", "text"],
    ["zeros are binary", Uint8Array.of(1, 0, 2), "x.txt", "binary"],
    ["what is no UTF-8 is binary", Uint8Array.of(0xc3, 0x28, 0x41, 0x42, 0x43, 0x44), "x.txt", "binary"],
    ["a cut character at the end is text", bytes("é").slice(0, 1), "x", "text"],
    ["an SVG", bytes('<?xml version="1.0"?>\n<svg xmlns="x"></svg>'), "x", "svg"],
    ["a page", bytes("<!DOCTYPE html><p>x"), "x", "html"],
    ["a part of a page, by its name", bytes("<h1>x</h1>"), "report.html", "html"],
    ["JSON", bytes('{"a": [1]}'), "x", "json"],
    ["half of JSON is text", bytes('{"a": [1'), "x.json", "text"],
    ["a table", bytes("a,b\n1,2\n"), "x.csv", "table"],
    ["nothing", bytes(""), "x", "text"],
  ])("%s", (_, content, path, expected) => expect(sniffed(content, path).kind).toBe(expected));
});

describe("rows of a table", () => {
  it.each([
    [
      "plain",
      "a,b\r\n1,2\n",
      [
        ["a", "b"],
        ["1", "2"],
      ],
    ],
    ["quotes hold commas, lines and quotes", 'a,"b,\n""c"""\n', [["a", 'b,\n"c"']]],
    [
      "tabs",
      "a\tb,c\n1\t2",
      [
        ["a", "b,c"],
        ["1", "2"],
      ],
    ],
    ["one cell without a line end", "a", [["a"]]],
    ["nothing", "", []],
  ])("%s", (_, text, expected) => expect(cells(text, 10)).toEqual(expected));
  it("no more than wanted", () => expect(cells("1\n2\n3\n", 2)).toHaveLength(2));
});

describe("a tree of files", () => {
  it("has folders with counts and sizes, in the order of names", () => {
    const tree = treeOf(
      [
        { path: "w/b/x10", size: 1 },
        { path: "w/b/x9", size: 2 },
        { path: "w/a", size: 4 },
      ],
      "w/",
    );
    expect(tree).toMatchObject({ count: 3, size: 7, folders: [{ name: "b", count: 2, size: 3 }] });
    expect(tree.folders[0]!.files.map((one) => one.name)).toEqual(["x9", "x10"]);
    expect(tree.files.map((one) => one.name)).toEqual(["a"]);
  });
  it.each([
    ["bytes 0-9/50", 50],
    [null, null],
    ["bytes 0-9/*", null],
  ])("the whole of %j is %j", (range, expected) => expect(wholeSize(range)).toBe(expected));
});
