/** A new data set, or a new version of one: files of this computer, or what lies in a bucket or on the server. */

import { Button, Modal, Progress, SegmentedControl, Switch, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { FolderUp, Upload } from "lucide-react";
import { type DragEvent, type FormEvent, useRef, useState } from "react";
import { api, asked, type Schemas } from "../api/client";
import { useAct } from "../look/act";
import { CommandHint, ErrorBox } from "../look/Notes";
import { bytes, percent, several } from "../look/numbers";
import classes from "./datasets.module.css";
import {
  type Choice,
  choiceOf,
  droppedOf,
  type Progress as Far,
  pickedOf,
  sizeOf,
  suggestedName,
  upload,
  wrongName,
} from "./uploading";
import { word } from "./versions";

export type Way = "upload" | "uri";

interface Props {
  /** "" is closed. */
  way: Way | "";
  onWay: (way: Way | "") => void;
  /** A data set that gets another version. */
  name?: string;
}

export function AddDataset({ way, onWay, name }: Props) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [busy, setBusy] = useState(false);
  const added = async (answer: Schemas["Added"]) => {
    const made = answer.dataset!;
    notifications.show({
      color: "green",
      title: word(made),
      message: answer.new
        ? `${several(made.files, "file")}, ${bytes(made.size)}`
        : "as before: nothing has changed, so it is no new version",
    });
    await client.invalidateQueries({ queryKey: ["datasets"] });
    await navigate({
      to: "/datasets/$name",
      params: { name: made.name },
      search: { version: String(made.version) } as never,
    });
  };
  return (
    <Modal
      opened={way !== ""}
      onClose={() => !busy && onWay("")}
      closeOnClickOutside={!busy}
      title={name ? `A new version of ${name}` : "A new data set"}
      size="lg"
    >
      <div className={classes.form}>
        <SegmentedControl
          aria-label="where the content is"
          value={way || "upload"}
          disabled={busy}
          onChange={(value) => onWay(value as Way)}
          data={[
            { value: "upload", label: "Upload files" },
            { value: "uri", label: "In a bucket, or on the server" },
          ]}
        />
        {way === "uri" ? (
          <ByUri given={name} onAdded={added} onBusy={setBusy} />
        ) : (
          <ByUpload given={name} onAdded={added} onBusy={setBusy} />
        )}
      </div>
    </Modal>
  );
}

interface WayProps {
  given?: string;
  onAdded: (answer: Schemas["Added"]) => Promise<void>;
  onBusy: (busy: boolean) => void;
}

const MOST_LISTED = 100;

function ByUpload({ given, onAdded, onBusy }: WayProps) {
  const [name, setName] = useState(given ?? "");
  const [choice, setChoice] = useState<Choice>({ files: [], single: false });
  const [over, setOver] = useState(false);
  const [far, setFar] = useState<Far | null>(null);
  const [error, setError] = useState<unknown>(null);
  const stop = useRef<AbortController>(null);
  const files = useRef<HTMLInputElement>(null);
  const directory = useRef<HTMLInputElement>(null);
  const whole = sizeOf(choice.files);
  const wrong = wrongName(name);

  const take = (picked: { path: string; file: File }[]) => {
    if (!picked.length) return;
    setError(null);
    setChoice(choiceOf(picked));
    if (!name) setName(suggestedName(picked.map((one) => one.path)));
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void droppedOf(event.dataTransfer.items).then(take, setError);
  };
  const send = async (event: FormEvent) => {
    event.preventDefault();
    stop.current = new AbortController();
    onBusy(true);
    setError(null);
    try {
      const answer = await upload(name, choice, setFar, stop.current.signal);
      onBusy(false);
      await onAdded(answer);
    } catch (failure) {
      if (!(failure instanceof DOMException && failure.name === "AbortError")) setError(failure);
      onBusy(false);
    }
    setFar(null);
  };

  return (
    <form className={classes.form} onSubmit={(event) => void send(event)}>
      <section
        className={classes.drop}
        aria-label="files to upload"
        data-over={over || undefined}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <p>Drop files or a directory here, or choose</p>
        <Button
          variant="default"
          mr="sm"
          data-autofocus
          disabled={far !== null}
          leftSection={<Upload size={14} aria-hidden />}
          onClick={() => files.current?.click()}
        >
          Files …
        </Button>
        <Button
          variant="default"
          disabled={far !== null}
          leftSection={<FolderUp size={14} aria-hidden />}
          onClick={() => directory.current?.click()}
        >
          A directory …
        </Button>
        <input
          ref={files}
          type="file"
          multiple
          hidden
          aria-label="files"
          onChange={(event) => take(pickedOf(event.currentTarget.files ?? []))}
        />
        <input
          ref={(node) => {
            directory.current = node;
            node?.setAttribute("webkitdirectory", "");
          }}
          type="file"
          hidden
          aria-label="a directory"
          onChange={(event) => take(pickedOf(event.currentTarget.files ?? []))}
        />
      </section>
      {choice.files.length > 0 && (
        <>
          <ul className={classes.chosen} aria-label="chosen files" tabIndex={0}>
            {choice.files.slice(0, MOST_LISTED).map(({ path, file }) => (
              <li key={path}>
                <span className="mono clip" title={path}>
                  {path}
                </span>
                <span className="dim number">{bytes(file.size)}</span>
              </li>
            ))}
            {choice.files.length > MOST_LISTED && (
              <li className="dim">
                {MOST_LISTED} of {several(choice.files.length, "file")}
              </li>
            )}
          </ul>
          <span className="dim">
            {several(choice.files.length, "file")}, {bytes(whole)}
            {choice.single ? "; one file: a script finds it under the path that `at` says" : ""}
          </span>
        </>
      )}
      <TextInput
        label="Name"
        placeholder="cifar10"
        value={name}
        disabled={given !== undefined || far !== null}
        error={wrong}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      {far && (
        <div role="status">
          <Progress value={whole ? (far.bytes / whole) * 100 : 100} aria-label="uploaded" mb={4} />
          <span className="dim">
            {percent(whole ? far.bytes / whole : 1)}: {bytes(far.bytes)} of {bytes(whole)}, {far.done} of{" "}
            {several(choice.files.length, "file")}
          </span>
        </div>
      )}
      {error ? <ErrorBox error={error} compact /> : null}
      <div className={classes.end}>
        <CommandHint command={`shoal dataset upload ${name || "NAME"} PATH`} />
        <span style={{ flex: 1 }} />
        {far && (
          <Button variant="default" onClick={() => stop.current?.abort()}>
            Cancel
          </Button>
        )}
        <Button type="submit" loading={far !== null} disabled={!name || wrong !== "" || !choice.files.length}>
          Upload
        </Button>
      </div>
    </form>
  );
}

