import { expect, test } from "vitest";
import type { Replica } from "../api/client";
import { replicaColumns } from "./ReplicasTable";
import type { RankView } from "./ranks";

const BORDERS = 2 * (16 + 12 + 1); // of the page, of the part, and its frame
const SCROLLBAR = 15;

const score = {
  ...{ relative: 0.5, individual: 1, windows: 9, slow: 9, slower: 0, pattern: "chronic", now: true },
} as RankView["score"];

/** A rank of which everything is known. */
function rank(name: string, more: Partial<Replica> = {}): RankView {
  const replica = { replica: name, rank: 1, state: "running", try: 1, node: name, started: 1, ...more } as Replica;
  const ages = { age: 1, metricAge: 1, beatAge: 1, pointAge: 1 };
  return { replica, lastLine: "x", silent: true, ...ages, at: 9, step: 1, busy: 1, score, cpu: 1, memory: 1, gpu: 1 };
}

test.each([
  ["running", false, 15],
  ["over", true, 13],
])("all columns of replicas that are %s fit into a window of 1280 pixels", (_, over, many) => {
  const ranks = [rank("worker-14"), rank("worker-15", { state: "failed", exit_code: 137, signal: "SIGKILL" })];
  const columns = replicaColumns(ranks, "worker-15", over);
  expect(columns).toHaveLength(many);
  const width = columns.reduce((sum, column) => sum + column.size!, 0);
  expect(width).toBeLessThanOrEqual(1280 - BORDERS - SCROLLBAR);
});
