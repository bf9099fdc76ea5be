/** The files of two experiments side by side, with what differs marked. */

import { Button, SegmentedControl, Select, Switch } from "@mantine/core";
import { ArrowLeftRight } from "lucide-react";
import { Fragment, useMemo } from "react";
import { EmptyState } from "../look/Notes";
import { several } from "../look/numbers";
import shared from "./compare.module.css";
import { type Fold, folded, inside, type Line, type Pair, sideBySide } from "./diff";
import classes from "./files.module.css";
import type { Compared } from "./rows";
import { pairOf, type SetView, type View } from "./view";

interface Props {
  compared: readonly Compared[];
  named: ReadonlyMap<string, string>;
  view: View;
  setView: SetView;
}

const KINDS = [
  { value: "file", label: "As written" },
  { value: "resolved", label: "Resolved" },
  { value: "changes", label: "Uncommitted code" },
];
const NOTES: Record<string, string> = {
  file: "the files as they were handed in",
  resolved: "merged, filled in, in the newest spelling",
  changes: "what differed from the commit when it was submitted",
};

export function FileDiff({ compared, named, view, setView }: Props) {
  const ids = compared.map((one) => one.experiment.id);
  const [a, b] = pairOf(ids, view);
  const [left, right] = [a, b].map((id) => compared.find((one) => one.experiment.id === id));
  const of = KINDS.some((kind) => kind.value === view.of) ? view.of : "file";
  const texts = [left, right].map((one) => (one ? textOf(one, of) : ""));
  const pairs = useMemo(() => sideBySide(texts[0]!, texts[1]!), [texts[0], texts[1]]);
  const rows = useMemo(() => (view.equal ? pairs : folded(pairs)), [pairs, view.equal]);
  if (!a || !b)
    return <EmptyState title="Two are needed">Tick another experiment: files are shown in pairs.</EmptyState>;
  const choose = (side: "left" | "right", id: string | null) => {
    if (!id) return;
    const other = side === "left" ? b : a;
    const now = side === "left" ? a : b;
    setView({ [side]: id, [side === "left" ? "right" : "left"]: id === other ? now : other });
  };
  const options = ids.map((id) => ({ value: id, label: named.get(id) ?? id }));
  const differing = pairs.filter((pair) => pair.kind !== "same").length;
  return (
    <>
      <div className={shared.tools}>
        <SegmentedControl
          aria-label="which text"
          value={of}
          onChange={(value) => setView({ of: value })}
          data={KINDS}
        />
        <Switch
          label="all lines"
          checked={view.equal}
          onChange={(event) => setView({ equal: event.currentTarget.checked })}
        />
        <span className="dim">{NOTES[of]}</span>
        <span role="status" className="dim">
          {differing ? `${several(differing, "line")} differ` : texts[0] ? "the same" : ""}
        </span>
      </div>
      <div className={classes.sides}>
        <Select
          aria-label="left"
          data={options}
          value={a}
          allowDeselect={false}
          onChange={(id) => choose("left", id)}
        />
        <Button variant="default" aria-label="swap sides" px={8} onClick={() => setView({ left: b, right: a })}>
          <ArrowLeftRight size={14} aria-hidden />
        </Button>
        <Select
          aria-label="right"
          data={options}
          value={b}
          allowDeselect={false}
          onChange={(id) => choose("right", id)}
        />
      </div>
      {pairs.length === 0 ? (
        <p className={`dim ${shared.nothing}`}>{EMPTY[of]}</p>
      ) : differing === 0 && !view.equal ? (
        <p className={`dim ${shared.nothing}`}>Nothing differs: {several(pairs.length, "line")} are the same.</p>
      ) : (
        <div className={shared.scroll} role="region" aria-label="difference of the files" tabIndex={0}>
          <table className={classes.diff}>
            <colgroup>
              <col className={classes.numbers} />
              <col />
              <col className={classes.numbers} />
              <col />
            </colgroup>
            <thead className={classes.hidden}>
              <tr>
                <th>line</th>
                <th>{a}</th>
                <th>line</th>
                <th>{b}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <Fragment key={keyOf(row)}>
                  {row.kind === "fold" ? <Folded fold={row} /> : <Both pair={row} />}
                </Fragment>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

const EMPTY: Record<string, string> = {
  file: "Neither of them has a file: they were not started by Shoal.",
  resolved: "Neither of them has a file: they were not started by Shoal.",
  changes: "Neither of them had changes that were not committed, or neither ran in a git repository.",
};

function keyOf(row: Pair | Fold): string {
  return row.kind === "fold" ? `fold ${row.left}` : `${row.left?.number ?? "-"} ${row.right?.number ?? "-"}`;
}

function Folded({ fold }: { fold: Fold }) {
  return (
    <tr className={classes.fold}>
      <td colSpan={4}>… {several(fold.count, "equal line")}</td>
    </tr>
  );
}

function Both({ pair }: { pair: Pair }) {
  return (
    <tr>
      <Side line={pair.left} other={pair.right} sign={pair.kind === "same" ? "" : "−"} />
      <Side line={pair.right} other={pair.left} sign={pair.kind === "same" ? "" : "+"} />
    </tr>
  );
}

/** The sign says it without colour. */
function Side({ line, other, sign }: { line: Line | null; other: Line | null; sign: string }) {
  if (!line)
    return (
      <>
        <td className={classes.line} data-gone />
        <td data-gone />
      </>
    );
  const [before, differs, after] = sign && other ? inside(line.text, other.text) : [line.text, "", ""];
  return (
    <>
      <td className={classes.line}>{line.number}</td>
      <td className={classes.code} data-sign={sign || undefined}>
        <span className={classes.sign}>{sign || " "}</span>
        {before}
        {differs && <mark>{differs}</mark>}
        {after}
      </td>
    </>
  );
}

function textOf({ experiment, provenance }: Compared, of: string): string {
  if (of === "resolved") return experiment.resolved;
  if (of === "changes") return String((provenance?.git as { diff?: string } | undefined)?.diff ?? "");
  if (experiment.files.length <= 1) return experiment.files[0]?.text ?? "";
  return experiment.files.map((file) => `# ${file.name}\n${file.text}`).join("\n");
}
