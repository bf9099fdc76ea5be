/** What was asked for: the files as written, the resolved file, the plan, the cluster's request, where it comes from. */

import { Button, SegmentedControl, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import type { ReactNode } from "react";
import { api, asked } from "../api/client";
import { CommandHint, CopyButton, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { count, plain } from "../look/numbers";
import { duration } from "../look/times";
import { useView } from "../url/view";
import classes from "./config.module.css";
import { useShown } from "./context";

const VIEW = { show: "file" };
const SHOWN = [
  { value: "file", label: "File" },
  { value: "resolved", label: "Resolved" },
  { value: "plan", label: "Plan" },
  { value: "request", label: "Request" },
  { value: "provenance", label: "Provenance" },
];

export function ConfigTab() {
  const { experiment } = useShown();
  const [view, setView] = useView(VIEW);
  return (
    <div className={classes.config}>
      <div className={classes.tools}>
        <SegmentedControl aria-label="show" value={view.show} onChange={(show) => setView({ show })} data={SHOWN} />
        <span className="dim">{NOTES[view.show]}</span>
        <span style={{ flex: 1 }} />
        {view.show === "provenance" && <CommandHint command={`shoal diff ${experiment.id} OTHER`} />}
      </div>
      {view.show === "file" &&
        experiment.files.map((file) => <Text key={file.name} name={file.name} text={file.text} />)}
      {view.show === "file" && experiment.files.length === 0 && (
        <EmptyState title="It has no file">It was not started by Shoal.</EmptyState>
      )}
      {view.show === "resolved" && <Text name={`${experiment.id}.yml`} text={experiment.resolved} />}
      {(view.show === "plan" || view.show === "request") && <Planned what={view.show} />}
      {view.show === "provenance" && <Provenance />}
    </div>
  );
}

const NOTES: Record<string, string> = {
  file: "as it was written",
  resolved: "merged, filled in, in the newest spelling: this runs the same again",
  plan: "each replica with its rank and what it needs",
  request: "what the cluster is asked for; secrets left out",
  provenance: "code, packages, machine and data",
};

function Planned({ what }: { what: string }) {
  const { experiment } = useShown();
  const found = useQuery({
    queryKey: ["experiment", experiment.id, "plan"],
    queryFn: () => asked(api.GET("/api/experiments/{word}/plan", { params: { path: { word: experiment.id } } })),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (found.isPending) return <Waiting what="the plan" />;
  if (found.error) return <ErrorBox error={found.error} retry={() => void found.refetch()} />;
  if (what === "request")
    return found.data.request ? (
      <Text name={`${experiment.id}-request.txt`} text={found.data.request} />
    ) : (
      <EmptyState title="There is no request">
        {experiment.origin === "run"
          ? `The cluster ${experiment.cluster} is not known any more.`
          : "It was not started by Shoal."}
      </EmptyState>
    );
  const rows = found.data.replicas as unknown as Row[];
  const columns = PLAN.filter((column) => column.always || rows.some((row) => column.of(row) !== ""));
  return (
    <div className={classes.plan}>
      <Table highlightOnHover stickyHeader>
        <Table.Thead>
          <Table.Tr>
            {columns.map((column) => (
              <Table.Th key={column.name} className={column.kind === "number" ? "number" : undefined}>
                {column.name}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.replica}>
              {columns.map((column) => (
                <Table.Td key={column.name} className={column.kind}>
                  {column.of(row)}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <h2>Policy</h2>
      <Pairs of={spelled(found.data.policy)} />
      {found.data.params.length > 0 && (
        <p>
          Given by <code className="mono">-P</code>: <code className="mono">{found.data.params.join(" ")}</code>
        </p>
      )}
    </div>
  );
}

interface Row {
  replica: string;
  rank: number;
  n_trainers?: number;
  decides?: boolean;
  resources?: Record<string, Record<string, unknown> | null>;
  resources_from?: string | null;
  node_selector?: unknown;
}

/** What the plan tells of a replica; a column that is empty for all of them is left out. */
const PLAN: { name: string; of: (row: Row) => string; kind?: string; always?: boolean }[] = [
  { name: "Replica", of: (row) => row.replica, always: true },
  { name: "Rank", of: (row) => String(row.rank), kind: "number", always: true },
  { name: "Processes", of: (row) => String(row.n_trainers ?? ""), kind: "number" },
  { name: "Decides", of: (row) => (row.decides ? "yes" : "") },
  { name: "Requests", of: (row) => amounts(row.resources, "requests"), kind: "mono" },
  { name: "Limits", of: (row) => amounts(row.resources, "limits"), kind: "mono" },
  { name: "Set by", of: (row) => row.resources_from ?? "", kind: "mono dim" },
  { name: "Placement", of: (row) => (row.node_selector ? plain(row.node_selector) : ""), kind: "mono" },
];

/** Names and times of a policy as a person says them. */
function spelled(policy: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(policy).map(([name, value]) => [
      name.replaceAll("_", " "),
      name.startsWith("grace_") && typeof value === "number" ? duration(value) : value,
    ]),
  );
}

/** `cpu 0.5, memory 512` */
function amounts(resources: Row["resources"], which: "requests" | "limits"): string {
  return Object.entries(resources ?? {})
    .filter(
      ([, amount]) => amount && typeof amount === "object" && amount[which] !== undefined && amount[which] !== null,
    )
    .map(([name, amount]) => `${name} ${plain(amount![which])}`)
    .join(", ");
}

function Provenance() {
  const { experiment } = useShown();
  const found = useQuery({
    queryKey: ["experiment", experiment.id, "provenance"],
    queryFn: () => asked(api.GET("/api/experiments/{word}/provenance", { params: { path: { word: experiment.id } } })),
  });
  if (found.isPending) return <Waiting what="the provenance" />;
  if (found.error) return <ErrorBox error={found.error} retry={() => void found.refetch()} />;
  const { packages, diff, ...rest } = found.data as Record<string, unknown> & {
    packages?: Record<string, string>;
    diff?: string;
  };
  const installed = Object.entries(packages ?? {});
  return (
    <div className={classes.plan}>
      <Pairs of={rest} />
      {typeof diff === "string" && diff && <Text name="changes that were not committed" text={diff} />}
      <details className={classes.details}>
        <summary>{count(installed.length)} packages</summary>
        <Text name="requirements.txt" text={installed.map(([name, version]) => `${name}==${version}`).join("\n")} />
      </details>
    </div>
  );
}

function Pairs({ of }: { of: Record<string, unknown> }) {
  return (
    <dl className={classes.pairs}>
      {Object.entries(of)
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt className="dim">{name}</dt>
            <dd>
              <Value value={value} />
            </dd>
          </div>
        ))}
    </dl>
  );
}

function Value({ value }: { value: unknown }): ReactNode {
  if (Array.isArray(value) && value.every((item) => typeof item !== "object")) return value.join(", ") || "none";
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return <Pairs of={value as Record<string, unknown>} />;
  if (typeof value === "boolean") return value ? "yes" : "no";
  return <span className="mono">{plain(value)}</span>;
}

/** A file, to read, to copy, to keep. */
function Text({ name, text }: { name: string; text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <section className={classes.file} aria-label={name}>
      <div className={classes.fileTitle}>
        <span className="mono clip">{name}</span>
        <span className="dim">{count(lines.length)} lines</span>
        <CopyButton text={text} what={name} />
        <Button
          size="compact-xs"
          variant="subtle"
          leftSection={<Download size={12} aria-hidden />}
          component="a"
          href={`data:text/plain;charset=utf-8,${encodeURIComponent(text)}`}
          download={name.split("/").at(-1)}
        >
          Download
        </Button>
      </div>
      <pre className="mono" tabIndex={0}>
        {lines.map((line, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: lines of a file do not move
          <span key={place} className={classes.codeLine} data-line={place + 1}>
            {line}
            {"\n"}
          </span>
        ))}
      </pre>
    </section>
  );
}
