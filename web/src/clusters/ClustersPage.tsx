/** Clusters: who occupies what, what waits and why, and whether each of them works. */

import { useComputedColorScheme } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, asked } from "../api/client";
import { lineColour } from "../look/colours";
import { type Column, DataTable, tableColumns } from "../look/DataTable";
import { ExperimentLink } from "../look/ExperimentLink";
import { ErrorBox, Waiting } from "../look/Notes";
import { number, several } from "../look/numbers";
import { Page, Part } from "../look/Page";
import { StateMark } from "../look/StateMark";
import { Ago, useNow } from "../look/Time";
import { absolute, duration } from "../look/times";
import { Check } from "./Check";
import classes from "./clusters.module.css";
import { type Colours, own } from "./ExperimentBox";
import { Nodes } from "./Nodes";
import {
  amount,
  bare,
  type Cluster,
  nameOf,
  type Occupant,
  placedOn,
  queueOf,
  type Resource,
  shareOf,
} from "./occupation";

const AGAIN = 4000; // ms: a reason changes without a change of state

export function ClustersPage() {
  const asking = useQuery({
    queryKey: ["clusters"],
    queryFn: () => asked(api.GET("/api/clusters")),
    refetchInterval: AGAIN,
    placeholderData: keepPreviousData,
  });
  if (asking.isPending) return <Waiting what="clusters" />;
  if (!asking.data) return <ErrorBox error={asking.error} retry={() => void asking.refetch()} />;
  const queued = asking.data.reduce((sum, one) => sum + queueOf(one).length, 0);
  return (
    <Page
      title="Clusters and queue"
      about={`${several(asking.data.length, "cluster")}, ${queued ? `${queued} waiting` : "nothing waits"}`}
      command="shoal cluster ls"
    >
      {asking.data.map((cluster) => (
        <OneCluster key={cluster.name} cluster={cluster} />
      ))}
      {asking.data.length === 1 && (
        <p className="dim">
          Other clusters are named in <code className="mono">config.toml</code> of the home, under{" "}
          <code className="mono">[clusters.NAME]</code>.
        </p>
      )}
    </Page>
  );
}

function OneCluster({ cluster }: { cluster: Cluster }) {
  const scheme = useComputedColorScheme();
  const colours = useMemo(
    () => new Map(placedOn(cluster).map((one, place) => [one.id, lineColour(place, scheme)])),
    [cluster, scheme],
  );
  const queue = queueOf(cluster);
  const placed = placedOn(cluster);
  const local = cluster.kind === "local";
  return (
    <Part
      title={local ? `${cluster.name}: this machine` : `${cluster.name}: Kubernetes`}
      note={
        local
          ? `${several(placed.length, "experiment")} here, ${queue.length} in the queue`
          : `${cluster.context ?? "current context"} / ${cluster.namespace}, ${several(cluster.unfinished, "experiment")}`
      }
    >
      {cluster.unreachable_since !== null && (
        <p className={classes.away} role="alert">
          <StateMark state="lost" bare />
          <span>
            <b>It has not answered since {absolute(cluster.unreachable_since)}</b> (
            <Ago time={cluster.unreachable_since} />
            ). What runs there may go on; Shoal looks again by itself.
          </span>
        </p>
      )}
      {local && <Meters cluster={cluster} colours={colours} />}
      <Nodes cluster={cluster} colours={colours} />
      {placed.length > 0 && (
        <>
          <h3 className={classes.title}>Here</h3>
          <Occupants rows={placed} colours={colours} label={`experiments on ${cluster.name}`} />
        </>
      )}
      {queue.length > 0 && (
        <>
          <h3 className={classes.title}>Queue: first in, first out</h3>
          <Queue rows={queue} cluster={cluster} />
        </>
      )}
      {placed.length + queue.length === 0 && <p className="dim">Nothing is on it and nothing waits for it.</p>}
      <Check name={cluster.name} pods={!local} />
    </Part>
  );
}

const METERS: [Resource, string][] = [
  ["cpu", "Cores"],
  ["memory", "Memory"],
  ["gpu", "GPUs"],
];

function Meters({ cluster, colours }: { cluster: Cluster; colours: Colours }) {
  return (
    <div className={classes.meters}>
      {METERS.map(([resource, name]) => {
        const share = shareOf(cluster, resource);
        if (!share || (resource === "gpu" && share.total === 0)) return null;
        const said = share.parts.map((one) => `${one.name} ${amount(one.amount, resource)}`).join(", ");
        return [
          <span key={`${resource} name`} className="dim">
            {name}
          </span>,
          <div
            key={resource}
            className={classes.bar}
            role="img"
            aria-label={`${name}: ${amount(share.used, resource)} of ${amount(share.total, resource)} requested${said ? `: ${said}` : ""}`}
          >
            {share.parts.map((one) => (
              <i
                key={one.id}
                style={{ ...own(colours, one.id), width: `${one.part * 100}%` }}
                title={`${one.name}: ${amount(one.amount, resource)}`}
              />
            ))}
          </div>,
          <span key={`${resource} said`} className="number">
            {amount(share.used, resource)} of {amount(share.total, resource)} requested,{" "}
            <b>{amount(share.free, resource)} free</b>
          </span>,
        ];
      })}
    </div>
  );
}

