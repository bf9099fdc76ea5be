/** Completes an experiment file: where the cursor stands by indentation, and what the JSON Schema allows there. Pure. */

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  title?: string;
  description?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  properties?: Record<string, Schema>;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  required?: string[];
}

export interface Offer {
  text: string;
  note: string;
  /** Keys that hold other keys begin a new line. */
  kind: "key" | "section" | "list" | "value";
}

export interface Spot {
  /** Keys that lead here; entries of lists are "[]". */
  path: string[];
  what: "key" | "value";
  /** Where the word begins that is being typed. */
  from: number;
  word: string;
  /** Keys that stand beside it already. */
  present: string[];
}

const ITEM = "[]";
const LINE = /^(\s*)((?:-\s+)*)(?:(["']?)([\w.$-]+)\3\s*:(?:\s|$))?/;

/** Where the cursor is; null within braces, comments and texts of several lines, where nothing is offered. */
export function spotAt(text: string, cursor: number): Spot | null {
  const start = text.lastIndexOf("\n", cursor - 1) + 1;
  const before = text.slice(start, cursor);
  if (/(^|\s)#/.test(before)) return null;
  const found = LINE.exec(before)!;
  const lead = found[1]!.length + found[2]!.length;
  const earlier = text.slice(0, start).split("\n").slice(0, -1);
  const later = text.slice(cursor).split("\n").slice(1);
  const dashes = found[2] ? [found[1]!.length + found[2].lastIndexOf("-")] : [];
  if (inText(earlier, found[1]!.length)) return null;
  if (found[4] !== undefined) {
    const value = before.slice(found[0].length).trimStart();
    if (/^[{["'|>]/.test(value)) return null;
    const above = walk(earlier, lead, dashes.at(-1));
    return { path: [...above.path, found[4]], what: "value", from: cursor - value.length, word: value, present: [] };
  }
  const word = before.slice(lead);
  if (!/^[\w.-]*$/.test(word)) return null;
  const above = walk(earlier, lead, dashes.at(-1));
  const present = [...above.present, ...below(later, lead)];
  return { path: above.path, what: "key", from: cursor - word.length, word, present };
}

/** What may stand there. */
export function offersAt(schema: Schema, spot: Spot): Offer[] {
  const found = spot.path.reduce<Schema[]>(
    (nodes, step) => nodes.flatMap((node) => inner(schema, node, step)),
    resolved(schema, schema),
  );
  return spot.what === "key" ? keysOf(schema, found, spot.present) : valuesOf(found);
}

/** What a key means, for a note beside it. */
export function meaningOf(schema: Schema, path: readonly string[]): string {
  let nodes = resolved(schema, schema);
  let said = "";
  for (const step of path) {
    const outer = nodes.map((node) => node.properties?.[step]?.description).find(Boolean);
    nodes = nodes.flatMap((node) => inner(schema, node, step));
    said = outer ?? nodes.find((node) => node.description)?.description ?? "";
  }
  return nodes.length ? said : "";
}

function keysOf(schema: Schema, nodes: Schema[], present: readonly string[]): Offer[] {
  const offers = new Map<string, Offer>();
  for (const node of nodes)
    for (const [name, property] of Object.entries(node.properties ?? {})) {
      if (present.includes(name) || offers.has(name)) continue;
      const forms = resolved(schema, property);
      const kind = forms.every((form) => form.properties)
        ? "section"
        : forms.every((form) => form.items)
          ? "list"
          : "key";
      offers.set(name, { text: name, note: property.description ?? forms[0]?.description ?? "", kind });
    }
  return [...offers.values()];
}

function valuesOf(nodes: Schema[]): Offer[] {
  const values = nodes.flatMap((node) => [
    ...(node.enum ?? []),
    ...(node.const !== undefined ? [node.const] : []),
    ...(node.type === "boolean" ? [true, false] : []),
  ]);
  return [...new Set(values.map(String))].map((text) => ({ text, note: "", kind: "value" }));
}

/** The alternatives that a schema stands for. */
function resolved(root: Schema, node: Schema): Schema[] {
  if (node.$ref) {
    const name = node.$ref.replace("#/$defs/", "");
    return resolved(root, root.$defs?.[name] ?? {});
  }
  const ways = node.anyOf ?? node.oneOf;
  return ways ? ways.flatMap((way) => resolved(root, way)) : [node];
}

function inner(root: Schema, node: Schema, step: string): Schema[] {
  const next = step === ITEM ? node.items : node.properties?.[step];
  return next ? resolved(root, next) : [];
}

interface Row {
  key: string;
  column: number;
  dash: number | undefined;
}

function rowOf(line: string): Row | null {
  if (/^\s*(#|$)/.test(line)) return null;
  const found = LINE.exec(line)!;
  const dash = found[2] ? found[1]!.length + found[2].lastIndexOf("-") : undefined;
  return { key: found[4] ?? "", column: found[1]!.length + found[2]!.length, dash };
}

/** The keys above that the column belongs to, and those that stand in it already. */
function walk(
  lines: readonly string[],
  column: number,
  dash: number | undefined,
): { path: string[]; present: string[] } {
  const path: string[] = [];
  const present: string[] = [];
  let edge = column;
  let listed = false;
  const enter = (at: number) => {
    path.unshift(ITEM);
    edge = at;
    listed = true;
  };
  if (dash !== undefined) enter(dash);
  for (let place = lines.length - 1; place >= 0 && edge >= 0; place -= 1) {
    const row = rowOf(lines[place]!);
    if (!row) continue;
    if (!listed && row.column === edge) {
      if (path.length === 0 && row.key) present.push(row.key);
      if (row.dash !== undefined) enter(row.dash);
    } else if (row.key && row.dash === undefined && (row.column < edge || (listed && row.column === edge))) {
      path.unshift(row.key);
      edge = row.column;
      listed = false;
    } else if (row.key && row.dash !== undefined && row.column < edge) {
      path.unshift(row.key);
      enter(row.dash);
    }
    if (edge === 0 && !listed && path.length) break;
  }
  return { path, present };
}

/** Keys of the same column further down, up to the end of their section. */
function below(lines: readonly string[], column: number): string[] {
  const found: string[] = [];
  for (const line of lines) {
    const row = rowOf(line);
    if (!row) continue;
    if (row.column < column || (row.dash !== undefined && row.column === column)) break;
    if (row.column === column && row.key) found.push(row.key);
  }
  return found;
}

/** Whether the line belongs to a text that began with `|` or `>` further up. */
function inText(lines: readonly string[], indent: number): boolean {
  for (let place = lines.length - 1; place >= 0; place -= 1) {
    const line = lines[place]!;
    if (line.trim() === "") continue;
    const column = line.length - line.trimStart().length;
    if (column < indent) return /[:-]\s+[|>][+-]?\d?\s*(#.*)?$/.test(line);
  }
  return false;
}
