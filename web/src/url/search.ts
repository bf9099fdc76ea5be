/** The view of a page lives in its URL, in words a person can read and type: `?q=state:failed&sort=-metrics.acc`. Pure. */

export type Search = Record<string, string>;
export type Value = string | number | boolean | string[];
export type View = Record<string, Value>;

/** `?q=state:failed` -> {q: "state:failed"} */
export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

/** The opposite. What is undefined or empty is left out; `: , / *` stay as they are. */
export function stringifySearch(search: Record<string, unknown>): string {
  const parts = Object.entries(search)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([key, value]) => `${encodeURIComponent(key)}=${encoded(String(value))}`);
  return parts.length ? `?${parts.join("&")}` : "";
}

/** What a page shows: its defaults, with what the URL says instead. A value that cannot be read is the default. */
export function readView<T extends View>(defaults: T, search: Record<string, unknown>): T {
  const view: View = { ...defaults };
  for (const [key, fallback] of Object.entries(defaults)) {
    const said = search[key];
    if (said !== undefined && said !== null) view[key] = read(String(said), fallback);
  }
  return view as T;
}

/** The search of the URL after a change; defaults are not written. Keys of others are kept. */
export function writeView<T extends View>(
  defaults: T,
  search: Record<string, unknown>,
  change: Partial<T>,
): Record<string, unknown> {
  const next: Record<string, unknown> = { ...search };
  for (const [key, value] of Object.entries(change)) {
    const text = written(value as Value);
    if (value === undefined || text === written(defaults[key] as Value)) delete next[key];
    else next[key] = text;
  }
  return next;
}

function read(said: string, fallback: Value): Value {
  if (typeof fallback === "boolean") return said === "yes" ? true : said === "no" ? false : fallback;
  if (typeof fallback === "number")
    return said.trim() !== "" && Number.isFinite(Number(said)) ? Number(said) : fallback;
  if (Array.isArray(fallback)) return said === NONE ? [] : said.split(",").filter(Boolean).map(decoded);
  return said === NONE ? "" : said;
}

/** An empty text or list that is not the default has to be said somehow. */
const NONE = "-";

function written(value: Value | undefined): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value))
    return value.length ? value.map((item) => item.replace(/%/g, "%25").replace(/,/g, "%2C")).join(",") : NONE;
  return value === "" || value === undefined ? NONE : String(value);
}

function decoded(item: string): string {
  return item.replace(/%2C/g, ",").replace(/%25/g, "%");
}

function encoded(text: string): string {
  return encodeURIComponent(text).replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%2F/g, "/").replace(/%20/g, "+");
}
