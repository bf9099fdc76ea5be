/** A row per replica, blocks of states, attempts as lines, the queue's wait in front; events as a table below. */

import { SegmentedControl, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useMemo, useRef } from "react";
import { api, asked } from "../api/client";
import { type Change, useChanges } from "../api/live";
import { queries } from "../api/queries";
import { EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { count } from "../look/numbers";
import { StateMark } from "../look/StateMark";
import { hueOf } from "../look/states";
import { useNow } from "../look/Time";
import { Tips } from "../look/Tips";
import { absolute, clock, duration } from "../look/times";
import { useView } from "../url/view";
import { useShown } from "./context";
import { exitName } from "./exits";
import { axisMarks, type Block, type Row, type Timeline, timeline } from "./timeline";
import classes from "./timeline.module.css";

const VIEW = { clock: "since", events: "experiment" };
const ROW = 24;
const MOST_EVENTS = 500;

export function TimelineTab() {
  const { experiment, selected, over } = useShown();
  const [view, setView] = useView(VIEW);
  const now = useNow(over);
  const events = useEvents(experiment.id);
  const drawn = useMemo(
    () => timeline(experiment, events.data ?? [], over ? 0 : Math.max(now, experiment.created)),
    [experiment, events.data, over, now],
  );
  const names = useMemo(() => new Set(selected.map((one) => one.replica)), [selected]);
  const rows = useMemo(() => drawn.rows.filter((row) => names.has(row.name)), [drawn, names]);
  const span = Math.max(0.001, drawn.to - drawn.from);
  const choose = useCallback((value: string) => setView({ events: value }), [setView]);

  if (events.isPending) return <Waiting what="the timeline" />;
  if (events.error) return <ErrorBox error={events.error} retry={() => void events.refetch()} />;
  return (
    <div className={classes.timeline}>
      <div className={classes.tools}>
        <SegmentedControl
          aria-label="times"
          value={view.clock}
          onChange={(value) => setView({ clock: value })}
          data={[
            { value: "since", label: "since created" },
            { value: "clock", label: "clock" },
          ]}
        />
        <span className="dim">
          {absolute(drawn.from)} – {over ? absolute(drawn.to) : "now"}, {duration(span)}
        </span>
      </div>
      <Rows drawn={drawn} rows={rows} span={span} since={view.clock === "since"} />
      <Events events={events.data} names={names} which={view.events} onWhich={choose} />
    </div>
  );
}

/** The axis, the experiment, and those replicas that are seen. Scrolling draws this again, not the events below. */
function Rows({ drawn, rows, span, since }: { drawn: Timeline; rows: Row[]; span: number; since: boolean }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: rowHeight,
    overscan: 6,
  });
  const marks = axisMarks(span);
  const label = (seconds: number) => (since ? duration(seconds) : clock(drawn.from + seconds));
  const about = (tip: string) => {
    const [name, at] = tip.split(" ");
    const row = name === drawn.experiment.name ? drawn.experiment : rows.find((one) => one.name === name);
    const block = row?.blocks[Number(at)];
    return row && block && <About row={row} block={block} />;
  };
  const common = { from: drawn.from, span, attempts: drawn.attempts };
  return (
    <Tips about={about} className={classes.tips}>
      <div ref={scroller} className={classes.rows} tabIndex={0} role="region" aria-label="states over time">
        <div className={classes.axis}>
          <span />
          <div className={classes.track}>
            {marks.map((seconds) => (
              <span key={seconds} className={classes.mark} style={{ insetInlineStart: `${(seconds / span) * 100}%` }}>
                {label(seconds)}
              </span>
            ))}
            {drawn.attempts.map(({ attempt, time }) => (
              <b
                key={attempt}
                className={classes.attemptName}
                style={{ insetInlineStart: `${((time - drawn.from) / span) * 100}%` }}
              >
                attempt {attempt}
              </b>
            ))}
          </div>
        </div>
        <Line row={drawn.experiment} {...common} />
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => (
            <Line key={rows[item.index]!.name} row={rows[item.index]!} {...common} top={item.start} />
          ))}
        </div>
      </div>
    </Tips>
  );
}

function rowHeight(): number {
  return ROW;
}

interface LineProps {
  row: Row;
  from: number;
  span: number;
  attempts: { attempt: number; time: number }[];
  /** Where it stands among the others; the experiment itself stands above them. */
  top?: number;
}

