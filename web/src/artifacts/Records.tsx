/** What scripts showed beside numbers, step by step: images, texts, tables, histograms. */

import { ActionIcon, Group, Slider, Tooltip } from "@mantine/core";
import { ChevronLeft, ChevronRight } from "lucide-react";
import { useState } from "react";
import type { Schemas } from "../api/client";
import { number, several } from "../look/numbers";
import { Ago } from "../look/Time";
import { useView } from "../url/view";
import classes from "./artifacts.module.css";
import { Picture, Rows, Words } from "./Preview";

/** Which of them, from 1; the newest when empty. */
const DEFAULTS = { nth: "" };

export type Record_ = Schemas["RecordView"];

/** All records of one kind and name; arrow keys go through them. */
export function Records({ kind, name, records }: { kind: string; name: string; records: Record_[] }) {
  const [view, setView] = useView(DEFAULTS);
  const [dragged, setDragged] = useState<number | null>(null);
  const last = records.length - 1;
  const at = dragged ?? Math.max(0, Math.min(view.nth === "" ? last : Number(view.nth) - 1 || 0, last));
  const record = records[at];
  if (!record) return null;
  /** The newest is what is shown by itself, also when others come. */
  const show = (place: number) => setView({ nth: place >= last ? "" : String(Math.max(0, place) + 1) });
  const go = (by: number) => show(at + by);
  return (
    <section
      className={classes.preview}
      aria-label={`${kind} ${name}`}
      onKeyDown={(event) => {
        if ((event.target as HTMLElement).getAttribute("role") === "slider") return;
        if (event.key === "ArrowLeft") go(-1);
        if (event.key === "ArrowRight") go(1);
      }}
    >
      <div className={classes.about}>
        <b>{name}</b>
        <span className="dim">{several(records.length, kind)}</span>
        <span>{record.step === null ? "" : `step ${record.step}`}</span>
        <span className="dim">
          {record.replica}, <Ago time={record.time} />
        </span>
        {typeof record.data.caption === "string" && record.data.caption && <span>{record.data.caption}</span>}
      </div>
      {records.length > 1 && (
        <Group gap="xs" wrap="nowrap">
          <Tooltip label="before (←)">
            <ActionIcon aria-label="the one before" disabled={at === 0} onClick={() => go(-1)}>
              <ChevronLeft size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Slider
            flex={1}
            maw={420}
            size="sm"
            min={0}
            max={records.length - 1}
            value={at}
            onChange={setDragged}
            onChangeEnd={(place) => {
              setDragged(null);
              show(place);
            }}
            thumbLabel={`which ${kind}`}
            label={(place) =>
              `${records[place]?.step === null ? place + 1 : `step ${records[place]?.step}`}, ${records[place]?.replica}`
            }
          />
          <Tooltip label="next (→)">
            <ActionIcon aria-label="the next one" disabled={at === records.length - 1} onClick={() => go(1)}>
              <ChevronRight size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <span className="dim">{`${at + 1} of ${records.length}`}</span>
        </Group>
      )}
      <One record={record} />
    </section>
  );
}

function One({ record }: { record: Record_ }) {
  const data = record.data as Record<string, unknown>;
  if (record.kind === "image") {
    const file = data.file as { hash?: string } | undefined;
    if (record.pending || !file?.hash) return <div className={classes.nothing}>The image is still on its way.</div>;
    return <Picture url={`/api/blobs/${file.hash}`} name={`${record.name} at step ${record.step ?? "?"}`} />;
  }
  if (record.kind === "table")
    return (
      <Rows
        columns={(data.columns as unknown[]).map(String)}
        rows={data.rows as unknown[][]}
        total={(data.rows as unknown[][]).length}
      />
    );
  if (record.kind === "histogram") return <Histogram edges={data.edges as number[]} counts={data.counts as number[]} />;
  return <Words text={String(data.text ?? JSON.stringify(data, null, 2))} />;
}

function Histogram({ edges, counts }: { edges: number[]; counts: number[] }) {
  const [over, setOver] = useState<number | null>(null);
  const most = Math.max(1, ...counts);
  const total = counts.reduce((sum, value) => sum + value, 0);
  const low = edges[0] ?? 0;
  const spread = (edges.at(-1) ?? 1) - low || 1;
  const place = (edge: number) => ((edge - low) / spread) * 800;
  const words = `histogram of ${several(total, "value")} from ${number(low)} to ${number(edges.at(-1))}; the fullest bin has ${most}`;
  return (
    <figure className={classes.figure}>
      <svg
        viewBox="0 0 800 260"
        role="img"
        aria-label={words}
        preserveAspectRatio="none"
        className={classes.bars}
        onMouseLeave={() => setOver(null)}
      >
        {counts.map((value, i) => {
          const height = (value / most) * 250;
          return (
            // biome-ignore lint/a11y/noStaticElementInteractions: the words above say the same
            <g key={edges[i]} onMouseEnter={() => setOver(i)}>
              <rect
                x={place(edges[i]!)}
                y={0}
                width={place(edges[i + 1]!) - place(edges[i]!)}
                height={260}
                fill="transparent"
              />
              <rect
                x={place(edges[i]!) + 0.5}
                y={260 - height}
                width={Math.max(1, place(edges[i + 1]!) - place(edges[i]!) - 1)}
                height={height}
                className={classes.bar}
                data-over={over === i || undefined}
              />
            </g>
          );
        })}
      </svg>
      <figcaption className={classes.edges}>
        <span>{number(low)}</span>
        <span className="dim">
          {over === null
            ? several(total, "value")
            : `${number(edges[over])} to ${number(edges[over + 1])}: ${several(counts[over]!, "value")}`}
        </span>
        <span>{number(edges.at(-1))}</span>
      </figcaption>
    </figure>
  );
}
