/** The rows of a log: number, time, who, and the text with its colours. */

import { useComputedColorScheme } from "@mantine/core";
import { type CSSProperties, Fragment, memo, useMemo, useState } from "react";
import { lineColour } from "../look/colours";
import { bytes, several } from "../look/numbers";
import { absolute, clock } from "../look/times";
import { anchorOf, type LogLine, type Place, samePlace } from "./lines";
import classes from "./logs.module.css";
import { type Row, whoOf } from "./repeats";
import { type Span, spansOf, tellsError, withHit, withWords } from "./text";

/** What every row of a list has to know. */
export interface RowsLook {
  experiment: string;
  /** Several replicas: each line says whose it is. */
  names: boolean;
  times: boolean;
  /** The line that was found, or that a link names. */
  at: Place | null;
  hit: LogLine | null;
  /** From and to which line is chosen, as places in the list. */
  chosen: readonly [number, number] | null;
  words: RegExp | null;
  pick: (index: number, line: LogLine, extend: boolean) => void;
  rankOf: (replica: string) => number;
}

export const PageRows = memo(function PageRows({ rows, ...props }: RowsLook & { rows: readonly Row[] }) {
  const scheme = useComputedColorScheme();
  const [from, to] = props.chosen ?? [-1, -1];
  return (
    <>
      {rows.map((row) => {
        const found = props.hit !== null && holds(row, props.hit);
        const named = props.at !== null && holds(row, props.at);
        return (
          <LogRow
            key={row.index}
            row={row}
            colour={props.names ? lineColour(props.rankOf(row.line.replica), scheme) : ""}
            names={props.names}
            times={props.times}
            experiment={props.experiment}
            state={found ? "found" : (row.index >= from && row.index <= to) || named ? "chosen" : ""}
            match={found ? props.hit!.match : null}
            words={props.words}
            pick={props.pick}
          />
        );
      })}
    </>
  );
});

interface RowProps {
  row: Row;
  colour: string;
  names: boolean;
  times: boolean;
  experiment: string;
  state: "found" | "chosen" | "";
  match: readonly [number, number] | null | undefined;
  words: RegExp | null;
  pick: (index: number, line: LogLine, extend: boolean) => void;
}

const LogRow = memo(function LogRow({ row, colour, names, times, experiment, state, match, words, pick }: RowProps) {
  const { line, same } = row;
  const [open, setOpen] = useState(false);
  const spans = useMemo(() => {
    const plain = spansOf(line.text);
    return match ? withHit(plain, line.text, match) : withWords(plain, words);
  }, [line.text, match, words]);
  return (
    <Fragment>
      {line.gap > 0 && (
        <div className={classes.gap}>{`… ${bytes(line.gap)} of ${line.replica} are missing here …`}</div>
      )}
      <div
        className={classes.row}
        data-index={row.index}
        data-stream={line.stream}
        data-state={state || undefined}
        data-error={tellsError(line.text) || undefined}
      >
        <button
          type="button"
          className={classes.number}
          title={`line ${line.line + 1} of ${line.replica}, attempt ${line.attempt}; shift-click chooses up to here`}
          aria-label={`line ${line.line + 1} of ${line.replica}`}
          onClick={(event) => pick(row.index, line, event.shiftKey)}
          tabIndex={-1}
        >
          {line.line + 1}
        </button>
        {times && (
          <a
            className={classes.time}
            href={`/experiments/${experiment}/metrics?x=time&cursor=${line.time}`}
            data-time={line.time}
            title="show the metrics of this moment"
            tabIndex={-1}
          >
            {clock(line.time)}.{String(Math.floor((line.time % 1) * 1000)).padStart(3, "0")}
          </a>
        )}
        {names &&
          (same.length > 0 ? (
            <button
              type="button"
              className={classes.who}
              onClick={() => setOpen(!open)}
              aria-expanded={open}
              title={whoOf(row).join(", ")}
              tabIndex={-1}
            >
              {several(same.length + 1, "rank")}
            </button>
          ) : (
            <span className={classes.who} style={{ "--who": colour } as CSSProperties}>
              {line.replica}
            </span>
          ))}
        <span className={classes.text}>
          {spans.map((span, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
            <Piece key={i} span={span} />
          ))}
          {line.length > line.text.length * 4 && (
            <span className="dim">{` … ${bytes(line.length)} in all; the raw log has them`}</span>
          )}
          {!line.complete && <span className={classes.unfinished} title="this line has not ended yet" />}
        </span>
      </div>
      {open && same.length > 0 && (
        <div className={classes.same}>
          {[line, ...same].map((one) => (
            <span key={anchorOf(one)} title={absolute(one.time)}>{`${one.replica} line ${one.line + 1}`}</span>
          ))}
        </div>
      )}
    </Fragment>
  );
});

function Piece({ span }: { span: Span }) {
  const names = [
    span.fg && classes[span.fg],
    span.bg && classes[`${span.bg}-bg`],
    span.bold && classes.bold,
    span.dim && classes.faint,
    span.italic && classes.italic,
    span.underline && classes.underline,
    span.strike && classes.strike,
    span.reverse && classes.reverse,
  ].filter(Boolean);
  const style = span.fgColour || span.bgColour ? { color: span.fgColour, backgroundColor: span.bgColour } : undefined;
  if (span.hit)
    return (
      <mark className={[classes.hit, ...names].join(" ")} style={style}>
        {span.text}
      </mark>
    );
  return names.length || style ? (
    <span className={names.join(" ")} style={style}>
      {span.text}
    </span>
  ) : (
    span.text
  );
}

function holds(row: Row, place: Place): boolean {
  return samePlace(row.line, place) || row.same.some((line) => samePlace(line, place));
}
