/** The tabs of an experiment. A tab is loaded when it is first opened; the header never waits for it. */

import { type ComponentType, type LazyExoticComponent, lazy } from "react";

export interface Tab {
  /** In the address: /experiments/ID/logs. The first has none. */
  path: string;
  name: string;
  /** `g` and this letter. */
  key: string;
  /** The same on the command line. */
  command?: (id: string) => string;
  Component: LazyExoticComponent<ComponentType>;
  /** Begins to load it. */
  load: () => void;
}

function later(file: () => Promise<ComponentType>): Pick<Tab, "Component" | "load"> {
  return {
    Component: lazy(() => file().then((found) => ({ default: found }))),
    load: () => void file().catch(() => {}),
  };
}

export const TABS: readonly Tab[] = [
  {
    path: "",
    name: "Overview",
    key: "o",
    command: (id) => `shoal show ${id}`,
    ...later(() => import("./OverviewTab").then((file) => file.OverviewTab)),
  },
  {
    path: "logs",
    name: "Logs",
    key: "l",
    command: (id) => `shoal logs ${id}`,
    ...later(() => import("../logs/LogsTab").then((file) => file.LogsTab)),
  },
  {
    path: "metrics",
    name: "Metrics",
    key: "m",
    command: (id) => `shoal metrics ${id}`,
    ...later(() => import("../charts/MetricsTab").then((file) => file.MetricsTab)),
  },
  {
    path: "resources",
    name: "Resources",
    key: "r",
    command: (id) => `shoal top ${id}`,
    ...later(() => import("../charts/ResourcesTab").then((file) => file.ResourcesTab)),
  },
  {
    path: "artifacts",
    name: "Artifacts",
    key: "a",
    command: (id) => `shoal outputs ${id} ls`,
    ...later(() => import("../artifacts/ArtifactsTab").then((file) => file.ArtifactsTab)),
  },
  {
    path: "timeline",
    name: "Timeline",
    key: "t",
    command: (id) => `shoal why ${id}`,
    ...later(() => import("./TimelineTab").then((file) => file.TimelineTab)),
  },
  {
    path: "stacks",
    name: "Stacks",
    key: "s",
    command: (id) => `shoal stacks ${id}`,
    ...later(() => import("../stacks/StacksTab").then((file) => file.StacksTab)),
  },
  {
    path: "config",
    name: "Config",
    key: "f",
    command: (id) => `shoal show ${id} --json`,
    ...later(() => import("./ConfigTab").then((file) => file.ConfigTab)),
  },
];
