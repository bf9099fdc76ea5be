/** What the file means, or what is wrong with it, as the server says. */

import { SegmentedControl } from "@mantine/core";
import { CircleCheck, CircleX, TriangleAlert } from "lucide-react";
import { useMemo } from "react";
import type { Note, Schemas } from "../api/client";
import { DataTable, tableColumns } from "../look/DataTable";
import { ErrorBox } from "../look/Notes";
import { bytes, count, number, several } from "../look/numbers";
import type { Checked } from "./checking";
import classes from "./create.module.css";
import { shortPlace } from "./draft";

type Planned = Schemas["PlannedReplica"];

interface Props {
  checked: Checked | undefined;
  error: unknown;
  old: boolean;
  cluster: string;
  show: string;
  setShow: (show: string) => void;
  goTo: (where: string) => void;
}

export function PlanPanel({ checked, error, old, cluster, show, setShow, goTo }: Props) {
  const errors = checked?.errors ?? [];
  const warnings = checked?.warnings ?? [];
  const replicas = checked?.replicas ?? [];
  return (
    <section className={classes.panel} aria-label="what the file means" aria-busy={old}>
      <div className={classes.panelHead}>
        <SegmentedControl
          aria-label="show"
          value={show}
          onChange={setShow}
          data={[
            { value: "plan", label: replicas.length ? `Plan (${count(replicas.length)})` : "Plan" },
            {
              value: "problems",
              label: errors.length + warnings.length ? `Problems (${errors.length + warnings.length})` : "Problems",
            },
            { value: "request", label: "Request" },
          ]}
        />
        <Verdict checked={checked} />
      </div>
      <div className={classes.panelBody}>
        {error ? <ErrorBox error={error} compact /> : null}
        {show === "plan" && errors.length > 0 && <Problems notes={errors} kind="error" goTo={goTo} />}
        {show === "plan" && replicas.length > 0 && (
          <PlanTable replicas={replicas} totals={checked?.totals} cluster={cluster} />
        )}
        {show === "problems" && (
          <>
            {errors.length + warnings.length === 0 && <p className="dim">None.</p>}
            <Problems notes={errors} kind="error" goTo={goTo} />
            <Problems notes={warnings} kind="warning" goTo={goTo} />
          </>
        )}
        {show === "request" &&
          (checked?.request ? (
            <pre className="mono" tabIndex={0}>
              {checked.request}
            </pre>
          ) : (
            <p className="dim">What the cluster would be asked for is shown once nothing is wrong.</p>
          ))}
      </div>
    </section>
  );
}

function Verdict({ checked }: { checked: Checked | undefined }) {
  if (!checked) return <span role="status" />;
  const { errors, warnings } = checked;
  return (
    <span role="status" className={classes.verdict}>
      {checked.ok ? (
        <>
          <CircleCheck size={14} aria-hidden className="hue-green" /> It can run
        </>
      ) : (
        <>
          <CircleX size={14} aria-hidden className="hue-red" /> {several(errors.length, "error")}
        </>
      )}
      {warnings.length > 0 && <span className="dim"> · {several(warnings.length, "warning")}</span>}
    </span>
  );
}

function Problems({
  notes,
  kind,
  goTo,
}: {
  notes: readonly Note[];
  kind: "error" | "warning";
  goTo: (where: string) => void;
}) {
  const Icon = kind === "error" ? CircleX : TriangleAlert;
  return (
    <ul className={classes.problems} aria-label={`${kind}s`}>
      {notes.map((note) => (
        <li key={`${note.where}${note.path}${note.message}`}>
          <Icon size={14} aria-label={kind} className={kind === "error" ? "hue-red" : "hue-grey"} />
          <span>
            {shortPlace(note) && (
              <button
                type="button"
                className={`mono ${classes.place}`}
                title="show it in the file"
                onClick={() => goTo(note.where!)}
              >
                {shortPlace(note)}
              </button>
            )}{" "}
            {note.path && <span className="mono">{note.path}: </span>}
            {note.message}
            {note.hint && <span className="dim"> — {note.hint}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}

const ROW = 27;

/** What will run where, and below it what all of it asks for. Of any length: a file may mean a hundred thousand. */
function PlanTable({ replicas, totals, cluster }: { replicas: Planned[]; totals: Checked["totals"]; cluster: string }) {
  const columns = useMemo(() => planColumns(cluster), [cluster]);
  return (
    <>
      <div className={classes.plan}>
        <DataTable columns={columns} rows={replicas} idOf={(row) => row.replica} label="plan" rowHeight={ROW} />
      </div>
      <p className={classes.totals}>
        {several(replicas.length, "replica")}
        {totals &&
          AMOUNTS.filter(({ name }) => asks(totals, name)).map(({ name, title }) => (
            <span key={name} className="dim" title={BOUNDS}>
              {`${title} ${amount(totals, name)}`}
            </span>
          ))}
      </p>
    </>
  );
}

const BOUNDS = "requests / limits";
const AMOUNTS = [
  { name: "cpu", title: "CPU", size: 80 },
  { name: "memory", title: "Memory", size: 120 },
  { name: "gpu", title: "GPU", size: 64 },
] as const;

function planColumns(cluster: string) {
  return tableColumns<Planned>([
    { id: "replica", header: "Replica", accessorFn: (row) => row.replica, size: 110, meta: { grows: true } },
    { id: "role", header: "Role", accessorFn: (row) => row.role, size: 74 },
    { id: "rank", header: "Rank", accessorFn: (row) => row.rank, size: 60, meta: { number: true } },
    { id: "processes", header: "Processes", accessorFn: (row) => row.n_trainers, size: 86, meta: { number: true } },
    ...AMOUNTS.map(({ name, title, size }) => ({
      id: name,
      header: title,
      size,
      accessorFn: (row: Planned) => asks(row.resources, name),
      cell: ({ row: { original } }: { row: { original: Planned } }) => (
        <span title={original.resources_from ? `${BOUNDS}; said by ${original.resources_from}` : BOUNDS}>
          {amount(original.resources, name)}
        </span>
      ),
      meta: { number: true, title: BOUNDS },
    })),
    { id: "cluster", header: "Cluster", accessorFn: () => cluster, size: 84 },
    {
      id: "decides",
      header: "Decides",
      accessorFn: (row) => (row.decides ? "yes" : ""),
      size: 74,
      meta: { title: "whether its success is needed for the experiment's" },
    },
  ]);
}

type Bounds = Record<string, { requests?: number | null; limits?: number | null } | undefined>;
type Amount = (typeof AMOUNTS)[number]["name"];

function asks(of: Record<string, unknown>, name: Amount): number {
  const bounds = (of as Bounds)[name];
  return bounds?.requests ?? bounds?.limits ?? 0;
}

/** `1 / 2`; one number when there is no limit, or the same. */
function amount(of: Record<string, unknown>, name: Amount): string {
  const requests = asks(of, name);
  if (!requests) return "–";
  const limit = (of as Bounds)[name]?.limits;
  const say = (value: number) => (name === "memory" ? bytes(value * 1024 * 1024) : number(value));
  return limit && limit !== requests ? `${say(requests)} / ${say(limit)}` : say(requests);
}
