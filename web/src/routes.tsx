/** Every page and its address. Pages are loaded when they are first opened, and what they show is asked for meanwhile. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { experimentOf, queries, whyOf } from "./api/queries";
import { TABS } from "./experiment/tabs";
import { firstPart } from "./experiments/list";
import { Frame } from "./frame/Frame";
import { EmptyState, ErrorBox, Waiting } from "./look/Notes";
import { remembered } from "./url/remembered";
import { parseSearch, type Search, stringifySearch } from "./url/search";

const root = createRootRoute({
  component: Frame,
  validateSearch: (search): Search => search as Search,
  notFoundComponent: () => <EmptyState title="There is no such page">The address may be old.</EmptyState>,
});

const page = <Path extends string>(path: Path, component: ReturnType<typeof lazyRouteComponent>) =>
  createRoute({ getParentRoute: () => root, path, component });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/experiments", replace: true });
  },
});

const list = createRoute({
  getParentRoute: () => root,
  path: "/experiments",
  shouldReload: false,
  loader: ({ location }) => {
    const given = location.search as Search;
    const { q = "", sort = "" } = Object.keys(given).length ? given : remembered<Search>("experiments", {});
    void queries.prefetchQuery(firstPart(q, sort));
  },
  component: lazyRouteComponent(() => import("./experiments/ExperimentsPage"), "ExperimentsPage"),
});

const pages = [
  list,
  page(
    "/compare",
    lazyRouteComponent(() => import("./compare/ComparePage"), "ComparePage"),
  ),
  page(
    "/create",
    lazyRouteComponent(() => import("./create/CreatePage"), "CreatePage"),
  ),
  page(
    "/datasets",
    lazyRouteComponent(() => import("./datasets/DatasetsPage"), "DatasetsPage"),
  ),
  page(
    "/datasets/$name",
    lazyRouteComponent(() => import("./datasets/DatasetPage"), "DatasetPage"),
  ),
  page(
    "/models",
    lazyRouteComponent(() => import("./models/ModelsPage"), "ModelsPage"),
  ),
  page(
    "/models/$name",
    lazyRouteComponent(() => import("./models/ModelPage"), "ModelPage"),
  ),
  page(
    "/clusters",
    lazyRouteComponent(() => import("./clusters/ClustersPage"), "ClustersPage"),
  ),
  page(
    "/settings",
    lazyRouteComponent(() => import("./settings/SettingsPage"), "SettingsPage"),
  ),
] as const;

const experiment = createRoute({
  getParentRoute: () => root,
  path: "/experiments/$id",
  shouldReload: false,
  loader: ({ params, location }) => {
    loadTab(location.pathname.split("/")[3] ?? "");
    void queries.prefetchQuery(experimentOf(params.id));
    void queries.prefetchQuery(whyOf(params.id));
  },
  component: lazyRouteComponent(() => import("./experiment/ExperimentPage"), "ExperimentPage"),
});
/** The page itself shows its tab: header and selector stay when the tab changes. */
const tab = createRoute({
  getParentRoute: () => experiment,
  path: "$tab",
  loader: ({ params }) => loadTab(params.tab),
});

function loadTab(path: string): void {
  TABS.find((one) => one.path === path)?.load();
}

export const router = createRouter({
  routeTree: root.addChildren([home, ...pages, experiment.addChildren([tab])]),
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  defaultPendingMs: 300,
  defaultPendingComponent: () => <Waiting what="the page" />,
  defaultErrorComponent: ({ error, reset }) => <ErrorBox error={error} retry={reset} />,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
