/** Names of metrics as a tree, and which of them are wanted. Pure. */

export interface Branch {
  /** `train`, the last part of the path. */
  name: string;
  /** `layers/0` */
  path: string;
  /** Metrics below it. */
  count: number;
  branches: Branch[];
  /** Metrics that end here, with their whole names. */
  leaves: string[];
}

/** `train/loss` is the leaf `loss` of the branch `train`. */
export function treeOf(names: readonly string[]): Branch {
  const root: Branch = { name: "", path: "", count: 0, branches: [], leaves: [] };
  for (const name of names) {
    const parts = name.split("/");
    let here = root;
    here.count += 1;
    for (let i = 0; i < parts.length - 1; i += 1) {
      const path = parts.slice(0, i + 1).join("/");
      let next = here.branches.find((branch) => branch.path === path);
      if (!next) {
        next = { name: parts[i]!, path, count: 0, branches: [], leaves: [] };
        here.branches.push(next);
      }
      next.count += 1;
      here = next;
    }
    here.leaves.push(name);
  }
  return root;
}

/** A pattern as a person types it; null when it is no regular expression (yet). */
export function patternOf(text: string): RegExp | null {
  try {
    return new RegExp(text, "i");
  } catch {
    return null;
  }
}

/** The names that match, below the branch that is open. What is no regular expression is looked for as it is. */
export function wantedNames(names: readonly string[], text: string, branch: string): string[] {
  const pattern = patternOf(text);
  const below = branch ? names.filter((name) => name === branch || name.startsWith(`${branch}/`)) : names;
  if (!text) return [...below];
  const plain = text.toLowerCase();
  return below.filter((name) => (pattern ? pattern.test(name) : name.toLowerCase().includes(plain)));
}

/** What people watch comes first; what Shoal measures itself comes last; numbers in names are numbers. */
export function inOrder(names: Iterable<string>): string[] {
  const place = (name: string) => (name.startsWith("shoal/") ? 2 : /loss|acc|reward|score/i.test(name) ? 0 : 1);
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  return [...names].sort((a, b) => place(a) - place(b) || compare(a, b));
}
