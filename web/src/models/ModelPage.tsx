/** One model: a metric over its versions, what each comes from, what aliases mean, and its files. */

import { ActionIcon, Autocomplete, Button, Select, Table } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Download, X } from "lucide-react";
import { type FormEvent, useMemo, useState } from "react";
import { api, asked } from "../api/client";
import { useAct } from "../look/act";
import { type Column, tableColumns } from "../look/DataTable";
import { ExperimentLink } from "../look/ExperimentLink";
import { Copied, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { bytes, columnNumbers, count, number, several } from "../look/numbers";
import { Columns, Facts, Page, Part } from "../look/Page";
import { Ago } from "../look/Time";
import { absolute } from "../look/times";
import { useView } from "../url/view";
import { versionsOf } from "../versions/named";
import { RemoveVersion } from "../versions/RemoveVersion";
import { VersionFiles } from "../versions/VersionFiles";
import { VersionsTable } from "../versions/VersionsTable";
import classes from "./models.module.css";
import { VersionChart } from "./VersionChart";
import { aliasesOf, metricNames, type Version, wrongAlias } from "./versions";

const VIEW = { version: "", metric: "", file: "" };
const MOST_METRICS = 6;

export function ModelPage() {
  const { name } = useParams({ strict: false }) as { name: string };
  const [view, setView] = useView(VIEW);
  const listed = useQuery({ queryKey: ["models"], queryFn: () => asked(api.GET("/api/models")) });
  const versions = useMemo(() => versionsOf(listed.data ?? [], name), [listed.data, name]);
  const metrics = useMemo(() => metricNames(versions), [versions]);
  const columns = useMemo(() => columnsOf(versions, metrics.slice(0, MOST_METRICS)), [versions, metrics]);
  const shown = versions.find((one) => String(one.version) === view.version) ?? versions[0];
  if (listed.isPending) return <Waiting what="the model" />;
  if (!listed.data) return <ErrorBox error={listed.error} retry={() => void listed.refetch()} />;
  if (!shown)
    return (
      <EmptyState title={`There is no model ${name}`} command="shoal model ls">
        It may have been removed. <Link to="/models">All models</Link>
      </EmptyState>
    );
  const metric = metrics.includes(view.metric) ? view.metric : metrics[0];
  return (
    <Page
      title={name}
      under={{ to: "/models", name: "Models" }}
      about={several(versions.length, "version")}
      command={`shoal model get ${name}@${shown.version}`}
    >
      <Columns
        wide={
          <>
            {metric && (
              <Part
                title="Over versions"
                note={
                  <Select
                    aria-label="metric"
                    value={metric}
                    data={metrics}
                    allowDeselect={false}
                    comboboxProps={{ width: "max-content" }}
                    onChange={(next) => setView({ metric: next ?? "" })}
                  />
                }
              >
                <VersionChart
                  versions={versions}
                  metric={metric}
                  shown={shown.version}
                  onVersion={(version) => setView({ version: String(version), file: "" })}
                />
              </Part>
            )}
            <Part title="Versions">
              <VersionsTable versions={versions} shown={shown} columns={columns} />
            </Part>
          </>
        }
        narrow={<About shown={shown} versions={versions} />}
      />
      <Files shown={shown} file={view.file} />
    </Page>
  );
}

/** Where one version comes from, and what it is called. */
function About({ shown, versions }: { shown: Version; versions: Version[] }) {
  const metrics = Object.entries(shown.metrics);
  return (
    <Part title={`${shown.name}@${shown.version}`}>
      <Aliases shown={shown} versions={versions} />
      <Facts
        facts={{
          experiment: (
            <ExperimentLink id={shown.experiment} className="mono textlink">
              {shown.experiment}
            </ExperimentLink>
          ),
          replica: `${shown.replica}${shown.process ? `, process ${shown.process}` : ""}`,
          step: shown.step !== null && (
            <Link
              to="/experiments/$id/$tab"
              params={{ id: shown.experiment, tab: "metrics" }}
              search={{ replicas: shown.replica } as never}
              className="textlink"
              title="its metrics"
            >
              {count(shown.step)}
            </Link>
          ),
          attempt: shown.attempt ? String(shown.attempt) : null,
          made: absolute(shown.created),
          size: `${bytes(shown.size)} in ${several(shown.count, "file")}`,
          hash: <Copied text={shown.digest} shown={shown.digest.slice(0, 16)} what="the hash" />,
        }}
      />
      {metrics.length > 0 && (
        <Table mt="sm" aria-label="metrics">
          <Table.Tbody>
            {metrics.map(([name, value]) => (
              <Table.Tr key={name}>
                <Table.Td>{name}</Table.Td>
                <Table.Td className="number" title={String(value)}>
                  {number(value)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      <div className={classes.actions}>
        <Button
          variant="default"
          component="a"
          href={`${addressOf(shown)}/zip`}
          download
          leftSection={<Download size={13} aria-hidden />}
        >
          Files as zip
        </Button>
        <RemoveVersion
          list="models"
          word={`${shown.name}@${shown.version}`}
          all={versions.length}
          remove={() => asked(api.DELETE("/api/models/{name}/versions/{version}", { params: { path: pathOf(shown) } }))}
        >
          Its files are deleted, unless something else has the same ones. Its number is not given again
          {shown.aliases.length ? `; ${shown.aliases.join(" and ")} will mean no version` : ""}.
        </RemoveVersion>
      </div>
    </Part>
  );
}

/** An alias means one version; to give it to another moves it. */
function Aliases({ shown, versions }: { shown: Version; versions: Version[] }) {
  const client = useQueryClient();
  const [alias, setAlias] = useState("");
  const { busy, error, act } = useAct();
  const known = aliasesOf(versions);
  const holder = known.find(([name]) => name === alias)?.[1];
  const wrong = wrongAlias(alias);
  const path = (word: string) => ({ params: { path: { name: shown.name, alias: word } } });
  const say = (wish: () => Promise<unknown>, said: string) =>
    act(async () => {
      await wish();
      setAlias("");
      notifications.show({ color: "green", message: said });
      await client.invalidateQueries({ queryKey: ["models"] });
    });
  const promote = (event: FormEvent) => {
    event.preventDefault();
    if (!alias || wrong) return;
    const body = { version: String(shown.version) };
    void say(
      () => asked(api.PUT("/api/models/{name}/aliases/{alias}", { ...path(alias), body })),
      `${shown.name}@${alias} is version ${shown.version}`,
    );
  };
  return (
    <>
      <div className={classes.aliases}>
        {shown.aliases.map((one) => (
          <span key={one} className={classes.alias}>
            {one}
            <ActionIcon
              size={16}
              aria-label={`take ${one} away`}
              title={`${one} then means no version`}
              disabled={busy}
              onClick={() =>
                void say(
                  () => asked(api.DELETE("/api/models/{name}/aliases/{alias}", path(one))),
                  `${shown.name}@${one} means no version any more`,
                )
              }
            >
              <X size={11} aria-hidden />
            </ActionIcon>
          </span>
        ))}
        {shown.aliases.length === 0 && <span className="dim">no alias means this version</span>}
      </div>
      <form className={classes.promote} onSubmit={promote}>
        <Autocomplete
          size="xs"
          aria-label="alias"
          placeholder="production"
          value={alias}
          data={[...new Set([...known.map(([name]) => name), "production", "staging"])]}
          error={wrong}
          onChange={setAlias}
          style={{ flex: 1 }}
        />
        <Button
          type="submit"
          variant="default"
          loading={busy}
          disabled={!alias || wrong !== "" || holder === shown.version}
        >
          Promote
        </Button>
      </form>
      <p className={`dim ${classes.hint}`}>
        {holder !== undefined && holder !== shown.version
          ? `${alias} means version ${holder} now; it will mean ${shown.version}.`
          : "An alias means one version: to promote another moves it."}
      </p>
      {error ? <ErrorBox error={error} compact /> : null}
    </>
  );
}

function Files({ shown, file }: { shown: Version; file: string }) {
  const detail = useQuery({
    queryKey: ["model files", shown.name, shown.version],
    queryFn: () => asked(api.GET("/api/models/{name}/versions/{version}", { params: { path: pathOf(shown) } })),
    staleTime: 600_000,
  });
  const files = useMemo(() => detail.data?.files.map((one) => ({ ...one, content: one.hash })), [detail.data]);
  return (
    <VersionFiles
      files={files}
      error={detail.error}
      retry={() => void detail.refetch()}
      count={shown.count}
      size={shown.size}
      file={file}
      urlOf={(path) => `${addressOf(shown)}/files/${path.split("/").map(encodeURIComponent).join("/")}`}
    />
  );
}

function pathOf(shown: Version) {
  return { name: shown.name, version: String(shown.version) };
}

function addressOf(shown: Version): string {
  return `/api/models/${encodeURIComponent(shown.name)}/versions/${shown.version}`;
}

function columnsOf(versions: readonly Version[], metrics: readonly string[]): Column<Version>[] {
  const said = new Map(metrics.map((name) => [name, columnNumbers(versions.map((one) => one.metrics[name]))]));
  const columns: (Column<Version> | false)[] = [
    versions.some((one) => one.aliases.length > 0) && {
      id: "aliases",
      header: "Aliases",
      size: 150,
      accessorFn: (row) => row.aliases.join(),
      cell: ({ row }) =>
        row.original.aliases.map((alias) => (
          <span key={alias} className={classes.alias}>
            {alias}
          </span>
        )),
    },
    ...metrics.map(
      (name): Column<Version> => ({
        id: `metric ${name}`,
        header: name,
        size: 100,
        meta: { number: true },
        accessorFn: (row) => row.metrics[name],
        cell: ({ row }) => (
          <span title={String(row.original.metrics[name] ?? "")}>{said.get(name)!(row.original.metrics[name])}</span>
        ),
      }),
    ),
    {
      id: "experiment",
      header: "Experiment",
      size: 96,
      accessorFn: (row) => row.experiment,
      cell: ({ row }) => (
        <ExperimentLink id={row.original.experiment} className="plainlink mono">
          {row.original.experiment}
        </ExperimentLink>
      ),
    },
    {
      id: "replica",
      header: "By",
      size: 96,
      accessorFn: (row) => row.replica,
      cell: ({ row }) => <span className="clip">{row.original.replica}</span>,
    },
    versions.some((one) => one.step !== null) && {
      id: "step",
      header: "Step",
      size: 80,
      meta: { number: true },
      accessorFn: (row) => row.step,
      cell: ({ row }) => (row.original.step === null ? "" : count(row.original.step)),
    },
    {
      id: "size",
      header: "Size",
      size: 90,
      meta: { number: true },
      accessorFn: (row) => row.size,
      cell: ({ row }) => bytes(row.original.size),
    },
    {
      id: "made",
      header: "Made",
      size: 90,
      meta: { grows: true },
      accessorFn: (row) => row.created,
      cell: ({ row }) => <Ago time={row.original.created} />,
    },
  ];
  return tableColumns(columns.filter((column) => column !== false));
}
