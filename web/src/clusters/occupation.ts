/** Who occupies what on a cluster, as it is drawn. Pure. */

import type { Schemas } from "../api/client";
import { several } from "../look/numbers";

export type Cluster = Schemas["ClusterState"];
export type Occupant = Schemas["Occupant"];
export type Occupied = Schemas["Occupied"];
export type Resource = "cpu" | "memory" | "gpu";

/** What waits in the queue of this machine, and what has left it. */
export function queueOf(cluster: Cluster): Occupant[] {
  return cluster.experiments.filter((one) => one.state === "queued");
}

export function placedOn(cluster: Cluster): Occupant[] {
  return cluster.experiments.filter((one) => one.state !== "queued");
}

export interface Share {
  total: number;
  used: number;
  free: number;
  /** Parts of the whole, in the order of the experiments; 0 to 1 each. */
  parts: { id: string; name: string; amount: number; part: number }[];
}

/** How much of a resource is taken, and by whom; null where nobody counts it. */
export function shareOf(cluster: Cluster, resource: Resource): Share | null {
  const total = resource === "gpu" ? (cluster.gpus?.length ?? null) : cluster[resource];
  if (total === null) return null;
  const held = placedOn(cluster).map((one) => ({ id: one.id, name: nameOf(one), amount: holds(one, resource) }));
  const used = held.reduce((sum, one) => sum + one.amount, 0);
  const parts = held
    .filter((one) => one.amount > 0)
    .map((one) => ({ ...one, part: total > 0 ? one.amount / Math.max(total, used) : 0 }));
  return { total, used, free: Math.max(0, total - used), parts };
}

/** One that oversubscribes counts for nothing but the devices it was given. */
function holds(one: Occupant, resource: Resource): number {
  if (resource === "gpu") return one.replicas.reduce((sum, replica) => sum + replica.devices.length, 0);
  return one.oversubscribe ? 0 : one[resource];
}

export interface Slot {
  device: number;
  owner: { experiment: Occupant; replica: string } | null;
}

/** Every GPU of this machine and whose it is. */
export function slotsOf(cluster: Cluster): Slot[] {
  const owners = new Map<number, Slot["owner"]>();
  for (const experiment of cluster.experiments)
    for (const { replica, devices } of experiment.replicas)
      for (const device of devices) owners.set(device, { experiment, replica });
  return (cluster.gpus ?? []).map((device) => ({ device, owner: owners.get(device) ?? null }));
}

export interface Node {
  /** "" for replicas that have no node yet. */
  name: string;
  replicas: { experiment: Occupant; replica: Occupied }[];
}

/** Nodes with what runs there, by name; what is not placed comes last. What is over holds nothing. */
export function nodesOf(cluster: Cluster): Node[] {
  const found = new Map<string, Node["replicas"]>();
  for (const experiment of placedOn(cluster))
    for (const replica of experiment.replicas)
      if (!OVER.has(replica.state))
        found.set(replica.node, [...(found.get(replica.node) ?? []), { experiment, replica }]);
  return [...found]
    .map(([name, replicas]) => ({ name, replicas }))
    .sort((a, b) => Number(a.name === "") - Number(b.name === "") || a.name.localeCompare(b.name));
}

const OVER = new Set(["succeeded", "failed", "stopped"]);

export function nameOf(one: { name: string | null; id: string }): string {
  return one.name ?? one.id;
}

/** `2 cores`, `512 MiB`, `1.5 GiB`, `1 GPU`; memory comes in MiB. */
export function amount(value: number, resource: Resource): string {
  if (resource === "memory") return value >= 1024 ? `${short(value / 1024)} GiB` : `${short(value)} MiB`;
  return several(Number(short(value)), resource === "cpu" ? "core" : "GPU");
}

/** The same without its unit, where a header says it: `2`, `0.4`; memory keeps it. */
export function bare(value: number, resource: Resource): string {
  return resource === "memory" ? amount(value, resource) : short(value);
}

/** What is asked for, in one line: `2 cores, 512 MiB`; "nothing" when the file asks for nothing. */
export function requested(one: { cpu: number; memory: number; gpu: number }): string {
  const parts = (["cpu", "memory", "gpu"] as const)
    .filter((kind) => one[kind] > 0)
    .map((kind) => amount(one[kind], kind));
  return parts.join(", ") || "nothing";
}

function short(value: number): string {
  return String(Number(value.toPrecision(3)));
}
