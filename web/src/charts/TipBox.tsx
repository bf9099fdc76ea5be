/** What a chart tells of the place under the cursor. */

import { type ReactNode, useLayoutEffect, useRef } from "react";
import classes from "./charts.module.css";

interface Props {
  /** Distances from the left, or from the right, and from the top of the chart. */
  place: { left: number; top: number; right: boolean };
  children: ReactNode;
}

export function TipBox({ place, children }: Props) {
  const { left, top, right } = place;
  const box = useRef<HTMLDivElement>(null);
  // Charts further down cover what reaches over the lower edge of this one; at its upper edge there is room.
  useLayoutEffect(() => {
    const tip = box.current!;
    const room = tip.offsetParent?.clientHeight ?? Number.POSITIVE_INFINITY;
    tip.style.top = `${Math.min(top, room - tip.offsetHeight)}px`;
  });
  return (
    <div ref={box} className={classes.tip} style={right ? { right: left, top } : { left, top }}>
      {children}
    </div>
  );
}
