/** One data set: its versions, the files of one of them, who used it, and how a file of an experiment asks for it. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useMemo } from "react";
import { api, asked, type Schemas } from "../api/client";
import { DataTable, tableColumns } from "../look/DataTable";
import { ExperimentLink } from "../look/ExperimentLink";
import { Copied, CopyButton, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { bytes, count, several } from "../look/numbers";
import { Columns, Facts, Page, Part } from "../look/Page";
import { StateMark } from "../look/StateMark";
import { Ago } from "../look/Time";
import { absolute } from "../look/times";
import { useView } from "../url/view";
import { versionsOf } from "../versions/named";
import { RemoveVersion } from "../versions/RemoveVersion";
import { VersionFiles } from "../versions/VersionFiles";
import { VersionsTable } from "../versions/VersionsTable";
import { AddDataset, type Way } from "./AddDataset";
import classes from "./datasets.module.css";
import { asYaml, entriesOf, kindWord, type Version, word } from "./versions";

const VIEW = { version: "", file: "", add: "" };

export function DatasetPage() {
  const { name } = useParams({ strict: false }) as { name: string };
  const [view, setView] = useView(VIEW);
  const listed = useQuery({ queryKey: ["datasets"], queryFn: () => asked(api.GET("/api/datasets")) });
  const versions = useMemo(() => versionsOf(listed.data ?? [], name), [listed.data, name]);
  const shown = versions.find((one) => String(one.version) === view.version) ?? versions[0];
  const users = useQuery({
    queryKey: ["dataset users", name],
    queryFn: () => asked(api.GET("/api/datasets/{word}/users", { params: { path: { word: name } } })),
    enabled: shown !== undefined,
  });
  if (listed.isPending) return <Waiting what="the data set" />;
  if (!listed.data) return <ErrorBox error={listed.error} retry={() => void listed.refetch()} />;
  if (!shown)
    return (
      <EmptyState title={`There is no data set ${name}`} command="shoal dataset ls">
        It may have been removed. <Link to="/datasets">All data sets</Link>
      </EmptyState>
    );
  return (
    <Page
      title={name}
      under={{ to: "/datasets", name: "Data sets" }}
      about={`${word(shown)}, ${kindWord(shown.kind)}`}
      command={`shoal dataset show ${word(shown)}`}
      tools={
        <Button
          variant="default"
          leftSection={<Plus size={14} aria-hidden />}
          onClick={() => setView({ add: shown.kind === "managed" ? "upload" : "uri" })}
        >
          New version
        </Button>
      }
    >
      <Columns
        wide={
          <>
            <Part title="Versions" note="the same content again is the same version">
              <VersionsTable versions={versions} shown={shown} columns={VERSIONS} />
            </Part>
            <Files shown={shown} file={view.file} />
          </>
        }
        narrow={
          <>
            <About shown={shown} all={versions.length} />
            <Part title="Used by" note={users.data && several(users.data.length, "experiment")}>
              {users.error ? (
                <ErrorBox error={users.error} compact />
              ) : users.data?.length ? (
                <DataTable
                  grow
                  label="experiments that used it"
                  columns={USERS}
                  rows={users.data}
                  idOf={(row) => `${row.id} ${row.version} ${row.at}`}
                  rowHeight={28}
                />
              ) : (
                <p className="dim">{users.data ? "No experiment yet." : ""}</p>
              )}
            </Part>
          </>
        }
      />
      <AddDataset key={name} name={name} way={view.add as Way | ""} onWay={(add) => setView({ add })} />
    </Page>
  );
}

/** A version by its word, or all versions by their name. */
function remove(which: string) {
  return asked(api.DELETE("/api/datasets/{word}", { params: { path: { word: which } } }));
}

