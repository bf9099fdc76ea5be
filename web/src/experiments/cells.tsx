/** The columns of the list as the table wants them. */

import { Progress } from "@mantine/core";
import { Pin } from "lucide-react";
import type { Experiment } from "../api/client";
import { type Column, tableColumns } from "../look/DataTable";
import { ExperimentLink } from "../look/ExperimentLink";
import { columnDecimals, delta, number, numeric, percent, plain, withDecimals } from "../look/numbers";
import { Roles } from "../look/Roles";
import { StateMark } from "../look/StateMark";
import { Ago, Elapsed } from "../look/Time";
import { duration } from "../look/times";
import { FIXED, type Fixed, groupWord, isFixed, metricOf, metricValue, paramOf, paramValue } from "./columns";
import classes from "./experiments.module.css";

/** How columns write what they hold: of numbers, how many decimals; of params, whether they are numbers. */
export type Manners = Record<string, number | null | boolean>;

/** All rows together decide; columns are made anew only when this changes. */
export function mannersOf(ids: readonly string[], rows: readonly Experiment[], metrics: ReadonlySet<string>): Manners {
  const manners: Manners = {};
  for (const id of ids) {
    if (isFixed(id)) continue;
    const metric = metricOf(id, metrics);
    const param = paramOf(id);
    if (metric) manners[id] = columnDecimals(rows.map((row) => metricValue(row, metric)));
    else if (param !== null)
      manners[id] = rows.every((row) => {
        const value = paramValue(row, param);
        return value === undefined || numeric(value) !== null;
      });
  }
  return manners;
}

/** The server sorts, by every column. The table has a button only for what has an accessor, and asks it nothing. */
const SORTED = { accessorFn: () => undefined, sortDescFirst: false };

export function columnsOf(
  ids: readonly string[],
  manners: Manners,
  metrics: ReadonlySet<string>,
  baseline: Experiment | undefined,
  pins: ReadonlySet<string>,
): Column<Experiment>[] {
  const made = ids.flatMap((id): Column<Experiment>[] => {
    if (isFixed(id)) return [fixed(id, pins, baseline)];
    const metric = metricOf(id, metrics);
    const word = groupWord(id, ids);
    const group = word ? `${word} ` : "";
    if (metric) {
      const shown = withDecimals(manners[id] as number | null);
      const base = baseline && metricValue(baseline, metric);
      return [
        {
          id,
          header: `${group}${metric.statistic === "last" ? metric.name : `${metric.name} ${metric.statistic}`}`,
          size: base === undefined ? 110 : 150,
          ...SORTED,
          sortDescFirst: true,
          meta: { number: true, title: id },
          cell: ({ row }) => {
            const value = metricValue(row.original, metric);
            if (value === undefined) return <span className="dim">–</span>;
            return (
              <span title={String(value)}>
                {shown(value)}
                {base !== undefined && row.original.id !== baseline?.id && (
                  <small className={classes.delta}>{delta(value, base)}</small>
                )}
              </span>
            );
          },
        },
      ];
    }
    const param = paramOf(id);
    if (param === null) return [];
    const numbers = manners[id] === true;
    return [
      {
        id,
        header: `${group}${param}`,
        size: numbers ? 90 : 130,
        ...SORTED,
        meta: { number: numbers, title: id },
        cell: ({ row }) => {
          const value = paramValue(row.original, param);
          if (value === undefined) return <span className="dim">–</span>;
          const words = plain(value);
          return (
            <span className="clip" title={words}>
              {words}
            </span>
          );
        },
      },
    ];
  });
  return tableColumns(made);
}

function fixed(id: Fixed, pins: ReadonlySet<string>, baseline?: Experiment): Column<Experiment> {
  const { name, width } = FIXED[id];
  const common = { id, header: name, size: width, ...SORTED };
  switch (id) {
    case "state":
      return {
        ...common,
        cell: ({ row: { original: one } }) => (
          <>
            <StateMark state={one.state} title={one.reason || one.state} />
            {one.progress && one.state === "running" && <small className="dim">{percent(one.progress.fraction)}</small>}
          </>
        ),
      };
    case "name":
      return {
        ...common,
        meta: { grows: true },
        cell: ({ row: { original: one } }) => (
          <>
            {pins.has(one.id) && <Pin size={12} aria-label="pinned" className="dim" />}
            <ExperimentLink id={one.id} className={classes.name}>
              <span className="clip">{one.name ?? "unnamed"}</span>
            </ExperimentLink>
            <span className="mono dim">{one.id}</span>
            {baseline?.id === one.id && <span className={classes.tag}>baseline</span>}
            {one.tags.slice(0, 3).map((tag) => (
              <span key={tag} className={classes.tag}>
                {tag}
              </span>
            ))}
          </>
        ),
      };
    case "number":
      return {
        ...common,
        sortDescFirst: true,
        meta: { number: true, title: "number" },
        cell: ({ row }) => `#${row.original.number}`,
      };
    case "replicas":
      return { ...common, sortDescFirst: true, cell: ({ row }) => <Roles roles={row.original.roles} /> };
    case "duration":
      return {
        ...common,
        sortDescFirst: true,
        meta: { number: true },
        cell: ({ row }) => <Elapsed of={row.original} />,
      };
    case "created":
    case "started":
    case "finished":
      return {
        ...common,
        sortDescFirst: true,
        meta: { number: true },
        cell: ({ row }) => <Ago time={row.original[id]} />,
      };
    case "progress":
      return {
        ...common,
        cell: ({ row: { original: one } }) =>
          one.progress ? (
            <span
              className={classes.progress}
              title={one.progress.eta ? `${duration(one.progress.eta)} left` : undefined}
            >
              <Progress
                value={one.progress.fraction * 100}
                size="sm"
                aria-label={`progress of ${one.id}`}
                style={{ flex: 1 }}
              />
              <small>{percent(one.progress.fraction)}</small>
            </span>
          ) : null,
      };
    case "tags":
      return { ...common, cell: ({ row }) => <span className="clip">{row.original.tags.join(", ")}</span> };
    case "attempt":
      return { ...common, meta: { number: true }, cell: ({ row }) => number(row.original.attempt) };
    default:
      return {
        ...common,
        cell: ({ row }) => {
          const text = String(row.original[id] ?? "");
          return (
            <span className="clip" title={text}>
              {text}
            </span>
          );
        },
      };
  }
}