const Line = memo(function Line({ row, from, span, attempts, top }: LineProps) {
  const place = (time: number) => `${((time - from) / span) * 100}%`;
  return (
    <div
      className={classes.line}
      data-whole={row.rank < 0 || undefined}
      style={
        top === undefined ? undefined : { position: "absolute", insetInline: 0, transform: `translateY(${top}px)` }
      }
    >
      <span className={`${classes.name} clip`}>{row.name}</span>
      <div className={classes.track}>
        {row.blocks.map((block, at) => (
          <div
            key={`${block.attempt}.${block.try}.${block.from}`}
            className={classes.block}
            data-tip={`${row.name} ${at}`}
            data-hue={hueOf(block.state)}
            data-state={block.state}
            data-open={block.open || undefined}
            style={{
              insetInlineStart: place(block.from),
              width: `max(3px, ${((block.to - block.from) / span) * 100}%)`,
            }}
          >
            <span>{block.state}</span>
          </div>
        ))}
        {row.ticks.map((tick) => (
          <i
            key={tick.time}
            className={classes.tick}
            style={{ insetInlineStart: place(tick.time) }}
            title={tick.what}
          />
        ))}
        {attempts.map(({ attempt, time }) => (
          <i key={attempt} className={classes.attempt} style={{ insetInlineStart: place(time) }} />
        ))}
      </div>
    </div>
  );
});

function About({ row, block }: { row: Row; block: Block }) {
  return (
    <>
      <b>{row.name}</b> {block.state}, {duration(block.to - block.from)}
      {row.rank >= 0 && (
        <>
          <br />
          attempt {block.attempt}, try {block.try}
        </>
      )}
      <br />
      {absolute(block.from)}
      {block.exit_code !== null && block.state === "failed" && (
        <>
          <br />
          {exitName(block)}
        </>
      )}
      {block.reason && (
        <>
          <br />
          {block.reason}
        </>
      )}
    </>
  );
}

interface EventsProps {
  events: Change[];
  names: ReadonlySet<string>;
  which: string;
  onWhich: (which: string) => void;
}

const Events = memo(function Events({ events, names, which, onWhich }: EventsProps) {
  const shown = events.filter((event) => (event.replica === null ? true : which === "all" && names.has(event.replica)));
  const last = shown.slice(-MOST_EVENTS).reverse();
  return (
    <section className={classes.events} aria-label="events">
      <div className={classes.tools}>
        <h2>Events</h2>
        <SegmentedControl
          aria-label="events of"
          value={which}
          onChange={onWhich}
          data={[
            { value: "experiment", label: "experiment" },
            { value: "all", label: "replicas, too" },
          ]}
        />
        <span className="dim">
          {shown.length > MOST_EVENTS ? `the last ${MOST_EVENTS} of ${count(shown.length)}` : count(shown.length)}, the
          newest first
        </span>
      </div>
      {last.length === 0 ? (
        <EmptyState title="Nothing happened yet" />
      ) : (
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Time</Table.Th>
              <Table.Th>Who</Table.Th>
              <Table.Th>Became</Table.Th>
              <Table.Th>Why</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {last.map((event) => (
              <Table.Tr key={event.number}>
                <Table.Td title={absolute(event.time)}>{clock(event.time)}</Table.Td>
                <Table.Td>
                  {event.replica ?? "experiment"}
                  {event.replica && (event.attempt > 0 || (event.try ?? 0) > 0) && (
                    <span className="dim">
                      {" "}
                      attempt {event.attempt}, try {event.try}
                    </span>
                  )}
                </Table.Td>
                <Table.Td>
                  <StateMark state={event.to_state} />
                </Table.Td>
                <Table.Td className="dim">{event.reason}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </section>
  );
});

/** All changes of one experiment: read once, then added to as they come. */
function useEvents(id: string) {
  const key = ["experiment", id, "events"];
  useChanges(add, id);
  return useQuery({
    queryKey: key,
    queryFn: () =>
      asked(api.GET("/api/experiments/{word}/events", { params: { path: { word: id } } })) as Promise<Change[]>,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

function add(change: Change): void {
  queries.setQueryData<Change[]>(["experiment", change.id, "events"], (known) =>
    known && !known.some((event) => event.number === change.number) ? [...known, change] : known,
  );
}
