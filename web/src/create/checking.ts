/** What the server says about the file while it is being written. */

import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, asked, type Note, type Schemas } from "../api/client";
import { type Draft, FILE } from "./draft";
import type { Schema } from "./schema";

const PAUSE = 250; // ms without a key before the server is asked

export type Checked = Schemas["Checked"];

/** The newest answer; `old` while what is written now has not been looked at yet. */
export function useCheck(draft: Draft) {
  const [asking] = useDebouncedValue(draft, PAUSE);
  const { text, directory, cluster, oversubscribe } = asking;
  const found = useQuery<Checked>({
    queryKey: ["check", text, directory, cluster, oversubscribe],
    queryFn: ({ signal }) =>
      asked(
        api.POST("/api/check", {
          body: { files: [{ name: FILE, text }], params: [], directory, cluster, oversubscribe, whole: true },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: 2_000, // a data set or a directory may have come
    gcTime: 10_000,
  });
  return {
    checked: found.data,
    error: found.error,
    old: draft !== asking || found.isPlaceholderData || found.isFetching,
  };
}

/** What cannot be changed by writing: the schema, examples, data sets, clusters. */
export function useChoices() {
  const schema = useQuery({
    queryKey: ["schema"],
    queryFn: () => asked(api.GET("/api/schema")),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const templates = useQuery({
    queryKey: ["templates"],
    queryFn: () => asked(api.GET("/api/templates")),
    staleTime: 60_000,
  });
  const datasets = useQuery({
    queryKey: ["datasets", "choices"],
    queryFn: () => asked(api.GET("/api/datasets")),
    staleTime: 10_000,
  });
  const clusters = useQuery({
    queryKey: ["clusters", "choices"],
    queryFn: () => asked(api.GET("/api/clusters")),
    staleTime: 10_000,
  });
  return {
    schema: schema.data as Schema | undefined,
    templates: templates.data,
    datasets: (datasets.data ?? []).map((one) => `${one.name}@v${one.version}`),
    clusters: clusters.data,
  };
}

export const NO_NOTES: readonly Note[] = [];
