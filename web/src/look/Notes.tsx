/** What is shown when there is nothing to show: why, and one way on. */

import { ActionIcon, Alert, Button, Center, Loader, Stack, Text, Tooltip } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { Check, Copy, RotateCw, Terminal, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { ApiError, Unreachable } from "../api/client";

/** Says why it is empty, and gives one command. "No match" and "none yet" are different sentences. */
export function EmptyState({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <Center mih={200} p="lg">
      <Stack align="center" gap="sm" maw={520}>
        <Text fw={600} size="lg">
          {title}
        </Text>
        {children && (
          <Text c="dimmed" ta="center" component="div">
            {children}
          </Text>
        )}
        {command && <CommandHint command={command} />}
      </Stack>
    </Center>
  );
}

/** An error as the server said it: what, where, hint, and all problems when there are several. */
export function ErrorBox({ error, retry, compact = false }: { error: unknown; retry?: () => void; compact?: boolean }) {
  const { what, where, hint, problems } = told(error);
  return (
    <Alert
      role="alert"
      color="red"
      variant="light"
      p={compact ? "xs" : "sm"}
      icon={<TriangleAlert size={16} aria-hidden />}
      styles={{
        root: {
          background: "color-mix(in srgb, var(--hue-red) 7%, transparent)",
          border: "1px solid color-mix(in srgb, var(--hue-red) 45%, transparent)",
        },
        icon: { color: "var(--hue-red)", marginInlineEnd: 8, width: 16 },
        message: { color: "var(--mantine-color-text)" },
      }}
    >
      <Text size="md" component="div">
        {where && <span className="mono">{where}: </span>}
        {what}
      </Text>
      {problems.length > 1 && (
        <ul style={{ margin: "4px 0", paddingInlineStart: 18 }}>
          {problems.map((problem) => (
            <li key={`${problem.where}${problem.path}${problem.message}`}>
              {problem.where && <span className="mono">{problem.where}: </span>}
              {problem.path && <span className="mono">{problem.path}: </span>}
              {problem.message}
              {problem.hint && <span className="dim"> — {problem.hint}</span>}
            </li>
          ))}
        </ul>
      )}
      {hint && (
        <Text size="md" c="dimmed">
          hint: {hint}
        </Text>
      )}
      {retry && (
        <Button variant="default" mt="sm" leftSection={<RotateCw size={14} aria-hidden />} onClick={retry}>
          Try again
        </Button>
      )}
    </Alert>
  );
}

/** While the first answer is on its way. Later answers replace what is shown without this. */
export function Waiting({ what }: { what: string }) {
  return (
    <Center mih={120} role="status" aria-label={`loading ${what}`}>
      <Loader size="sm" type="dots" />
    </Center>
  );
}

/** The same on the command line, to copy. */
export function CommandHint({ command, label }: { command: string; label?: string }) {
  return (
    <span style={{ display: "inline-flex", alignItems: "center", gap: 6, minWidth: 0, maxWidth: "100%" }}>
      <Terminal size={13} aria-hidden className="dim" style={{ flex: "none" }} />
      {label && <span className="dim">{label}</span>}
      <code className="mono clip" title={command}>
        {command}
      </code>
      <CopyButton text={command} what="the command" />
    </span>
  );
}

/** Copies the full text, whatever was shown of it. */
export function CopyButton({ text, what }: { text: string; what: string }) {
  const clipboard = useClipboard({ timeout: 1200 });
  const label = clipboard.copied ? "copied" : `copy ${what}`;
  return (
    <Tooltip label={label}>
      <ActionIcon size="sm" aria-label={label} onClick={() => clipboard.copy(text)}>
        {clipboard.copied ? <Check size={13} aria-hidden /> : <Copy size={13} aria-hidden />}
      </ActionIcon>
    </Tooltip>
  );
}

/** A text, or the beginning of it, that can be copied whole. */
export function Copied({ text, shown = text, what = "it" }: { text: string; shown?: string; what?: string }) {
  return (
    <span style={{ display: "inline-flex", alignItems: "center", gap: 4, maxWidth: "100%", verticalAlign: "bottom" }}>
      <span className="mono clip" title={text}>
        {shown}
      </span>
      <CopyButton text={text} what={what} />
    </span>
  );
}

function told(error: unknown): ApiError["body"] & { problems: ApiError["body"]["problems"] & object } {
  if (error instanceof ApiError) return { ...error.body, problems: error.body.problems ?? [] };
  const empty = { where: null, problems: [] };
  if (error instanceof Unreachable)
    return { ...empty, what: "The server does not answer.", hint: "see shoal server status; shoal open starts one" };
  return { ...empty, what: error instanceof Error ? error.message : String(error), hint: null };
}
