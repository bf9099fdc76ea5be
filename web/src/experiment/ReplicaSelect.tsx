/** Which replicas all tabs are about: all, a role, one, those that failed, the slowest, or a pattern. */

import { ActionIcon, Select, Tooltip } from "@mantine/core";
import { ChevronLeft, ChevronRight, Network } from "lucide-react";
import { useState } from "react";
import { type Key, useKeys } from "../frame/keys";
import { useShown } from "./context";
import classes from "./experiment.module.css";
import { byRole, chosen, neighbour } from "./replicas";

const ALL = "all";

export function ReplicaSelect({ slowest }: { slowest: string | undefined }) {
  const { all, selection, setSelection } = useShown();
  const [typed, setTyped] = useState("");
  const keys: Key[] = [
    { keys: "]", does: "next replica", run: () => setSelection(neighbour(all, selection, 1)) },
    { keys: "[", does: "replica before", run: () => setSelection(neighbour(all, selection, -1)) },
  ];
  useKeys(keys);

  const choose = (value: string) => setSelection(value === ALL ? "" : value);
  const failed = chosen(all, "failed").length;
  const several = [
    { value: ALL, label: `all ${all.length}` },
    ...byRole(all).map(([role, of]) => ({ value: role, label: `${role} (${of.length})` })),
    ...(failed ? [{ value: "failed", label: `failed (${failed})` }] : []),
    ...(slowest ? [{ value: "slowest", label: `slowest (${slowest})` }] : []),
  ];
  const single = all.map((one) => ({ value: one.replica, label: one.replica }));
  const known = new Set([...several, ...single].map((one) => one.value));
  const text = typed.trim();
  const patterns = [...new Set([text, selection])].filter(
    (text) => text && !known.has(text) && (text === selection || /[*,]/.test(text)),
  );
  // Enter takes the first: that must be what was typed, not `slowest (worker-1)` or worker-10.
  const exact = [...several, ...single].filter((one) => one.value === text && text !== selection);
  const others = <T extends { value: string }>(items: T[]) => items.filter((one) => one !== (exact[0] as unknown));
  return (
    <div className={classes.selector}>
      <Select
        aria-label="replicas"
        leftSection={<Network size={13} aria-hidden />}
        w={190}
        searchable
        selectFirstOptionOnChange
        allowDeselect={false}
        limit={60}
        maxDropdownHeight={360}
        nothingFoundMessage="a name, or a pattern: worker-*"
        value={selection || ALL}
        searchValue={typed}
        onSearchChange={setTyped}
        onChange={(value) => choose(value ?? ALL)}
        onKeyDown={(event) => {
          // What was typed faster than the list could offer it.
          if (event.key !== "Enter" || event.currentTarget.getAttribute("aria-activedescendant")) return;
          if (!exact.length && !patterns.includes(text)) return;
          event.preventDefault();
          choose(text);
          event.currentTarget.blur();
        }}
        data={[
          ...(exact.length ? [{ group: "As typed", items: exact }] : []),
          ...(patterns.length
            ? [{ group: "Pattern", items: patterns.map((text) => ({ value: text, label: text })) }]
            : []),
          { group: "Several", items: others(several) },
          { group: "One", items: others(single) },
        ]}
      />
      <Tooltip label="replica before ([)">
        <ActionIcon aria-label="replica before" onClick={() => setSelection(neighbour(all, selection, -1))}>
          <ChevronLeft size={15} aria-hidden />
        </ActionIcon>
      </Tooltip>
      <Tooltip label="next replica (])">
        <ActionIcon aria-label="next replica" onClick={() => setSelection(neighbour(all, selection, 1))}>
          <ChevronRight size={15} aria-hidden />
        </ActionIcon>
      </Tooltip>
    </div>
  );
}
