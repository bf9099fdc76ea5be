/** A link to an experiment for long lists: the router's own Link costs too much when there are hundreds. */

import { useRouter } from "@tanstack/react-router";
import type { ReactNode } from "react";

export function ExperimentLink({ id, className, children }: { id: string; className?: string; children: ReactNode }) {
  const router = useRouter();
  return (
    <a
      href={`/experiments/${encodeURIComponent(id)}`}
      className={className}
      onClick={(event) => {
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        void router.navigate({ to: "/experiments/$id", params: { id } });
      }}
    >
      {children}
    </a>
  );
}
