/** Ctrl+K: any experiment or page by a few letters. */

import { Spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, asked } from "../api/client";
import { StateMark } from "../look/StateMark";

export function Palette() {
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [opened, setOpened] = useState(false);
  const found = useQuery({
    queryKey: ["palette"],
    queryFn: () => asked(api.GET("/api/experiments", { params: { query: { limit: 200 } } })),
    enabled: opened,
    staleTime: 10_000,
  });

  const pages: SpotlightActionData[] = [
    { id: "p-experiments", label: "Experiments", onClick: () => void navigate({ to: "/experiments" }) },
    {
      id: "p-failed",
      label: "Failed experiments",
      onClick: () => void navigate({ to: "/experiments", search: { q: "state:failed" } }),
    },
    {
      id: "p-running",
      label: "Running experiments",
      onClick: () => void navigate({ to: "/experiments", search: { q: "state:queued|starting|running|restarting" } }),
    },
    { id: "p-create", label: "New experiment", onClick: () => void navigate({ to: "/create" }) },
    { id: "p-compare", label: "Compare", onClick: () => void navigate({ to: "/compare" }) },
    { id: "p-datasets", label: "Data sets", onClick: () => void navigate({ to: "/datasets" }) },
    { id: "p-models", label: "Models", onClick: () => void navigate({ to: "/models" }) },
    { id: "p-clusters", label: "Clusters and queue", onClick: () => void navigate({ to: "/clusters" }) },
    { id: "p-settings", label: "Settings", onClick: () => void navigate({ to: "/settings" }) },
  ];
  const experiments: SpotlightActionData[] = (found.data ?? []).map((one) => ({
    id: one.id,
    label: `${one.name ?? one.id}`,
    description: `${one.id} #${one.number} ${one.state} ${one.framework}`,
    keywords: [one.id, `#${one.number}`, one.state, ...one.tags],
    leftSection: <StateMark state={one.state} bare />,
    onClick: () => void navigate({ to: "/experiments/$id", params: { id: one.id } }),
  }));

  return (
    <Spotlight
      shortcut={["mod + K"]}
      actions={[
        { group: "Pages", actions: pages },
        { group: "Experiments", actions: experiments },
      ]}
      query={text}
      onQueryChange={setText}
      onSpotlightOpen={() => setOpened(true)}
      limit={12}
      scrollable
      maxHeight={420}
      nothingFound="Nothing by that name among the newest 200"
      searchProps={{
        placeholder: "An experiment's name, id or number, or a page",
        "aria-label": "go to",
        onKeyDown: (event) => {
          // What was typed before there was anything to choose from: then nothing is chosen yet.
          const dialog = event.currentTarget.closest("[role=dialog]");
          if (event.key !== "Enter" || !text || !dialog || dialog.querySelector("[data-selected]")) return;
          dialog.querySelector<HTMLElement>("[data-action]")?.click();
        },
      }}
    />
  );
}
