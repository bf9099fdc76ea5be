/**
 * Changes of an experiment file that leave everything else of it as it was typed: comments, quotes, spaces, order.
 * The tree of `yaml` tells where a value stands, and only that place of the text is changed. A change that cannot be
 * made so small is made on the tree, which keeps comments, too. Pure.
 */

import {
  Document,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  stringify,
  visit,
} from "yaml";

export type Path = readonly (string | number)[];

const PLAIN = { lineWidth: 0, flowCollectionPadding: false } as const;

/** The order in which keys of a file usually stand; a new one goes behind those that come before it. */
const ORDER = [
  "version", "kind", "name", "description", "tags", "framework", "backend", "params", "code", "build", "run",
  "environment", "data", "restart", "timeout", "grace", "logging",
]; // biome-ignore format: one list

/** The file as a tree; null when it is no YAML, or holds something else than keys and values. */
export function treeOf(text: string): Document | null {
  const tree = parseDocument(text);
  const fine = tree.errors.length === 0 && (tree.contents === null || isMap(tree.contents) || isNothing(tree.contents));
  return fine ? tree : null;
}

/** The text with a value at a path; null when the path leads through something that holds no keys. */
export function withValue(text: string, path: Path, value: unknown): string | null {
  const wanted = changed(text, (tree) => {
    const empty = path.findIndex((_, at) => at > 0 && isNothing(tree.getIn(path.slice(0, at), true)));
    const steps = empty < 0 ? path : path.slice(0, empty);
    tree.setIn([...steps], tree.createNode(nested(path.slice(steps.length), value)));
  });
  if (!wanted) return null;
  return settled(wanted, placed(text, treeOf(text)!, path, value));
}

/** The text with another entry at the end of a list; the list is made when there is none. */
export function withItem(text: string, path: Path, value: unknown): string | null {
  const tree = treeOf(text);
  const list = tree?.getIn([...path]);
  if (!isSeq(list) || list.items.length === 0) return withValue(text, path, [value]);
  const wanted = changed(text, (other) => other.addIn([...path], other.createNode(value)));
  if (!wanted) return null;
  const last = list.items.at(-1) as Node;
  if (list.flow) return settled(wanted, spliced(text, endOf(last), endOf(last), `, ${inline(value)}`));
  const indent = " ".repeat(columnOf(text, list.range![0]));
  const lines = stringify([value], PLAIN).trimEnd().split("\n");
  return settled(wanted, inserted(text, last, lines.map((line) => indent + line).join("\n")));
}

/** The text without the value at a path, and without what would be empty then. Comments beside it stay. */
export function without(text: string, path: Path): string | null {
  const tree = treeOf(text);
  if (!tree?.hasIn([...path])) return text;
  let shortest = [...path];
  while (shortest.length > 1) {
    const holder = tree.getIn(shortest.slice(0, -1));
    if (!isCollection(holder) || holder.items.length > 1) break;
    shortest = shortest.slice(0, -1);
  }
  const wanted = changed(text, (other) => other.deleteIn(shortest));
  return wanted ? settled(wanted, cut(text, tree, shortest)) : null;
}

/** The value at a path as plain data; undefined when there is none. */
export function valueAt(tree: Document, path: Path): unknown {
  const node = tree.getIn([...path], true);
  if (node === undefined || node === null) return undefined;
  return isScalar(node) ? (node.value ?? undefined) : (node as Node).toJS(tree);
}

/** The value at a path as somebody would type it: `2e-3`, `0.10`, `{{ lr }}`; empty when there is none. */
export function typedAt(tree: Document, path: Path): string {
  const node = tree.getIn([...path], true);
  if (node === undefined || node === null) return "";
  if (isScalar(node)) return node.value === null ? "" : String(node.source ?? node.value);
  return inline((node as Node).toJS(tree));
}

/** What somebody typed, as YAML understands it: `0.1` is a number, `[1, 2]` a list, `a: b` just text. */
export function meant(typed: string): unknown {
  const tree = parseDocument(typed);
  if (tree.errors.length || tree.contents === null || isMap(tree.contents)) return typed;
  return tree.toJS() ?? typed;
}

interface Wanted {
  tree: Document;
  data: string;
}

function changed(text: string, change: (tree: Document) => void): Wanted | null {
  const tree = treeOf(text);
  if (!tree) return null;
  try {
    change(tree);
    return { tree, data: dataOf(tree) };
  } catch {
    return null; // a step of the path is a value, or stands elsewhere in the file
  }
}