function ByUri({ given, onAdded, onBusy }: WayProps) {
  const [name, setName] = useState(given ?? "");
  const [uri, setUri] = useState("");
  const [anonymous, setAnonymous] = useState(false);
  const [endpoint, setEndpoint] = useState("");
  const [region, setRegion] = useState("");
  const [key, setKey] = useState("");
  const [secret, setSecret] = useState("");
  const { busy, error, act } = useAct();
  const bucket = /^(s3|gs):\/\//.test(uri);
  const wrong = wrongName(name);

  const add = async (event: FormEvent) => {
    event.preventDefault();
    const keys = key && secret ? { environment: { AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: secret } } : {};
    const body = { name, uri, directory: "/", anonymous, endpoint, region, ...keys } as Schemas["NewDataset"];
    onBusy(true);
    await act(async () => {
      const answer = await asked(api.POST("/api/datasets", { body })).finally(() => onBusy(false));
      await onAdded(answer);
    });
  };

  return (
    <form className={classes.form} onSubmit={(event) => void add(event)}>
      <TextInput
        label="Where"
        description="s3://bucket/prefix, gs://bucket/prefix, or an absolute path on the server's machine. It stays there; every file is written down with its hash or etag."
        placeholder="s3://bucket/imagenet"
        value={uri}
        onChange={(event) => setUri(event.currentTarget.value)}
      />
      <TextInput
        label="Name"
        placeholder="imagenet"
        value={name}
        disabled={given !== undefined}
        error={wrong}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      {bucket && (
        <>
          <Switch
            label="a public bucket, read without credentials"
            checked={anonymous}
            onChange={(event) => setAnonymous(event.currentTarget.checked)}
          />
          <div className={classes.pair}>
            <TextInput
              label="Endpoint"
              description="of a server that speaks S3"
              placeholder="https://minio.example"
              value={endpoint}
              onChange={(event) => setEndpoint(event.currentTarget.value)}
            />
            <TextInput
              label="Region"
              description="of the bucket"
              placeholder="us-east-1"
              value={region}
              onChange={(event) => setRegion(event.currentTarget.value)}
            />
            {!anonymous && uri.startsWith("s3:") && (
              <>
                <TextInput
                  label="Access key"
                  description="not kept; without one, as the server's"
                  autoComplete="off"
                  value={key}
                  onChange={(event) => setKey(event.currentTarget.value)}
                />
                <TextInput
                  label="Secret key"
                  type="password"
                  description="not kept"
                  autoComplete="off"
                  value={secret}
                  onChange={(event) => setSecret(event.currentTarget.value)}
                />
              </>
            )}
          </div>
        </>
      )}
      {error ? <ErrorBox error={error} compact /> : null}
      <div className={classes.end}>
        <CommandHint command={`shoal dataset add ${name || "NAME"} ${uri || "s3://…"}`} />
        <span style={{ flex: 1 }} />
        <Button type="submit" loading={busy} disabled={!name || wrong !== "" || !uri}>
          Add
        </Button>
      </div>
    </form>
  );
}
