/** The fields beside the file. Each shows what the file says, and changes only its own place in it. */

import {
  ActionIcon,
  Autocomplete,
  Button,
  NumberInput,
  SegmentedControl,
  Select,
  Switch,
  Textarea,
  TextInput,
} from "@mantine/core";
import { Plus, X } from "lucide-react";
import { type ReactNode, useState } from "react";
import classes from "./create.module.css";
import { meant, type Path, withItem, without, withValue } from "./document";
import type { Draft } from "./draft";
import {
  AMOUNTS,
  type Amount,
  amountMeant,
  type Bound,
  type Form as FormOf,
  FRAMEWORKS,
  ROLES,
  type Role,
  resourceOf,
  resourcePath,
} from "./fields";

interface Props {
  draft: Draft;
  /** What is not in the file. */
  change: (change: Partial<Omit<Draft, "text">>) => void;
  /** Changes the file; null leaves it as it is. */
  edit: (edit: (text: string) => string | null) => void;
  /** A form that can be read; the last one while the file cannot. */
  form: FormOf;
  broken: boolean;
  datasets: readonly string[];
  clusters: readonly { name: string }[];
}

/** Changes a place of the file: a value that is undefined takes the place away. */
type Put = (path: Path, value: unknown) => void;

export function Form({ draft, change, edit, form, broken, datasets, clusters }: Props) {
  const put: Put = (path, value) =>
    edit((text) => (value === undefined ? without(text, path) : withValue(text, path, value)));
  const said = (typed: string) => (typed === "" ? undefined : typed);
  return (
    <form className={classes.form} aria-label="fields of the file" onSubmit={(event) => event.preventDefault()}>
      {broken && (
        <p className={classes.broken} role="status">
          The file cannot be read as it is. Mend it on the right, then these fields follow it again.
        </p>
      )}
      <fieldset disabled={broken} className={classes.fields}>
        <Section title="Experiment">
          <TextInput
            label="Name"
            value={form.name}
            onChange={(event) => put(["name"], said(event.currentTarget.value))}
          />
          <div className={classes.pair}>
            <Select
              label="Framework"
              data={choices(FRAMEWORKS, form.framework)}
              value={form.framework}
              allowDeselect={false}
              disabled={form.sectioned}
              description={form.sectioned ? "said by the name of a section, as Polyaxon did" : undefined}
              onChange={(value) => put(["framework"], value ?? "none")}
            />
            <Select
              label="Cluster"
              data={[...new Set(["local", ...clusters.map((one) => one.name), draft.cluster])]}
              value={draft.cluster}
              allowDeselect={false}
              onChange={(value) => change({ cluster: value ?? "local" })}
            />
          </div>
          <CommandField form={form} put={put} />
        </Section>
        <Section title="Replicas">
          <div className={classes.counts}>
            <Count
              label="Workers"
              typed={form.workers}
              empty="0"
              put={(value) => put([...form.replicas, "n_workers"], value)}
            />
            <Count
              label="Parameter servers"
              typed={form.ps}
              empty="0"
              put={(value) => put([...form.replicas, "n_ps"], value)}
            />
            <Count
              label="Processes each"
              typed={form.trainers}
              empty={form.framework === "pytorch" ? "GPUs" : "1"}
              put={(value) => put([...form.replicas, "n_trainers"], value)}
            />
          </div>
          <Switch
            label="A master beside them, with rank 0"
            checked={form.master}
            onChange={(event) => put([...form.replicas, "master"], event.currentTarget.checked ? undefined : false)}
          />
          <Resources form={form} text={draft.text} put={put} />
        </Section>
        <Section title="Params" note="{{ name }} in the command">
          <Params form={form} put={put} />
        </Section>
        <Section title="Code">
          <CodeFields form={form} put={put} />
          <TextInput
            label="Directory"
            description="of the file, on the server's machine: paths in it are relative to it"
            classNames={{ input: "mono" }}
            value={draft.directory}
            onChange={(event) => change({ directory: event.currentTarget.value })}
          />
        </Section>
        <Section title="Data" note="below SHOAL_DATA">
          <Data edit={edit} form={form} put={put} datasets={datasets} />
        </Section>
        <Section title="More">
          <Select
            label="Backend"
            data={choices(["native", "kubeflow"], form.backend)}
            value={form.backend}
            allowDeselect={false}
            onChange={(value) => put(["backend"], value === "native" ? undefined : value)}
          />
          <Switch
            label="Oversubscribe: start even if it asks for more than there is"
            checked={draft.oversubscribe}
            disabled={draft.cluster !== "local"}
            onChange={(event) => change({ oversubscribe: event.currentTarget.checked })}
          />
        </Section>
      </fieldset>
    </form>
  );
}

