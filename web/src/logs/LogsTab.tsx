/** What replicas printed: merged or side by side; find and filter over all of it; follow; copy, link, download. */

import { type RefObject, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { live } from "../api/live";
import { replicaParams } from "../charts/series";
import { useShown } from "../experiment/context";
import { EmptyState } from "../look/Notes";
import { several } from "../look/numbers";
import { useView } from "../url/view";
import { LogPane, type PaneHandle } from "./LogPane";
import { ChosenBar, DEFAULTS, LogTools, type Shared } from "./LogTools";
import { anchorOf, type LogLine, placeOf } from "./lines";
import classes from "./logs.module.css";
import { type LogChoice, LogPages, PAGE, served } from "./pages";
import { tellsError } from "./text";

const MOST_COLUMNS = 4;
const AGAIN = 1000; // ms between looks at a log that grows

export function LogsTab() {
  const view = useShown();
  const { experiment, over, attempt, selected, all } = view;
  const [wish, setWish] = useView(DEFAULTS);
  const [follow, setFollowing] = useState(!over && wish.at === "" && wish.hit === "");
  const setFollow = useCallback(
    (on: boolean) => {
      setFollowing(on);
      if (on) setWish({ hit: "" }); // who reloads follows again
    },
    [setWish],
  );
  const params = replicaParams(view).join(" ");
  const columns = wish.side && selected.length > 1 ? selected.slice(0, MOST_COLUMNS) : null;

  const choice = useMemo<LogChoice>(
    () => ({
      id: experiment.id,
      replicas: params ? params.split(" ") : [],
      attempt,
      stream: wish.stream ? Number(wish.stream) : null,
      filter: wish.filter,
      regex: wish.regex,
      collapse: !wish.repeats,
    }),
    [experiment.id, params, attempt, wish.stream, wish.filter, wish.regex, wish.repeats],
  );
  const tab = useRef<HTMLDivElement>(null);
  const height = useRest(tab);
  const panes = useRef(new Map<string, PaneHandle>());
  const [hit, setHit] = useState<LogLine | null>(null);
  const failure = experiment.first_failure;
  // "Its log" of the failure: the first of its last lines that tells of an error, else its last line.
  useEffect(() => {
    if (wish.at !== "failure" || !failure) return;
    setFollow(false);
    let gone = false;
    void lastWords({ ...choice, replicas: [failure.replica], attempt: failure.attempt, filter: "" }).then(
      (line) => !gone && setHit(line),
      () => undefined,
    );
    return () => {
      gone = true;
    };
  }, [wish.at, failure, choice, setFollow]);
  const rankOf = useCallback((name: string) => all.find((one) => one.replica === name)?.rank ?? 0, [all]);

  const shared = { wish, setWish, follow, setFollow, over, hit, rankOf, panes };
  return (
    <div className={classes.tab} ref={tab} style={{ height }}>
      <LogTools {...shared} choice={choice} setHit={setHit} columns={columns?.length ?? 0} />
      {selected.length === 0 ? (
        <EmptyState title="No replica is meant">The selector above matches none of them.</EmptyState>
      ) : columns ? (
        <div className={classes.columns}>
          {columns.map((replica) => (
            <div key={replica.replica} className={classes.column}>
              <div className={classes.columnhead}>{replica.replica}</div>
              <OneLog
                {...shared}
                choice={{ ...choice, replicas: [replica.replica] }}
                label={`log of ${replica.replica}`}
                names={false}
                name={replica.replica}
              />
            </div>
          ))}
        </div>
      ) : (
        <OneLog
          {...shared}
          choice={choice}
          label={
            selected.length === 1 ? `log of ${selected[0]!.replica}` : `logs of ${several(selected.length, "replica")}`
          }
          names={selected.length > 1}
          name=""
        />
      )}
      {columns && selected.length > MOST_COLUMNS && (
        <span className="dim">{`${MOST_COLUMNS} of ${selected.length} replicas; choose others with the selector`}</span>
      )}
    </div>
  );
}

/** One list: of one replica, or of several merged. */
function OneLog({
  wish,
  setWish,
  follow,
  setFollow,
  over,
  hit,
  rankOf,
  panes,
  choice,
  label,
  names,
  name,
}: Shared & { choice: LogChoice; label: string; names: boolean; name: string }) {
  const pages = usePages(choice, over);
  const handle = useRef<PaneHandle>(null);
  const [chosen, setChosen] = useState<[number, number] | null>(null);
  const begin = useRef(-1);
  const at = useMemo(() => placeOf(wish.at), [wish.at]);

  useEffect(() => {
    const known = panes.current;
    if (handle.current) known.set(name, handle.current);
    return () => void known.delete(name);
  });

  // A hit, or the line that a link names, is brought into view in the list that has it.
  const mine = useCallback((replica: string) => name === "" || replica === name, [name]);
  useEffect(() => {
    if (!hit || !mine(hit.replica)) return;
    let wanted = true; // until there is another hit: answers may overtake each other
    void pages.source.locate(hit).then(
      (index) => wanted && handle.current?.goTo(index),
      () => undefined,
    );
    return () => {
      wanted = false;
    };
  }, [hit, pages, mine]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current || !at || !mine(at.replica)) return;
    first.current = false;
    const to = placeOf(wish.to);
    void Promise.all([pages.source.locate(at), to ? pages.source.locate(to) : null]).then(
      ([from, until]) => {
        begin.current = from;
        setChosen([from, until ?? from]);
        if (wish.hit === "") void pages.want([Math.floor(from / PAGE)]).then(() => handle.current?.goTo(from));
      },
      () => undefined,
    );
  }, [at, wish.to, wish.hit, pages, mine]);

  const pick = useCallback(
    (index: number, line: LogLine, extend: boolean) => {
      first.current = false;
      if (extend && begin.current >= 0) {
        setChosen([Math.min(begin.current, index), Math.max(begin.current, index)]);
        setWish({ to: anchorOf(line) });
      } else {
        begin.current = index;
        setChosen([index, index]);
        setWish({ at: anchorOf(line), to: "" });
      }
      setFollow(false);
    },
    [setWish, setFollow],
  );
  const words = useMemo(
    () => (wish.filter ? wordsOf(wish.filter, wish.regex) : wish.find ? wordsOf(wish.find, wish.regex) : null),
    [wish.filter, wish.find, wish.regex],
  );

  return (
    <>
      {chosen && (
        <ChosenBar
          pages={pages}
          chosen={chosen}
          times={wish.times}
          clear={() => {
            setChosen(null);
            setWish({ at: "", to: "" });
          }}
        />
      )}
      <LogPane
        ref={handle}
        pages={pages}
        experiment={choice.id}
        label={label}
        names={names}
        wrap={wish.wrap}
        times={wish.times}
        follow={follow}
        setFollow={setFollow}
        at={at}
        hit={hit}
        chosen={chosen}
        words={words}
        pick={pick}
        rankOf={rankOf}
        empty={
          wish.filter || wish.stream ? (
            <EmptyState title="No line matches">Other lines are there: clear the filter.</EmptyState>
          ) : (
            <EmptyState title="Nothing was printed" command={`shoal logs ${choice.id}`}>
              {over ? "The log is empty." : "Nothing has been printed so far."}
            </EmptyState>
          )
        }
      />
    </>
  );
}

