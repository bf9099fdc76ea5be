/** The file, to be written: CodeMirror with what the server says about it and what the schema offers. Loaded late. */

import {
  acceptCompletion,
  autocompletion,
  type CompletionContext,
  type CompletionResult,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, isolateHistory } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useLayoutEffect, useRef } from "react";
import type { Note } from "../api/client";
import { placeOf } from "./draft";
import { meaningOf, offersAt, type Schema, spotAt } from "./schema";

interface Props {
  /** What it begins with. */
  first: string;
  /** Each text that is written in it. */
  onText: (text: string) => void;
  /** A text that comes from elsewhere; a new object is a new wish. What is written here never comes back so. */
  wanted: { text: string } | null;
  errors: readonly Note[];
  warnings: readonly Note[];
  schema: Schema | undefined;
  /** `cifar10@v1`: what `dataset:` may be. */
  datasets: readonly string[];
  submit: () => void;
  /** Where the cursor is to go; a new object is a new wish. */
  shown: { where: string } | null;
}

export function Editor({ first, onText, wanted, errors, warnings, schema, datasets, submit, shown }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const newest = useRef({ onText, schema, datasets, submit });
  newest.current = { onText, schema, datasets, submit };
  const begun = useRef(wanted?.text ?? first);

  useLayoutEffect(() => {
    const made = new EditorView({
      parent: place.current!,
      state: EditorState.create({
        doc: begun.current,
        extensions: [
          lineNumbers(),
          lintGutter(),
          history(),
          indentOnInput(),
          indentUnit.of("  "),
          bracketMatching(),
          closeBrackets(),
          highlightActiveLine(),
          highlightSelectionMatches(),
          search({ top: true }),
          yaml(),
          syntaxHighlighting(COLOURS),
          LOOK,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "experiment file", spellcheck: "false" }),
          autocompletion({ override: [(context) => completed(context, newest.current)], icons: false }),
          hoverTooltip((editor, at) => explained(editor, at, newest.current.schema), { hoverTime: 400 }),
          keymap.of([
            { key: "Mod-Enter", run: () => submitted(newest.current.submit) },
            { key: "Tab", run: acceptCompletion },
            ...closeBracketsKeymap,
            ...defaultKeymap,
            ...searchKeymap,
            ...historyKeymap,
            ...completionKeymap,
            ...lintKeymap,
          ]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) newest.current.onText(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
  }, []);

  useEffect(() => {
    const editor = view.current;
    if (!editor || !wanted) return;
    const known = editor.state.doc.toString();
    if (known !== wanted.text) {
      const changes = between(known, wanted.text);
      editor.dispatch({ changes, userEvent: "input.form", annotations: isolateHistory.of("full") });
    }
  }, [wanted]);

  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const now = editor.state.doc.toString();
    const found = [...noted(now, errors, "error"), ...noted(now, warnings, "warning")];
    editor.dispatch(setDiagnostics(editor.state, found));
  }, [errors, warnings]);

  useEffect(() => {
    const editor = view.current;
    const at = editor && shown && placeOf(editor.state.doc.toString(), shown.where);
    if (!at) return;
    editor.dispatch({ selection: { anchor: at.from, head: at.to }, scrollIntoView: true });
    editor.focus();
  }, [shown]);

  return <div ref={place} style={{ height: "100%", minHeight: 0, overflow: "hidden" }} />;
}

function submitted(submit: () => void): boolean {
  submit();
  return true;
}

function noted(text: string, notes: readonly Note[], severity: "error" | "warning"): Diagnostic[] {
  return notes.flatMap((note) => {
    const at = placeOf(text, note.where);
    const said = [note.message, note.hint && `hint: ${note.hint}`].filter(Boolean).join("\n");
    return at ? [{ ...at, severity, message: said }] : [];
  });
}

/** One change that makes one text of the other: the cursor stays where it is, and undo takes it back. */
function between(before: string, after: string): { from: number; to: number; insert: string } {
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < most - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  return { from: start, to: before.length - end, insert: after.slice(start, after.length - end) };
}

interface Known {
  schema: Schema | undefined;
  datasets: readonly string[];
}

function completed(context: CompletionContext, known: Known): CompletionResult | null {
  const spot = known.schema && spotAt(context.state.doc.toString(), context.pos);
  if (!spot || (!context.explicit && spot.what === "key" && !spot.word)) return null;
  const named = spot.what === "value" && spot.path.at(-1) === "dataset";
  const offers = named
    ? known.datasets.map((text) => ({ text, note: "", kind: "value" as const }))
    : offersAt(known.schema!, spot);
  const indent = " ".repeat(context.state.doc.lineAt(context.pos).text.search(/\S|$/));
  const after = { key: ": ", section: `:\n${indent}  `, list: `:\n${indent}  - `, value: "" };
  return {
    from: spot.from,
    validFor: /^[\w.@-]*$/,
    options: offers.map((offer) => ({
      label: offer.text,
      apply: offer.text + after[offer.kind],
      info: offer.note || undefined,
      type: offer.kind === "value" ? "constant" : "property",
    })),
  };
}

/** What the key under the pointer means. */
function explained(editor: EditorView, at: number, schema: Schema | undefined) {
  const line = editor.state.doc.lineAt(at);
  const found = /^(\s*(?:-\s+)*)([\w.-]+)\s*:/.exec(line.text);
  if (!found || !schema) return null;
  const from = line.from + found[1]!.length;
  const to = from + found[2]!.length;
  if (at < from || at > to) return null;
  const spot = spotAt(editor.state.doc.toString(), to);
  const said = spot && meaningOf(schema, [...spot.path, found[2]!]);
  if (!said) return null;
  return {
    pos: from,
    end: to,
    above: true,
    create: () => {
      const dom = document.createElement("div");
      dom.className = "cm-meaning";
      dom.textContent = said;
      return { dom };
    },
  };
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--hue-blue)" },
  { tag: tags.comment, color: "var(--mantine-color-dimmed)", fontStyle: "italic" },
  { tag: [tags.string, tags.content], color: "var(--mantine-color-text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--hue-green)" },
  { tag: [tags.separator, tags.punctuation, tags.squareBracket, tags.brace], color: "var(--mantine-color-dimmed)" },
  { tag: [tags.labelName, tags.typeName, tags.meta], color: "var(--hue-green)" },
]);

