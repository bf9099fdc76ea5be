/** Which part of a long list is kept here. Pure. */

export const PART = 300; // rows
const STEP = 50;
const NEAR = 60; // rows before the end of what is here, at which the next part is taken

interface Here {
  offset: number;
  rows: { length: number };
  total: number | null;
}

/** Where the part begins that rows `first` to `last` need; null when what is here will do. */
export function partFor(first: number, last: number, here: Here): number | null {
  const end = here.offset + here.rows.length;
  const total = here.total ?? end;
  const before = here.offset === 0 || first >= here.offset + NEAR;
  const after = end >= total || last < end - NEAR;
  if (before && after) return null;
  const centred = Math.round(((first + last) / 2 - PART / 2) / STEP) * STEP;
  const latest = Math.max(0, Math.ceil((total - PART) / STEP) * STEP);
  const next = Math.max(0, Math.min(centred, latest));
  return next === here.offset ? null : next;
}
