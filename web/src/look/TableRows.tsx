/** The rows of a DataTable. Scrolling draws this part again, not the table around it; a row only when it changes. */

import { FlexRender, type Row, type RowData } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type MouseEvent, memo, type RefObject, useCallback, useEffect, useRef } from "react";
import type { DataTableProps, Features } from "./DataTable";
import classes from "./datatable.module.css";

/** What `flex` says of each column. */
export type Widths = Record<string, string>;

export interface Acts<T> {
  open: (row: T, event: MouseEvent) => void;
  tick: (id: string, on: boolean, range: boolean) => void;
}

export interface Lines<T extends RowData> extends DataTableProps<T> {
  widths: Widths;
  /** `flex` of the columns that stay at the left, together. */
  held: string;
  width: number;
  acts: Acts<T>;
  ticks: boolean;
  rowHeight: number;
}

const NONE: never[] = [];

/** The rows that are seen. */
export function Body<T extends RowData>(
  props: Lines<T> & { shown: Row<Features, T>[]; scroller: RefObject<HTMLDivElement | null> },
) {
  const { shown, scroller, rowHeight, top = NONE, current, onSeen, width, offset } = props;
  const begin = offset ?? 0;
  const virtual = useVirtualizer({
    count: offset === undefined ? shown.length : Math.max(props.total ?? 0, begin + shown.length),
    getScrollElement: () => scroller.current,
    estimateSize: useCallback(() => rowHeight, [rowHeight]),
    overscan: 6,
    scrollPaddingStart: rowHeight * (top.length + 1),
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? -1;
  const last = items.at(-1)?.index ?? -1;

  // biome-ignore lint/correctness/useExhaustiveDependencies: other rows may still not be the ones that are seen
  useEffect(() => {
    if (last >= 0) onSeen?.(first, last);
  }, [first, last, shown, onSeen]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another height means other places
  useEffect(() => {
    virtual.measure();
  }, [virtual, rowHeight]);
  const place = useRef({ shown, begin });
  place.current = { shown, begin };
  useEffect(() => {
    const { shown, begin } = place.current;
    const index = current === undefined ? -1 : shown.findIndex((row) => row.id === current);
    if (index >= 0) virtual.scrollToIndex(begin + index, { align: "auto" });
  }, [current, virtual]);

  return (
    <div role="rowgroup" className={classes.body} style={{ height: virtual.getTotalSize(), minWidth: width }}>
      {items.map(({ index, start }) => {
        const row = shown[index - begin];
        return row ? (
          <Line key={row.id} {...lineOf(props, row)} index={index + top.length} start={start} />
        ) : (
          <Coming key={index} index={index + top.length} start={start} height={rowHeight} />
        );
      })}
    </div>
  );
}

/** A row that is on its way. */
const Coming = memo(function Coming({ index, start, height }: { index: number; start: number; height: number }) {
  return (
    <div
      role="row"
      tabIndex={-1}
      aria-rowindex={index + 2}
      className={`${classes.row} ${classes.placed} ${classes.coming}`}
      style={{ height, transform: `translateY(${start}px)` }}
    >
      <div role="gridcell">…</div>
    </div>
  );
});

interface LineProps {
  // Rows of any type: what is inside is drawn by the columns, which know it.
  // biome-ignore lint/suspicious/noExplicitAny: a memo cannot be generic
  row: Row<Features, any>;
  /** The table's columns: another list of them means another look. */
  columns: unknown;
  widths: Widths;
  held: string;
  width: number;
  height: number;
  acts: Acts<never>;
  ticks: boolean;
  ticked: boolean;
  current: boolean;
  openable: boolean;
  look: string;
  index: number;
  start?: number;
}

export function lineOf<T extends RowData>(props: Lines<T>, row: Row<Features, T>): Omit<LineProps, "index" | "start"> {
  return {
    row: row as never,
    columns: props.columns,
    widths: props.widths,
    held: props.held,
    width: props.width,
    height: props.rowHeight,
    acts: props.acts as Acts<never>,
    ticks: props.ticks,
    ticked: props.ticked?.has(row.id) ?? false,
    current: row.id === props.current,
    openable: props.onOpen !== undefined,
    look: props.rowClass?.(row.original) ?? "",
  };
}

/** The table makes new rows of the same data when a part of a list comes and goes: they look the same. */
function looksTheSame(before: LineProps, after: LineProps): boolean {
  const { row: one, ...old } = before;
  const { row: other, ...now } = after;
  return (
    one.original === other.original &&
    one.id === other.id &&
    Object.entries(now).every(([name, value]) => old[name as keyof typeof old] === value)
  );
}

export const Line = memo(function Line(props: LineProps) {
  const { row, widths, held, width, height, acts, ticks, ticked, current, openable, look, index, start } = props;
  const left = row.getStartVisibleCells();
  const cell = (one: (typeof left)[number]) => (
    <div
      key={one.id}
      role="gridcell"
      className={one.column.columnDef.meta?.number ? `${classes.cell} ${classes.number}` : classes.cell}
      style={{ flex: widths[one.column.id] }}
    >
      <FlexRender cell={one} />
    </div>
  );
  return (
    <div
      role="row"
      tabIndex={-1}
      aria-rowindex={index + 2}
      aria-selected={ticks ? ticked : undefined}
      data-current={current || undefined}
      data-ticked={ticked || undefined}
      data-openable={openable || undefined}
      className={`${classes.row} ${start === undefined ? "" : classes.placed} ${look}`}
      style={{ height, minWidth: width, transform: start === undefined ? undefined : `translateY(${start}px)` }}
      onClick={(event) => {
        if (openable && !(event.target as HTMLElement).closest("a, button, input, label") && !selecting())
          acts.open(row.original as never, event);
      }}
    >
      {(ticks || left.length > 0) && (
        <div role="none" className={classes.held} style={{ flex: held }}>
          {ticks && (
            <div role="gridcell" className={`${classes.cell} ${classes.tick}`}>
              <input
                type="checkbox"
                className={classes.box}
                aria-label={`select ${row.id}`}
                checked={ticked}
                onChange={(event) =>
                  acts.tick(row.id, event.currentTarget.checked, (event.nativeEvent as PointerEvent).shiftKey)
                }
              />
            </div>
          )}
          {left.map(cell)}
        </div>
      )}
      {row.getCenterVisibleCells().map(cell)}
    </div>
  );
}, looksTheSame);

/** Whoever marks text to copy it does not want to open the row. */
function selecting(): boolean {
  return (getSelection()?.toString() ?? "") !== "";
}
