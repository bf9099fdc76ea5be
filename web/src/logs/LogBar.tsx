/** The bar at the side of a log: it stands for all lines, also for those that are not here. */

import { Tooltip } from "@mantine/core";
import { type Ref, useImperativeHandle, useRef, useState } from "react";
import { count } from "../look/numbers";
import classes from "./logs.module.css";

export interface BarHandle {
  show: (seen: { first: number; last: number }) => void;
}

/** Where in all lines one is; drag or press to go elsewhere. */
export function Bar({
  total,
  goTo,
  label,
  ref,
}: {
  total: number;
  goTo: (index: number) => void;
  label: string;
  ref: Ref<BarHandle>;
}) {
  const [{ first, last }, show] = useState({ first: 0, last: 0 });
  useImperativeHandle(ref, () => ({ show }));
  const track = useRef<HTMLDivElement>(null);
  const [held, setHeld] = useState<number | null>(null);
  const part = Math.min(1, Math.max(0.02, (last - first + 1) / total));
  const at = held ?? Math.min(1, total <= 1 ? 0 : first / Math.max(1, total - (last - first + 1)));
  const move = (event: React.PointerEvent) => {
    const box = track.current!.getBoundingClientRect();
    const place = Math.min(1, Math.max(0, (event.clientY - box.top) / box.height));
    setHeld(place);
    goTo(Math.round(place * (total - 1)));
  };
  return (
    <Tooltip
      label={`line ${count(Math.min(total, first + 1))} of ${count(total)}`}
      position="left"
      opened={held !== null || undefined}
    >
      <div
        ref={track}
        className={classes.bar}
        role="scrollbar"
        aria-controls="page"
        aria-label={`place in ${label}`}
        aria-orientation="vertical"
        aria-valuemin={1}
        aria-valuemax={total}
        aria-valuenow={Math.min(total, first + 1)}
        tabIndex={-1}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          move(event);
        }}
        onPointerMove={(event) => held !== null && move(event)}
        onPointerUp={() => setHeld(null)}
        onPointerCancel={() => setHeld(null)}
      >
        {part < 1 && (
          <div className={classes.thumb} style={{ top: `${at * (1 - part) * 100}%`, height: `${part * 100}%` }} />
        )}
      </div>
    </Tooltip>
  );
}
