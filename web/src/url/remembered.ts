/** What this browser remembers: last views, saved views, choices of looks. Losing it loses nothing else. */

import { useCallback, useState } from "react";

const PREFIX = "shoal.";

export function remembered<T>(name: string, fallback: T): T {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback;
  }
}

export function remember(name: string, value: unknown): void {
  try {
    if (value === undefined) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // A full or forbidden storage: then it is not remembered.
  }
}

/** useState that is remembered. */
export function useRemembered<T>(name: string, fallback: T): [T, (value: T) => void] {
  const [value, set] = useState(() => remembered(name, fallback));
  const change = useCallback(
    (next: T) => {
      set(next);
      remember(name, next);
    },
    [name],
  );
  return [value, change];
}
