/**
 * One tooltip for many things: hundreds of cells with a tooltip each are slow. What is inside says by `data-tip` that
 * something can be told of it, and by its value what:
 *
 *     <Tips about={(name) => <b>{name}</b>}>
 *       <button type="button" data-tip="worker-3" />
 *     </Tips>
 */

import { Portal } from "@mantine/core";
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import classes from "./tips.module.css";

interface Props {
  about: (tip: string) => ReactNode;
  children: ReactNode;
  className?: string;
}

const PAUSE = 100; // ms before it appears
const HALF = 190; // pixels: half of the widest

export function Tips({ about, children, className }: Props) {
  const [target, setTarget] = useState<HTMLElement | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const id = useId();

  const show = (event: { target: EventTarget }) => {
    const found = (event.target as Element).closest<HTMLElement>("[data-tip]");
    clearTimeout(timer.current);
    if (found !== target) timer.current = setTimeout(() => setTarget(found), found ? PAUSE : 0);
  };
  const hide = () => {
    clearTimeout(timer.current);
    setTarget(null);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (!target) return;
    target.setAttribute("aria-describedby", id);
    const away = (event: Event) =>
      event instanceof KeyboardEvent && event.key !== "Escape" ? undefined : setTarget(null);
    document.addEventListener("scroll", away, { capture: true, passive: true });
    document.addEventListener("keydown", away);
    return () => {
      target.removeAttribute("aria-describedby");
      document.removeEventListener("scroll", away, { capture: true });
      document.removeEventListener("keydown", away);
    };
  }, [target, id]);

  const box = target?.isConnected ? target.getBoundingClientRect() : null;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: what is inside can be pointed at; this only listens
    <div
      role="presentation"
      className={className}
      onPointerOver={show}
      onPointerLeave={hide}
      onFocus={show}
      onBlur={hide}
    >
      {children}
      {target && box && (
        <Portal>
          <div
            id={id}
            role="tooltip"
            className={classes.tip}
            data-below={box.top < 130 || undefined}
            style={{
              left: Math.max(HALF, Math.min(innerWidth - HALF, box.left + Math.min(box.width, 2 * HALF) / 2)),
              top: box.top < 130 ? box.bottom + 6 : box.top - 6,
            }}
          >
            {about(target.dataset.tip ?? "")}
          </div>
        </Portal>
      )}
    </div>
  );
}
