/** Facts, params, metrics and origins in rows, experiments in columns. */

import { Button, SegmentedControl, Switch, TextInput, Tooltip } from "@mantine/core";
import { useDeferredValue, useMemo, useState } from "react";
import { columnNumbers, count, delta, number, plain } from "../look/numbers";
import { StateMark } from "../look/StateMark";
import { Ago, useNow } from "../look/Time";
import { absolute, duration } from "../look/times";
import classes from "./compare.module.css";
import type { Drawn } from "./Overlays";
import { type Compared, GROUPS, type Row, rowsOf, STATISTICS, type Statistic, shownRows } from "./rows";
import { Swatch } from "./Swatch";
import type { SetView, View } from "./view";

interface Props {
  compared: readonly Compared[];
  drawn: readonly Drawn[];
  view: View;
  setView: SetView;
}

const MOST_ROWS = 100; // of a group, until all are wanted

export function CompareTable({ compared, drawn, view, setView }: Props) {
  const now = useNow();
  const [typed, setTyped] = useState(view.find);
  const find = useDeferredValue(typed);
  const [whole, setWhole] = useState<ReadonlySet<string>>(new Set());
  const running = drawn.some((one) => !one.over);
  const statistic = (STATISTICS as readonly string[]).includes(view.stat) ? (view.stat as Statistic) : "last";
  const rows = useMemo(() => rowsOf(compared, statistic, running ? now : 0), [compared, statistic, running, now]);
  const { shown, equal } = shownRows(rows, view.all, find);
  const base = drawn.findIndex((one) => one.id === view.base);
  const groups = GROUPS.map((group) => ({ group, rows: shown.filter((row) => row.group === group) }));
  return (
    <>
      <div className={classes.tools}>
        <TextInput
          aria-label="find rows"
          placeholder="find rows"
          w={180}
          value={typed}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            setView({ find: event.currentTarget.value });
          }}
        />
        <SegmentedControl
          aria-label="which value of a metric"
          value={statistic}
          onChange={(stat) => setView({ stat })}
          data={[
            { value: "last", label: "Last" },
            { value: "min", label: "Min" },
            { value: "max", label: "Max" },
          ]}
        />
        <Switch
          label={`rows that are equal${equal ? ` (${count(equal)})` : ""}`}
          checked={view.all}
          onChange={(event) => setView({ all: event.currentTarget.checked })}
        />
      </div>
      {shown.length === 0 ? (
        <p className={`dim ${classes.nothing}`}>
          {find
            ? "No row has such a name."
            : compared.length === 1
              ? "One experiment alone differs from nothing: tick another one, or show rows that are equal."
              : "Nothing differs between them."}
        </p>
      ) : (
        <div className={classes.scroll} tabIndex={0} role="region" aria-label="comparison">
          <table className={classes.table}>
            <thead>
              <tr>
                <th scope="col">
                  <span className={classes.hidden}>what</span>
                </th>
                {drawn.map((one) => (
                  <th key={one.id} scope="col">
                    <span className={classes.column}>
                      <Swatch colour={one.colour} dash={one.dash} />
                      <span className="clip" title={one.label}>
                        {one.label}
                      </span>
                      <Tooltip label="others are shown with their distance from it">
                        <button
                          type="button"
                          className={classes.baseline}
                          aria-pressed={view.base === one.id}
                          onClick={() => setView({ base: view.base === one.id ? "" : one.id })}
                        >
                          baseline
                        </button>
                      </Tooltip>
                    </span>
                  </th>
                ))}
              </tr>
            </thead>
            {groups.map(
              ({ group, rows }) =>
                rows.length > 0 && (
                  <tbody key={group}>
                    <tr className={classes.group}>
                      <th scope="rowgroup" colSpan={drawn.length + 1}>
                        {group}
                        {group === "Metrics" && <span className="dim">, {STATISTIC_WORDS[statistic]}</span>}
                      </th>
                    </tr>
                    {(whole.has(group) ? rows : rows.slice(0, MOST_ROWS)).map((row) => (
                      <Compare key={row.name} row={row} base={base} ids={drawn} />
                    ))}
                    {rows.length > MOST_ROWS && !whole.has(group) && (
                      <tr>
                        <td colSpan={drawn.length + 1}>
                          <Button
                            variant="subtle"
                            size="compact-xs"
                            onClick={() => setWhole(new Set([...whole, group]))}
                          >
                            {`${MOST_ROWS} of ${count(rows.length)} rows: show all`}
                          </Button>
                        </td>
                      </tr>
                    )}
                  </tbody>
                ),
            )}
          </table>
        </div>
      )}
    </>
  );
}

const STATISTIC_WORDS: Record<Statistic, string> = { last: "last value", min: "least value", max: "largest value" };

function Compare({ row, base, ids }: { row: Row; base: number; ids: readonly Drawn[] }) {
  const say = row.as === "number" && row.group === "Metrics" ? columnNumbers(row.values) : plain;
  return (
    <tr>
      <th scope="row" title={row.name}>
        <span className="clip">{row.name}</span>
      </th>
      {row.values.map((value, place) => (
        <td key={ids[place]!.id} title={fullWord(row, value)}>
          <Value row={row} value={value} say={say} />
          {base >= 0 && row.group === "Metrics" && (
            <span className={classes.delta}>{place === base ? "" : delta(value, row.values[base])}</span>
          )}
        </td>
      ))}
    </tr>
  );
}

function Value({ row, value, say }: { row: Row; value: unknown; say: (value: unknown) => string }) {
  if (value === undefined) return <span className="dim">–</span>;
  if (row.as === "state") return <StateMark state={String(value)} />;
  if (row.as === "time") return <Ago time={Number(value)} />;
  if (row.as === "duration") return <>{duration(Number(value))}</>;
  return <span className={row.as === "text" ? classes.text : undefined}>{say(value)}</span>;
}

function fullWord(row: Row, value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (row.as === "time") return absolute(Number(value));
  if (row.as === "number") return String(value) === number(value) ? undefined : String(value);
  return plain(value);
}
