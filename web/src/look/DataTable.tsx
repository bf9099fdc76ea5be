/**
 * A table of any length: only rows that are seen exist. On TanStack Table and Virtual.
 *
 *     const columns = tableColumns<Model>([
 *       { id: "name", header: "Name", accessorFn: (model) => model.name, size: 200 },
 *       { id: "size", header: "Size", accessorFn: (model) => model.size, meta: { number: true },
 *         cell: ({ row }) => bytes(row.original.size) },
 *     ]);
 *     <DataTable columns={columns} rows={models} idOf={(model) => model.name} label="models" />
 *
 * Sorts by itself; with `onSort` the caller does (the server).
 */

import {
  type ColumnDef,
  columnPinningFeature,
  columnSizingFeature,
  columnVisibilityFeature,
  createSortedRowModel,
  FlexRender,
  type RowData,
  rowSortingFeature,
  type SortingState,
  sortFn_alphanumeric,
  sortFn_basic,
  sortFn_datetime,
  sortFn_text,
  tableFeatures,
  type Updater,
  useTable,
} from "@tanstack/react-table";
import { ArrowDown, ArrowUp } from "lucide-react";
import { type MouseEvent, type ReactNode, type RefObject, useLayoutEffect, useMemo, useRef, useState } from "react";
import classes from "./datatable.module.css";
import { type Acts, Body, Line, type Lines, lineOf, type Widths } from "./TableRows";

const features = tableFeatures({
  columnPinningFeature,
  columnSizingFeature,
  columnVisibilityFeature,
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric, basic: sortFn_basic, datetime: sortFn_datetime, text: sortFn_text },
});

export type Features = typeof features;

declare module "@tanstack/react-table" {
  interface ColumnMeta<TFeatures, TData, TValue> {
    /** Right-aligned. */
    number?: boolean;
    /** What the header says when it is pointed at. */
    title?: string;
    /** Takes the width that is left over. */
    grows?: boolean;
  }
}

export type Column<T extends RowData> = ColumnDef<Features, T, unknown>;

/** Columns with the types that DataTable wants. Keep them outside the component, or in useMemo. */
export function tableColumns<T extends RowData>(columns: Column<T>[]): Column<T>[] {
  return columns;
}

export interface Sort {
  id: string;
  desc: boolean;
}

export interface DataTableProps<T extends RowData> {
  columns: Column<T>[];
  rows: T[];
  /** The rows are a part of a longer list, which has `total`: the place of the first of them. */
  offset?: number;
  idOf: (row: T) => string;
  /** What it is a table of: for screen readers. */
  label: string;
  /** How many there are if not all are here. */
  total?: number | null;
  sort?: readonly Sort[];
  onSort?: (sort: Sort[]) => void;
  /** Columns that stay at the left. */
  pinned?: string[];
  /** With these there are boxes to tick. */
  ticked?: ReadonlySet<string>;
  onTick?: (ticked: Set<string>) => void;
  /** Who ticks all means also those that are not here. */
  onTickAll?: () => void;
  /** The row that the keyboard is at; kept in view. */
  current?: string;
  onOpen?: (row: T, event: MouseEvent) => void;
  /** Told when the first row leaves the view, and when it is back. */
  onScrolled?: (scrolled: boolean) => void;
  /** Told which places of the list are seen. Keep it the same function. */
  onSeen?: (first: number, last: number) => void;
  rowHeight?: number;
  /** Rows above all others, e.g. pinned ones. Part of `rows` no more. */
  top?: T[];
  /** A class of a row, e.g. "stale". */
  rowClass?: (row: T) => string | undefined;
  /** Under the header when there are no rows. */
  empty?: ReactNode;
  /** Fill the height of the parent (default) or grow with the rows. */
  grow?: boolean;
  headerExtra?: (id: string) => ReactNode;
}

const TICK = 34;
const NONE: never[] = [];

