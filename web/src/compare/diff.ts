/** What differs between two texts, line by line. Pure. */

export interface Line {
  number: number;
  text: string;
}

export interface Pair {
  kind: "same" | "changed" | "removed" | "added";
  left: Line | null;
  right: Line | null;
}

/** A run of equal lines that is not shown. */
export interface Fold {
  kind: "fold";
  count: number;
  /** The first of them, on both sides. */
  left: number;
  right: number;
}

const MOST_CHANGES = 2000; // more than that: another text, and not a change of it

/** Both texts side by side: what was taken away stands beside what came instead. */
export function sideBySide(left: string, right: string): Pair[] {
  const [a, b] = [linesOf(left), linesOf(right)];
  const pairs: Pair[] = [];
  let i = 0;
  let j = 0;
  const changed = (toI: number, toJ: number) => {
    while (i < toI || j < toJ) {
      const old = i < toI ? { number: i + 1, text: a[i]! } : null;
      const fresh = j < toJ ? { number: j + 1, text: b[j]! } : null;
      pairs.push({ kind: old && fresh ? "changed" : old ? "removed" : "added", left: old, right: fresh });
      if (old) i += 1;
      if (fresh) j += 1;
    }
  };
  for (const [atI, atJ] of kept(a, b)) {
    changed(atI, atJ);
    pairs.push({ kind: "same", left: { number: i + 1, text: a[i]! }, right: { number: j + 1, text: b[j]! } });
    i += 1;
    j += 1;
  }
  changed(a.length, b.length);
  return pairs;
}

/** With long runs of equal lines folded away, but for some on each side of a change. */
export function folded(pairs: readonly Pair[], around = 3): (Pair | Fold)[] {
  const near = pairs.map((_, place) =>
    pairs.slice(Math.max(0, place - around), place + around + 1).some((pair) => pair.kind !== "same"),
  );
  const found: (Pair | Fold)[] = [];
  for (let place = 0; place < pairs.length; ) {
    if (near[place]) {
      found.push(pairs[place]!);
      place += 1;
      continue;
    }
    let end = place;
    while (end < pairs.length && !near[end]) end += 1;
    const first = pairs[place]!;
    if (end - place === 1) found.push(first);
    else found.push({ kind: "fold", count: end - place, left: first.left!.number, right: first.right!.number });
    place = end;
  }
  return found;
}

/** The part of a line that is not in the other: [before, differs, after]. Lines with little in common have none. */
export function inside(text: string, other: string): [string, string, string] {
  const most = Math.min(text.length, other.length);
  let start = 0;
  while (start < most && text[start] === other[start]) start += 1;
  let end = 0;
  while (end < most - start && text[text.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  if (3 * (start + end) < text.length) return [text, "", ""];
  return [text.slice(0, start), text.slice(start, text.length - end), text.slice(text.length - end)];
}

function linesOf(text: string): string[] {
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}

/** Places of equal lines, as many as can be: the shortest way from one text to the other, by Myers. */
function kept(a: readonly string[], b: readonly string[]): [number, number][] {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail])
    tail += 1;
  const ends = Array.from({ length: tail }, (_, n): [number, number] => [a.length - tail + n, b.length - tail + n]);
  const starts = Array.from({ length: head }, (_, n): [number, number] => [n, n]);
  const middle = shortest(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...starts, ...middle.map(([i, j]): [number, number] => [i + head, j + head]), ...ends];
}

function shortest(a: readonly string[], b: readonly string[]): [number, number][] {
  const most = Math.min(a.length + b.length, MOST_CHANGES);
  const reached = new Map<number, number>([[1, 0]]);
  const steps: Map<number, number>[] = [];
  for (let changes = 0; changes <= most; changes += 1) {
    steps.push(new Map(reached));
    for (let diagonal = -changes; diagonal <= changes; diagonal += 2) {
      const down =
        diagonal === -changes || (diagonal !== changes && at(reached, diagonal - 1) < at(reached, diagonal + 1));
      let x = down ? at(reached, diagonal + 1) : at(reached, diagonal - 1) + 1;
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x += 1;
      reached.set(diagonal, x);
      if (x >= a.length && x - diagonal >= b.length) return walkedBack(steps, a.length, b.length);
    }
  }
  return [];
}

function walkedBack(steps: readonly Map<number, number>[], x: number, y: number): [number, number][] {
  const found: [number, number][] = [];
  let [i, j] = [x, y];
  for (let changes = steps.length - 1; changes >= 0; changes -= 1) {
    const reached = steps[changes]!;
    const diagonal = i - j;
    const down =
      diagonal === -changes || (diagonal !== changes && at(reached, diagonal - 1) < at(reached, diagonal + 1));
    const from = down ? diagonal + 1 : diagonal - 1;
    const beforeI = changes === 0 ? 0 : at(reached, from);
    const beforeJ = changes === 0 ? 0 : beforeI - from;
    while (i > beforeI && j > beforeJ && i > 0 && j > 0) {
      i -= 1;
      j -= 1;
      found.push([i, j]);
    }
    [i, j] = [beforeI, beforeJ];
  }
  return found.reverse();
}

function at(reached: ReadonlyMap<number, number>, diagonal: number): number {
  return reached.get(diagonal) ?? -1;
}
