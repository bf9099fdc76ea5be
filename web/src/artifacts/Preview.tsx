/** One file: its first part, shown as what it is. Nothing of it runs: pages are sandboxed, drawings are images. */

import { Button, Group, SegmentedControl, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { fetched } from "../api/client";
import { Copied, CopyButton, ErrorBox, Waiting } from "../look/Notes";
import { bytes, count } from "../look/numbers";
import { Ago } from "../look/Time";
import classes from "./artifacts.module.css";
import { cells, sniffed, wholeSize } from "./files";

/** What is looked at: where its content is, and what is known of it. */
export interface Shown {
  url: string;
  path: string;
  size: number;
  modified?: number;
  hash?: string | null;
  /** Changes when the content does. */
  version: string;
  notes?: string[];
}

const PART = 1 << 20;
const LARGEST_IMAGE = 32 << 20;
const MOST_ROWS = 500;

export function Preview({ file }: { file: Shown }) {
  const [all, setAll] = useState(false);
  const [source, setSource] = useState(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another file begins anew
  useEffect(() => {
    setAll(false);
    setSource(false);
  }, [file.url]);
  const read = useQuery({
    queryKey: ["content", file.url, file.version, all],
    queryFn: async ({ signal }) => {
      const answer = await fetched(
        file.url,
        all ? { signal } : { signal, headers: file.size > PART ? { Range: `bytes=0-${PART - 1}` } : {} },
      );
      const content = new Uint8Array(await answer.arrayBuffer());
      return { content, size: wholeSize(answer.headers.get("content-range")) ?? content.length };
    },
    staleTime: 60_000,
    gcTime: 30_000,
  });
  const found = useMemo(() => (read.data ? sniffed(read.data.content, file.path) : null), [read.data, file.path]);
  const cut = read.data ? read.data.size > read.data.content.length : false;
  const name = file.path.split("/").at(-1)!;
  return (
    <section className={classes.preview} aria-label={file.path}>
      <div className={classes.about}>
        <span className="mono clip" title={file.path}>
          {file.path}
        </span>
        <CopyButton text={file.path} what="the path" />
        <span className="dim">{bytes(file.size)}</span>
        {file.modified !== undefined && (
          <span className="dim">
            changed <Ago time={file.modified} />
          </span>
        )}
        {file.hash && (
          <span className={`dim ${classes.hash}`}>
            SHA-256 <Copied text={file.hash} shown={file.hash.slice(0, 12)} what="the hash" />
          </span>
        )}
        <span className={classes.spacer} />
        {found?.kind === "html" || found?.kind === "svg" ? (
          <SegmentedControl
            aria-label="how it is shown"
            value={source ? "text" : "shown"}
            onChange={(value) => setSource(value === "text")}
            data={[
              { value: "shown", label: "Shown" },
              { value: "text", label: "Source" },
            ]}
          />
        ) : null}
        <Button
          variant="default"
          component="a"
          href={file.url}
          download={name}
          leftSection={<Download size={13} aria-hidden />}
        >
          Download
        </Button>
      </div>
      {file.notes?.map((note) => (
        <Text key={note} size="sm" className="hue-red">
          {note}
        </Text>
      ))}
      {cut && (
        <p className="dim" style={{ margin: "4px 0" }}>
          {`The first ${bytes(read.data!.content.length)} of ${bytes(read.data!.size)}.`}
        </p>
      )}
      {read.error ? (
        <ErrorBox error={read.error} retry={() => void read.refetch()} />
      ) : !read.data || !found ? (
        <Waiting what={name} />
      ) : found.kind === "image" || (found.kind === "svg" && !source) ? (
        cut && !all ? (
          <div className={classes.nothing}>
            {read.data.size > LARGEST_IMAGE ? (
              `An image of ${bytes(read.data.size)}: too large to show here.`
            ) : (
              <Button
                variant="default"
                onClick={() => setAll(true)}
              >{`Show the image (${bytes(read.data.size)})`}</Button>
            )}
          </div>
        ) : (
          <Picture content={read.data.content} mime={found.mime!} name={name} />
        )
      ) : found.kind === "html" && !source ? (
        // No scripts, no forms, an origin of its own; the policy of this page holds in it, too.
        <iframe sandbox="" srcDoc={found.text} title={`${name}, without its scripts`} className={classes.page} />
      ) : found.kind === "json" && !cut ? (
        <Words text={indented(found.text!)} />
      ) : found.kind === "table" ? (
        <Cells text={found.text!} cut={cut} />
      ) : found.kind === "binary" ? (
        <Bytes content={read.data.content} />
      ) : found.text === "" ? (
        <div className={classes.nothing}>The file is empty.</div>
      ) : (
        <Words text={found.text!} />
      )}
    </section>
  );
}

/** An image, as large as there is room or pixel by pixel. */
export function Picture({
  content,
  mime,
  url,
  name,
}: {
  content?: Uint8Array;
  mime?: string;
  url?: string;
  name: string;
}) {
  const [exact, setExact] = useState(false);
  const [size, setSize] = useState<[number, number] | null>(null);
  const [made, setMade] = useState<string | null>(null);
  useEffect(() => {
    if (!content) return;
    const address = URL.createObjectURL(new Blob([content as BlobPart], { type: mime }));
    setMade(address);
    return () => URL.revokeObjectURL(address);
  }, [content, mime]);
  const source = url ?? made;
  return (
    <>
      <Group gap="sm" py={4}>
        <SegmentedControl
          aria-label="size of the image"
          value={exact ? "exact" : "fit"}
          onChange={(value) => setExact(value === "exact")}
          data={[
            { value: "fit", label: "Fit" },
            { value: "exact", label: "1:1" },
          ]}
        />
        {size && size[0] > 0 && <span className="dim">{`${size[0]} × ${size[1]}`}</span>}
      </Group>
      <div
        className={classes.canvas}
        data-exact={exact || undefined}
        tabIndex={0}
        role="region"
        aria-label={`image ${name}`}
      >
        {source && (
          <img
            src={source}
            alt={name}
            style={exact || !size ? undefined : enlarged(size)}
            onLoad={(event) => setSize([event.currentTarget.naturalWidth, event.currentTarget.naturalHeight])}
          />
        )}
      </div>
    </>
  );
}

/** A tiny image is shown larger, its pixels as squares. */
function enlarged([width]: [number, number]): { width?: number; imageRendering?: "pixelated" } {
  return width > 0 && width < 160 ? { width: width * 3, imageRendering: "pixelated" } : {};
}

export function Words({ text }: { text: string }) {
  return (
    <pre className={classes.words} tabIndex={0}>
      {text}
    </pre>
  );
}

function Cells({ text, cut }: { text: string; cut: boolean }) {
  const rows = useMemo(() => cells(text, MOST_ROWS + 1), [text]);
  const lines = useMemo(() => text.split("\n").length - (text.endsWith("\n") ? 1 : 0), [text]);
  const [head = [], ...body] = rows;
  return <Rows columns={head} rows={body} total={cut ? null : Math.max(body.length, lines - 1)} />;
}

/** A table, at most so many rows of it, and how many there are. */
export function Rows({
  columns,
  rows,
  total,
}: {
  columns: readonly string[];
  rows: readonly (readonly unknown[])[];
  total: number | null;
}) {
  const shown = rows.slice(0, MOST_ROWS);
  return (
    <>
      {(total === null || total > shown.length) && (
        <p
          className="dim"
          style={{ margin: "4px 0" }}
        >{`${count(shown.length)} of ${total === null ? "more" : count(total)} rows`}</p>
      )}
      <div className={classes.cells} tabIndex={0} role="region" aria-label="table">
        <Table stickyHeader striped withColumnBorders>
          <Table.Thead>
            <Table.Tr>
              {columns.map((column, i) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns may have the same name
                <Table.Th key={i}>{column}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.map((row, i) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other name
              <Table.Tr key={i}>
                {row.map((cell, j) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: nor have cells
                  <Table.Td key={j} className={typeof cell === "number" ? "number" : undefined}>
                    {typeof cell === "object" && cell !== null ? JSON.stringify(cell) : String(cell ?? "")}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </>
  );
}

/** The first bytes, for files that nobody can read. */
function Bytes({ content }: { content: Uint8Array }) {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(content.length, 512); at += 16) {
    const part = Array.from(content.subarray(at, at + 16));
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const signs = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${signs}`);
  }
  return (
    <>
      <p className="dim" style={{ margin: "4px 0" }}>{`No text. Its first ${Math.min(512, content.length)} bytes:`}</p>
      <Words text={lines.join("\n")} />
    </>
  );
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
