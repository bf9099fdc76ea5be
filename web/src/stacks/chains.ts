/** Stacks of all ranks, as they are drawn: calls that the same ranks are in together, and who has moved. */

import type { Schemas } from "../api/client";

export type Stacks = Schemas["Stacks"];
type Node = Schemas["StackNode"];

/** Calls that the same ranks are in, outermost first, and where these ranks part. */
export interface Chain {
  calls: { file: string; line: number; function: string }[];
  ranks: string[];
  children: Chain[];
}

/** The tree with one node for each set of ranks. `shown` tells which ranks are meant; others are left out. */
export function chains(nodes: readonly Node[], shown: (rank: string) => boolean): Chain[] {
  return nodes.flatMap((node) => {
    const ranks = node.ranks.filter(shown);
    if (!ranks.length) return [];
    const call = { file: node.file, line: node.line, function: node.function };
    const below = chains(node.children, shown);
    const only = below.length === 1 ? below[0] : undefined;
    if (only && only.ranks.length === ranks.length) return [{ ...only, calls: [call, ...only.calls] }];
    return [{ calls: [call], ranks, children: below }];
  });
}

/** The ranks that are elsewhere than at an earlier look; null when there was none. */
export function moved(before: Stacks | undefined, now: Stacks): string[] | null {
  if (!before) return null;
  const places = new Map(before.ranks.map((rank) => [rank.name, JSON.stringify(rank.frames)]));
  return now.ranks.filter((rank) => places.get(rank.name) !== JSON.stringify(rank.frames)).map((rank) => rank.name);
}

/** `worker-2:1` → `worker-2`: the replica of a rank. */
export function replicaOf(rank: string): string {
  return rank.replace(/[: ].*$/, "");
}

/** Few names as they are, many as a number. */
export function who(ranks: readonly string[], all: number): string {
  if (ranks.length === all && all > 1) return `all ${all} ranks`;
  if (ranks.length <= 6) return ranks.join(", ");
  return `${ranks.length} ranks: ${ranks.slice(0, 4).join(", ")}, …`;
}

/** Whether a file is the user's own, and not a library's. */
export function own(file: string): boolean {
  return !/\/(site|dist)-packages\/|\/lib(64)?\/python\d|^</.test(file);
}
