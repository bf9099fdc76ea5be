/** Numbers as they are shown. The full value belongs into `title` and into what is copied. Pure. */

const DIGITS = 4;
const SMALLEST = 1e-4;
const LARGEST = 1e5;
const TYPED = 8; // longer numbers were computed, not typed

/** `0.6931`, `1.2e-6`, `12`, `NaN`: four significant digits; scientific outside 1e-4…1e5; whole numbers are whole. */
export function number(value: unknown): string {
  const read = numeric(value);
  if (read === null) return value === null || value === undefined ? "" : String(value);
  if (!Number.isFinite(read)) return Number.isNaN(read) ? "NaN" : read > 0 ? "∞" : "−∞";
  if (Number.isInteger(read) && Math.abs(read) < 1e15) return minus(String(read));
  const size = Math.abs(read);
  if (size < SMALLEST || size >= LARGEST) return minus(shortExponent(read));
  const decimals = Math.max(0, DIGITS - 1 - Math.floor(Math.log10(size)));
  return minus(read.toFixed(decimals));
}

/** One way to write all numbers of a column: decimals line up, and none is rounded to nothing. */
export function columnNumbers(values: Iterable<unknown>): (value: unknown) => string {
  return withDecimals(columnDecimals(values));
}

/** How many decimals the numbers of a column have; null when each is written by itself. */
export function columnDecimals(values: Iterable<unknown>): number | null {
  let largest = 0;
  let smallest = Number.POSITIVE_INFINITY;
  let whole = true;
  for (const value of values) {
    const read = numeric(value);
    if (read === null || !Number.isFinite(read)) continue;
    if (!Number.isInteger(read)) whole = false;
    const size = Math.abs(read);
    if (size > largest) largest = size;
    if (size > 0 && size < smallest) smallest = size;
  }
  if (whole || largest === 0 || largest >= LARGEST || smallest < SMALLEST) return null;
  const decimals = Math.max(0, DIGITS - 1 - Math.floor(Math.log10(largest)));
  const needed = Math.max(0, 2 - Math.floor(Math.log10(smallest))); // three digits of the smallest
  return Math.min(6, Math.max(decimals, needed));
}

export function withDecimals(decimals: number | null): (value: unknown) => string {
  if (decimals === null) return number;
  return (value) => {
    const read = numeric(value);
    return read === null || !Number.isFinite(read) || read === 0 ? number(value) : minus(read.toFixed(decimals));
  };
}

/** The number that a value is; the API writes NaN and the infinities as strings. */
export function numeric(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (value === "NaN") return Number.NaN;
  if (value === "Infinity") return Number.POSITIVE_INFINITY;
  if (value === "-Infinity") return Number.NEGATIVE_INFINITY;
  return null;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** `1.50 GiB` */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const text = unit === 0 ? String(Math.round(size)) : size >= 100 ? size.toFixed(0) : size.toPrecision(3);
  return `${value < 0 ? "−" : ""}${text} ${UNITS[unit]}`;
}

const WHOLE = new Intl.NumberFormat("en-US"); // made once: to make one costs more than a hundred uses

/** `12,345`: how many there are. */
export function count(value: number): string {
  return WHOLE.format(value);
}

/** `1 replica`, `3 replicas` */
export function several(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** `73 %` */
export function percent(fraction: number): string {
  const value = fraction * 100;
  return `${value > 0 && value < 1 ? value.toFixed(1) : Math.floor(value)} %`;
}

/** `+0.0123`, `−0.5`: how far a value is from a baseline; empty when there is nothing to compare. */
export function delta(value: unknown, baseline: unknown): string {
  const a = numeric(value);
  const b = numeric(baseline);
  if (a === null || b === null || !Number.isFinite(a) || !Number.isFinite(b)) return "";
  const difference = a - b;
  if (difference === 0) return "=";
  return difference > 0 ? `+${number(difference)}` : number(difference);
}

/** Any param as one line of text. What a person typed is not padded: `0.01` stays `0.01`. */
export function plain(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value).length <= TYPED ? String(value) : number(value);
  return JSON.stringify(value);
}

function shortExponent(value: number): string {
  const [digits, exponent] = value.toExponential(DIGITS - 1).split("e");
  const trimmed = digits!.includes(".") ? digits!.replace(/\.?0+$/, "") : digits!;
  return `${trimmed}e${exponent!.replace("+", "")}`;
}

function minus(text: string): string {
  return text.replace(/^-/, "−").replace("e-", "e−");
}
