/** Tags of several experiments at once. Pure. */

interface Tagged {
  tags: readonly string[];
}

/** The tags that they have, each with how many have it: the most common first, then by name. */
export function held(ticked: readonly Tagged[]): { tag: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const one of ticked) for (const tag of one.tags) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return [...counts]
    .map(([tag, count]) => ({ tag, count }))
    .sort((a, b) => b.count - a.count || a.tag.localeCompare(b.tag));
}

/** `baseline, lr sweep` -> the tags that are meant: between commas, without blanks around them, each once. */
export function written(text: string): string[] {
  return [...new Set(text.split(",").map((tag) => tag.trim()))].filter(Boolean);
}

/** Those for which the wish changes anything. */
export function changedBy<T extends Tagged>(ticked: readonly T[], add: readonly string[], remove: readonly string[]) {
  return ticked.filter(
    (one) => add.some((tag) => !one.tags.includes(tag)) || remove.some((tag) => one.tags.includes(tag)),
  );
}
