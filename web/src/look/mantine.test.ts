import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const source = join(import.meta.dirname, "..");
const styles = join(source, "../node_modules/@mantine/core/styles");

/** Whose styles are in a file of another name. */
const IN: Record<string, string[]> = {
  Select: ["Combobox", "Input"],
  MultiSelect: ["Combobox", "Input", "Pill", "PillsInput"],
  TagsInput: ["Combobox", "Input", "Pill", "PillsInput"],
  Autocomplete: ["Combobox", "Input"],
  TextInput: ["Input"],
  Textarea: ["Input"],
  NativeSelect: ["Input"],
  FileInput: ["Input"],
  JsonInput: ["Input"],
  Checkbox: ["Checkbox", "InlineInput"],
  HoverCard: ["Popover"],
  RangeSlider: ["Slider"],
};

test("the styles of every Mantine component that is used are there", () => {
  const listed = readFileSync(join(import.meta.dirname, "mantine.ts"), "utf-8");
  const used = new Set<string>();
  for (const entry of readdirSync(source, { recursive: true, encoding: "utf-8" })) {
    if (!entry.endsWith(".tsx") && !entry.endsWith(".ts")) continue;
    const text = readFileSync(join(source, entry), "utf-8");
    for (const [, names] of text.matchAll(/import \{([^}]*)\} from "@mantine\/core"/g))
      for (const name of names!.split(",")) used.add(name.trim().split(" ")[0]!);
  }
  const files = [...used]
    .flatMap((name) => IN[name] ?? [name])
    .filter((name) => existsSync(join(styles, `${name}.css`)));
  expect(files.length).toBeGreaterThan(5);
  expect(files.filter((name) => !listed.includes(`/${name}.css`))).toEqual([]);
});
