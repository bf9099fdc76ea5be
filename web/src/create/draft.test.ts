import { expect, test } from "vitest";
import { BLANK, cloned, command, placeOf, withParam } from "./draft";
import { amountMeant, formOf, resourceOf, resourcePath } from "./fields";

const ONE = "# mine\nparams:\n  lr: 0.5 # try less\n  model: {depth: 3}\nrun: {cmd: a}\n";
const experiment = { id: "e1", files: [{ name: "e.yml", text: ONE }], resolved: "params: {lr: 0.1}\n", cluster: "big" };

test("a clone has the file as it was written", () => {
  const { draft, note } = cloned(experiment, { params: [], directory: "/there" });
  expect(draft).toEqual({ origin: "from:e1", text: ONE, directory: "/there", cluster: "big", oversubscribe: false });
  expect(note).toBe("");
});

test("a clone has what was given by -P, and the comments", () => {
  const { draft, note } = cloned(experiment, { params: ["lr=0.1", "model.depth=4", "new=[1, 2]"], directory: "/" });
  expect(draft.text).toBe("# mine\nparams:\n  lr: 0.1 # try less\n  model: {depth: 4}\n  new: [1, 2]\nrun: {cmd: a}\n");
  expect(note).toBe("with -P lr=0.1 -P model.depth=4 -P new=[1, 2]");
});

test("several files become one", () => {
  const several = { ...experiment, files: [...experiment.files, ...experiment.files] };
  const { draft, note } = cloned(several, { params: [], directory: "/" });
  expect(draft.text).toBe(several.resolved);
  expect(note).toContain("2 files");
});

test("what is no param is refused", () => expect(withParam(ONE, "lr")).toBeNull());

test("the command can be pasted, whatever the file holds", () => {
  const draft = { origin: "", text: "run:\nEND\n'x'", directory: "/a b", cluster: "big", oversubscribe: true };
  expect(command(draft)).toBe("cd '/a b' && shoal run --on big --oversubscribe - <<'END_'\nrun:\nEND\n'x'\nEND_\n");
  expect(command({ ...draft, cluster: "local", oversubscribe: false, directory: "/it's" })).toMatch(
    /^cd '\/it'\\''s' && shoal run - <</,
  );
});

test.each([
  ["a value", "experiment.yml:2:12", "pytroch"],
  ["a key", "experiment.yml:1:1", "name"],
  ["in quotes", "experiment.yml:3:6", '"a: b"'],
  ["the end of a line", "experiment.yml:1:99", "x"],
  ["a line that is not there", "experiment.yml:99:1", ""],
])("the place of %s", (_, where, expected) => {
  const text = 'name: x\nframework: pytroch # c\ncmd: "a: b"\n';
  const { from, to } = placeOf(text, where)!;
  expect(text.slice(from, to)).toBe(expected);
});

test.each([[null], ["-P lr=x"], ["experiment.yml"], ["other.yml:1:1"]])("%s is no place of the file", (where) =>
  expect(placeOf("a: 1", where)).toBeNull(),
);

test("the form shows what the file says", () => {
  const form = formOf(`${BLANK}  resources:
    memory: {limits: 2Gi}
params: {lr: 2e-3, net: {a: 1}}
code: {git: https://x, ref: main}
data: [{dataset: a@v1, at: b}, {uri: s3://c}, 3]
`)!;
  expect(form).toMatchObject({
    name: "two-nodes",
    framework: "none",
    workers: "1",
    ps: "",
    master: true,
    backend: "native",
    code: { kind: "git", git: "https://x", ref: "main" },
    params: [
      { name: "lr", typed: "2e-3", nested: false },
      { name: "net", nested: true },
    ],
    data: [{ kind: "dataset", what: "a@v1", at: "b" }, { kind: "uri", what: "s3://c", at: "" }, { kind: "other" }],
  });
});

test("spellings of Polyaxon are shown where they stand", () => {
  const form = formOf("environment:\n  mxnet: {n_workers: 2}\nrun: {cmd: [a, b]}\n")!;
  expect(form).toMatchObject({
    framework: "mxnet",
    sectioned: true,
    workers: "2",
    command: { kind: "steps", text: "a\nb" },
  });
  expect(resourcePath(form, "ps", "gpu", "limits")).toEqual([
    "environment",
    "mxnet",
    "default_ps",
    "resources",
    "gpu",
    "limits",
  ]);
  expect(
    resourceOf("environment: {resources: {cpu: {requests: 0.10}}}", resourcePath(form, "master", "cpu", "requests")),
  ).toBe("0.10");
});

test("a file that cannot be read has no form", () => expect(formOf("a: [")).toBeNull());

test.each([
  ["2", 2],
  [" 0.5 ", 0.5],
  ["2Gi", "2Gi"],
  ["{{ n }}", "{{ n }}"],
  ["-1", "-1"],
])("%s is meant as %j", (typed, value) => expect(amountMeant(typed)).toBe(value));
