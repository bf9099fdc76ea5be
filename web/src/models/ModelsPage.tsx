/** All models: newest version, aliases, what it is worth, which experiment made it. */

import { TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, asked } from "../api/client";
import { type Column, DataTable, tableColumns } from "../look/DataTable";
import { ExperimentLink } from "../look/ExperimentLink";
import { EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { bytes, number, several } from "../look/numbers";
import { Page } from "../look/Page";
import { Ago } from "../look/Time";
import { useView } from "../url/view";
import { byName, type Named } from "../versions/named";
import classes from "./models.module.css";
import { aliasesOf, metricNames, type Version } from "./versions";

const VIEW = { named: "" };
const MOST_METRICS = 4;

export function ModelsPage() {
  const [view, setView] = useView(VIEW);
  const navigate = useNavigate();
  const listed = useQuery({ queryKey: ["models"], queryFn: () => asked(api.GET("/api/models")) });
  const all = useMemo(() => byName(listed.data ?? []), [listed.data]);
  const rows = useMemo(
    () => all.filter((one) => one.name.toLowerCase().includes(view.named.toLowerCase())),
    [all, view.named],
  );
  const columns = useMemo(() => columnsOf(all), [all]);
  return (
    <Page
      title="Models"
      about={listed.data && `${several(all.length, "model")}, ${several(listed.data.length, "version")}`}
      command="shoal model ls"
      tools={
        all.length > 0 && (
          <TextInput
            aria-label="filter by name"
            placeholder="filter by name"
            value={view.named}
            onChange={(event) => setView({ named: event.currentTarget.value })}
          />
        )
      }
    >
      {listed.isPending ? (
        <Waiting what="models" />
      ) : !listed.data ? (
        <ErrorBox error={listed.error} retry={() => void listed.refetch()} />
      ) : all.length === 0 ? (
        <EmptyState title="No models yet" command="shoal model ls">
          A script registers one with{" "}
          <code className="mono">
            shoal.model("resnet", "model.pt", metrics={"{"}"accuracy": 0.91{"}"})
          </code>
          ; each time is a new version, with the experiment, replica and step it comes from.
        </EmptyState>
      ) : (
        <DataTable
          grow
          label="models"
          columns={columns}
          rows={rows}
          idOf={(row) => row.name}
          onOpen={(row) => void navigate({ to: "/models/$name", params: { name: row.name } })}
          empty={<EmptyState title="No model has such a name" />}
        />
      )}
    </Page>
  );
}

const newest = (row: Named<Version>) => row.versions[0]!;

function columnsOf(all: readonly Named<Version>[]): Column<Named<Version>>[] {
  const metrics = metricNames(all.map(newest)).slice(0, MOST_METRICS);
  return tableColumns<Named<Version>>([
    {
      id: "name",
      header: "Name",
      size: 200,
      meta: { grows: true },
      accessorFn: (row) => row.name,
      cell: ({ row: { original } }) => (
        <Link to="/models/$name" params={{ name: original.name }} className="plainlink clip">
          <b style={{ fontWeight: 550 }}>{original.name}</b>
        </Link>
      ),
    },
    {
      id: "newest",
      header: "Newest",
      size: 100,
      accessorFn: (row) => newest(row).version,
      cell: ({ row: { original } }) => (
        <span>
          v{newest(original).version}{" "}
          {original.versions.length > 1 && <span className="dim">of {original.versions.length}</span>}
        </span>
      ),
    },
    {
      id: "aliases",
      header: "Aliases",
      size: 220,
      accessorFn: (row) => aliasesOf(row.versions).length,
      cell: ({ row: { original } }) =>
        aliasesOf(original.versions).map(([alias, version]) => (
          <span key={alias} className={classes.alias}>
            {alias} <span className="dim">v{version}</span>
          </span>
        )),
    },
    ...metrics.map(
      (name): Column<Named<Version>> => ({
        id: `metric ${name}`,
        header: name,
        size: 110,
        meta: { number: true, title: `${name} of the newest version` },
        accessorFn: (row) => newest(row).metrics[name],
        cell: ({ row: { original } }) => (
          <span title={String(newest(original).metrics[name] ?? "")}>{number(newest(original).metrics[name])}</span>
        ),
      }),
    ),
    {
      id: "size",
      header: "Size",
      size: 90,
      meta: { number: true },
      accessorFn: (row) => newest(row).size,
      cell: ({ row: { original } }) => bytes(newest(original).size),
    },
    {
      id: "experiment",
      header: "Made by",
      size: 110,
      accessorFn: (row) => newest(row).experiment,
      cell: ({ row: { original } }) => (
        <ExperimentLink id={newest(original).experiment} className="plainlink mono clip">
          {newest(original).experiment}
        </ExperimentLink>
      ),
    },
    {
      id: "created",
      header: "When",
      size: 100,
      accessorFn: (row) => newest(row).created,
      cell: ({ row: { original } }) => <Ago time={newest(original).created} />,
    },
  ]);
}
