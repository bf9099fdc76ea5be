/** A button that removes a version, after it has asked. */

import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useAct } from "../look/act";
import { Confirm } from "../look/Confirm";

interface Props {
  /** `cifar10@v2` */
  word: string;
  /** How many versions there are. */
  all: number;
  /** The page of all names, which is also what its query is called: `datasets`. */
  list: "datasets" | "models";
  remove: () => Promise<unknown>;
  /** Removes the name with all its versions, where that can be. */
  removeAll?: () => Promise<unknown>;
  /** What will happen. */
  children: ReactNode;
}

export function RemoveVersion({ word, all, list, remove, removeAll, children }: Props) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const { busy, error, act, forget } = useAct();
  const done = (wish: () => Promise<unknown>, last: boolean) =>
    act(async () => {
      await wish();
      setAsking(false);
      await client.invalidateQueries({ queryKey: [list] });
      if (last) await navigate({ to: `/${list}` });
      else await navigate({ to: ".", search: {} as never });
    });
  return (
    <>
      <Button
        variant="default"
        leftSection={<Trash2 size={14} aria-hidden />}
        onClick={() => {
          forget();
          setAsking(true);
        }}
      >
        Remove …
      </Button>
      <Confirm
        opened={asking}
        title={`Remove ${word}?`}
        onClose={() => setAsking(false)}
        error={error}
        actions={
          <>
            {removeAll && all > 1 && (
              <Button variant="default" loading={busy} onClick={() => void done(removeAll, true)}>
                Remove all {all} versions
              </Button>
            )}
            <Button color="red" loading={busy} onClick={() => void done(remove, all === 1)}>
              Remove {word}
            </Button>
          </>
        }
      >
        {children}
      </Confirm>
    </>
  );
}
