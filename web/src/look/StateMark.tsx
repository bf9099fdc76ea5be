/** A state as shape + word + colour. The word is always there: on the mark itself when it stands alone. */

import type { ReactNode } from "react";
import { hueOf, known, type State } from "./states";

interface Props {
  state: string;
  /** Only the shape; its word is then the tooltip and what a screen reader says. */
  bare?: boolean;
  size?: number;
  /** What is said when it is pointed at, e.g. the reason. */
  title?: string;
  /** Beside the word, e.g. a count. */
  children?: ReactNode;
}

export function StateMark({ state, bare = false, size = 13, title, children }: Props) {
  const hue = `hue-${hueOf(state)}`;
  if (bare)
    return (
      <span className={hue} role="img" aria-label={state} title={title ?? state} style={{ display: "inline-flex" }}>
        <StateShape state={state} size={size} />
      </span>
    );
  return (
    <span className={`statemark ${hue}`} title={title}>
      <StateShape state={state} size={size} />
      <span>
        {children}
        {children ? " " : ""}
        {state}
      </span>
    </span>
  );
}

/** The shape alone, in the colour of its surroundings. */
export function StateShape({ state, size = 13 }: { state: string; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="2" aria-hidden>
      {SHAPES[known(state)]}
    </svg>
  );
}

const SHAPES: Record<State, ReactNode> = {
  created: <circle cx="8" cy="8" r="6" strokeDasharray="0.1 3.67" strokeLinecap="round" />,
  queued: (
    <>
      <circle cx="8" cy="8" r="6" />
      <path d="M5 8h6" />
    </>
  ),
  starting: (
    <>
      <circle cx="8" cy="8" r="6" strokeOpacity="0.3" />
      <path d="M8 2a6 6 0 0 1 0 12" />
    </>
  ),
  running: <circle cx="8" cy="8" r="6" fill="currentColor" stroke="none" className="pulse" />,
  restarting: (
    <>
      <path d="M13.5 8a5.5 5.5 0 1 1-2-4.2" />
      <path d="M12 0.8v3.4H8.6" />
    </>
  ),
  succeeded: <path d="M2.5 8.5l3.6 3.7L13.5 4" strokeWidth="2.4" />,
  failed: (
    <>
      <rect x="1.5" y="1.5" width="13" height="13" rx="1.5" />
      <path d="M5 5l6 6M11 5l-6 6" />
    </>
  ),
  stopped: <rect x="3" y="3" width="10" height="10" rx="1" fill="currentColor" stroke="none" />,
  lost: (
    <>
      <circle cx="8" cy="8" r="6.8" strokeWidth="1.4" strokeDasharray="2.4 1.9" />
      <path d="M6.2 6.6a1.9 1.9 0 1 1 2.6 1.7c-.6.3-.8.6-.8 1.2M8 11.4v.1" strokeWidth="1.6" strokeLinecap="round" />
    </>
  ),
};