/** The pages of a choice; they look again while something is printed. */
function usePages(choice: LogChoice, over: boolean): LogPages {
  const key = JSON.stringify(choice);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key is the choice
  const pages = useMemo(() => new LogPages(served(choice), choice.collapse), [key]);
  useEffect(() => {
    void pages.refresh();
    if (over) return;
    const look = () => void (document.hidden || pages.refresh());
    const off = live.on<{ experiments: { id: string; logs: boolean }[] }>("tracked", ({ experiments }) => {
      if (experiments.some((one) => one.id === choice.id && one.logs)) look();
    });
    const timer = setInterval(look, AGAIN);
    return () => {
      off();
      clearInterval(timer);
    };
  }, [pages, over, choice.id]);
  return pages;
}

/** The height that is left below what is above: the log scrolls by itself. */
function useRest(ref: RefObject<HTMLDivElement | null>): number {
  const [height, setHeight] = useState(500);
  useLayoutEffect(() => {
    const page = document.getElementById("page");
    if (!page || !ref.current) return;
    const measure = () => {
      const above = ref.current!.getBoundingClientRect().top - page.getBoundingClientRect().top + page.scrollTop;
      setHeight(Math.max(360, page.clientHeight - above));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(page);
    for (const child of page.children) observer.observe(child);
    return () => observer.disconnect();
  }, [ref]);
  return height;
}

async function lastWords(choice: LogChoice): Promise<LogLine | null> {
  const source = served(choice);
  const { total } = await source.window(0, 0);
  const { lines } = await source.window(Math.max(0, total - 60), 60);
  return lines.find((line) => tellsError(line.text)) ?? lines.at(-1) ?? null;
}

function wordsOf(text: string, regex: boolean): RegExp | null {
  try {
    return new RegExp(regex ? text : text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  } catch {
    return null;
  }
}