function About({ shown, all }: { shown: Version; all: number }) {
  const yaml = asYaml(shown);
  const options = Object.entries(shown.options).filter(([key]) => key !== "single" && key !== "removed");
  return (
    <Part title={word(shown)}>
      <Facts
        facts={{
          where: shown.uri ? <Copied text={shown.uri} /> : kindWord(shown.kind),
          size: (
            <span
              title={`${count(shown.size)} bytes`}
            >{`${bytes(shown.size)} in ${several(shown.files, "file")}`}</span>
          ),
          hash: <Copied text={shown.digest} shown={shown.digest.slice(0, 16)} what="the hash" />,
          added: absolute(shown.created),
          ...Object.fromEntries(options.map(([key, value]) => [key, String(value)])),
        }}
      />
      <div className={classes.yamlHead}>
        <span className="dim">in the file of an experiment</span>
        <CopyButton text={yaml} what="the lines" />
      </div>
      <pre className={`mono ${classes.yaml}`}>{yaml}</pre>
      <p className="dim">
        A script finds it in <code className="mono">$SHOAL_DATA/{shown.name}</code>.
      </p>
      <div className={classes.remove}>
        <RemoveVersion
          list="datasets"
          word={word(shown)}
          all={all}
          remove={() => remove(word(shown))}
          removeAll={() => remove(shown.name)}
        >
          {shown.kind === "managed"
            ? "Its files are deleted, unless another version has the same ones. "
            : "What lies there stays; only Shoal's copies are deleted. "}
          Its number is not given again; experiments still tell which content they used.
        </RemoveVersion>
      </div>
    </Part>
  );
}

function Files({ shown, file }: { shown: Version; file: string }) {
  const detail = useQuery({
    queryKey: ["dataset files", word(shown)],
    queryFn: () => asked(api.GET("/api/datasets/{word}", { params: { path: { word: word(shown) } } })),
  });
  const files = useMemo(() => detail.data && entriesOf(detail.data.manifest), [detail.data]);
  const content = `/api/datasets/${encodeURIComponent(word(shown))}/content`;
  return (
    <VersionFiles
      files={files}
      error={detail.error}
      retry={() => void detail.refetch()}
      count={shown.files}
      size={shown.size}
      file={file}
      urlOf={shown.kind === "object" ? undefined : (path) => `${content}?path=${encodeURIComponent(path)}`}
    />
  );
}

const VERSIONS = tableColumns<Version>([
  {
    id: "files",
    header: "Files",
    size: 80,
    meta: { number: true },
    accessorFn: (row) => row.files,
    cell: ({ row }) => count(row.original.files),
  },
  {
    id: "size",
    header: "Size",
    size: 100,
    meta: { number: true },
    accessorFn: (row) => row.size,
    cell: ({ row }) => bytes(row.original.size),
  },
  {
    id: "added",
    header: "Added",
    size: 100,
    accessorFn: (row) => row.created,
    cell: ({ row }) => <Ago time={row.original.created} />,
  },
  {
    id: "hash",
    header: "Hash",
    size: 150,
    accessorFn: (row) => row.digest,
    cell: ({ row }) => (
      <span className="mono clip" title={row.original.digest}>
        {row.original.digest.slice(0, 12)}
      </span>
    ),
  },
  {
    id: "where",
    header: "Where",
    size: 200,
    meta: { grows: true },
    accessorFn: (row) => row.uri || row.kind,
    cell: ({ row }) => (
      <span className={row.original.uri ? "mono clip" : "clip"} title={row.original.uri}>
        {row.original.uri || kindWord(row.original.kind)}
      </span>
    ),
  },
]);

const USERS = tableColumns<Schemas["DatasetUser"]>([
  {
    id: "experiment",
    header: "Experiment",
    size: 120,
    meta: { grows: true },
    accessorFn: (row) => row.number,
    cell: ({ row: { original } }) => (
      <>
        <StateMark state={original.state} bare />
        <ExperimentLink id={original.id} className="plainlink clip">
          {original.name ?? original.id}
        </ExperimentLink>
        <span className="dim">#{original.number}</span>
      </>
    ),
  },
  {
    id: "version",
    header: "Version",
    size: 70,
    accessorFn: (row) => row.version,
    cell: ({ row }) => `v${row.original.version}`,
  },
  {
    id: "when",
    header: "When",
    size: 80,
    accessorFn: (row) => row.created,
    cell: ({ row }) => <Ago time={row.original.created} />,
  },
]);
