/** What is being written: where it began, how it is kept, how it reads on the command line. Pure. */

import type { ExperimentDetail, Note } from "../api/client";
import { meant, treeOf, withValue } from "./document";

export interface Draft {
  /** `from:e7k2m9`, `template:pytorch`, or empty: what it was made from. */
  origin: string;
  text: string;
  /** What `code` is relative to, on the server's machine. */
  directory: string;
  cluster: string;
  oversubscribe: boolean;
}

export const FILE = "experiment.yml";

export const BLANK = `# Two nodes. The keys on the left change this file; what is wrong with it is said below.
version: 1
kind: experiment
name: two-nodes
framework: none
run:
  cmd: echo "$SHOAL_REPLICA finds the others at $SHOAL_CLUSTER_SPEC"
environment:
  replicas:
    n_workers: 1
`;

/** The draft that repeats an experiment, and what it could not take over as it was. */
export function cloned(
  experiment: Pick<ExperimentDetail, "id" | "files" | "resolved" | "cluster">,
  planned: { params: string[]; directory: string },
): { draft: Draft; note: string } {
  const draft: Draft = {
    origin: `from:${experiment.id}`,
    text: experiment.files[0]?.text ?? experiment.resolved,
    directory: planned.directory || "/",
    cluster: experiment.cluster,
    oversubscribe: false,
  };
  const resolved = { ...draft, text: experiment.resolved };
  if (experiment.files.length > 1)
    return { draft: resolved, note: `${experiment.files.length} files, merged; names in {{ }} are filled in` };
  if (planned.params.length === 0) return { draft, note: "" };
  const text = planned.params.reduce<string | null>((before, given) => before && withParam(before, given), draft.text);
  const said = planned.params.map((given) => `-P ${given}`).join(" ");
  if (text === null) return { draft: resolved, note: `with ${said}; names in {{ }} are filled in` };
  return { draft: { ...draft, text }, note: `with ${said}` };
}

/** `lr=0.1` or `model.depth=3` in the file's params. */
export function withParam(text: string, given: string): string | null {
  const at = given.indexOf("=");
  const name = given.slice(0, at);
  if (at < 1 || !treeOf(text)) return null;
  const whole = treeOf(text)!.hasIn(["params", name]);
  return withValue(text, ["params", ...(whole ? [name] : name.split("."))], meant(given.slice(at + 1)));
}

/** The same on the command line, whole: to be pasted into a shell. */
export function command(draft: Draft): string {
  const options = [
    ...(draft.cluster !== "local" ? ["--on", quoted(draft.cluster)] : []),
    ...(draft.oversubscribe ? ["--oversubscribe"] : []),
  ];
  let end = "END";
  while (draft.text.split("\n").includes(end)) end += "_";
  const text = draft.text.endsWith("\n") ? draft.text : `${draft.text}\n`;
  return `cd ${quoted(draft.directory)} && shoal ${["run", ...options, "-"].join(" ")} <<'${end}'\n${text}${end}\n`;
}

function quoted(word: string): string {
  return /^[\w./@:+-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}

/** Which letters of the text a problem is about; null when it is about none of them. */
export function placeOf(text: string, where: string | null | undefined): { from: number; to: number } | null {
  const found = /:(\d+):(\d+)$/.exec(where ?? "");
  if (!found || !where!.startsWith(`${FILE}:`)) return null;
  const lines = text.split("\n");
  const row = Math.min(lines.length, Math.max(1, Number(found[1]))) - 1;
  const start = lines.slice(0, row).reduce((sum, line) => sum + line.length + 1, 0);
  const line = lines[row]!;
  const column = Math.min(line.length, Number(found[2]) - 1);
  const word = /^(?:"[^"]*"|'[^']*'|[^\s:,#\]}]+)/.exec(line.slice(column))?.[0] ?? "";
  if (word) return { from: start + column, to: start + column + word.length };
  const from = Math.max(start, start + column - 1); // behind the last letter: show that one
  return { from, to: Math.min(text.length, from + 1) };
}

/** `3:5`, without the name of the only file. */
export function shortPlace(note: Pick<Note, "where">): string {
  return note.where?.replace(`${FILE}:`, "") ?? "";
}
