import { expect, test } from "vitest";
import { byName, versionsOf } from "./named";

const ALL = [
  { name: "b", version: 1 },
  { name: "a", version: 1 },
  { name: "a", version: 3 },
  { name: "a", version: 2 },
];

test("versions are put together by name, the newest first", () => {
  const found = byName(ALL);
  expect(found.map((one) => [one.name, one.versions.map((each) => each.version)])).toEqual([
    ["a", [3, 2, 1]],
    ["b", [1]],
  ]);
});

test.each([
  ["a", [3, 2, 1]],
  ["b", [1]],
  ["c", []],
])("versions of %s are %j", (name, versions) => {
  expect(versionsOf(ALL, name).map((one) => one.version)).toEqual(versions);
});
