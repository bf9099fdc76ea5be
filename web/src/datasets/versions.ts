/** Versions of data sets, and the words they are called by. Pure. */

import type { Schemas } from "../api/client";
import type { Entry } from "../versions/VersionFiles";

export type Version = Schemas["DatasetView"];

/** `cifar10@v2` */
export function word(version: { name: string; version: number }): string {
  return `${version.name}@v${version.version}`;
}

const KINDS: Record<string, string> = {
  managed: "kept by Shoal",
  path: "on the server's machine",
  object: "in a bucket",
};

/** Where the content is, in words. */
export function kindWord(kind: string): string {
  return KINDS[kind] ?? kind;
}

/** What an experiment file says to get this version. */
export function asYaml(version: { name: string; version: number }): string {
  return `data:\n  - dataset: ${word(version)}\n    at: ${version.name}`;
}

/** The files of a manifest: managed ones and those of a path have a hash, objects an etag. */
export function entriesOf(manifest: readonly Record<string, unknown>[]): Entry[] {
  return manifest.map(({ path, size, hash, etag }) => ({
    path: String(path),
    size: Number(size),
    content: String(hash ?? etag ?? "").replace(/"/g, ""),
  }));
}