function Occupants({ rows, colours, label }: { rows: Occupant[]; colours: Colours; label: string }) {
  const columns = useMemo(() => {
    const swatch: Column<Occupant> = {
      id: "experiment",
      header: "Experiment",
      size: 220,
      accessorFn: (row) => row.number,
      cell: ({ row: { original } }) => (
        <>
          <span className={classes.swatch} style={own(colours, original.id)} aria-hidden />
          <Name one={original} />
        </>
      ),
    };
    return tableColumns<Occupant>([swatch, ...HERE]);
  }, [colours]);
  return <DataTable grow label={label} columns={columns} rows={rows} idOf={(row) => row.id} rowHeight={28} />;
}

function Queue({ rows, cluster }: { rows: Occupant[]; cluster: Cluster }) {
  const columns = useMemo(() => queueColumns(cluster), [cluster]);
  return (
    <DataTable
      grow
      label={`queue of ${cluster.name}`}
      columns={columns}
      rows={rows}
      idOf={(row) => row.id}
      rowHeight={28}
    />
  );
}

function Name({ one }: { one: Occupant }) {
  return (
    <ExperimentLink id={one.id} className="plainlink clip">
      {nameOf(one)} <span className="dim">#{one.number}</span>
    </ExperimentLink>
  );
}

/** What it waits for: the word that programs compare, and the sentence. */
function Why({ one }: { one: Occupant }) {
  if (!one.waits) return null;
  return (
    <>
      <span className={classes.token}>{one.waits}</span>
      <span className="clip" title={one.sentence}>
        {one.sentence}
      </span>
    </>
  );
}

function Since({ time }: { time: number }) {
  const now = useNow();
  return <span title={`since ${absolute(time)}`}>{duration(Math.max(0, now - time))}</span>;
}

const number_ = (id: Resource, header: string, title: string): Column<Occupant> => ({
  id,
  header,
  size: 92,
  meta: { number: true, title },
  accessorFn: (row) => row[id],
  cell: ({ row: { original } }) => (original[id] ? bare(original[id], id) : <span className="dim">–</span>),
});

const HERE: Column<Occupant>[] = [
  {
    id: "state",
    header: "State",
    size: 116,
    accessorFn: (row) => row.state,
    cell: ({ row }) => <StateMark state={row.original.state} />,
  },
  {
    id: "since",
    header: "For",
    size: 80,
    meta: { number: true, title: "how long it has been in this state" },
    accessorFn: (row) => -row.since,
    cell: ({ row }) => <Since time={row.original.since} />,
  },
  {
    id: "replicas",
    header: "Replicas",
    size: 84,
    meta: { number: true },
    accessorFn: (row) => row.replicas.length,
    cell: ({ row }) => number(row.original.replicas.length),
  },
  number_("cpu", "Cores", "requested"),
  number_("memory", "Memory", "requested"),
  number_("gpu", "GPUs", "requested"),
  {
    id: "why",
    header: "Note",
    size: 260,
    meta: { grows: true },
    enableSorting: false,
    cell: ({ row: { original } }) =>
      original.waits ? (
        <Why one={original} />
      ) : original.oversubscribe ? (
        <span className="dim clip">oversubscribes: its requests are not counted</span>
      ) : null,
  },
];

function queueColumns(cluster: Cluster): Column<Occupant>[] {
  const asks = (resource: Resource, header: string): Column<Occupant> => {
    const share = shareOf(cluster, resource);
    return {
      ...number_(resource, header, "requested, of what is free now"),
      size: 176,
      cell: ({ row: { original } }) =>
        original[resource] ? (
          <span>
            {bare(original[resource], resource)}
            {share && <span className="dim"> of {bare(share.free, resource)} free</span>}
          </span>
        ) : (
          <span className="dim">–</span>
        ),
    };
  };
  return tableColumns<Occupant>([
    {
      id: "position",
      header: "#",
      size: 44,
      meta: { number: true, title: "position in the queue" },
      accessorFn: (row) => row.position,
      cell: ({ row }) => number(row.original.position),
    },
    {
      id: "experiment",
      header: "Experiment",
      size: 200,
      accessorFn: (row) => row.number,
      cell: ({ row }) => <Name one={row.original} />,
    },
    {
      id: "waits",
      header: "Waits",
      size: 80,
      meta: { number: true },
      accessorFn: (row) => -row.created,
      cell: ({ row }) => <Since time={row.original.created} />,
    },
    asks("cpu", "Cores"),
    asks("memory", "Memory"),
    ...(cluster.gpus?.length ? [asks("gpu", "GPUs")] : []),
    {
      id: "why",
      header: "Why",
      size: 320,
      meta: { grows: true },
      enableSorting: false,
      cell: ({ row }) => <Why one={row.original} />,
    },
  ]);
}