function Section({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <section className={classes.section} aria-label={title}>
      <h2>
        {title} {note && <small className="dim">{note}</small>}
      </h2>
      {children}
    </section>
  );
}

function CommandField({ form, put }: { form: FormOf; put: Put }) {
  const { kind, text } = form.command;
  return (
    <Textarea
      label="Command"
      description={
        kind === "steps"
          ? "a step on each line, joined by &&"
          : kind === "other"
            ? "can be changed in the file only"
            : undefined
      }
      autosize
      minRows={2}
      maxRows={8}
      classNames={{ input: "mono" }}
      value={text}
      disabled={kind === "other"}
      onChange={(event) => {
        const typed = event.currentTarget.value;
        put(["run", "cmd"], kind === "steps" ? typed.split("\n") : typed);
      }}
    />
  );
}

/** A number with steps; a text, when the file has one there: `{{ n }}`. */
function Count({
  label,
  typed,
  empty,
  put,
}: {
  label: string;
  typed: string;
  empty: string;
  put: (value: unknown) => void;
}) {
  if (typed !== "" && !/^\d+$/.test(typed))
    return (
      <TextInput
        label={label}
        value={typed}
        onChange={(event) => put(event.currentTarget.value ? meant(event.currentTarget.value) : undefined)}
      />
    );
  return (
    <NumberInput
      label={label}
      placeholder={empty}
      min={0}
      max={100_000}
      allowDecimal={false}
      allowNegative={false}
      clampBehavior="strict"
      value={typed === "" ? "" : Number(typed)}
      onChange={(value) => put(value === "" ? undefined : Number(value))}
    />
  );
}

const AMOUNT_WORDS: Record<Amount, string> = { cpu: "CPU cores", memory: "Memory", gpu: "GPUs" };
const ROLE_WORDS: Record<Role, string> = { master: "Master", worker: "Worker", ps: "Parameter server" };