export function DataTable<T extends RowData>(props: DataTableProps<T>) {
  const {
    columns,
    rows,
    idOf,
    label,
    total,
    onSort,
    ticked,
    onTick,
    empty,
    onScrolled,
    headerExtra,
    grow = false,
  } = props;
  const { rowHeight = 32, pinned = NONE, top = NONE } = props;
  const [own, setOwn] = useState<SortingState>(NONE);
  const sorting = props.sort ? (props.sort as SortingState) : own;
  const state = useMemo(() => ({ sorting, columnPinning: { start: pinned, end: NONE } }), [sorting, pinned]);
  const table = useTable({
    features,
    columns,
    data: rows,
    getRowId: idOf,
    manualSorting: onSort !== undefined,
    enableMultiSort: true,
    enableSortingRemoval: true,
    state,
    onSortingChange: (change: Updater<SortingState>) => {
      const next = typeof change === "function" ? change(sorting) : change;
      if (onSort) onSort(next);
      else setOwn(next);
    },
  });
  const shown = table.getRowModel().rows;
  const scroller = useRef<HTMLDivElement>(null);
  const ticks = ticked !== undefined && onTick !== undefined;
  const start = table.getStartHeaderGroups().at(-1)?.headers ?? NONE;
  const center = table.getCenterHeaderGroups().at(-1)?.headers ?? NONE;
  const headers = [...start, ...center];
  const width = headers.reduce((sum, header) => sum + header.column.getSize(), ticks ? TICK : 0);
  const wide = useWide(scroller, width);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the headers follow from columns and pins
  const widths = useMemo<Widths>(
    () =>
      Object.fromEntries(
        headers.map(({ column }) => [column.id, flexOf(column.getSize(), column.columnDef.meta?.grows)]),
      ),
    [columns, pinned],
  );
  const held = {
    flex: flexOf(
      start.reduce((sum, { column }) => sum + column.getSize(), ticks ? TICK : 0),
      start.some(({ column }) => column.columnDef.meta?.grows),
    ),
  };

  // One object for all rows, whose functions stay the same: then a row is drawn again only when it changes.
  const lastTick = useRef<string | undefined>(undefined);
  const now = useRef({ props, shown });
  now.current = { props, shown };
  const acts = useMemo<Acts<T>>(
    () => ({
      open: (row, event) => now.current.props.onOpen?.(row, event),
      tick: (id, on, range) => {
        const { props: current, shown: list } = now.current;
        const next = new Set(current.ticked);
        const from = list.findIndex((row) => row.id === lastTick.current);
        const to = list.findIndex((row) => row.id === id);
        const meant = range && from >= 0 && to >= 0 ? list.slice(Math.min(from, to), Math.max(from, to) + 1) : [];
        for (const one of meant.length ? meant.map((row) => row.id) : [id]) on ? next.add(one) : next.delete(one);
        lastTick.current = id;
        current.onTick?.(next);
      },
    }),
    [],
  );
  const all = shown.length > 0 && ticks && ticked.size >= shown.length && shown.every((row) => ticked.has(row.id));
  const lines: Lines<T> = { ...props, widths, held: held.flex, width, acts, ticks, rowHeight };
  const head = (header: (typeof headers)[number]) => {
    const { column } = header;
    const sorted = column.getIsSorted();
    const nth = sorting.length > 1 && sorted ? sorting.findIndex((one) => one.id === column.id) + 1 : 0;
    const name = (
      <span className="clip">
        <FlexRender header={header} />
      </span>
    );
    return (
      <div
        key={header.id}
        role="columnheader"
        aria-sort={sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined}
        title={column.columnDef.meta?.title}
        className={`${classes.cell} ${column.columnDef.meta?.number ? classes.number : ""}`}
        style={{ flex: widths[column.id] }}
      >
        {column.getCanSort() ? (
          <button type="button" className={classes.sorter} onClick={column.getToggleSortingHandler()}>
            {name}
            {sorted === "asc" && <ArrowUp size={12} aria-hidden />}
            {sorted === "desc" && <ArrowDown size={12} aria-hidden />}
            {nth > 0 && <sub>{nth}</sub>}
          </button>
        ) : (
          name
        )}
        {headerExtra?.(column.id)}
      </div>
    );
  };

  return (
    <div
      ref={scroller}
      role="grid"
      aria-label={label}
      aria-rowcount={(total ?? shown.length) + 1}
      aria-multiselectable={ticks || undefined}
      data-wide={wide || undefined}
      tabIndex={0}
      className={classes.table}
      style={grow ? { maxHeight: "70vh" } : { height: "100%" }}
      onScroll={onScrolled && ((event) => onScrolled(event.currentTarget.scrollTop > rowHeight))}
    >
      <div role="rowgroup" className={classes.head} style={{ minWidth: width }}>
        <div role="row" aria-rowindex={1} className={classes.headrow}>
          {(ticks || start.length > 0) && (
            <div role="none" className={classes.held} style={held}>
              {ticks && (
                <div role="columnheader" className={`${classes.cell} ${classes.tick}`}>
                  <input
                    type="checkbox"
                    className={classes.box}
                    aria-label={
                      (total ?? 0) > shown.length + top.length ? `select all ${total}` : "select all that are here"
                    }
                    checked={all}
                    ref={(node) => {
                      if (node) node.indeterminate = ticked.size > 0 && !all;
                    }}
                    onChange={(event) => {
                      if (event.currentTarget.checked && props.onTickAll) props.onTickAll();
                      else onTick(event.currentTarget.checked ? new Set(shown.map((row) => row.id)) : new Set());
                    }}
                  />
                </div>
              )}
              {start.map(head)}
            </div>
          )}
          {center.map(head)}
        </div>
        {top.length > 0 && <TopRows {...lines} />}
      </div>
      {shown.length === 0 && top.length === 0 && empty}
      <Body {...lines} shown={shown} scroller={scroller} />
    </div>
  );
}

/** Pinned rows: a table of their own with the same columns, stuck below the header. */
function TopRows<T extends RowData>(props: Lines<T>) {
  const { columns, top = NONE, idOf, pinned = NONE } = props;
  const state = useMemo(() => ({ sorting: NONE, columnPinning: { start: pinned, end: NONE } }), [pinned]);
  const table = useTable({ features, columns, data: top, getRowId: idOf, manualSorting: true, state });
  return table.getRowModel().rows.map((row, index) => <Line key={row.id} {...lineOf(props, row)} index={index} />);
}

/** Whether it is wider than there is room: only then do columns have to be held at the left. */
function useWide(scroller: RefObject<HTMLDivElement | null>, width: number): boolean {
  const [room, setRoom] = useState(Number.POSITIVE_INFINITY);
  useLayoutEffect(() => {
    const host = scroller.current!;
    const observer = new ResizeObserver(() => setRoom(host.clientWidth));
    observer.observe(host);
    return () => observer.disconnect();
  }, [scroller]);
  return width > room;
}

function flexOf(size: number, grows: boolean | undefined): string {
  return `${grows ? 1 : 0} 0 ${size}px`;
}
