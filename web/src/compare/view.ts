/** What the page shows, as its URL says it. */

export const VIEW = {
  ids: [] as string[],
  /** Those that are not ticked. */
  off: [] as string[],
  show: "table",
  all: false,
  stat: "last",
  base: "",
  find: "",
  names: "",
  x: "step",
  smooth: 0,
  log: false,
  from: "",
  until: "",
  of: "file",
  left: "",
  right: "",
  equal: false,
};
export type View = typeof VIEW;
export type SetView = (change: Partial<View>, options?: { push?: boolean }) => void;

export const MOST = 20;

/** The two experiments whose files are shown: the wanted ones while they are there, else the first. */
export function pairOf(
  ids: readonly string[],
  view: Pick<View, "left" | "right">,
): [string | undefined, string | undefined] {
  const left = ids.includes(view.left) ? view.left : ids.find((id) => id !== view.right);
  const right = ids.includes(view.right) && view.right !== left ? view.right : ids.find((id) => id !== left);
  return [left, right];
}
