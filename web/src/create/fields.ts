/** What the form shows of a file, and where in the file each field stands. Pure. */

import { type Document, isMap, isSeq } from "yaml";
import { type Path, treeOf, typedAt, valueAt } from "./document";

export const FRAMEWORKS = ["none", "tensorflow", "pytorch", "mxnet", "jax"] as const;
export const ROLES = ["master", "worker", "ps"] as const;
export type Role = (typeof ROLES)[number];
export const AMOUNTS = ["cpu", "memory", "gpu"] as const;
export type Amount = (typeof AMOUNTS)[number];
export type Bound = "requests" | "limits";

/** Spellings of Polyaxon name the framework by the section of the replicas. */
const SECTIONS = ["tensorflow", "mxnet", "pytorch", "horovod"];

export interface Form {
  name: string;
  framework: string;
  /** The framework is said by the name of a section: it cannot be chosen. */
  sectioned: boolean;
  backend: string;
  /** Where numbers of replicas stand. */
  replicas: Path;
  master: boolean;
  workers: string;
  ps: string;
  trainers: string;
  command: Command;
  code: Code;
  image: string;
  data: Mount[];
  params: Param[];
}

/** One text, steps, or something that only its author can change. */
export interface Command {
  kind: "text" | "steps" | "other";
  text: string;
}

export type Code =
  | { kind: "directory"; path: string }
  | { kind: "git"; git: string; ref: string }
  | { kind: "other"; text: string };

export interface Mount {
  kind: "dataset" | "uri" | "other";
  /** `cifar10@v1`, or where it is. */
  what: string;
  at: string;
}

export interface Param {
  name: string;
  typed: string;
  /** A mapping: its keys are shown, not changed. */
  nested: boolean;
}

/** null: the file cannot be read, so that nothing can be shown of it. */
export function formOf(text: string): Form | null {
  const tree = treeOf(text);
  if (!tree) return null;
  const section = SECTIONS.find((name) => tree.hasIn(["environment", name]));
  const replicas = ["environment", section ?? "replicas"];
  return {
    name: typedAt(tree, ["name"]),
    framework: typedAt(tree, ["framework"]) || section || "none",
    sectioned: section !== undefined && !tree.has("framework"),
    backend: typedAt(tree, ["backend"]) || "native",
    replicas,
    master: valueAt(tree, [...replicas, "master"]) !== false,
    workers: typedAt(tree, [...replicas, "n_workers"]),
    ps: typedAt(tree, [...replicas, "n_ps"]),
    trainers: typedAt(tree, [...replicas, "n_trainers"]),
    command: commandOf(tree),
    code: codeOf(tree),
    image: typedAt(tree, ["build", "image"]),
    data: mountsOf(tree),
    params: paramsOf(tree),
  };
}

/** Where the resources of a role stand. The master's are those of the environment itself. */
export function resourcePath(form: Pick<Form, "replicas">, role: Role, amount: Amount, bound: Bound): Path {
  const home = role === "master" ? ["environment"] : [...form.replicas, `default_${role}`];
  return [...home, "resources", amount, bound];
}

/** What is typed into a field for an amount: `0.5`, `2Gi`, `{{ gpus }}`. */
export function resourceOf(text: string, path: Path): string {
  const tree = treeOf(text);
  return tree ? typedAt(tree, path) : "";
}

/** A number where it is one; other texts as they are: the server judges them. */
export function amountMeant(typed: string): number | string {
  const trimmed = typed.trim();
  return /^\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}

function commandOf(tree: Document): Command {
  const value = valueAt(tree, ["run", "cmd"]);
  if (value === undefined) return { kind: "text", text: "" };
  if (typeof value === "string") return { kind: "text", text: value };
  if (Array.isArray(value) && value.every((step) => typeof step === "string" && !step.includes("\n")))
    return { kind: "steps", text: value.join("\n") };
  return { kind: "other", text: typedAt(tree, ["run", "cmd"]) };
}

function codeOf(tree: Document): Code {
  const value = valueAt(tree, ["code"]);
  if (value === undefined || typeof value === "string") return { kind: "directory", path: (value as string) ?? "" };
  if (isMap(tree.get("code")) && tree.hasIn(["code", "git"]))
    return { kind: "git", git: typedAt(tree, ["code", "git"]), ref: typedAt(tree, ["code", "ref"]) };
  return { kind: "other", text: typedAt(tree, ["code"]) };
}

function mountsOf(tree: Document): Mount[] {
  const list = tree.get("data");
  if (!isSeq(list)) return [];
  return list.items.map((_, place) => {
    const kind = ["dataset", "uri"].find((key) => tree.hasIn(["data", place, key])) as "dataset" | "uri" | undefined;
    if (!kind) return { kind: "other", what: typedAt(tree, ["data", place]), at: "" };
    return { kind, what: typedAt(tree, ["data", place, kind]), at: typedAt(tree, ["data", place, "at"]) };
  });
}

function paramsOf(tree: Document): Param[] {
  const map = tree.get("params");
  if (!isMap(map)) return [];
  return map.items.map((pair) => {
    const name = String((pair.key as { value?: unknown })?.value ?? pair.key);
    return { name, typed: typedAt(tree, ["params", name]), nested: isMap(pair.value) };
  });
}
