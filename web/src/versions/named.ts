/** What has a name and versions, as data sets and models have. Pure. */

export interface Numbered {
  name: string;
  version: number;
}

export interface Named<T> {
  name: string;
  /** The newest first. */
  versions: T[];
}

/** What a list shows: an entry for each name, in the order of names. */
export function byName<T extends Numbered>(versions: readonly T[]): Named<T>[] {
  const found = new Map<string, T[]>();
  for (const one of versions) {
    const known = found.get(one.name);
    if (known) known.push(one);
    else found.set(one.name, [one]);
  }
  return [...found]
    .map(([name, all]) => ({ name, versions: newestFirst(all) }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

/** All versions of one name, the newest first. */
export function versionsOf<T extends Numbered>(all: readonly T[], name: string): T[] {
  return newestFirst(all.filter((one) => one.name === name));
}

function newestFirst<T extends Numbered>(versions: T[]): T[] {
  return versions.sort((a, b) => b.version - a.version);
}
