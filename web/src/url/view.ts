/** `useView`: the state of a page, kept in its URL. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useRef } from "react";
import { readView, type Search, type View, writeView } from "./search";

/**
 * The view of a page and how to change it:
 *
 *     const DEFAULTS = { find: "", wrap: false, columns: ["name"] };      // outside the component
 *     const [view, setView] = useView(DEFAULTS);
 *     setView({ wrap: true });                // replaces the URL
 *     setView({ find: "x" }, { push: true }); // "back" returns
 */
export function useView<T extends View>(defaults: T): [T, (change: Partial<T>, options?: { push?: boolean }) => void] {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const kept = useRef(defaults);
  const view = useMemo(() => readView(kept.current, search), [search]);
  const change = useCallback(
    (next: Partial<T>, options?: { push?: boolean }) =>
      void navigate({
        to: ".",
        search: ((before: Search) => writeView(kept.current, before, next)) as never,
        replace: !options?.push,
        resetScroll: false,
      }),
    [navigate],
  );
  return [view, change];
}
