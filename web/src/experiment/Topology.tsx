/** Every replica as a cell, by role: what it does at a glance. A click means it, Ctrl-click means it too. */

import { Button } from "@mantine/core";
import { memo, useCallback, useRef, useState } from "react";
import type { Replica } from "../api/client";
import { count, several } from "../look/numbers";
import { StateMark, StateShape } from "../look/StateMark";
import { counted, hueOf } from "../look/states";
import { useNow } from "../look/Time";
import { Tips } from "../look/Tips";
import { duration, elapsed } from "../look/times";
import { useShown } from "./context";
import classes from "./experiment.module.css";
import type { RankView } from "./ranks";
import { byRole, toggled } from "./replicas";

const MOST_CELLS = 128;

interface Props {
  ranks: ReadonlyMap<string, RankView>;
  slowest: string | undefined;
}

export function Topology({ ranks, slowest }: Props) {
  const { all, selected, selection, setSelection } = useShown();
  const [open, setOpen] = useState(false);
  const many = all.length > MOST_CELLS;
  const meant = new Set(selected.map((one) => one.replica));
  const now = useRef({ selection, setSelection });
  now.current = { selection, setSelection };
  const choose = useCallback((name: string, more: boolean) => {
    const { selection, setSelection } = now.current;
    setSelection(more ? toggled(selection, name) : selection === name ? "" : name);
  }, []);
  const about = (name: string) => {
    const replica = all.find((one) => one.replica === name);
    return replica && <About replica={replica} rank={ranks.get(name)} slow={slowest === name} />;
  };

  return (
    <section className={classes.topology} aria-label="replicas">
      {byRole(all).map(([role, replicas]) => (
        <div key={role} className={classes.role}>
          <button
            type="button"
            className={classes.roleName}
            aria-pressed={selection === role}
            title={`show only ${role} replicas`}
            onClick={() => setSelection(selection === role ? "" : role)}
          >
            {role} <span className="dim">{replicas.length}</span>
          </button>
          {many && !open ? (
            <Counts replicas={replicas} />
          ) : (
            <Tips about={about} className={classes.cells}>
              {replicas.map((one) => (
                <Cell
                  key={one.replica}
                  name={one.replica}
                  state={one.state}
                  silent={ranks.get(one.replica)?.silent ?? false}
                  slow={slowest === one.replica}
                  faded={selection !== "" && !meant.has(one.replica)}
                  choose={choose}
                />
              ))}
            </Tips>
          )}
        </div>
      ))}
      {many && (
        <Button variant="subtle" size="compact-xs" onClick={() => setOpen(!open)}>
          {open ? "counts only" : `show all ${all.length}`}
        </Button>
      )}
      {selection && (
        <span className={classes.meant}>
          {several(selected.length, "replica")} of {all.length} meant
          <Button variant="subtle" size="compact-xs" onClick={() => setSelection("")}>
            all
          </Button>
        </span>
      )}
    </section>
  );
}

function Counts({ replicas }: { replicas: Replica[] }) {
  return (
    <span className={classes.counts}>
      {counted(replicas.map((one) => one.state)).map(([state, n]) => (
        <StateMark key={state} state={state}>
          {n}
        </StateMark>
      ))}
    </span>
  );
}

interface CellProps {
  name: string;
  state: string;
  silent: boolean;
  slow: boolean;
  faded: boolean;
  choose: (name: string, more: boolean) => void;
}

const Cell = memo(function Cell({ name, state, silent, slow, faded, choose }: CellProps) {
  return (
    <button
      type="button"
      className={classes.cell}
      data-tip={name}
      data-hue={hueOf(state)}
      data-faded={faded || undefined}
      data-slow={slow || undefined}
      data-silent={silent || undefined}
      aria-label={`${name} ${state}${slow ? ", slowest" : ""}${silent ? ", silent" : ""}`}
      onClick={(event) => choose(name, event.ctrlKey || event.metaKey || event.shiftKey)}
    >
      <StateShape state={state} size={12} />
    </button>
  );
});

function About({ replica, rank, slow }: { replica: Replica; rank?: RankView; slow: boolean }) {
  const { over } = useShown();
  const now = useNow();
  const ran = elapsed(replica, now);
  return (
    <div className={classes.about}>
      <b>{replica.replica}</b> {replica.state}
      {replica.reason ? `: ${replica.reason}` : ""}
      <br />
      rank {replica.rank}
      {replica.node ? ` on ${replica.node}` : ""}
      {rank?.pid !== undefined ? `, pid ${rank.pid}` : ""}
      {replica.try > 0 ? `, try ${replica.try}` : ""}
      {ran !== null ? `, ${duration(ran)}` : ""}
      {rank?.at !== undefined && (
        <>
          <br />
          at step {count(rank.at)}
          {over ? "" : `, ${duration(rank.pointAge)} ago`}
        </>
      )}
      {rank?.age !== undefined && !over && (
        <>
          <br />
          last printed {duration(rank.age)} ago
        </>
      )}
      {rank?.metricAge !== undefined && !over && (
        <>
          <br />
          last tracked {duration(rank.metricAge)} ago
        </>
      )}
      {rank?.beatAge !== undefined && !over && (
        <>
          <br />
          its launcher was heard {duration(rank.beatAge)} ago
        </>
      )}
      {slow && (
        <>
          <br />
          the others wait for it
        </>
      )}
    </div>
  );
}
