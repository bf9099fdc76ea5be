/** The versions of one name. The one that is shown is in the address. */

import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { type Column, DataTable, tableColumns } from "../look/DataTable";
import type { Search } from "../url/search";
import type { Numbered } from "./named";

interface Props<T extends Numbered> {
  versions: T[];
  shown: T;
  /** After the number. Keep them the same. */
  columns: Column<T>[];
}

export function VersionsTable<T extends Numbered>({ versions, shown, columns }: Props<T>) {
  const navigate = useNavigate();
  const all = useMemo(() => tableColumns<T>([NUMBER as Column<T>, ...columns]), [columns]);
  return (
    <DataTable
      grow
      label="versions"
      columns={all}
      rows={versions}
      idOf={(row) => String(row.version)}
      current={String(shown.version)}
      rowHeight={28}
      onOpen={(row) => void navigate({ to: ".", search: searchOf(row), replace: true, resetScroll: false })}
    />
  );
}

const NUMBER: Column<Numbered> = {
  id: "version",
  header: "Version",
  size: 76,
  accessorFn: (row) => row.version,
  cell: ({ row }) => (
    <Link to="." search={searchOf(row.original)} replace resetScroll={false} className="plainlink">
      <b style={{ fontWeight: 550 }}>v{row.original.version}</b>
    </Link>
  ),
};

/** Another version has other files. */
function searchOf({ version }: Numbered) {
  return ((before: Search) => ({ ...before, version: String(version), file: undefined })) as never;
}
