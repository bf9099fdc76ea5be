import { describe, expect, test } from "vitest";
import { choiceOf, sizeOf, suggestedName, wrongName } from "./uploading";
import { asYaml, entriesOf, type Version, word } from "./versions";

const file = (name: string, text = "x") => Object.assign(new Blob([text]), { name });
const picked = (...paths: string[]) => paths.map((path) => ({ path, file: file(path.split("/").at(-1)!, path) }));
const version = (name: string, number: number) => ({ name, version: number }) as Version;

describe("what is chosen", () => {
  test.each([
    [["labels.csv"], ["labels.csv"], true, "one file is a file by itself"],
    [["b.txt", "a.txt"], ["a.txt", "b.txt"], false, "files, in order"],
    [["set/b.txt", "set/deep/a.txt"], ["b.txt", "deep/a.txt"], false, "the content of a directory"],
    [["set/only.txt"], ["only.txt"], false, "a directory with one file stays a directory"],
    [["/set/a.txt", "/other/a.txt"], ["other/a.txt", "set/a.txt"], false, "two directories that were dropped"],
    [["set/a.txt", "alone.txt"], ["alone.txt", "set/a.txt"], false, "a directory beside a file"],
  ])("%j: %j (%s, %s)", (paths, kept, single) => {
    const choice = choiceOf(picked(...paths));
    expect(choice.files.map((one) => one.path)).toEqual(kept);
    expect(choice.single).toBe(single);
  });

  test("its size is that of all files", () => {
    expect(sizeOf(choiceOf(picked("a", "bcd")).files)).toBe(4);
    expect(choiceOf([]).files).toEqual([]);
  });
});

test.each([
  [["cifar 10/a.txt", "cifar 10/b.txt"], "cifar-10"],
  [["labels.csv.gz"], "labels"],
  [["/über/x"], "ber"],
  [["..."], ""],
  [[], ""],
])("a name for %j is %s, which can be one", (paths, name) => {
  expect(suggestedName(paths)).toBe(name);
  expect(wrongName(name)).toBe("");
});

test.each(["-a", "a b", "ä", "x".repeat(129), "a@v1"])("%s cannot be a name", (name) => {
  expect(wrongName(name)).not.toBe("");
});

test("how a version is called and asked for", () => {
  expect(word(version("cifar10", 2))).toBe("cifar10@v2");
  expect(asYaml(version("cifar10", 2))).toBe("data:\n  - dataset: cifar10@v2\n    at: cifar10");
});

test.each([
  [{ etag: '"abc"' }, "abc"],
  [{ hash: "12" }, "12"],
  [{}, ""],
])("what tells the content of %j", (known, content) => {
  expect(entriesOf([{ path: "a", size: 3, ...known }])).toEqual([{ path: "a", size: 3, content }]);
});
