/** Above the log: find, filter, streams, layout, download, follow; and what can be done with chosen lines. */

import { ActionIcon, Button, Group, Menu, NativeSelect, SegmentedControl, TextInput, Tooltip } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import {
  ArrowDownToLine,
  ChevronDown,
  ChevronUp,
  Copy,
  Download,
  Link as LinkIcon,
  OctagonAlert,
  Regex,
  Search,
  X,
} from "lucide-react";
import { type RefObject, useEffect, useRef, useState } from "react";
import { useShown } from "../experiment/context";
import { useKeys } from "../frame/keys";
import { ErrorBox } from "../look/Notes";
import { count, several } from "../look/numbers";
import type { PaneHandle } from "./LogPane";
import { anchorOf, copied, type LogLine, placeOf, samePlace } from "./lines";
import classes from "./logs.module.css";
import { type Found, type LogChoice, type LogPages, search } from "./pages";
import { ERROR_WORDS, plainText } from "./text";

/** The view of the logs, as the address has it. */
export const DEFAULTS = {
  find: "",
  filter: "",
  regex: false,
  stream: "",
  wrap: false,
  times: true,
  repeats: false,
  side: false,
  /** The line that was found last. */
  hit: "",
  /** The lines that were chosen. */
  at: "",
  to: "",
};
export type Wish = typeof DEFAULTS;

/** What the tools and every list of lines share. */
export interface Shared {
  wish: Wish;
  setWish: (change: Partial<Wish>) => void;
  follow: boolean;
  setFollow: (follow: boolean) => void;
  over: boolean;
  hit: LogLine | null;
  rankOf: (name: string) => number;
  panes: RefObject<Map<string, PaneHandle>>;
}

