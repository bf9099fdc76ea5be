/** "Same line on 8 ranks": equal lines of several replicas as one row. Pure. */

import type { LogLine } from "./lines";
import { plainText } from "./text";

/** One row of the list: a line, and the same line of other replicas. */
export interface Row {
  /** Its place in the merged order. */
  index: number;
  line: LogLine;
  /** The others, in the order in which they came; empty for most rows. */
  same: LogLine[];
  /** The places of the others. */
  also: number[];
}

const SECONDS = 30; // ranks do not start at once, and nobody waits for the others before the first step
const BACK = 256; // rows

/**
 * Rows of lines that follow each other. A line joins an earlier row with the same text of another replica when all that
 * its own replica printed between is in rows before that one: so the order of each replica's lines stays what it was.
 *
 * The first `warm` lines make no rows, they only tell which rows there are to join. Among them order does not count: a
 * replica that is late begins with lines whose rows are before all of them, and would never be joined again.
 */
export function rowsOf(lines: readonly LogLine[], first: number, collapse: boolean, warm = 0): Row[] {
  if (!collapse)
    return lines.slice(warm).map((line, place) => ({ index: first + warm + place, line, same: [], also: [] }));
  const rows: Row[] = [];
  const withText = new Map<string, number[]>();
  const lastRow = new Map<string, number>();
  lines.forEach((line, place) => {
    const who = `${line.attempt}:${line.replica}:${line.try}`;
    const joins = line.gap === 0 && line.complete;
    const text = joins ? plainText(line.text) : "";
    const alike = joins ? (withText.get(text) ?? []) : [];
    const after = Math.max(lastRow.get(who) ?? -1, rows.length - BACK - 1);
    for (let i = alike.length - 1; i >= 0 && alike[i]! > after; i -= 1) {
      const row = rows[alike[i]!]!;
      if (row.line.stream !== line.stream || line.time - row.line.time > SECONDS || has(row, line)) continue;
      row.same.push(line);
      row.also.push(first + place);
      if (place >= warm) lastRow.set(who, alike[i]!);
      return;
    }
    if (place >= warm) lastRow.set(who, rows.length);
    if (joins) {
      alike.push(rows.length);
      withText.set(text, alike);
    }
    rows.push({ index: first + place, line, same: [], also: [] });
  });
  return warm ? rows.filter((row) => row.index >= first + warm) : rows;
}

/** The same rows, and where nothing changed the very objects of before: those need not be drawn again. */
export function kept(before: readonly Row[], now: readonly Row[]): Row[] {
  const known = new Map(before.map((row) => [row.index, row]));
  return now.map((row) => {
    const old = known.get(row.index);
    return old && old.line === row.line && sameItems(old.also, row.also) && sameItems(old.same, row.same) ? old : row;
  });
}

/** The row that shows the line at this place in the merged order. */
export function rowWith(rows: readonly Row[], index: number): Row | undefined {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const half = (low + high) >> 1;
    if (rows[half]!.index <= index) low = half + 1;
    else high = half;
  }
  for (let i = low - 1; i >= 0; i -= 1) if (rows[i]!.index === index || rows[i]!.also.includes(index)) return rows[i];
  return undefined;
}

/**
 * Over how many lines of the list the widest row reaches, or would if it were whole: two rows with the same text, of
 * other replicas each, are often one of which the beginning was not read.
 */
export function widest(rows: readonly Row[]): number {
  const before = new Map<string, Row>();
  let most = 0;
  for (const row of rows) {
    const end = row.also.at(-1) ?? row.index;
    const alike = before.get(row.line.text);
    const torn =
      alike && row.line.time - alike.line.time <= SECONDS && ![row.line, ...row.same].some((line) => has(alike, line));
    most = Math.max(most, end - (torn ? alike.index : row.index));
    before.set(row.line.text, row);
  }
  return most;
}

/** `8 ranks`, `worker-0…7`, said in full. */
export function whoOf(row: Row): string[] {
  return [row.line, ...row.same].map((line) => line.replica);
}

function has(row: Row, line: LogLine): boolean {
  return row.line.replica === line.replica || row.same.some((other) => other.replica === line.replica);
}

function sameItems(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a.length === b.length && a.every((item, i) => item === b[i]);
}
