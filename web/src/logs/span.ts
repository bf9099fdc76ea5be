/** Which pages of a list exist at a time: enough of them that what is seen can be scrolled, however few rows they make. Pure. */

/** Pages from one to another, both included. */
export interface Span {
  from: number;
  to: number;
}

/** What the pages that are here look like, in pixels. */
export interface Sight {
  /** What is hidden above; what is hidden below, less than nothing where the pane is not full. */
  above: number;
  below: number;
  /** How high a page is, more or less. */
  perPage: number;
  /** The first and the last page with a row that is seen or nearly. */
  needed: Span;
}

export const NEAR = 600; // pixels beyond what is seen that must be here
export const FAR = 1000; // pixels beyond which nothing must be here
const MOST = 150; // pages; with so many ranks that these fill no pane, they are turned over instead of scrolled
const MOST_WARM = 40; // pages
const AT_ONCE = 30; // pages, since the height of a page is only guessed

/** As many pages as the sight needs. `warm` pages before the first that is seen are here as well. */
export function fitted(now: Span, sight: Sight, last: number, warm: number): Span {
  const more = (hidden: number) => Math.min(AT_ONCE, Math.max(1, Math.ceil((NEAR - hidden) / sight.perPage)));
  let { from, to } = now;
  if (sight.above >= FAR) from = Math.max(from, sight.needed.from - warm);
  if (sight.below >= FAR) to = Math.min(to, sight.needed.to);
  if (sight.below < NEAR) to = Math.max(to, Math.min(last, to + more(sight.below), from + MOST - 1));
  if (sight.above < NEAR) from = Math.min(from, Math.max(0, from - more(sight.above), to - MOST + 1));
  return { from, to };
}

/** How many pages before the first that is shown tell what belongs to rows before it, where a row reaches over so many. */
export function warmFor(reach: number): number {
  return Math.min(MOST_WARM, Math.ceil(1.5 * reach)); // more than once: nobody is always equally late
}

/** The pages around one. */
export function around(page: number, last: number, warm: number): Span {
  const to = Math.min(page + 1, last);
  return { from: Math.max(0, Math.min(page - 1, to - 2) - warm), to };
}

/** Half of the pages further: for those who want to scroll where nothing can. */
export function turned(now: Span, by: 1 | -1, last: number): Span {
  const half = Math.ceil((now.to - now.from + 1) / 2);
  const moved = by > 0 ? Math.min(half, last - now.to) : -Math.min(half, now.from);
  return { from: now.from + moved, to: now.to + moved };
}
