/** The order of the list: `-metrics.loss,created`, as the API and the CLI write it. Pure. */

export interface Sort {
  id: string;
  desc: boolean;
}

export function readSort(text: string): Sort[] {
  return parts(text)
    .filter(Boolean)
    .map((part) => (part.startsWith("-") ? { id: part.slice(1), desc: true } : { id: part, desc: false }));
}

export function writeSort(sort: readonly Sort[]): string {
  return sort.map(({ id, desc }) => `${desc ? "-" : ""}${id}`).join(",");
}

/** Commas inside quotes belong to a name. */
function parts(text: string): string[] {
  return (text.match(/(?:[^,"']|"[^"]*"|'[^']*')+/g) ?? []).map((part) => part.trim());
}
