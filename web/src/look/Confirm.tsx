/** Asks before something is done that cannot be undone; says what went wrong when it could not be done. */

import { Button, Group, Modal } from "@mantine/core";
import type { ReactNode } from "react";
import { ErrorBox } from "./Notes";

interface Props {
  opened: boolean;
  title: string;
  /** The button that does nothing; it has the focus. */
  keep?: string;
  onClose: () => void;
  error: unknown;
  /** What will happen. */
  children: ReactNode;
  /** Buttons that do it. */
  actions: ReactNode;
}

export function Confirm({ opened, title, keep = "Keep it", onClose, error, children, actions }: Props) {
  return (
    <Modal opened={opened} onClose={onClose} title={title} size="md">
      {children}
      {error ? <ErrorBox error={error} compact /> : null}
      <Group justify="flex-end" gap="sm" mt="md">
        <Button variant="default" onClick={onClose} data-autofocus>
          {keep}
        </Button>
        {actions}
      </Group>
    </Modal>
  );
}
