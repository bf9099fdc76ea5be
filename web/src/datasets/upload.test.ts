import { expect, test } from "vitest";
import { type Choice, choiceOf, type Progress, upload, type Wire } from "./uploading";

const blob = (name: string, text: string) => ({ path: name, file: Object.assign(new Blob([text]), { name }) });
const choice: Choice = choiceOf([blob("a.txt", "one"), blob("b.txt", "three")]);
const never = new AbortController().signal;

/** A server that makes a version once it has all content; `lost` is what it has lost when it is first asked. */
function server(lost: string[]) {
  const sent: string[] = [];
  const wishes: unknown[] = [];
  const wire: Wire = {
    send: async (file, tell) => {
      const text = await file.text();
      sent.push(text);
      tell(file.size);
      return { hash: `hash of ${text}`, size: file.size };
    },
    make: async (wish) => {
      wishes.push(wish);
      const missing = wishes.length === 1 ? lost : [];
      return { dataset: null, new: missing.length === 0, missing };
    },
  };
  return { sent, wishes, wire };
}

test("each file is sent once, and its progress told", async () => {
  const { sent, wishes, wire } = server([]);
  const told: Progress[] = [];
  const added = await upload("set", choice, (progress) => told.push(progress), never, wire);
  expect(added.new).toBe(true);
  expect(sent).toEqual(["one", "three"]);
  expect(told.at(-1)).toEqual({ done: 2, bytes: 8, path: "b.txt" });
  expect(told.map((one) => one.bytes)).toEqual([3, 3, 8, 8]);
  expect(wishes).toEqual([
    {
      name: "set",
      single: false,
      files: [
        { path: "a.txt", hash: "hash of one", size: 3 },
        { path: "b.txt", hash: "hash of three", size: 5 },
      ],
    },
  ]);
});

test("what the server has no more is sent again", async () => {
  const { sent, wire } = server(["hash of three"]);
  expect((await upload("set", choice, () => {}, never, wire)).new).toBe(true);
  expect(sent).toEqual(["one", "three", "three"]);
});

test("a failure ends it", async () => {
  const { wire } = server([]);
  const broken = { ...wire, send: () => Promise.reject(new Error("full")) };
  await expect(upload("set", choice, () => {}, never, broken)).rejects.toThrow("full");
});
