/** uPlot in React: made once for one structure, then only given data. */

import { useEffect, useLayoutEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

interface Props {
  /** Options without size. Called when `structure` changes, not when data does. */
  options: () => Omit<uPlot.Options, "width" | "height">;
  structure: string;
  data: uPlot.AlignedData;
  height: number;
  /** What a screen reader says of it. */
  label: string;
  /** The plot, for whoever draws on it or makes a picture of it. */
  onPlot?: (plot: uPlot | null) => void;
}

export function Plot({ options, structure, data, height, label, onPlot }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const newest = useRef({ options, data, height, onPlot });
  newest.current = { options, data, height, onPlot };

  // biome-ignore lint/correctness/useExhaustiveDependencies: the structure is what it is made of
  useLayoutEffect(() => {
    const { options, data, height, onPlot } = newest.current;
    const host = place.current!;
    const made = new uPlot({ ...options(), width: Math.max(80, host.clientWidth), height }, data, host);
    plot.current = made;
    onPlot?.(made);
    const observer = new ResizeObserver(() => {
      const width = host.clientWidth;
      if (width > 0 && width !== made.width) made.setSize({ width, height: made.height });
    });
    observer.observe(host);
    return () => {
      observer.disconnect();
      newest.current.onPlot?.(null);
      made.destroy();
      plot.current = null;
    };
  }, [structure]);

  useEffect(() => {
    if (plot.current && plot.current.data !== data) plot.current.setData(data);
  }, [data]);

  useEffect(() => {
    const made = plot.current;
    if (made && made.height !== height) made.setSize({ width: made.width, height });
  }, [height]);

  return <div ref={place} role="img" aria-label={label} style={{ width: "100%", minHeight: height }} />;
}

/** A PNG with the chart as it is seen, its title and its background. */
export function picture(plot: uPlot, title: string, ink: { text: string; surface: string }): Promise<Blob | null> {
  const source = plot.ctx.canvas;
  const scale = devicePixelRatio;
  const top = 24 * scale;
  const canvas = document.createElement("canvas");
  canvas.width = source.width;
  canvas.height = source.height + top;
  const context = canvas.getContext("2d")!;
  context.fillStyle = ink.surface;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = ink.text;
  context.font = `${13 * scale}px system-ui, sans-serif`;
  context.fillText(title, 8 * scale, 16 * scale);
  context.drawImage(source, 0, top);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

export function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