function Resources({ form, text, put }: { form: FormOf; text: string; put: Put }) {
  const [bound, setBound] = useState<Bound>("requests");
  const roles = ROLES.filter((role) =>
    role === "master" ? form.master : Number(role === "worker" ? form.workers : form.ps) !== 0,
  );
  if (roles.length === 0) return null;
  return (
    <div>
      <div className={classes.bounds}>
        <span>Resources of each</span>
        <SegmentedControl
          aria-label="which bound of the resources"
          size="xs"
          value={bound}
          onChange={(value) => setBound(value as Bound)}
          data={[
            { value: "requests", label: "Requests" },
            { value: "limits", label: "Limits" },
          ]}
        />
      </div>
      <table className={classes.resources}>
        <thead>
          <tr>
            <td />
            {AMOUNTS.map((amount) => (
              <th key={amount} scope="col">
                {AMOUNT_WORDS[amount]}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {roles.map((role) => (
            <tr key={role}>
              <th scope="row">{ROLE_WORDS[role]}</th>
              {AMOUNTS.map((amount) => {
                const path = resourcePath(form, role, amount, bound);
                const other = resourceOf(
                  text,
                  resourcePath(form, role, amount, bound === "requests" ? "limits" : "requests"),
                );
                return (
                  <td key={amount}>
                    <TextInput
                      title={amount === "memory" ? "MiB, or with a unit: 2Gi" : undefined}
                      aria-label={`${ROLE_WORDS[role]}, ${AMOUNT_WORDS[amount]}, ${bound}`}
                      placeholder={other && bound === "requests" ? other : "–"}
                      value={resourceOf(text, path)}
                      onChange={(event) => {
                        const typed = event.currentTarget.value;
                        put(path, typed.trim() === "" ? undefined : amountMeant(typed));
                      }}
                    />
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CodeFields({ form, put }: { form: FormOf; put: Put }) {
  const { code } = form;
  return (
    <>
      <SegmentedControl
        aria-label="where the code comes from"
        value={code.kind}
        onChange={(kind) => put(["code"], kind === "git" ? { git: "https://", ref: "main" } : undefined)}
        data={[
          { value: "directory", label: "A directory" },
          { value: "git", label: "A git repository" },
          ...(code.kind === "other" ? [{ value: "other", label: "Other", disabled: true }] : []),
        ]}
      />
      {code.kind === "directory" && (
        <TextInput
          label="Path"
          placeholder="."
          classNames={{ input: "mono" }}
          value={code.path}
          onChange={(event) => put(["code"], event.currentTarget.value || undefined)}
        />
      )}
      {code.kind === "git" && (
        <div className={classes.pair}>
          <TextInput
            label="URL"
            classNames={{ input: "mono" }}
            value={code.git}
            onChange={(event) => put(["code", "git"], event.currentTarget.value)}
          />
          <TextInput
            label="Branch, tag or commit"
            placeholder="HEAD"
            classNames={{ input: "mono" }}
            value={code.ref}
            onChange={(event) => put(["code", "ref"], event.currentTarget.value || undefined)}
          />
        </div>
      )}
    </>
  );
}

interface DataProps extends Pick<Props, "edit" | "form" | "datasets"> {
  put: Put;
}

function Data({ edit, form, put, datasets }: DataProps) {
  const add = (entry: Record<string, string>) => edit((text) => withItem(text, ["data"], entry));
  return (
    <>
      {form.data.map((mount, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: their places are what they are
        <div key={place} className={classes.mount}>
          {mount.kind === "dataset" ? (
            <Autocomplete
              aria-label={`data set ${place + 1}`}
              placeholder="name@v1"
              data={[...datasets]}
              value={mount.what}
              onChange={(value) => put(["data", place, "dataset"], value)}
            />
          ) : (
            <TextInput
              aria-label={`data ${place + 1}, where it is`}
              placeholder="s3://bucket/prefix or a path"
              value={mount.what}
              disabled={mount.kind === "other"}
              onChange={(event) => put(["data", place, "uri"], event.currentTarget.value)}
            />
          )}
          <TextInput
            aria-label={`data ${place + 1}, its path`}
            placeholder="at its name"
            value={mount.at}
            disabled={mount.kind === "other"}
            onChange={(event) => put(["data", place, "at"], event.currentTarget.value || undefined)}
          />
          <ActionIcon
            size="sm"
            aria-label={`take data ${place + 1} away`}
            onClick={() => put(["data", place], undefined)}
          >
            <X size={13} aria-hidden />
          </ActionIcon>
        </div>
      ))}
      <div className={classes.adders}>
        <Adder onClick={() => add({ dataset: datasets[0] ?? "name@v1" })}>Data set</Adder>
        <Adder onClick={() => add({ uri: "s3://bucket/prefix" })}>URI</Adder>
      </div>
    </>
  );
}

function Params({ form, put }: { form: FormOf; put: Put }) {
  const [name, setName] = useState("");
  const fresh = name.trim();
  const add = () => {
    if (!fresh || form.params.some((one) => one.name === fresh)) return;
    put(["params", fresh], 0);
    setName("");
  };
  return (
    <>
      {form.params.map((param) => (
        <div key={param.name} className={classes.param}>
          <span className="mono clip" title={param.name}>
            {param.name}
          </span>
          <TextInput
            aria-label={`param ${param.name}`}
            classNames={{ input: "mono" }}
            value={param.typed}
            disabled={param.nested}
            onChange={(event) => put(["params", param.name], meant(event.currentTarget.value))}
          />
          <ActionIcon
            size="sm"
            aria-label={`take param ${param.name} away`}
            onClick={() => put(["params", param.name], undefined)}
          >
            <X size={13} aria-hidden />
          </ActionIcon>
        </div>
      ))}
      <div className={classes.adders}>
        <TextInput
          aria-label="name of a new param"
          placeholder="name"
          w={150}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && add()}
        />
        <Adder onClick={add}>Param</Adder>
      </div>
    </>
  );
}

function Adder({ onClick, children }: { onClick: () => void; children: ReactNode }) {
  return (
    <Button variant="default" leftSection={<Plus size={13} aria-hidden />} onClick={onClick}>
      {children}
    </Button>
  );
}

function choices(known: readonly string[], value: string): string[] {
  return known.includes(value) ? [...known] : [...known, value];
}
