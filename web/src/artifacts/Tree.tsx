/** Files and folders as a tree, sections of it, and the keys that walk through it. */

import { ActionIcon, Tooltip, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import {
  Box,
  ChevronDown,
  ChevronRight,
  Download,
  File,
  Folder as FolderIcon,
  FolderOpen,
  Image as ImageIcon,
  Table2,
  Text as TextIcon,
  TriangleAlert,
} from "lucide-react";
import { type KeyboardEvent, type ReactNode, useState } from "react";
import { api, asked } from "../api/client";
import { bytes, several } from "../look/numbers";
import classes from "./artifacts.module.css";
import { type Folder, treeOf } from "./files";

/** Which file is chosen, and how to choose another. */
export interface TreeProps {
  chosen: string;
  choose: (file: string) => void;
  open: boolean;
  /** Of outputs: the address of an archive, to which the path of a folder is added. */
  zip?: string;
}

export function Version({
  kind,
  word,
  title,
  note,
  conflict,
  chosen,
  choose,
  open,
}: TreeProps & { kind: "a" | "m"; word: string; title: string; note: string; conflict?: string }) {
  const key = `${kind}:${word}`;
  const here = chosen === key || chosen.startsWith(`${key}:`);
  const files = useFiles(kind, word, here);
  return (
    <>
      <Entry
        icon={<Box size={13} aria-hidden />}
        name={title}
        note={note}
        chosen={chosen === key}
        choose={() => choose(key)}
        conflict={conflict}
      />
      {here && (files.data?.length ?? 0) > 1 && (
        <div className={classes.below}>
          <Branch folder={treeOf(files.data!)} prefix={`${key}:`} chosen={chosen} choose={choose} open={open} />
        </div>
      )}
    </>
  );
}

export function useFiles(kind: "a" | "m", word: string, enabled = true) {
  return useQuery({
    queryKey: ["version", kind, word],
    queryFn: async () => {
      if (kind === "a")
        return (await asked(api.GET("/api/artifacts/{number}", { params: { path: { number: Number(word) } } }))).files;
      const [, name, version] = /^(.*)\/(\d+)$/.exec(word)!;
      return (
        await asked(
          api.GET("/api/models/{name}/versions/{version}", { params: { path: { name: name!, version: version! } } }),
        )
      ).files;
    },
    enabled: enabled && word !== "",
    staleTime: 600_000,
  });
}

export function Section({
  title,
  note,
  folded = false,
  zip,
  children,
}: {
  title: string;
  note?: string;
  folded?: boolean;
  /** Where all of it can be downloaded. */
  zip?: string;
  children: ReactNode;
}) {
  const [wish, setWish] = useState<boolean | null>(null);
  const open = wish ?? !folded;
  return (
    <section>
      <div className={classes.line}>
        <UnstyledButton className={classes.section} aria-expanded={open} onClick={() => setWish(!open)}>
          {open ? <ChevronDown size={12} aria-hidden /> : <ChevronRight size={12} aria-hidden />}
          {title}
          <span className={`dim ${classes.spacer}`}>{note}</span>
        </UnstyledButton>
        {zip && <Zip href={zip} what={title} />}
      </div>
      {open && children}
    </section>
  );
}

/** A folder's content; folders open when they are pressed. */
export function Branch({
  folder,
  prefix,
  chosen,
  choose,
  open,
  zip,
}: TreeProps & {
  folder: Folder<{ path: string; size: number; conflict?: boolean; writers?: string[] }>;
  prefix: string;
}) {
  return (
    <>
      {folder.folders.map((one) => (
        <FolderEntry
          key={one.path}
          folder={one}
          prefix={prefix}
          chosen={chosen}
          choose={choose}
          open={open}
          zip={zip}
        />
      ))}
      {folder.files.map(({ name, file }) => {
        const key = prefix.startsWith("o:") ? `o:${file.path}` : `${prefix}${file.path}`;
        return (
          <Entry
            key={file.path}
            icon={<File size={13} aria-hidden />}
            name={name}
            note={bytes(file.size)}
            chosen={chosen === key}
            choose={() => choose(key)}
            conflict={file.conflict ? `${file.writers?.join(" and ")} write it at the same time` : undefined}
          />
        );
      })}
    </>
  );
}

function FolderEntry({
  folder,
  ...tree
}: TreeProps & { folder: Folder<{ path: string; size: number }>; prefix: string }) {
  const inside = tree.chosen.startsWith(`${tree.prefix}${folder.path}/`);
  const [wish, setWish] = useState<boolean | null>(null);
  const open = wish ?? (inside || (tree.open && folder.count <= 20));
  return (
    <>
      <div className={classes.line}>
        <Entry
          icon={open ? <FolderOpen size={13} aria-hidden /> : <FolderIcon size={13} aria-hidden />}
          name={folder.name}
          note={`${several(folder.count, "file")}, ${bytes(folder.size)}`}
          expanded={open}
          choose={() => setWish(!open)}
        />
        {tree.zip && (
          <Zip href={`${tree.zip}${encodeURIComponent(`${tree.prefix.slice(2)}${folder.path}`)}`} what={folder.name} />
        )}
      </div>
      {open && (
        <div className={classes.below}>
          <Branch folder={folder} {...tree} />
        </div>
      )}
    </>
  );
}

/** Everything below a folder, as one file. */
function Zip({ href, what }: { href: string; what: string }) {
  return (
    <ActionIcon
      component="a"
      href={href}
      download
      size="sm"
      aria-label={`download ${what} as zip`}
      title="download as zip"
    >
      <Download size={12} aria-hidden />
    </ActionIcon>
  );
}

export function Entry({
  icon,
  name,
  note,
  chosen = false,
  expanded,
  choose,
  conflict,
}: {
  icon: ReactNode;
  name: string;
  note?: string;
  chosen?: boolean;
  expanded?: boolean;
  choose: () => void;
  conflict?: string;
}) {
  return (
    <UnstyledButton
      className={classes.entry}
      aria-current={chosen || undefined}
      aria-expanded={expanded}
      onClick={choose}
    >
      {icon}
      <span className="clip" title={name}>
        {name}
      </span>
      {conflict && (
        <Tooltip label={conflict}>
          <span className="hue-red" role="img" aria-label={`conflict: ${conflict}`} style={{ display: "inline-flex" }}>
            <TriangleAlert size={13} aria-hidden />
          </span>
        </Tooltip>
      )}
      <span className={`dim ${classes.note}`}>{note}</span>
    </UnstyledButton>
  );
}

export function KindIcon({ kind }: { kind: string }) {
  if (kind === "image") return <ImageIcon size={13} aria-hidden />;
  return kind === "text" ? <TextIcon size={13} aria-hidden /> : <Table2 size={13} aria-hidden />;
}

/** Arrow keys go through the list; a file is shown as it is reached. */
export function walk(event: KeyboardEvent<HTMLElement>): void {
  const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (!by || !(event.target instanceof HTMLButtonElement)) return;
  const entries = [...event.currentTarget.querySelectorAll("button")];
  const next = entries[entries.indexOf(event.target) + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
  if (!next.hasAttribute("aria-expanded")) next.click();
}