/** The small change, if it means what is wanted; else the tree, written anew. */
function settled(wanted: Wanted, small: string | null): string {
  const made = small === null ? null : treeOf(small);
  return made && dataOf(made) === wanted.data ? small! : wanted.tree.toString(PLAIN);
}

function dataOf(tree: Document): string {
  return JSON.stringify(sorted(tree.toJS()));
}

function sorted(data: unknown): unknown {
  if (Array.isArray(data)) return data.map(sorted);
  if (typeof data !== "object" || data === null) return typeof data === "number" ? String(data) : data;
  return Object.fromEntries(
    Object.entries(data)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]) => [key, sorted(value)]),
  );
}

function placed(text: string, tree: Document, path: Path, value: unknown): string | null {
  let node: unknown = tree.contents;
  for (let at = 0; at < path.length; at += 1) {
    const rest = path.slice(at + 1);
    if (at === 0 && (node === null || isNothing(node))) return `${ended(text)}${block(nested(path, value), 0)}\n`;
    const step = path[at]!;
    if (isMap(node)) {
      const pair = node.items.find((one) => isScalar(one.key) && String(one.key.value) === String(step));
      if (!pair) return newPair(text, node, String(step), nested(rest, value), at === 0);
      const held = pair.value as Node | null;
      if (rest.length === 0 || held === null || isNothing(held))
        return replaced(text, pair as Pair<Node, Node | null>, Boolean(node.flow), nested(rest, value));
      node = held;
    } else if (isSeq(node)) {
      const item = node.items[Number(step)] as Node | undefined;
      if (!item) return null;
      if (rest.length === 0) return spliced(text, item.range![0], endOf(item), inline(value));
      node = item;
    } else return null;
  }
  return null;
}

/** Another value behind a key. */
function replaced(text: string, pair: Pair<Node, Node | null>, flow: boolean, value: unknown): string {
  const colon = text.indexOf(":", pair.key.range![1]) + 1;
  const held = pair.value;
  const indent = columnOf(text, pair.key.range![0]);
  if (held === null || isNothing(held)) {
    if (isPlain(value) && !flow) return inserted(text, { range: [colon, colon, colon] }, block(value, indent + 2));
    return spliced(text, colon, colon, ` ${inline(value)}`);
  }
  const [start, end] = [held.range![0], endOf(held)];
  const several = typeof value === "string" && value.includes("\n") && !flow;
  const literal = several ? literalOf(value, indent + 2) : null;
  const ownLines = text[end - 1] === "\n"; // a block of text
  if (literal) {
    if (ownLines) return spliced(text, start, end, `${literal.head}\n${literal.lines}\n`);
    const eol = endOfLine(text, end);
    return `${text.slice(0, start)}${literal.head}${text.slice(end, eol)}\n${literal.lines}${text.slice(eol)}`;
  }
  if (isCollection(held) && !held.flow) return `${text.slice(0, colon)} ${inline(value)}${text.slice(end)}`;
  return spliced(text, start, end, inline(value) + (ownLines ? "\n" : ""));
}

function newPair(
  text: string,
  map: Node & { items: Pair[]; flow?: boolean },
  key: string,
  value: unknown,
  root: boolean,
): string {
  const pairs = map.items as Pair<Node, Node | null>[];
  if (map.flow) {
    const entry = `${key}: ${inline(value)}`;
    if (pairs.length === 0) return spliced(text, map.range![0], map.range![1], `{${entry}}`);
    const end = endOfPair(pairs.at(-1)!);
    return spliced(text, end, end, `, ${entry}`);
  }
  const indent = columnOf(text, map.range![0]);
  const lines = block({ [key]: value }, indent);
  const place = ORDER.indexOf(key);
  const before = root && place >= 0 ? pairs.findLast((one) => isBefore(one, place)) : pairs.at(-1);
  if (!before) return spliced(text, map.range![0], map.range![0], `${lines.trimStart()}\n${" ".repeat(indent)}`);
  return inserted(text, { range: [0, endOfPair(before), 0] }, lines);
}

function isBefore(pair: Pair<Node, Node | null>, place: number): boolean {
  const at = ORDER.indexOf(String(isScalar(pair.key) ? pair.key.value : ""));
  return at >= 0 && at < place;
}

