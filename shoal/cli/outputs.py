"""`shoal outputs`: the files of an experiment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.client import Client


@click.command("outputs")
@click.argument("experiment")
@click.argument("action", type=click.Choice(["ls", "get", "cat"]), default="ls")
@click.argument("path", default="")
@click.option("-r", "--replica", metavar="NAME", help="Only what lies in this replica's own directory.")
@click.option(
    "-a", "--artifact", metavar="NAME[@VERSION]", help="The files of an artifact; default: its newest version."
)
@click.option("--to", metavar="DIRECTORY", type=click.Path(path_type=Path), help="Where get puts them; default: here.")
@click.option("--hash", "hashes", is_flag=True, help="ls: read every file and show its SHA-256.")
@click.option("--json", "as_json", is_flag=True, help="ls: print JSON.")
def command(
    experiment: str,
    action: str,
    path: str,
    replica: str | None,
    artifact: str | None,
    to: Path | None,
    hashes: bool,
    as_json: bool,
) -> None:
    """List, fetch or print the files of an experiment: outputs and artifacts.

    Outputs are what replicas wrote into their directories; artifacts are what scripts handed over with shoal.artifact.
    PATH is a file or a directory among them. What was fetched before is not fetched again.

    \b
    shoal outputs e7k2m9
    shoal outputs e7k2m9 get --replica worker-0 --to results
    shoal outputs e7k2m9 cat metrics/summary.json
    shoal outputs e7k2m9 get --artifact weights@3 --to .
    """
    from shoal.client import Client

    if action == "cat" and not path:
        raise UsageError("cat needs a path", hint=f"shoal outputs {experiment} ls")
    if replica and artifact:
        raise UsageError("--replica and --artifact together", hint="an artifact has one manifest: leave out --replica")
    client = Client()
    if artifact is not None:
        _of_artifact(client, experiment, action, path, artifact, to or Path(), as_json=as_json)
        return
    path = f"{replica}/{path}".rstrip("/") if replica else path
    if action == "ls":
        _list(client, experiment, path, hashes=hashes, whole=not path, as_json=as_json)
    elif action == "cat":
        from shoal.cli.downloads import pour

        pour(client, client.output_url(experiment, path), sys.stdout.buffer)
    else:
        _get(client, experiment, path, f"{replica}/" if replica else "", to or Path())


def _list(client: Client, experiment: str, path: str, *, hashes: bool, whole: bool, as_json: bool) -> None:
    found = client.outputs(experiment, under=path, hash=hashes)
    artifacts = client.artifacts(experiment) if whole else []
    if as_json:
        print(json.dumps({"files": found, "artifacts": artifacts} if whole else {"files": found}, indent=2))
        return
    from shoal.cli.table import table
    from shoal.cli.wording import clock, size

    elsewhere = client.elsewhere(experiment) if not found else ""
    if elsewhere:
        print(f"the outputs are in {elsewhere}", file=sys.stderr)
    elif not found and not artifacts:
        print("no files", file=sys.stderr)
    header = ("path", "size", "modified", "replica", *(["sha256"] if hashes else []), "note")
    rows = [
        (
            file["path"], size(file["size"]), clock(file["modified"]), file["replica"] or "shared",
            *([file["hash"] or "-"] if hashes else []), _note(file),
        )
        for file in found
    ]  # fmt: skip
    if rows:
        print(table(header, rows))
    if artifacts:
        print(("\n" if rows else "") + _table_of(artifacts))


def _note(file: dict[str, Any]) -> str:
    if file["outside"]:
        return f"link to {file['link']}, outside: not followed"
    if file["conflict"]:
        return f"written by {' and '.join(file['writers'])} (best effort)"
    return f"link to {file['link']}" if file["link"] else ""


def _table_of(artifacts: list[dict[str, Any]]) -> str:
    from shoal.cli.table import table
    from shoal.cli.wording import clock, size

    rows = [
        (
            f"{entry['name']}@{entry['version']}", entry["kind"], str(entry["count"]), size(entry["size"]),
            clock(entry["created"]), entry["replica"], _disagreement(entry),
        )
        for entry in artifacts
    ]  # fmt: skip
    return table(("artifact", "kind", "files", "size", "created", "replica", "note"), rows)


def _disagreement(entry: dict[str, Any]) -> str:
    """`conflict: worker-0 wrote @1, worker-1 wrote @2`"""
    said = [f"{writer['replica']} wrote @{writer['version']}" for writer in entry["writers"]]
    return f"conflict: {', '.join(said)}" if entry["conflict"] else ""


def _get(client: Client, experiment: str, path: str, prefix: str, to: Path) -> None:
    from shoal.cli.downloads import Remote, fetch

    found = client.outputs(experiment, under=path)
    for file in found:
        if file["outside"]:
            print(f"{file['path']}: {_note(file)}", file=sys.stderr)
    files = [
        Remote(
            client.output_url(experiment, file["path"]),
            file["path"].removeprefix(prefix),
            file["size"],
            modified=file["modified"],
        )
        for file in found
        if not file["outside"]
    ]
    if not files:
        raise UsageError(f"{experiment} has no output {path or 'yet'}", hint=f"shoal outputs {experiment} ls")
    _say(fetch(client, files, to), len(files), to)


def _of_artifact(
    client: Client, experiment: str, action: str, path: str, word: str, to: Path, *, as_json: bool
) -> None:
    from shoal.cli.downloads import Remote, fetch, pour

    found = client.artifact(find(client.artifacts(experiment), experiment, word)["id"])
    below = path.rstrip("/") + "/"
    files = [file for file in found["files"] if not path or file["path"] == path or file["path"].startswith(below)]
    if path and not files:
        names = ", ".join(file["path"] for file in found["files"][:10])
        raise UsageError(f"{found['name']}@{found['version']} has no file {path}", hint=f"it has {names}")
    if action == "ls" and as_json:
        print(json.dumps({**found, "files": files}, indent=2))
    elif action == "ls":
        print(manifest_table(files))
    elif action == "cat":
        if [file["path"] for file in files] != [path]:
            raise UsageError(f"{path} is a directory", hint="cat prints one file")
        pour(client, client.blob_url(files[0]["hash"]), sys.stdout.buffer)
    else:
        remote = [Remote(client.blob_url(f["hash"]), f["path"], f["size"], f["hash"]) for f in files]
        _say(fetch(client, remote, to), len(remote), to)


def find(artifacts: list[dict[str, Any]], experiment: str, word: str) -> dict[str, Any]:
    """`weights`, `weights@3`: the artifact that is meant."""
    named = [entry for entry in artifacts if entry["name"] == word]
    if named:
        return named[-1]
    name, _, version = word.rpartition("@")
    named = [entry for entry in artifacts if entry["name"] == name]
    chosen = [entry for entry in named if version in (str(entry["version"]), f"v{entry['version']}")]
    if version == "latest" and named:
        return named[-1]
    if chosen:
        return chosen[-1]
    known = ", ".join(f"{entry['name']}@{entry['version']}" for entry in artifacts[-10:])
    raise UsageError(f"{experiment} has no artifact {word}", hint=f"it has {known}" if known else "it has none")


def manifest_table(files: list[dict[str, Any]]) -> str:
    from shoal.cli.table import table
    from shoal.cli.wording import size

    return table(("path", "size", "sha256"), [(file["path"], size(file["size"]), file["hash"]) for file in files])


def _say(fetched: int, count: int, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    there = f", {count - fetched} were there" if fetched < count else ""
    print(f"{fetched} of {count} files fetched into {to}{there}", file=sys.stderr)
