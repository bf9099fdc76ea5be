/** The text of a line as it is shown: what a terminal would leave, with its colours as spans. No HTML is ever made. Pure. */

import Anser from "anser";

export interface Span {
  text: string;
  /** `ansi-red`, `ansi-bright-blue`: the theme says which colour that is. */
  fg?: string;
  bg?: string;
  /** `rgb(…)`, where the program chose the colour itself. */
  fgColour?: string;
  bgColour?: string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
  reverse?: boolean;
  hit?: boolean;
}

const ESCAPE = "\u001b";
/** Escapes that are no colour: other CSI sequences, titles and links, and single ones. */
const OTHER_ESCAPES = new RegExp(
  `${ESCAPE}\\[[0-9;:?<=>]*[ -/]*[@-ln-~]|${ESCAPE}[\\]PX^_][^\\u0007${ESCAPE}]*(?:\\u0007|${ESCAPE}\\\\)?|${ESCAPE}(?!\\[)[ -/]*[0-~]?`,
  "g",
);
const COLOURS = new RegExp(`${ESCAPE}\\[[0-9;:]*m`, "g");
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const SPECIAL = /[\u0000-\u0008\u000b-\u001f\u007f]/;

/** A progress bar writes itself again and again after `\r`: what it wrote last is the line. */
export function overwritten(text: string): string {
  if (!text.includes("\r")) return text;
  const parts = text.split("\r");
  for (let i = parts.length - 1; i > 0; i -= 1) if (visible(parts[i]!)) return parts[i]!;
  return parts[0]!;
}

/** The text without colours and other escapes: to compare, to search, to copy. */
export function plainText(text: string): string {
  if (!SPECIAL.test(text)) return text;
  return pictures(overwritten(text).replace(OTHER_ESCAPES, "").replace(COLOURS, ""));
}

/** Pieces of a line, each of one look. */
export function spansOf(text: string): Span[] {
  if (!SPECIAL.test(text)) return [{ text }];
  const left = overwritten(text).replace(OTHER_ESCAPES, "");
  if (!left.includes(ESCAPE)) return [{ text: pictures(left) }];
  return Anser.ansiToJson(left, { json: true, remove_empty: true, use_classes: true })
    .filter((entry) => entry.content !== "")
    .map((entry) => {
      const span: Span = { text: pictures(entry.content) };
      const [fg, fgColour] = colour(entry.fg, entry.fg_truecolor);
      const [bg, bgColour] = colour(entry.bg, entry.bg_truecolor);
      if (fg) span.fg = fg;
      if (bg) span.bg = bg;
      if (fgColour) span.fgColour = fgColour;
      if (bgColour) span.bgColour = bgColour;
      for (const name of entry.decorations) {
        if (name === "bold" || name === "dim" || name === "italic" || name === "underline" || name === "reverse")
          span[name] = true;
        if (name === "strikethrough") span.strike = true;
      }
      return span;
    });
}

/** The spans cut where a hit begins and ends. The server counts characters of the raw text; a hit is found again by its text. */
export function withHit(
  spans: readonly Span[],
  raw: string,
  match: readonly [number, number] | null | undefined,
): Span[] {
  if (!match || match[1] <= match[0]) return [...spans];
  const whole = spans.map((span) => span.text).join("");
  const [start, end] = units(raw, match);
  const text = plainText(raw.slice(start, end));
  const at = whole === raw ? start : text === "" ? -1 : whole.indexOf(text);
  if (at < 0) return [...spans];
  return cut(spans, at, at + (whole === raw ? end - start : text.length));
}

/** Every place where the words are: for filters, whose hits are on every line. */
export function withWords(spans: readonly Span[], pattern: RegExp | null): Span[] {
  if (!pattern) return [...spans];
  const whole = spans.map((span) => span.text).join("");
  let found: Span[] = [...spans];
  for (const match of whole.matchAll(pattern))
    if (match[0]) found = cut(found, match.index, match.index + match[0].length);
  return found;
}

/** Lines that tell of an error, so that `n` and `p` stop at them. The server searches with the same words. */
export const ERROR_WORDS = String.raw`(error|exception)\b|\b(traceback|fatal|panic|segmentation fault|out of memory|killed)\b`;
const ERROR = new RegExp(ERROR_WORDS, "i");

export function tellsError(text: string): boolean {
  return ERROR.test(text) && !/\b(0|no|without) errors?\b/i.test(text);
}

function cut(spans: readonly Span[], start: number, end: number): Span[] {
  const found: Span[] = [];
  let place = 0;
  for (const span of spans) {
    const next = place + span.text.length;
    const from = Math.max(start, place) - place;
    const to = Math.min(end, next) - place;
    if (from >= to) found.push(span);
    else {
      if (from > 0) found.push({ ...span, text: span.text.slice(0, from) });
      found.push({ ...span, text: span.text.slice(from, to), hit: true });
      if (to < span.text.length) found.push({ ...span, text: span.text.slice(to) });
    }
    place = next;
  }
  return found;
}

/** Python counts characters, JavaScript halves of them. */
function units(text: string, [start, end]: readonly [number, number]): [number, number] {
  if (!/[\ud800-\udfff]/.test(text)) return [start, end];
  const characters = Array.from(text);
  const before = characters.slice(0, start).join("").length;
  return [before, before + characters.slice(start, end).join("").length];
}

function colour(name: string | null, truecolour: string | null): [string | undefined, string | undefined] {
  if (!name) return [undefined, undefined];
  if (name === "ansi-truecolor") return [undefined, truecolour ? `rgb(${truecolour})` : undefined];
  const palette = /^ansi-palette-(\d+)$/.exec(name);
  return palette ? [undefined, paletteColour(Number(palette[1]))] : [name, undefined];
}

/** One of the 240 fixed colours of terminals: a cube of 6 × 6 × 6, then greys. */
export function paletteColour(index: number): string {
  if (index >= 232)
    return `rgb(${Array(3)
      .fill(8 + (index - 232) * 10)
      .join(", ")})`;
  const level = (part: number) => (part === 0 ? 0 : 55 + part * 40);
  const place = Math.max(0, index - 16);
  return `rgb(${[Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map(level).join(", ")})`;
}

function pictures(text: string): string {
  return text.replace(CONTROLS, (sign) =>
    sign === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + sign.charCodeAt(0)),
  );
}

function visible(part: string): boolean {
  return part.replace(OTHER_ESCAPES, "").replace(COLOURS, "").trim() !== "";
}