function cut(text: string, tree: Document, path: Path): string | null {
  const holder = path.length === 1 ? tree.contents : tree.getIn(path.slice(0, -1));
  const step = path.at(-1)!;
  if (!isCollection(holder)) return null;
  const entries = holder.items as (Pair<Node, Node | null> | Node)[];
  const at = isSeq(holder)
    ? Number(step)
    : (entries as Pair<Node>[]).findIndex((one) => isScalar(one.key) && String(one.key.value) === String(step));
  const [start, end] = extent(entries[at]!);
  if (holder.flow) {
    if (at > 0) return spliced(text, extent(entries[at - 1]!)[1], end, "");
    return spliced(text, start, entries[1] ? extent(entries[1])[0] : end, "");
  }
  const lineStart = text.lastIndexOf("\n", start - 1) + 1;
  const lead = text.slice(lineStart, start);
  if (isSeq(holder) ? !/^\s*-\s+$/.test(lead) : lead.trim() !== "") return null;
  const eol = text[end - 1] === "\n" ? end - 1 : endOfLine(text, end);
  const note = text.slice(end, eol).trim();
  const kept = note.startsWith("#") ? `${" ".repeat(columnOf(text, start))}${note}\n` : "";
  return text.slice(0, lineStart) + kept + text.slice(Math.min(text.length, eol + 1));
}

function extent(entry: Pair<Node, Node | null> | Node): [number, number] {
  return "key" in entry
    ? [(entry.key as Node).range![0], endOfPair(entry as Pair<Node, Node | null>)]
    : [entry.range![0], endOf(entry)];
}

/** Lines that follow the line on which a node ends. */
function inserted(text: string, after: Node | { range: [number, number, number] }, lines: string): string {
  const end = "items" in after ? endOf(after as Node) : after.range![1];
  if (end > 0 && text[end - 1] === "\n") return spliced(text, end, end, `${lines}\n`);
  const eol = endOfLine(text, end);
  return spliced(text, eol, eol, `\n${lines}`);
}

/** Where the last letter of a value is, without the comments behind it. */
function endOf(node: Node): number {
  if (!isCollection(node) || node.flow || node.items.length === 0) return node.range![1];
  const last = node.items.at(-1) as Pair<Node, Node | null> | Node;
  return "key" in last ? endOfPair(last as Pair<Node, Node | null>) : endOf(last);
}

function endOfPair(pair: Pair<Node, Node | null>): number {
  return pair.value ? endOf(pair.value) : pair.key.range![1];
}

function endOfLine(text: string, from: number): number {
  const found = text.indexOf("\n", from);
  return found < 0 ? text.length : found;
}

function columnOf(text: string, at: number): number {
  return at - (text.lastIndexOf("\n", at - 1) + 1);
}

function spliced(text: string, from: number, to: number, by: string): string {
  return text.slice(0, from) + by + text.slice(to);
}

function ended(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}

function isNothing(node: unknown): boolean {
  return isScalar(node) && node.value === null && (node.source ?? "") === "";
}

function isPlain(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

/** {a: {b: value}} of ["a", "b"]. */
function nested(path: Path, value: unknown): unknown {
  return path.reduceRight<unknown>((inner, step) => (typeof step === "number" ? [inner] : { [step]: inner }), value);
}

function block(value: unknown, indent: number): string {
  const tree = new Document(value);
  visit(tree, {
    Seq: (_, list) => {
      list.flow = list.items.every(isScalar);
    },
  });
  const lines = tree.toString(PLAIN).trimEnd().split("\n");
  return lines.map((line) => (line ? " ".repeat(indent) + line : line)).join("\n");
}

/** A value on one line. */
function inline(value: unknown): string {
  if (typeof value === "string" && value.includes("\n")) return JSON.stringify(value);
  const tree = new Document(value);
  visit(tree, {
    Collection: (_, node) => {
      node.flow = true;
    },
  });
  return tree.toString(PLAIN).trimEnd();
}

/** Several lines as a block of text; null for what a block cannot say without further signs. */
function literalOf(value: string, indent: number): { head: string; lines: string } | null {
  const body = value.replace(/\n$/, "");
  if (/^\s/.test(body) || /\n$/.test(body) || /[^\S\n]$/m.test(body) || body === "") return null;
  const lines = body.split("\n").map((line) => (line ? " ".repeat(indent) + line : line));
  return { head: value.endsWith("\n") ? "|" : "|-", lines: lines.join("\n") };
}
