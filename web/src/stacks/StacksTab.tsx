/** Where every rank is: the stacks of all of them as one tree, so the one that is elsewhere is seen at once. */

import { Alert, Button, Switch } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { RotateCw } from "lucide-react";
import { useRef } from "react";
import { api, asked } from "../api/client";
import { STACKS } from "../api/queries";
import { useShown } from "../experiment/context";
import { EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { absolute, clock } from "../look/times";
import { useView } from "../url/view";
import { type Chain, chains, moved, own, replicaOf, type Stacks, who } from "./chains";
import classes from "./stacks.module.css";

const VIEW = { libraries: "" };
const MOST_LOGS = 16;

export function StacksTab() {
  const { experiment, over, newest, selected } = useShown();
  if (over)
    return (
      <EmptyState title="Nothing runs">Stacks are those of processes that run. This experiment is over.</EmptyState>
    );
  if (experiment.state === "queued")
    return <EmptyState title="Nothing runs yet">It waits in the queue: {experiment.reason}.</EmptyState>;
  if (!newest)
    return <EmptyState title="Nothing runs">Only the newest attempt has processes that can be asked.</EmptyState>;
  return <Looked id={experiment.id} replicas={new Set(selected.map((one) => one.replica))} />;
}

function Looked({ id, replicas }: { id: string; replicas: ReadonlySet<string> }) {
  const [view, setView] = useView(VIEW);
  const client = useQueryClient();
  const key = [STACKS, id]; // not below the experiment: whatever changes there asks nobody for stacks
  const before = useRef<Stacks>(undefined);
  const looked = useQuery<Stacks>({
    queryKey: key,
    queryFn: () => {
      before.current = client.getQueryData<Stacks>(key);
      return asked(api.GET("/api/experiments/{word}/stacks", { params: { path: { word: id } } }));
    },
    staleTime: Number.POSITIVE_INFINITY, // to look costs every rank a moment: only when somebody wants it
  });
  if (looked.isPending) return <Waiting what="the stacks" />;
  if (!looked.data) return <ErrorBox error={looked.error} retry={() => void looked.refetch()} />;
  const found = looked.data;
  const shown = (rank: string) => replicas.has(replicaOf(rank));
  const roots = chains(found.tree, shown);
  const all = found.ranks.filter((rank) => rank.frames.length && shown(rank.name)).length;
  const others = moved(before.current, found);
  const unanswered = found.ranks.filter((rank) => rank.error && shown(rank.name));
  return (
    <div className={classes.stacks}>
      <div className={classes.tools}>
        <Button
          variant="default"
          leftSection={<RotateCw size={14} aria-hidden />}
          loading={looked.isFetching}
          onClick={() => void looked.refetch()}
        >
          Look again
        </Button>
        <Switch
          label="calls of libraries"
          checked={view.libraries === "all"}
          onChange={(event) => setView({ libraries: event.currentTarget.checked ? "all" : "" })}
        />
        <span className="dim" title={absolute(found.time)}>
          looked at {clock(found.time)}
          {others &&
            (others.length
              ? `; moved since the look before: ${who(others, all)}`
              : "; nobody has moved since the look before")}
        </span>
      </div>
      {looked.error && <ErrorBox error={looked.error} compact />}
      <p className={classes.verdict}>{found.verdict}</p>
      {found.notes.map((note) => (
        <Alert key={note} variant="default" p="xs">
          {note}
        </Alert>
      ))}
      {roots.length > 0 && (
        <section aria-label="stacks of all ranks">
          <Branches id={id} roots={roots} all={all} odd={new Set(found.odd)} libraries={view.libraries === "all"} />
        </section>
      )}
      {unanswered.length > 0 && (
        <ul className={classes.unanswered} aria-label="ranks without an answer">
          {unanswered.map((rank) => (
            <li key={rank.name}>
              <b>{rank.name}</b> {rank.error}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Branches({
  id,
  roots,
  all,
  odd,
  libraries,
}: {
  id: string;
  roots: Chain[];
  all: number;
  odd: ReadonlySet<string>;
  libraries: boolean;
}) {
  return (
    <ul className={classes.tree}>
      {roots.map((chain) => {
        const last = chain.calls.length - 1;
        const calls = chain.calls.filter(
          (call, place) => libraries || own(call.file) || (place === last && !chain.children.length),
        );
        return (
          <li
            key={chain.ranks.join() + chain.calls[0]!.function + chain.calls[0]!.line}
            className={classes.branch}
            data-odd={chain.ranks.every((rank) => odd.has(rank)) || undefined}
          >
            <div className={classes.who}>
              <b title={chain.ranks.join(", ")}>{who(chain.ranks, all)}</b>
              {chain.ranks.every((rank) => odd.has(rank)) && <span>not where the others are</span>}
              {chain.ranks.length < all && chain.children.length === 0 && (
                <Link
                  to="/experiments/$id/$tab"
                  params={{ id, tab: "logs" }}
                  search={{ replicas: [...new Set(chain.ranks.map(replicaOf))].slice(0, MOST_LOGS).join(",") } as never}
                  className="textlink"
                >
                  {chain.ranks.length === 1 ? "its log" : "their logs"}
                </Link>
              )}
            </div>
            <ol className={classes.calls}>
              {calls.map((call) => (
                <li key={`${call.file}:${call.line}:${call.function}`} className="mono">
                  <span>{call.function}</span>
                  <span className="dim clip" title={`${call.file}:${call.line}`}>
                    {libraries ? call.file : call.file.replace(/^.*\//, "")}:{call.line}
                  </span>
                </li>
              ))}
            </ol>
            <Branches id={id} roots={chain.children} all={all} odd={odd} libraries={libraries} />
          </li>
        );
      })}
    </ul>
  );
}
