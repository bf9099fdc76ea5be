/** A new experiment: fields and file side by side. The file is the truth; the fields change it, the server judges it. */

import { Button, Kbd, Menu, Tooltip } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Check, LayoutTemplate, Play, RotateCcw, Terminal, X } from "lucide-react";
import { lazy, Suspense, useCallback, useEffect, useRef, useState } from "react";
import { api, asked } from "../api/client";
import { experiment as shownExperiment } from "../api/queries";
import { EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { remember, remembered } from "../url/remembered";
import { useView } from "../url/view";
import { NO_NOTES, useCheck, useChoices } from "./checking";
import classes from "./create.module.css";
import { BLANK, cloned, command, type Draft, FILE } from "./draft";
import { Form } from "./Form";
import { formOf } from "./fields";
import { PlanPanel } from "./PlanPanel";

const Editor = lazy(() => import("./Editor").then((module) => ({ default: module.Editor })));

const VIEW = { from: "", template: "", show: "plan" };
const KEPT = "create.draft";

export function CreatePage() {
  const [view, setView] = useView(VIEW);
  const origin = view.from ? `from:${view.from}` : view.template ? `template:${view.template}` : "";
  const begun = useQuery({
    queryKey: ["begin", origin],
    queryFn: () => begin(view),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  if (begun.error)
    return (
      <EmptyState title="It cannot be begun from there">
        <ErrorBox error={begun.error} />
        <Button mt="sm" variant="default" onClick={() => setView({ from: "", template: "" })}>
          Begin with a new file
        </Button>
      </EmptyState>
    );
  if (!begun.data) return <Waiting what="the file" />;
  return <Writing key={origin} first={begun.data} show={view.show} setShow={(show) => setView({ show })} />;
}

interface Begun {
  draft: Draft;
  note: string;
  /** Changes of an earlier visit were taken up. */
  resumed: boolean;
}

/** What was being written is taken up again, if it began at the same place. */
async function begin(view: typeof VIEW, anew = false): Promise<Begun> {
  const fresh = await beginning(view);
  const kept = remembered<Draft | null>(KEPT, null);
  const same = !anew && kept && kept.origin === fresh.draft.origin && kept.text !== fresh.draft.text;
  return same ? { ...fresh, draft: kept, resumed: true } : { ...fresh, resumed: false };
}

async function beginning({ from, template }: typeof VIEW): Promise<Omit<Begun, "resumed">> {
  const blank: Draft = { origin: "", text: BLANK, directory: "/", cluster: "local", oversubscribe: false };
  if (from) {
    const path = { params: { path: { word: from } } };
    const [found, planned] = await Promise.all([
      shownExperiment(from),
      asked(api.GET("/api/experiments/{word}/plan", path)),
    ]);
    const made = cloned(found, planned);
    return { ...made, draft: { ...made.draft, origin: `from:${from}` } };
  }
  if (template) {
    const one = (await asked(api.GET("/api/templates"))).find((known) => known.name === template);
    if (!one) throw new Error(`There is no template ${template}.`);
    return { draft: { ...blank, origin: `template:${template}`, text: one.text, directory: one.directory }, note: "" };
  }
  return { draft: blank, note: "" };
}

function Writing({ first, show, setShow }: { first: Begun; show: string; setShow: (show: string) => void }) {
  const navigate = useNavigate();
  const [{ draft, wanted }, setDraft] = useState<{ draft: Draft; wanted: { text: string } | null }>({
    draft: first.draft,
    wanted: null, // what the editor has to take over
  });
  const [resumed, setResumed] = useState(first.resumed);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const [shown, setShown] = useState<{ where: string } | null>(null);
  const { checked, error, old } = useCheck(draft);
  const choices = useChoices();
  const clipboard = useClipboard({ timeout: 1500 });
  const touched = useRef(false);

  const change = useCallback((next: Partial<Draft>) => {
    touched.current = true;
    setFailure(null);
    setDraft((before) => ({ ...before, draft: { ...before.draft, ...next } }));
  }, []);
  const write = useCallback((text: string) => change({ text }), [change]);
  const edit = useCallback((made: (text: string) => string | null) => {
    touched.current = true;
    setFailure(null);
    setDraft((before) => {
      const text = made(before.draft.text);
      return text === null ? before : { draft: { ...before.draft, text }, wanted: { text } };
    });
  }, []);
  useEffect(() => {
    if (touched.current) remember(KEPT, draft);
  }, [draft]);

  const readable = formOf(draft.text);
  const lastForm = useRef(readable ?? formOf("")!);
  if (readable) lastForm.current = readable;

  const wrong = checked !== undefined && !checked.ok && !old;
  const submit = async () => {
    if (busy || wrong) return;
    setBusy(true);
    setFailure(null);
    try {
      const { text, directory, cluster, oversubscribe } = draft;
      const body = { files: [{ name: FILE, text }], params: [], directory, cluster, oversubscribe };
      const made = await asked(api.POST("/api/experiments", { body }));
      remember(KEPT, undefined);
      touched.current = false;
      notifications.show({ message: `${made.experiment.id} is created` });
      await navigate({ to: "/experiments/$id", params: { id: made.experiment.id } });
    } catch (refused) {
      setFailure(refused);
      setBusy(false);
    }
  };
  const again = async () => {
    const { from, template } = originOf(draft.origin);
    const fresh = await begin({ ...VIEW, from, template }, true);
    setDraft({ draft: fresh.draft, wanted: { text: fresh.draft.text } });
    setResumed(false);
    remember(KEPT, undefined);
    touched.current = false;
  };
  useControlEnter(() => void submit());

  return (
    <div className={classes.page}>
      <header className={classes.head}>
        <h1>New experiment</h1>
        <Origin draft={draft} note={first.note} />
        {resumed && <span className="dim">your changes of last time</span>}
        {(resumed || draft.text !== first.draft.text) && (
          <Button
            variant="subtle"
            size="compact-xs"
            leftSection={<RotateCcw size={12} aria-hidden />}
            onClick={() => void again()}
          >
            Start over
          </Button>
        )}
        <span className={classes.grow} />
        <Templates templates={choices.templates ?? []} />
        <Tooltip label="cd, shoal run and the file itself: paste it into a shell">
          <Button
            variant="default"
            leftSection={clipboard.copied ? <Check size={14} aria-hidden /> : <Terminal size={14} aria-hidden />}
            onClick={() => clipboard.copy(command(draft))}
          >
            {clipboard.copied ? "Copied" : "Copy shoal run"}
          </Button>
        </Tooltip>
        <Tooltip
          label={
            <>
              {wrong ? "something is wrong with the file" : "creates the experiment and shows it"}{" "}
              <Kbd size="xs">Ctrl Enter</Kbd>
            </>
          }
        >
          <Button
            leftSection={<Play size={14} aria-hidden />}
            loading={busy}
            disabled={wrong}
            onClick={() => void submit()}
          >
            Submit
          </Button>
        </Tooltip>
      </header>
      {failure ? (
        <div className={classes.failure}>
          <ErrorBox error={failure} compact />
        </div>
      ) : null}
      <Form
        draft={draft}
        change={change}
        edit={edit}
        form={lastForm.current}
        broken={!readable}
        datasets={choices.datasets}
        clusters={choices.clusters ?? []}
      />
      <div className={classes.file}>
        <div className={classes.editor}>
          <Suspense fallback={<Waiting what="the editor" />}>
            <Editor
              first={draft.text}
              onText={write}
              wanted={wanted}
              errors={checked?.errors ?? NO_NOTES}
              warnings={checked?.warnings ?? NO_NOTES}
              schema={choices.schema}
              datasets={choices.datasets}
              submit={() => void submit()}
              shown={shown}
            />
          </Suspense>
        </div>
        <PlanPanel
          checked={checked}
          error={error}
          old={old}
          cluster={draft.cluster}
          show={show}
          setShow={setShow}
          goTo={(where) => setShown({ where })}
        />
      </div>
    </div>
  );
}

/** Wherever the cursor is on the page; the editor takes it first. */
function useControlEnter(run: () => void): void {
  const newest = useRef(run);
  newest.current = run;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented) newest.current();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

function originOf(origin: string): { from: string; template: string } {
  const [kind, ...rest] = origin.split(":");
  const name = rest.join(":");
  return { from: kind === "from" ? name : "", template: kind === "template" ? name : "" };
}

function Origin({ draft, note }: { draft: Draft; note: string }) {
  const { from, template } = originOf(draft.origin);
  if (!from && !template) return null;
  return (
    <span className={classes.origin}>
      <span className="dim">{from ? "clone of" : "template"}</span>
      {from ? (
        <Link to="/experiments/$id" params={{ id: from }} className={`mono ${classes.link}`}>
          {from}
        </Link>
      ) : (
        <span>{template}</span>
      )}
      {note && <span className="dim clip" title={note}>{`(${note})`}</span>}
      <Tooltip label="begin with a new file">
        <Link to="/create" aria-label="begin with a new file" className="dim">
          <X size={13} aria-hidden />
        </Link>
      </Tooltip>
    </span>
  );
}

function Templates({ templates }: { templates: readonly { name: string; title: string }[] }) {
  const navigate = useNavigate();
  return (
    <Menu position="bottom-end" width={420}>
      <Menu.Target>
        <Button variant="default" leftSection={<LayoutTemplate size={14} aria-hidden />}>
          Templates
        </Button>
      </Menu.Target>
      <Menu.Dropdown mah={420} style={{ overflowY: "auto" }}>
        {templates.length === 0 && <Menu.Label>There are none here.</Menu.Label>}
        {templates.map((one) => (
          <Menu.Item
            key={one.name}
            onClick={() => void navigate({ to: "/create", search: { template: one.name } as never })}
          >
            <div style={{ fontWeight: 550 }}>{one.name}</div>
            <div className="dim" style={{ fontSize: 12, whiteSpace: "normal" }}>
              {one.title}
            </div>
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
