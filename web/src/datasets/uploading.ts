/** Bringing files from the browser to the server: what is chosen, in which paths, and how far it is. */

import { ApiError, api, asked, type Schemas, Unreachable } from "../api/client";

/** A file and the path it gets in the data set. */
export interface Chosen {
  path: string;
  file: Blob & { name: string };
}

/** What is chosen, and whether it is one file by itself and not a directory. */
export interface Choice {
  files: Chosen[];
  single: boolean;
}

export interface Progress {
  done: number;
  bytes: number;
  /** The file that is on its way. */
  path: string;
}

/**
 * Files with the paths they were chosen with. A directory that all of them are in is left out: what is uploaded is
 * its content. Several files of one path are an error of the caller; the last one counts.
 */
export function choiceOf(picked: readonly { path: string; file: Chosen["file"] }[]): Choice {
  const byPath = new Map(picked.map((one) => [one.path.replace(/^\/+/, ""), one.file]));
  const paths = [...byPath.keys()];
  const single = paths.length === 1 && !paths[0]!.includes("/");
  const top = paths[0]?.includes("/") ? paths[0].slice(0, paths[0].indexOf("/") + 1) : "";
  const shared = top !== "" && paths.every((path) => path.startsWith(top));
  const files = paths.sort().map((path) => ({ path: shared ? path.slice(top.length) : path, file: byPath.get(path)! }));
  return { files, single };
}

/** The name that a data set of these files could have: of the directory, or of the file without its endings. */
export function suggestedName(paths: readonly string[]): string {
  const first = paths[0]?.replace(/^\/+/, "") ?? "";
  const part = first.includes("/") ? first.slice(0, first.indexOf("/")) : first.replace(/\..*$/, "");
  return part
    .replace(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+|-+$/g, "")
    .slice(0, 128);
}

/** Why a name cannot be one, or empty. */
export function wrongName(name: string): string {
  if (!name) return "";
  if (name.length > 128) return "at most 128 characters";
  return /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name) ? "" : "letters, digits, . - and _, a letter or digit first";
}

export function sizeOf(files: readonly Chosen[]): number {
  return files.reduce((sum, one) => sum + one.file.size, 0);
}

/** How the server is spoken to. */
export interface Wire {
  send: (file: Blob, tell: (bytes: number) => void, signal: AbortSignal) => Promise<{ hash: string; size: number }>;
  make: (wish: Schemas["NewManaged"], signal: AbortSignal) => Promise<Schemas["Added"]>;
}

/**
 * Makes a version of the files. Each is sent once; what the server has no more when it makes the version (it collects
 * what nobody names) is sent again.
 */
export async function upload(
  name: string,
  { files, single }: Choice,
  tell: (progress: Progress) => void,
  signal: AbortSignal,
  { send, make }: Wire = { send: put, make: made },
): Promise<Schemas["Added"]> {
  const kept = new Map<string, { hash: string; size: number }>();
  for (let again = 0; again < 3; again++) {
    let before = 0;
    for (const [done, { path, file }] of files.entries()) {
      if (!kept.has(path))
        kept.set(path, await send(file, (bytes) => tell({ done, bytes: before + bytes, path }), signal));
      before += file.size;
      tell({ done: done + 1, bytes: before, path });
    }
    const added = await make({ name, single, files: files.map(({ path }) => ({ path, ...kept.get(path)! })) }, signal);
    if (!added.missing?.length) return added;
    const missing = new Set(added.missing);
    for (const [path, blob] of kept) if (missing.has(blob.hash)) kept.delete(path);
  }
  throw new Error("the server keeps losing what is sent; try again");
}

function made(wish: Schemas["NewManaged"], signal: AbortSignal): Promise<Schemas["Added"]> {
  return asked(api.POST("/api/datasets/managed", { body: wish, signal }));
}

/** Sends one file: XMLHttpRequest tells how far it is, fetch does not. */
function put(file: Blob, tell: (bytes: number) => void, signal: AbortSignal): Promise<{ hash: string; size: number }> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/blobs");
    request.setRequestHeader("content-type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => tell(event.loaded);
    request.onload = () => {
      if (request.status === 201) resolve(request.response);
      else reject(new ApiError(request.status, request.response ?? { what: `status ${request.status}` }));
    };
    request.onerror = () => reject(new Unreachable());
    request.onabort = () => reject(new DOMException("stopped", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/** The files of an input: directories tell where each of them was. */
export function pickedOf(files: Iterable<File>): { path: string; file: File }[] {
  return [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/** What was dropped, directories with all that is below them. */
export async function droppedOf(items: DataTransferItemList): Promise<{ path: string; file: File }[]> {
  const entries = [...items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  return (await Promise.all(entries.map(below))).flat();
}

async function below(entry: FileSystemEntry): Promise<{ path: string; file: File }[]> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    return [{ path: entry.fullPath, file }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: FileSystemEntry[] = [];
  for (;;) {
    // A reader gives a part of them at a time.
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) break;
    found.push(...part);
  }
  return (await Promise.all(found.map(below))).flat();
}
