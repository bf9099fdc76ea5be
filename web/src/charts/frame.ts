/** What a band and lines share when they are drawn: axes, zoom, marks, limit, and where the cursor is. */

import { useComputedColorScheme } from "@mantine/core";
import { useRef, useState } from "react";
import { HUE } from "../look/colours";
import type { Odd } from "./drawing";
import { drawLimit, drawMarks, drawOdd, frameOptions, INK } from "./options";
import { type PlotProps, rangeOf, type Tip, tipOf } from "./shown";

export function useFrame({ shown, marks, say, limit }: PlotProps, odd: readonly Odd[]) {
  const scheme = useComputedColorScheme();
  const ink = INK[scheme];
  const [tip, setTip] = useState<Tip | null>(null);
  const newest = useRef({ shown, marks, odd });
  newest.current = { shown, marks, odd };
  /** Options of the plot, made when its structure changes; what changes more often is looked up while it is drawn. */
  const frame = () =>
    frameOptions({
      x: shown.x,
      scheme,
      logarithmic: shown.logarithmic,
      syncKey: shown.syncKey,
      say,
      range: () => rangeOf(newest.current.shown),
      zoom: (from, until) => newest.current.shown.zoom(from, until),
      reset: () => newest.current.shown.reset(),
      moved: (plot) => setTip(tipOf(plot)),
      drawn: (plot) => {
        drawMarks(plot, newest.current.marks, ink.mark);
        drawOdd(plot, newest.current.odd, ink.mark);
        if (limit !== undefined) drawLimit(plot, limit, say(limit), HUE[scheme].red);
      },
    });
  const structure = [scheme, shown.x, shown.logarithmic, shown.smooth > 0, shown.syncKey];
  return { scheme, tip, frame, structure };
}
