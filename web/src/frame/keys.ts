/** Keys of the keyboard: `g l`, `/`, `?`. One table is both what works and what the help shows. */

import { useEffect, useRef } from "react";

/** "g l" is g, then l. Keys are those of KeyboardEvent.key; `mod+k` is Ctrl or Command. */
export interface Key {
  keys: string;
  does: string;
  run: () => void;
}

const TOGETHER = 900; // ms between the keys of a sequence

const tables = new Set<{ current: readonly Key[] }>();
let before = "";
let beforeAt = 0;

/** These keys work while the component is shown. Not while somebody types. The newest table goes first. */
export function useKeys(keys: readonly Key[]): void {
  const table = useRef(keys);
  table.current = keys;
  useEffect(() => {
    tables.add(table);
    if (tables.size === 1) document.addEventListener("keydown", pressed);
    return () => {
      tables.delete(table);
      if (tables.size === 0) document.removeEventListener("keydown", pressed);
    };
  }, []);
}

/** All keys that work now, for the help. */
export function activeKeys(): Key[] {
  return [...tables].flatMap((table) => [...table.current]);
}

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (event.key === "Enter" && pressable(event.target)) return; // it is for what has the focus
  const now = Date.now();
  const sequence = now - beforeAt < TOGETHER && before ? `${before} ${event.key}` : "";
  const all = [...tables].reverse().flatMap((table) => [...table.current]);
  const found = all.find((key) => key.keys === sequence) ?? all.find((key) => key.keys === event.key);
  before = found ? "" : event.key;
  beforeAt = now;
  if (!found) return;
  event.preventDefault();
  found.run();
}

function pressable(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("a[href], button, summary") !== null;
}

function typing(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("[role=dialog], [role=menu], [role=listbox]")) return true;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}
