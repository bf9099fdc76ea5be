/** Files as a tree, and what is in one, told by its content. Pure. */

export interface Folder<T> {
  name: string;
  path: string;
  folders: Folder<T>[];
  files: { name: string; file: T }[];
  /** Files below it, and their bytes. */
  count: number;
  size: number;
}

/** Paths with `/` as a tree; folders and files in the order of names, numbers as numbers. */
export function treeOf<T extends { path: string; size: number }>(files: readonly T[], strip = ""): Folder<T> {
  const root: Folder<T> = { name: "", path: "", folders: [], files: [], count: 0, size: 0 };
  for (const file of files) {
    const parts = file.path.slice(strip.length).split("/");
    let here = root;
    here.count += 1;
    here.size += file.size;
    for (let i = 0; i < parts.length - 1; i += 1) {
      const path = parts.slice(0, i + 1).join("/");
      let next = here.folders.find((folder) => folder.path === path);
      if (!next) {
        next = { name: parts[i]!, path, folders: [], files: [], count: 0, size: 0 };
        here.folders.push(next);
      }
      next.count += 1;
      next.size += file.size;
      here = next;
    }
    here.files.push({ name: parts.at(-1)!, file });
  }
  sort(root);
  return root;
}

export type Kind = "image" | "svg" | "html" | "json" | "table" | "text" | "binary";

export interface Sniffed {
  kind: Kind;
  /** Of images. */
  mime?: string;
  /** Of what is text. */
  text?: string;
}

const IMAGES: [number[], string][] = [
  [[0x89, 0x50, 0x4e, 0x47], "image/png"],
  [[0xff, 0xd8, 0xff], "image/jpeg"],
  [[0x47, 0x49, 0x46, 0x38], "image/gif"],
  [[0x42, 0x4d], "image/bmp"],
];

/** What the first bytes of a file are; its name only decides between kinds of text. */
export function sniffed(bytes: Uint8Array, path: string): Sniffed {
  for (const [magic, mime] of IMAGES)
    if (magic.every((byte, i) => bytes[i] === byte) && (mime !== "image/bmp" || /\.bmp$/i.test(path)))
      return { kind: "image", mime };
  if (ascii(bytes, 0, 4) === "RIFF" && ascii(bytes, 8, 4) === "WEBP") return { kind: "image", mime: "image/webp" };
  const text = readable(bytes);
  if (text === null) return { kind: "binary" };
  const start = text.trimStart().slice(0, 400).toLowerCase();
  if (/^(<\?xml[^>]*>\s*)?(<!--[\s\S]*?-->\s*)?(<!doctype svg[^>]*>\s*)?<svg[\s>]/.test(start))
    return { kind: "svg", mime: "image/svg+xml", text };
  if (/^<!doctype html|^<html[\s>]/.test(start) || (/\.html?$/i.test(path) && start.startsWith("<")))
    return { kind: "html", text };
  if (/^[[{]/.test(start) && isJson(text)) return { kind: "json", text };
  if (/\.[ct]sv$/i.test(path)) return { kind: "table", text };
  return { kind: "text", text };
}

/** Rows of CSV or TSV, at most `most` of them; quotes may hold separators and line ends. */
export function cells(
  text: string,
  most: number,
  separator = text.slice(0, text.indexOf("\n") >>> 0).includes("\t") ? "\t" : ",",
): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  for (let i = 0; i < text.length && rows.length < most; i += 1) {
    const sign = text[i]!;
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[i + 1] === '"') {
        cell += '"';
        i += 1;
      } else quoted = false;
    } else if (sign === '"' && cell === "") quoted = true;
    else if (sign === separator) {
      row.push(cell);
      cell = "";
    } else if (sign === "\n") {
      rows.push([...row, cell.replace(/\r$/, "")]);
      row = [];
      cell = "";
    } else cell += sign;
  }
  if (rows.length < most && (cell !== "" || row.length)) rows.push([...row, cell]);
  return rows;
}

/** `bytes 0-1048575/5242880` -> 5242880 */
export function wholeSize(range: string | null): number | null {
  const match = /\/(\d+)$/.exec(range ?? "");
  return match ? Number(match[1]) : null;
}

function sort<T>(folder: Folder<T>): void {
  folder.folders.sort((a, b) => compare(a.name, b.name));
  folder.files.sort((a, b) => compare(a.name, b.name));
  folder.folders.forEach(sort);
}

const compare = new Intl.Collator("en", { numeric: true }).compare;

/** Text, or null for what is none. The end may cut a character in two. */
function readable(bytes: Uint8Array): string | null {
  if (bytes.subarray(0, 8192).includes(0)) return null;
  for (let cut = 0; cut < 4; cut += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, bytes.length - cut));
    } catch {
      if (bytes.length - cut <= 0) return null;
    }
  }
  return null;
}

function ascii(bytes: Uint8Array, start: number, length: number): string {
  return String.fromCharCode(...bytes.subarray(start, start + length));
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
