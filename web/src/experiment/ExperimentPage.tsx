/** One experiment: header, topology, first failure, replica selector, tabs. */

import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Suspense, useEffect, useMemo } from "react";
import { ApiError } from "../api/client";
import { useExperiment, useSteps, useStragglers, useWhy } from "../api/queries";
import { type Key, useKeys } from "../frame/keys";
import { CommandHint, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { FINAL } from "../look/states";
import { useView } from "../url/view";
import { along, ExperimentContext, type ExperimentView, useShown } from "./context";
import classes from "./experiment.module.css";
import { FailureBanner } from "./FailureBanner";
import { Header } from "./Header";
import { ReplicaSelect } from "./ReplicaSelect";
import { ranksOf, stepMetric } from "./ranks";
import { asPattern, chosen, replicasOf, slowest as slowestOf } from "./replicas";
import { Topology } from "./Topology";
import { TABS } from "./tabs";

const SHARED = { replicas: "", attempt: "" };

export function ExperimentPage() {
  const { id } = useParams({ strict: false }) as { id: string };
  const asked = useExperiment(id);
  const [view, setView] = useView(SHARED);
  const experiment = asked.data;
  const over = experiment !== undefined && FINAL.has(experiment.state);
  const stragglers = useStragglers(id, over);
  useRealId(id, experiment?.id);

  useEffect(() => {
    if (!experiment) return;
    document.title = `${experiment.name ?? experiment.id} ${experiment.state} – Shoal`;
    return () => {
      document.title = "Shoal";
    };
  }, [experiment]);

  const shown = useMemo<ExperimentView | null>(() => {
    if (!experiment) return null;
    const wanted = Number(view.attempt);
    const attempt = view.attempt !== "" && wanted >= 0 && wanted < experiment.attempt ? wanted : experiment.attempt;
    const all = replicasOf(experiment, attempt);
    return {
      experiment,
      over,
      attempt,
      newest: attempt === experiment.attempt,
      setAttempt: (next) => setView({ attempt: next === null ? "" : String(next) }),
      all,
      selected: chosen(all, view.replicas, stragglers.data),
      selection: view.replicas,
      setSelection: (replicas) => setView({ replicas }),
      pattern: asPattern(view.replicas),
    };
  }, [experiment, over, view, setView, stragglers.data]);

  if (asked.error instanceof ApiError && asked.error.status === 404)
    return (
      <EmptyState title={`There is no experiment ${id}`} command="shoal ls">
        It may have been deleted. <Link to="/experiments">All experiments</Link>
      </EmptyState>
    );
  if (!shown)
    return asked.error ? (
      <ErrorBox error={asked.error} retry={() => void asked.refetch()} />
    ) : (
      <Waiting what="the experiment" />
    );
  return (
    <ExperimentContext value={shown}>
      <Page stale={asked.isError} slowest={slowestOf(stragglers.data)} />
    </ExperimentContext>
  );
}

function Page({ stale, slowest }: { stale: boolean; slowest: string | undefined }) {
  const { tab = "" } = useParams({ strict: false }) as { tab?: string };
  const navigate = useNavigate();
  const view = useShown();
  const { experiment, over, all, newest, attempt } = view;
  const search = along(view) as never;
  const why = useWhy(experiment.id, over);
  const steps = useSteps(experiment.id, stepMetric(Object.keys(experiment.metrics ?? {})), attempt, over);
  const ranks = useMemo(() => {
    const now = steps.dataUpdatedAt / 1000;
    const views = ranksOf(all, newest ? why.data : undefined, undefined, [], steps.data, now);
    return new Map(views.map((view) => [view.replica.replica, view]));
  }, [all, newest, why.data, steps.data, steps.dataUpdatedAt]);

  const open = (path: string) =>
    void navigate(
      path
        ? { to: "/experiments/$id/$tab", params: { id: experiment.id, tab: path }, search }
        : { to: "/experiments/$id", params: { id: experiment.id }, search },
    );
  const keys: Key[] = TABS.map((one) => ({ keys: `g ${one.key}`, does: one.name, run: () => open(one.path) }));
  useKeys(keys);

  const found = TABS.find((one) => one.path === tab);
  return (
    <div className={`${classes.page} ${stale ? "stale" : ""}`}>
      <Header />
      <Topology ranks={ranks} slowest={over ? undefined : slowest} />
      {tab !== "" && <FailureBanner whole={false} />}
      {!newest && (
        <p className={classes.earlier} role="status">
          This is attempt {attempt}. The newest is attempt {experiment.attempt}.
        </p>
      )}
      <div className={classes.tabbar}>
        <nav className={classes.tabs} aria-label="tabs">
          {TABS.map((one) => (
            <Link
              key={one.path}
              to={one.path ? "/experiments/$id/$tab" : "/experiments/$id"}
              params={{ id: experiment.id, tab: one.path } as never}
              search={search}
              className={classes.tab}
              data-active={one.path === tab || undefined}
              aria-current={one.path === tab ? "page" : undefined}
            >
              {one.name}
            </Link>
          ))}
        </nav>
        <span className={classes.cli}>{found?.command && <CommandHint command={found.command(experiment.id)} />}</span>
        <ReplicaSelect slowest={slowest} />
      </div>
      <div className={classes.panel} data-scrolls>
        {found ? (
          <Suspense fallback={<Waiting what={found.name} />}>
            <found.Component key={experiment.id} />
          </Suspense>
        ) : (
          <EmptyState title="There is no such tab">{TABS.map((one) => one.name).join(", ")}</EmptyState>
        )}
      </div>
    </div>
  );
}

/** /experiments/12 and /experiments/mnist lead to the id: events and caches know only that. */
function useRealId(word: string, id: string | undefined) {
  const navigate = useNavigate();
  useEffect(() => {
    if (id && id !== word) void navigate({ to: ".", params: { id } as never, search: true as never, replace: true });
  }, [word, id, navigate]);
}