const LOOK = EditorView.theme({
  "&": {
    height: "100%",
    fontSize: "13px",
    backgroundColor: "var(--mantine-color-body)",
    color: "var(--mantine-color-text)",
  },
  "&.cm-focused": { outline: "2px solid var(--hue-blue)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mantine-font-family-monospace)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--mantine-color-text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--mantine-color-text)" },
  ".cm-gutters": {
    backgroundColor: "var(--surface)",
    color: "var(--mantine-color-dimmed)",
    borderRight: "1px solid var(--line)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--hue-blue) 7%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection":
    {
      backgroundColor: "color-mix(in srgb, var(--hue-blue) 28%, transparent)",
    },
  ".cm-selectionMatch": { backgroundColor: "color-mix(in srgb, var(--hue-blue) 14%, transparent)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": {
    backgroundColor: "var(--chosen)",
    outline: "1px solid var(--line-strong)",
  },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--hue-red)",
    textUnderlineOffset: "3px",
  },
  ".cm-lintRange-warning": {
    backgroundImage: "none",
    textDecoration: "underline dotted var(--mantine-color-dimmed)",
    textUnderlineOffset: "3px",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--surface-raised)",
    color: "var(--mantine-color-text)",
    border: "1px solid var(--line-strong)",
    borderRadius: "4px",
    boxShadow: "0 2px 10px rgb(0 0 0 / 18%)",
  },
  ".cm-tooltip .cm-meaning": { padding: "4px 8px", maxWidth: "420px", fontFamily: "system-ui, sans-serif" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mantine-font-family-monospace)", fontSize: "12px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": {
    backgroundColor: "var(--chosen)",
    color: "var(--mantine-color-text)",
  },
  ".cm-completionInfo": { padding: "6px 10px", maxWidth: "360px", fontFamily: "system-ui, sans-serif" },
  ".cm-diagnostic": { padding: "4px 10px", whiteSpace: "pre-wrap", fontFamily: "system-ui, sans-serif" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--hue-red)" },
  ".cm-diagnostic-warning": { borderLeft: "4px solid var(--hue-grey)" },
  ".cm-panels": { backgroundColor: "var(--surface)", color: "var(--mantine-color-text)" },
  ".cm-panels.cm-panels-top": { borderBottom: "1px solid var(--line)" },
  ".cm-panel input, .cm-panel button": { font: "inherit" },
});
