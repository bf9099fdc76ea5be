/** The files of one version; the one that is looked into is in the address. */

import { Link, useNavigate } from "@tanstack/react-router";
import { Preview } from "../artifacts/Preview";
import { DataTable, tableColumns } from "../look/DataTable";
import { ErrorBox, Waiting } from "../look/Notes";
import { bytes, count, several } from "../look/numbers";
import { Part } from "../look/Page";
import type { Search } from "../url/search";
import classes from "./versions.module.css";

export interface Entry {
  path: string;
  size: number;
  /** What tells it from other content: a hash, or what a bucket calls it. */
  content: string;
}

interface Props {
  /** Undefined while they are on their way. */
  files: Entry[] | undefined;
  error: unknown;
  retry: () => void;
  /** How many there are, and their size together. */
  count: number;
  size: number;
  file: string;
  /** Where the content of a file is; undefined when it is not Shoal's to read. */
  urlOf?: (path: string) => string;
}

export function VersionFiles({ files, error, retry, count, size, file, urlOf }: Props) {
  const navigate = useNavigate();
  const chosen = urlOf && files?.find((entry) => entry.path === file);
  return (
    <Part title="Files" note={`${several(count, "file")}, ${bytes(size)}`}>
      {error ? (
        <ErrorBox error={error} retry={retry} />
      ) : !files ? (
        <Waiting what="files" />
      ) : (
        <DataTable
          grow
          label="files"
          columns={urlOf ? READABLE : COLUMNS}
          rows={files}
          idOf={(row) => row.path}
          current={file}
          rowHeight={26}
          onOpen={
            urlOf &&
            ((row) => void navigate({ to: ".", search: searchOf(row.path), replace: true, resetScroll: false }))
          }
        />
      )}
      {urlOf && !chosen && files && files.length > 0 && <p className="dim">Click a file to look into it.</p>}
      {chosen && (
        <div className={classes.preview}>
          <Preview
            file={{
              url: urlOf(chosen.path),
              path: chosen.path,
              size: chosen.size,
              hash: chosen.content,
              version: chosen.content,
            }}
          />
        </div>
      )}
    </Part>
  );
}

const COLUMNS = tableColumns<Entry>([
  {
    id: "path",
    header: "Path",
    size: 320,
    meta: { grows: true },
    accessorFn: (row) => row.path,
    cell: ({ row }) => (
      <span className="mono clip" title={row.original.path}>
        {row.original.path}
      </span>
    ),
  },
  {
    id: "size",
    header: "Size",
    size: 100,
    meta: { number: true },
    accessorFn: (row) => row.size,
    cell: ({ row }) => <span title={`${count(row.original.size)} bytes`}>{bytes(row.original.size)}</span>,
  },
  {
    id: "content",
    header: "Content",
    size: 150,
    accessorFn: (row) => row.content,
    cell: ({ row }) => (
      <span className="mono clip" title={row.original.content}>
        {row.original.content.slice(0, 12)}
      </span>
    ),
  },
]);

const READABLE = tableColumns<Entry>([
  {
    ...COLUMNS[0]!,
    cell: ({ row: { original } }) => (
      <Link
        to="."
        search={searchOf(original.path)}
        replace
        resetScroll={false}
        className="plainlink mono clip"
        title={original.path}
      >
        {original.path}
      </Link>
    ),
  },
  ...COLUMNS.slice(1),
]);

/** The same file once more closes it. */
function searchOf(path: string) {
  return ((before: Search) => ({ ...before, file: before.file === path ? undefined : path })) as never;
}
