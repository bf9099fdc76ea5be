/** Completes conditions of the query language (docs/reference/queries.md) and shows where one is wrong. Pure. */

export const FIELDS: Record<string, string> = {
  state: "queued, running, failed, …",
  name: "its name: name:mnist%",
  id: "short id",
  number: "number:>100",
  reason: "why it is in its state",
  framework: "tensorflow, pytorch, …",
  backend: "native or kubeflow",
  cluster: "where it runs",
  origin: "run, outside or import",
  tags: "has the tag",
  created: "created:>-2d, created:today",
  started: "started:>-2h",
  finished: "finished:>2026-11-01",
  duration: "duration:>10m",
  attempt: "attempt:>0",
  replicas: "replicas:>8",
  progress: "0 to 1",
  scale: "trials of one shoal scale",
  "first_failure.replica": "which replica failed first",
  "first_failure.reason": "why",
  "first_failure.signal": "SIGKILL",
  "first_failure.exit_code": "137",
};

const VALUES: Record<string, readonly string[]> = {
  state: ["queued", "starting", "running", "restarting", "succeeded", "failed", "stopped", "lost"],
  framework: ["tensorflow", "pytorch", "mxnet", "jax", "none"],
  backend: ["native", "kubeflow"],
  origin: ["run", "outside", "import"],
  created: [">-1h", ">-1d", ">-7d", "today", "yesterday"],
  started: [">-1h", ">-1d", ">-7d", "today", "yesterday"],
  finished: [">-1h", ">-1d", ">-7d", "today", "yesterday"],
  duration: [">10m", ">1h", "<1m"],
  "first_failure.signal": ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT"],
};

/** What the experiments that are shown have: names of their params and metrics, and values to choose from. */
export interface Vocabulary {
  params: readonly string[];
  metrics: readonly string[];
  values: Record<string, readonly string[]>;
}

export interface Completion {
  /** What it becomes. */
  text: string;
  /** What it means. */
  note: string;
}

export interface Completions {
  /** Where the word begins that is replaced; it ends at the cursor. */
  from: number;
  items: Completion[];
}

const MOST = 12;

/** What may stand at the cursor. */
export function completions(text: string, cursor: number, words: Vocabulary): Completions {
  const before = text.slice(0, cursor);
  const start = lastOutsideQuotes(before, ",") + 1;
  const colon = lastOutsideQuotes(before.slice(start), ":");
  if (colon < 0) {
    const from = start + (before.slice(start).length - before.slice(start).trimStart().length);
    return { from, items: best(fields(words), before.slice(from)) };
  }
  const field = before.slice(start, start + colon).trim();
  const bar = Math.max(lastOutsideQuotes(before, "|"), start + colon);
  let from = bar + 1;
  while (from < cursor && (before[from] === " " || before[from] === "~")) from += 1;
  const known = [...new Set([...(words.values[field] ?? []), ...(VALUES[field] ?? [])])];
  const sayable = known.filter((value) => !(value.includes('"') && value.includes("'"))); // there are two kinds of quotes
  const items = sayable.map((value) => ({ text: quotedValue(value), note: "" }));
  return { from, items: best(items, before.slice(from)) };
}

/** The text with a completion taken, and where the cursor is then. */
export function taken(text: string, cursor: number, from: number, item: string): { text: string; cursor: number } {
  const next = text.slice(0, from) + item + text.slice(cursor);
  return { text: next, cursor: from + item.length };
}

/** `query:1:28` and the text -> what is before, what is wrong, and what comes after. */
export function located(where: string | null | undefined, text: string): [string, string, string] | null {
  const match = /^query:1:(\d+)$/.exec(where ?? "");
  if (!match) return null;
  const place = Math.min(text.length, Number(match[1]) - 1);
  const rest = text.slice(place);
  const length = Math.max(1, /^[^,|]*/.exec(rest)![0].trimEnd().length);
  return [text.slice(0, place), rest.slice(0, length) || " ", rest.slice(length)];
}

/** The field of a param or metric as the query language writes it: `metrics."a:b"`. */
export function fieldOf(group: "params" | "metrics", name: string): string {
  return `${group}.${/[,:|"'\s]/.test(name) ? (name.includes('"') ? `'${name}'` : `"${name}"`) : name}`;
}

function fields(words: Vocabulary): Completion[] {
  return [
    ...Object.entries(FIELDS).map(([name, note]) => ({ text: `${name}:`, note })),
    ...words.metrics.map((name) => ({ text: `${fieldOf("metrics", name)}:`, note: "last value; .min .max too" })),
    ...words.params.map((name) => ({ text: `${fieldOf("params", name)}:`, note: "param" })),
  ];
}

/** Those that begin with the word, then those that hold it; none when it is there already. */
function best(items: Completion[], word: string): Completion[] {
  const wanted = word.toLowerCase();
  const starts = items.filter((item) => item.text.toLowerCase().startsWith(wanted));
  const holds = items.filter((item) => !starts.includes(item) && item.text.toLowerCase().includes(wanted));
  const found = wanted ? [...starts, ...holds] : starts;
  return found.length === 1 && found[0]!.text === word ? [] : found.slice(0, MOST);
}

/** A value as a query takes it: `"a, b"`. */
export function quotedValue(value: string): string {
  return /[,|:"'%~\s]/.test(value) ? (value.includes('"') ? `'${value}'` : `"${value}"`) : value;
}

function lastOutsideQuotes(text: string, wanted: string): number {
  let quote = "";
  let found = -1;
  for (let place = 0; place < text.length; place += 1) {
    const letter = text[place]!;
    if (quote) {
      if (letter === quote) quote = "";
    } else if (letter === '"' || letter === "'") quote = letter;
    else if (letter === wanted) {
      found = place;
      if (wanted === ":") break; // the first colon ends the field; others belong to the value
    }
  }
  return found;
}
