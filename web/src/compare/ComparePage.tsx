/** Up to twenty experiments side by side: what differs, their curves over each other, their files. */

import { Button, CloseButton, SegmentedControl, Select, useComputedColorScheme } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, asked } from "../api/client";
import { experiment as shownExperiment } from "../api/queries";
import { lineColour } from "../look/colours";
import { ExperimentLink } from "../look/ExperimentLink";
import { CommandHint, EmptyState, ErrorBox, Waiting } from "../look/Notes";
import { several } from "../look/numbers";
import { StateMark } from "../look/StateMark";
import { FINAL } from "../look/states";
import { useView } from "../url/view";
import { CompareTable } from "./CompareTable";
import classes from "./compare.module.css";
import { FileDiff } from "./FileDiff";
import { type Drawn, Overlays } from "./Overlays";
import { dashOf, labels } from "./overlay";
import type { Compared, Provenance } from "./rows";
import { Swatch } from "./Swatch";
import { MOST, pairOf, VIEW } from "./view";

const SHOWN = [
  { value: "table", label: "Table" },
  { value: "charts", label: "Charts" },
  { value: "files", label: "Files" },
];

export function ComparePage() {
  const scheme = useComputedColorScheme();
  const [view, setView] = useView(VIEW);
  const ids = useMemo(() => [...new Set(view.ids)].slice(0, MOST), [view.ids]);
  const ticked = ids.filter((id) => !view.off.includes(id));

  const found = useQueries({
    queries: ids.map((id) => ({ queryKey: ["experiment", id], queryFn: () => shownExperiment(id) })),
  });
  const origins = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["experiment", id, "provenance"],
      queryFn: () => asked(api.GET("/api/experiments/{word}/provenance", { params: { path: { word: id } } })),
    })),
  });

  const compared: (Compared & { place: number })[] = ids.flatMap((id, place) => {
    const experiment = found[place]?.data;
    if (!experiment || !ticked.includes(id)) return [];
    return [{ experiment, provenance: origins[place]?.data as Provenance | undefined, place }];
  });
  const named = labels(found.flatMap((one) => one.data ?? []));
  const drawn: Drawn[] = compared.map(({ experiment, place }) => ({
    id: experiment.id,
    label: named.get(experiment.id) ?? experiment.id,
    colour: lineColour(place, scheme),
    dash: dashOf(place),
    over: FINAL.has(experiment.state),
  }));

  const add = (id: string) => setView({ ids: [...ids, id], off: view.off.filter((one) => one !== id) });
  const remove = (id: string) =>
    setView({ ids: ids.filter((one) => one !== id), off: view.off.filter((one) => one !== id) });
  const tick = (id: string, on: boolean) =>
    setView({ off: on ? view.off.filter((one) => one !== id) : [...view.off, id] });

  if (ids.length === 0)
    return (
      <EmptyState title="Nothing to compare yet" command="shoal compare ID ID">
        Tick experiments in the list and press <b>Compare</b>, or choose them here.
        <div style={{ display: "flex", justifyContent: "center", marginTop: 12 }}>
          <Adder ids={ids} add={add} />
        </div>
      </EmptyState>
    );
  return (
    <div className={classes.page}>
      <div className={classes.chosen} role="group" aria-label="compared experiments">
        {ids.map((id, place) => {
          const { data, error } = found[place]!;
          return (
            <span key={id} className={classes.chip} data-off={!ticked.includes(id) || undefined}>
              <label className={classes.tick}>
                <input
                  type="checkbox"
                  checked={ticked.includes(id)}
                  onChange={(event) => tick(id, event.currentTarget.checked)}
                  aria-label={`compare ${data?.name ?? ""} ${id}`}
                />
                <Swatch colour={lineColour(place, scheme)} dash={dashOf(place)} />
              </label>
              {data && <StateMark state={data.state} bare />}
              <ExperimentLink id={id} className={classes.name}>
                <span className="clip" title={data?.name ?? undefined}>
                  {data?.name ?? (error ? "not found" : "…")}
                </span>{" "}
                <span className="mono dim">{id}</span>
              </ExperimentLink>
              <CloseButton size="xs" aria-label={`take ${id} away`} onClick={() => remove(id)} />
            </span>
          );
        })}
        {ids.length < MOST && <Adder ids={ids} add={add} />}
        {view.ids.length > MOST && (
          <span className="dim">{`${MOST} of ${view.ids.length}: more cannot be compared`}</span>
        )}
        <Button variant="subtle" onClick={() => setView({ off: ticked.length ? ids : [] })}>
          {ticked.length ? "Untick all" : "Tick all"}
        </Button>
      </div>
      <div className={classes.bar}>
        <SegmentedControl
          aria-label="show"
          value={view.show}
          onChange={(show) => setView({ show }, { push: true })}
          data={SHOWN}
        />
        <span className="dim">{`${ticked.length} of ${several(ids.length, "experiment")} ticked`}</span>
        <span style={{ flex: 1 }} />
        <CommandHint
          command={
            view.show === "files" ? `shoal diff ${pairOf(ticked, view).join(" ")}` : `shoal compare ${ticked.join(" ")}`
          }
        />
      </div>
      {found.map(({ error }, place) =>
        error ? (
          <div key={ids[place]} className={classes.failure}>
            <ErrorBox error={error} compact />
          </div>
        ) : null,
      )}
      {ticked.length === 0 ? (
        <EmptyState title="No experiment is ticked">Tick those that you want to see.</EmptyState>
      ) : compared.length === 0 ? (
        found.some((one) => one.isPending) ? (
          <Waiting what="the experiments" />
        ) : null
      ) : view.show === "charts" ? (
        <Overlays drawn={drawn} compared={compared} view={view} setView={setView} />
      ) : view.show === "files" ? (
        <FileDiff compared={compared} named={named} view={view} setView={setView} />
      ) : (
        <CompareTable compared={compared} drawn={drawn} view={view} setView={setView} />
      )}
    </div>
  );
}

function Adder({ ids, add }: { ids: readonly string[]; add: (id: string) => void }) {
  const [opened, setOpened] = useState(false);
  const newest = useQuery({
    queryKey: ["palette"],
    queryFn: () => asked(api.GET("/api/experiments", { params: { query: { limit: 200 } } })),
    enabled: opened,
    staleTime: 10_000,
  });
  const data = (newest.data ?? [])
    .filter((one) => !ids.includes(one.id))
    .map((one) => ({ value: one.id, label: `${one.name ?? "unnamed"} ${one.id} #${one.number} ${one.state}` }));
  return (
    <Select
      aria-label="add an experiment"
      placeholder="Add an experiment"
      w={200}
      comboboxProps={{ width: 340, position: "bottom-start" }}
      searchable
      data={data}
      value={null}
      onDropdownOpen={() => setOpened(true)}
      onChange={(id) => id && add(id)}
      nothingFoundMessage={newest.isPending ? "…" : "None of the newest 200"}
      limit={50}
    />
  );
}
