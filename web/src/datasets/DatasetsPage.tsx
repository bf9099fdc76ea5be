/** All data sets: what there is, how large, where it lies. */

import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useMemo } from "react";
import { api, asked } from "../api/client";
import { DataTable, tableColumns } from "../look/DataTable";
import { EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { bytes, count, several } from "../look/numbers";
import { Page } from "../look/Page";
import { Ago } from "../look/Time";
import { useView } from "../url/view";
import { byName, type Named } from "../versions/named";
import { AddDataset, type Way } from "./AddDataset";
import { kindWord, type Version } from "./versions";

const VIEW = { named: "", add: "" };

export function DatasetsPage() {
  const [view, setView] = useView(VIEW);
  const navigate = useNavigate();
  const listed = useQuery({ queryKey: ["datasets"], queryFn: () => asked(api.GET("/api/datasets")) });
  const all = useMemo(() => byName(listed.data ?? []), [listed.data]);
  const rows = useMemo(
    () => all.filter((one) => one.name.toLowerCase().includes(view.named.toLowerCase())),
    [all, view.named],
  );
  return (
    <Page
      title="Data sets"
      about={listed.data && several(all.length, "data set")}
      command="shoal dataset ls"
      tools={
        <>
          {all.length > 0 && (
            <TextInput
              aria-label="filter by name"
              placeholder="filter by name"
              value={view.named}
              onChange={(event) => setView({ named: event.currentTarget.value })}
            />
          )}
          <Button leftSection={<Plus size={14} aria-hidden />} onClick={() => setView({ add: "upload" })}>
            Add
          </Button>
        </>
      }
    >
      {listed.isPending ? (
        <Waiting what="data sets" />
      ) : !listed.data ? (
        <ErrorBox error={listed.error} retry={() => void listed.refetch()} />
      ) : all.length === 0 ? (
        <EmptyState title="No data sets yet" command="shoal dataset add cifar10 /data/cifar10">
          A data set is content with a name and versions: an experiment says{" "}
          <code className="mono">dataset: cifar10@v1</code> and gets exactly that, or is refused. Shoal can keep the
          files itself, or write down what lies in a bucket or at a path.
        </EmptyState>
      ) : (
        <DataTable
          grow
          label="data sets"
          columns={COLUMNS}
          rows={rows}
          idOf={(row) => row.name}
          onOpen={(row) => void navigate({ to: "/datasets/$name", params: { name: row.name } })}
          empty={<EmptyState title="No data set has such a name" />}
        />
      )}
      <AddDataset way={view.add as Way | ""} onWay={(add) => setView({ add })} />
    </Page>
  );
}

const newest = (row: Named<Version>) => row.versions[0]!;

const COLUMNS = tableColumns<Named<Version>>([
  {
    id: "name",
    header: "Name",
    size: 220,
    accessorFn: (row) => row.name,
    cell: ({ row: { original } }) => (
      <Link to="/datasets/$name" params={{ name: original.name }} className="plainlink clip">
        <b style={{ fontWeight: 550 }}>{original.name}</b>
      </Link>
    ),
  },
  {
    id: "versions",
    header: "Newest",
    size: 120,
    accessorFn: (row) => row.versions.length,
    cell: ({ row: { original } }) => (
      <span>
        v{newest(original).version}{" "}
        {original.versions.length > 1 && <span className="dim">of {original.versions.length}</span>}
      </span>
    ),
  },
  {
    id: "files",
    header: "Files",
    size: 90,
    meta: { number: true },
    accessorFn: (row) => newest(row).files,
    cell: ({ row: { original } }) => count(newest(original).files),
  },
  {
    id: "size",
    header: "Size",
    size: 100,
    meta: { number: true },
    accessorFn: (row) => newest(row).size,
    cell: ({ row: { original } }) => (
      <span title={`${count(newest(original).size)} bytes`}>{bytes(newest(original).size)}</span>
    ),
  },
  {
    id: "created",
    header: "Added",
    size: 110,
    accessorFn: (row) => newest(row).created,
    cell: ({ row: { original } }) => <Ago time={newest(original).created} />,
  },
  {
    id: "where",
    header: "Where",
    size: 300,
    meta: { grows: true },
    accessorFn: (row) => newest(row).uri || newest(row).kind,
    cell: ({ row: { original } }) => (
      <span className="clip" title={newest(original).uri}>
        {newest(original).uri ? <span className="mono">{newest(original).uri}</span> : kindWord(newest(original).kind)}
      </span>
    ),
  },
]);