export function LogTools({
  wish,
  setWish,
  follow,
  setFollow,
  panes,
  choice,
  setHit,
  columns,
  over,
}: Shared & { choice: LogChoice; setHit: (hit: LogLine | null) => void; columns: number }) {
  const { experiment, selected, attempt } = useShown();
  const older = (experiment.history ?? []).filter((one) => one.attempt === attempt);
  const again = new Set(older.map((one) => one.replica));
  const tries = selected.flatMap((one) => [
    one,
    ...older.filter((other) => other.replica === one.replica && other.try !== one.try),
  ]);
  const [find, setFind] = useState(wish.find);
  const [filter, setFilter] = useState(wish.filter);
  const [found, setFound] = useState<(Found & { words: string }) | null>(null);
  const last = useRef<typeof found>(null);
  const queue = useRef(Promise.resolve());
  const [searching, setSearching] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const box = useRef<HTMLInputElement>(null);

  const named = (text: string, regex: boolean) =>
    [regex, text, choice.attempt, choice.stream, ...choice.replicas].join(" ");
  const tell = (next: Found, text: string, regex: boolean) => {
    last.current = { ...next, words: named(text, regex) };
    setFound(last.current);
    setHit(next.hit);
  };
  /** The next hit after the last one, or after what is seen; round the end. */
  const seekOnce = async (text: string, regex: boolean, by: 1 | -1 | 0) => {
    setSearching(true);
    setProblem(null);
    const words = named(text, regex);
    const scope = { ...choice, filter: "" };
    try {
      const known = last.current?.words === words ? last.current : null;
      let next: Found;
      if (by === 0) next = await search(scope, { text, regex }, { from: 0 });
      else if (known) next = await search(scope, { text, regex }, { from: round(known.at + by, known.count) });
      else {
        const top = [...panes.current.values()][0]?.top();
        next = await search(scope, { text, regex }, top ? { anchor: anchorOf(top) } : { from: 0 });
        if (by === -1 && next.count)
          next = await search(scope, { text, regex }, { from: round(next.at - 1, next.count) });
      }
      if (!next.hit && next.count) next = await search(scope, { text, regex }, { from: 0 });
      tell(next, text, regex);
      const hit = next.hit ? anchorOf(next.hit) : "";
      setWish(text === ERROR_WORDS ? { hit } : { find: text, hit });
      if (next.hit) setFollow(false);
      else if (text === ERROR_WORDS) notifications.show({ message: "No line tells of an error." });
    } catch (error) {
      setProblem(error);
    } finally {
      setSearching(false);
    }
  };
  /** Each press counts: one that comes while another is on its way waits for it. */
  const seek = (text: string, regex: boolean, by: 1 | -1 | 0) => {
    if (text) queue.current = queue.current.then(() => seekOnce(text, regex, by));
  };
  // A reload, or a link: the hit that the address names is found again, and with it the count.
  const begun = useRef(wish.hit === "");
  useEffect(() => {
    const place = placeOf(wish.hit);
    if (begun.current || !place) return;
    begun.current = true;
    const scope = { ...choice, filter: "" };
    const again = async () => {
      for (const [text, regex] of [[wish.find, wish.regex] as const, [ERROR_WORDS, true] as const]) {
        if (!text) continue;
        const next = await search(scope, { text, regex }, { anchor: wish.hit });
        if (next.hit && samePlace(next.hit, place)) return tell(next, text, regex);
      }
    };
    queue.current = queue.current.then(again).catch(setProblem);
  });
  const error = (by: 1 | -1 | 0) => seek(ERROR_WORDS, true, by);
  const current = found && found.words === named(find, wish.regex) ? found : null;

  useKeys([
    { keys: "f", does: "follow the log", run: () => setFollow(!follow) },
    { keys: "n", does: "next error in the log", run: () => error(1) },
    { keys: "p", does: "previous error in the log", run: () => error(-1) },
    { keys: "/", does: "find in all lines", run: () => box.current?.focus() },
  ]);
  useEffect(() => {
    // The browser's own find sees only the lines that are on the screen. A second Ctrl+F is the browser's.
    const pressed = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key !== "f" || document.activeElement === box.current) return;
      event.preventDefault();
      box.current?.focus();
      box.current?.select();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);

  return (
    <>
      <div className={classes.tools}>
        <TextInput
          ref={box}
          className={classes.find}
          aria-label="find in all lines"
          placeholder="find in all lines (/)"
          leftSection={<Search size={13} aria-hidden />}
          value={find}
          onChange={(event) => {
            setFind(event.currentTarget.value);
            if (!event.currentTarget.value) {
              setWish({ find: "", hit: "" });
              last.current = null;
              setFound(null);
              setHit(null);
            }
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") {
              setWish({ find });
              seek(find, wish.regex, event.shiftKey ? -1 : 1);
            }
            if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
        <Group gap={2}>
          <Tooltip label="previous (Shift+Enter)">
            <ActionIcon aria-label="previous hit" disabled={!find} onClick={() => seek(find, wish.regex, -1)}>
              <ChevronUp size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="next (Enter)">
            <ActionIcon aria-label="next hit" disabled={!find} onClick={() => seek(find, wish.regex, 1)}>
              <ChevronDown size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="regular expressions, for find and filter">
            <ActionIcon
              aria-label="regular expressions"
              aria-pressed={wish.regex}
              variant={wish.regex ? "filled" : "subtle"}
              onClick={() => setWish({ regex: !wish.regex })}
            >
              <Regex size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
        </Group>
        <span className={`${classes.found} dim`} role="status">
          {searching
            ? "searching …"
            : current
              ? current.count
                ? `${count(current.at + 1)} of ${several(current.count, "line")}`
                : "not found"
              : ""}
        </span>
        <TextInput
          className={classes.filter}
          aria-label="filter lines"
          placeholder="show only lines with …"
          value={filter}
          onChange={(event) => setFilter(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && setWish({ filter })}
          onBlur={() => setWish({ filter })}
          rightSection={
            filter && (
              <ActionIcon
                size="xs"
                aria-label="clear the filter"
                onClick={() => {
                  setFilter("");
                  setWish({ filter: "" });
                }}
              >
                <X size={12} aria-hidden />
              </ActionIcon>
            )
          }
        />
        <NativeSelect
          size="xs"
          aria-label="streams"
          value={wish.stream}
          onChange={(event) => setWish({ stream: event.currentTarget.value })}
          data={[
            { value: "", label: "stdout + stderr" },
            { value: "1", label: "stdout" },
            { value: "2", label: "stderr" },
          ]}
        />
        <Button variant="default" leftSection={<OctagonAlert size={13} aria-hidden />} onClick={() => error(0)}>
          First error
        </Button>
        <span className={classes.spacer} />
        {selected.length > 1 && (
          <SegmentedControl
            aria-label="layout"
            value={wish.side ? "side" : "merged"}
            onChange={(value) => setWish({ side: value === "side" })}
            data={[
              { value: "merged", label: "Merged" },
              { value: "side", label: "Side by side" },
            ]}
          />
        )}
        <Menu closeOnItemClick={false} position="bottom-end">
          <Menu.Target>
            <Button variant="default" rightSection={<ChevronDown size={13} aria-hidden />}>
              View
            </Button>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item
              role="menuitemcheckbox"
              aria-checked={wish.wrap}
              leftSection={<Check on={wish.wrap} />}
              onClick={() => setWish({ wrap: !wish.wrap })}
            >
              Wrap long lines
            </Menu.Item>
            <Menu.Item
              role="menuitemcheckbox"
              aria-checked={wish.times}
              leftSection={<Check on={wish.times} />}
              onClick={() => setWish({ times: !wish.times })}
            >
              Times
            </Menu.Item>
            {columns === 0 && (
              <Menu.Item
                role="menuitemcheckbox"
                aria-checked={!wish.repeats}
                leftSection={<Check on={!wish.repeats} />}
                onClick={() => setWish({ repeats: !wish.repeats })}
              >
                The same line on several ranks once
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
        <Menu position="bottom-end">
          <Menu.Target>
            <Tooltip label="download everything, raw">
              <ActionIcon aria-label="download raw logs" variant="default">
                <Download size={14} aria-hidden />
              </ActionIcon>
            </Tooltip>
          </Menu.Target>
          <Menu.Dropdown mah={360} style={{ overflow: "auto" }}>
            <Menu.Label>Everything it printed, as it is</Menu.Label>
            {tries.map((one) => (
              <Menu.Item
                key={`${one.replica}.${one.try}`}
                component="a"
                href={rawPath(experiment.id, one.replica, one.attempt, one.try, wish.stream)}
                download
              >
                {one.replica}
                {(one.try > 0 || again.has(one.replica)) && ` try ${one.try}`}
              </Menu.Item>
            ))}
          </Menu.Dropdown>
        </Menu>
        <Button
          variant={follow ? "filled" : "default"}
          aria-pressed={follow}
          leftSection={<ArrowDownToLine size={13} aria-hidden />}
          onClick={() => setFollow(!follow)}
        >
          {over ? "End" : "Follow"}
        </Button>
      </div>
      {problem !== null && <ErrorBox error={problem} compact />}
    </>
  );
}

function Check({ on }: { on: boolean }) {
  return <span style={{ display: "inline-block", width: 12 }}>{on ? "✓" : ""}</span>;
}

/** What can be done with the lines that were chosen. */
export function ChosenBar({
  pages,
  chosen,
  times,
  clear,
}: {
  pages: LogPages;
  chosen: [number, number];
  times: boolean;
  clear: () => void;
}) {
  const lines = chosen[1] - chosen[0] + 1;
  const copy = async () => {
    const text = copied(await pages.range(chosen[0], chosen[1]), plainText, times);
    await navigator.clipboard.writeText(text);
    notifications.show({ message: `${several(text.split("\n").length, "line")} copied.` });
  };
  const link = async () => {
    await navigator.clipboard.writeText(location.href);
    notifications.show({ message: "The link to these lines is copied." });
  };
  return (
    <div className={classes.chosenbar}>
      <span>{several(lines, "line")} chosen</span>
      <Button variant="default" leftSection={<Copy size={13} aria-hidden />} onClick={() => void copy()}>
        Copy
      </Button>
      <Button variant="default" leftSection={<LinkIcon size={13} aria-hidden />} onClick={() => void link()}>
        Copy link
      </Button>
      <ActionIcon aria-label="choose nothing" onClick={clear}>
        <X size={14} aria-hidden />
      </ActionIcon>
      {lines === 1 && <span className="dim">shift-click another line number to choose a range</span>}
    </div>
  );
}

function rawPath(id: string, replica: string, attempt: number, attemptTry: number, stream: string): string {
  const query = new URLSearchParams({ replica, attempt: String(attempt), try: String(attemptTry) });
  if (stream) query.set("stream", stream);
  return `/api/experiments/${encodeURIComponent(id)}/logs/raw?${query}`;
}

function round(place: number, size: number): number {
  return size ? ((place % size) + size) % size : 0;
}
