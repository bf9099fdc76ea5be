/** Files: what replicas wrote, shared and each its own; artifacts and models they handed over; what they showed. */

import { Badge, Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useMemo } from "react";
import { api, asked, type Schemas } from "../api/client";
import { RUNNING_AGAIN } from "../api/queries";
import { useShown } from "../experiment/context";
import { CommandHint, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { bytes, several } from "../look/numbers";
import { useView } from "../url/view";
import classes from "./artifacts.module.css";
import { treeOf } from "./files";
import { Preview, type Shown } from "./Preview";
import { type Record_, Records } from "./Records";
import { Branch, Entry, KindIcon, Section, useFiles, Version, walk } from "./Tree";

const DEFAULTS = { file: "", named: "", nth: "" };
const SHOWN = ["image", "text", "table", "histogram"];

type Output = Schemas["Output"];
type Artifact = Schemas["Artifact"];
type Model = Schemas["Model"];

export function ArtifactsTab() {
  const { experiment, over, selected, selection } = useShown();
  const id = experiment.id;
  const [wish, setWish] = useView(DEFAULTS);
  const again = over ? (false as const) : 2 * RUNNING_AGAIN;
  const path = { word: id };
  const outputs = useQuery({
    queryKey: ["experiment", id, "outputs"],
    queryFn: () => asked(api.GET("/api/experiments/{word}/outputs", { params: { path } })),
    refetchInterval: again,
  });
  const artifacts = useQuery({
    queryKey: ["experiment", id, "artifacts"],
    queryFn: () => asked(api.GET("/api/experiments/{word}/artifacts", { params: { path } })),
    refetchInterval: again,
  });
  const models = useQuery({
    queryKey: ["models"],
    queryFn: () => asked(api.GET("/api/models")),
    refetchInterval: again,
  });
  const records = useQuery({
    queryKey: ["experiment", id, "records", SHOWN],
    queryFn: async () =>
      (
        await Promise.all(
          SHOWN.map((kind) => asked(api.GET("/api/experiments/{word}/records", { params: { path, query: { kind } } }))),
        )
      ).flat(),
    refetchInterval: again,
  });

  const names = useMemo(() => new Set(selected.map((one) => one.replica)), [selected]);
  const wanted = (text: string) => text.toLowerCase().includes(wish.named.toLowerCase());
  const files = (outputs.data?.files ?? []).filter(
    (file) => (file.replica === null || names.has(file.replica)) && wanted(file.path),
  );
  const given = (artifacts.data ?? []).filter((one) => names.has(one.replica) && wanted(one.name));
  const made = (models.data ?? []).filter((one) => one.experiment === id && wanted(one.name));
  const said = (records.data ?? []).filter((one) => names.has(one.replica) && wanted(one.name));
  const groups = new Map<string, Record_[]>();
  for (const one of said)
    groups.set(`${one.kind}/${one.name}`, [...(groups.get(`${one.kind}/${one.name}`) ?? []), one]);

  const error = outputs.error ?? artifacts.error ?? models.error ?? records.error;
  if (error) return <ErrorBox error={error} retry={() => void outputs.refetch()} />;
  if (!outputs.data || !artifacts.data || !records.data || !models.data) return <Waiting what="artifacts" />;
  const nothing = !files.length && !given.length && !made.length && !said.length;
  const elsewhere = outputs.data.elsewhere;
  if (nothing && elsewhere && !wish.named && !selection)
    return (
      <EmptyState title="The outputs are on the cluster" command={`shoal outputs ${id} ls`}>
        They are in <span className="mono">{elsewhere}</span>, where this server cannot read them. What scripts hand
        over with <code>shoal.artifact(path)</code> comes here.
      </EmptyState>
    );
  if (nothing && !wish.named && !selection)
    return (
      <EmptyState title={over ? "No files" : "No files yet"} command={`shoal outputs ${id} ls`}>
        Scripts write into <code>shoal.replica.outputs</code>, or hand over with <code>shoal.artifact(path)</code> and{" "}
        <code>shoal.model(name, path)</code>.
      </EmptyState>
    );

  const shared = files.filter((file) => file.replica === null);
  const own = [...names]
    .map((name) => ({ name, files: files.filter((file) => file.replica === name) }))
    .filter((one) => one.files.length);
  const choose = (file: string) => setWish({ file, nth: "" });
  const zip = `/api/experiments/${encodeURIComponent(id)}/outputs-zip?under=`;
  const tree = { chosen: wish.file, choose, open: wish.named !== "" };
  return (
    <div className={classes.tab}>
      <nav className={classes.side} aria-label="files" onKeyDown={walk}>
        <TextInput
          aria-label="filter by name"
          placeholder="filter by name"
          value={wish.named}
          onChange={(event) => setWish({ named: event.currentTarget.value })}
        />
        {nothing && <p className="dim">Nothing matches.</p>}
        {groups.size > 0 && (
          <Section title="Shown by scripts">
            {[...groups].map(([key, found]) => (
              <Entry
                key={key}
                icon={<KindIcon kind={found[0]!.kind} />}
                name={found[0]!.name}
                note={several(found.length, found[0]!.kind)}
                chosen={wish.file === `r:${key}`}
                choose={() => choose(`r:${key}`)}
              />
            ))}
          </Section>
        )}
        {made.length > 0 && (
          <Section title="Models">
            {made.map((model) => (
              <Version
                key={`${model.name}/${model.version}`}
                kind="m"
                word={`${model.name}/${model.version}`}
                title={`${model.name} v${model.version}`}
                note={bytes(model.size)}
                {...tree}
              />
            ))}
          </Section>
        )}
        {given.length > 0 && (
          <Section title="Artifacts">
            {given.map((one) => (
              <Version
                key={one.id}
                kind="a"
                word={String(one.id)}
                title={`${one.name} v${one.version}`}
                note={one.replica}
                conflict={one.conflict ? disagreement(one) : undefined}
                {...tree}
              />
            ))}
          </Section>
        )}
        {shared.length > 0 && (
          <Section title="Shared outputs" note={bytes(sizeOf(shared))}>
            <Branch folder={treeOf(shared)} prefix="o:" zip={zip} {...tree} open />
          </Section>
        )}
        {own.map((one) => (
          <Section
            key={one.name}
            title={one.name}
            note={bytes(sizeOf(one.files))}
            zip={`${zip}${encodeURIComponent(one.name)}`}
            folded={own.length > 2 && !wish.file.startsWith(`o:${one.name}/`)}
          >
            <Branch folder={treeOf(one.files, `${one.name}/`)} prefix={`o:${one.name}/`} zip={zip} {...tree} open />
          </Section>
        ))}
        {outputs.data.more && (
          <div className="dim">
            {`The first ${outputs.data.files.length} files. All: `}
            <CommandHint command={`shoal outputs ${id} ls`} />
          </div>
        )}
        {elsewhere && (
          <p className="dim">
            The outputs are in <span className="mono">{elsewhere}</span>, where this server cannot read them.
          </p>
        )}
      </nav>
      <div className={classes.main}>
        <Chosen
          wish={wish.file}
          files={outputs.data.files}
          artifacts={artifacts.data}
          models={models.data}
          groups={groups}
          experiment={id}
        />
      </div>
    </div>
  );
}

/** What the URL names. */
function Chosen({
  wish,
  files,
  artifacts,
  models,
  groups,
  experiment,
}: {
  wish: string;
  files: Output[];
  artifacts: Artifact[];
  models: Model[];
  groups: Map<string, Record_[]>;
  experiment: string;
}) {
  const [kind, rest] = [wish.slice(0, 1), wish.slice(2)];
  const output = kind === "o" ? files.find((file) => file.path === rest) : undefined;
  const hashed = useQuery({
    queryKey: ["experiment", experiment, "hash", output?.path, output?.modified],
    queryFn: () =>
      asked(
        api.GET("/api/experiments/{word}/outputs", {
          params: { path: { word: experiment }, query: { under: output!.path, hash: true, limit: 1 } },
        }),
      ),
    enabled: output !== undefined && !output.outside && output.size < 256 << 20,
    staleTime: 60_000,
  });
  if (output) {
    if (output.outside)
      return (
        <EmptyState title="A link that leads elsewhere">{`It points to ${output.link}, which is not in the outputs.`}</EmptyState>
      );
    const shown: Shown = {
      url: `/api/experiments/${encodeURIComponent(experiment)}/outputs/${encoded(output.path)}`,
      path: output.path,
      size: output.size,
      modified: output.modified,
      hash: hashed.data?.files[0]?.hash,
      version: `${output.modified} ${output.size}`,
      notes: output.conflict ? [`${output.writers.join(" and ")} have it open for writing at the same time.`] : [],
    };
    return <Preview file={shown} />;
  }
  if (kind === "r") {
    const found = groups.get(rest);
    if (found) return <Records key={rest} kind={found[0]!.kind} name={found[0]!.name} records={found} />;
  }
  if (kind === "a" || kind === "m") return <Manifest kind={kind} word={rest} artifacts={artifacts} models={models} />;
  return (
    <EmptyState title="Choose a file">
      {wish
        ? "The one that the address names is not there."
        : "Text, tables, images and pages are shown here; everything can be downloaded."}
    </EmptyState>
  );
}

/** A version of an artifact or model; with a path behind it, one of its files. */
function Manifest({
  kind,
  word,
  artifacts,
  models,
}: {
  kind: "a" | "m";
  word: string;
  artifacts: Artifact[];
  models: Model[];
}) {
  const artifact =
    kind === "a" ? artifacts.find((one) => word === String(one.id) || word.startsWith(`${one.id}:`)) : undefined;
  const model =
    kind === "m"
      ? models.find((one) => word === `${one.name}/${one.version}` || word.startsWith(`${one.name}/${one.version}:`))
      : undefined;
  const base = artifact
    ? `/api/artifacts/${artifact.id}`
    : model
      ? `/api/models/${encoded(model.name)}/versions/${model.version}`
      : "";
  const key = artifact ? String(artifact.id) : model ? `${model.name}/${model.version}` : "";
  const inside = word.slice(key.length + 1);
  const files = useFiles(kind, key);
  const about = artifact ?? model;
  if (!about) return <EmptyState title="It is not there">This version may have been removed.</EmptyState>;
  const file = files.data?.find((one) => one.path === inside) ?? (files.data?.length === 1 ? files.data[0] : undefined);
  return (
    <>
      <div className={classes.about}>
        <b>{`${about.name} v${about.version}`}</b>
        {model?.aliases.map((alias) => (
          <Badge key={alias} variant="light">
            {alias}
          </Badge>
        ))}
        <span className="dim">{`${several(about.count, "file")}, ${bytes(about.size)}, by ${about.replica}${about.step === null ? "" : ` at step ${about.step}`}`}</span>
        <span className={classes.spacer} />
        <Button
          variant="default"
          component="a"
          href={`${base}/zip`}
          download
          leftSection={<Download size={13} aria-hidden />}
        >
          All files as zip
        </Button>
      </div>
      {artifact?.conflict && <p className="hue-red">{disagreement(artifact)}</p>}
      {files.error ? (
        <ErrorBox error={files.error} />
      ) : file ? (
        <Preview
          file={{
            url: `${base}/files/${encoded(file.path)}`,
            path: file.path,
            size: file.size,
            hash: file.hash,
            version: file.hash,
          }}
        />
      ) : (
        <EmptyState title="Choose one of its files">{files.data ? several(files.data.length, "file") : ""}</EmptyState>
      )}
    </>
  );
}

function disagreement(artifact: Artifact): string {
  const versions = artifact.writers.map((writer) => `${writer.replica} (v${writer.version})`);
  return `${versions.join(" and ")} gave different content to the same path; all of it is kept.`;
}

function sizeOf(files: readonly { size: number }[]): number {
  return files.reduce((sum, file) => sum + file.size, 0);
}

function encoded(path: string): string {
  return path.split("/").map(encodeURIComponent).join("/");
}
