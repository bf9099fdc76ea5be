"""`shoal export`: everything of an experiment, in files that other programs read."""

from __future__ import annotations

import json
import os
import re
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from shoal import names
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.client import Client


@click.command("export")
@click.argument("experiment")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="A tar file instead; .gz packs it."
)
@click.option("--parquet", is_flag=True, help="Metrics as Parquet instead of CSV.")
@click.option("--outputs", is_flag=True, help="The files that replicas wrote, too.")
@click.option("--artifacts", is_flag=True, help="The files of artifacts, too: the newest version of each.")
def command(
    experiment: str, directory: Path | None, output: Path | None, parquet: bool, outputs: bool, artifacts: bool
) -> None:
    """Write everything of an experiment into a directory or a tar file.

    DIRECTORY is made, and is the experiment's id when it is left out. The name of what was written is printed.

    \b
    experiment.json     the experiment with its replicas, as `shoal show --json` tells it
    provenance.json     commit, diff, packages, host, data sets
    files/              the experiment files as they were written, and resolved.yml
    logs/               one file for each try of each replica
    metrics.csv         every point of every process, those too that a later attempt replaced: name, replica,
                        process, attempt, step, time, value
    resources.csv       the same of what replicas used
    records.json        texts, tables, histograms, images, checkpoints, …
    artifacts.json      every version of every artifact, with hashes

    \b
    shoal export e7k2m9
    shoal export e7k2m9 -o e7k2m9.tar.gz --outputs
    """
    from shoal.client import Client

    if directory is not None and output is not None:
        raise UsageError("a directory and a tar file", hint="leave one of them out")
    client = Client()
    shown = client.show(experiment)
    wanted = {"parquet": parquet, "outputs": outputs, "artifacts": artifacts}
    try:
        if output is not None:
            with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".export-") as place:
                _write(client, shown, Path(place), **wanted)
                _pack(Path(place), shown["id"], output)
            print(output)
            return
        target = directory or Path(shown["id"])
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target} is there already", hint="name another directory, or remove it first")
        target.mkdir(parents=True, exist_ok=True)
        _write(client, shown, target, **wanted)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}", hint="choose another place") from None
    print(target)


def _write(
    client: Client, shown: dict[str, Any], place: Path, *, parquet: bool, outputs: bool, artifacts: bool
) -> None:
    word = shown["uid"]
    _json(place / "experiment.json", {key: value for key, value in shown.items() if key not in ("files", "resolved")})
    _json(place / "provenance.json", client.provenance(word))
    files = place / "files"
    files.mkdir()
    for number, file in enumerate(shown["files"]):
        name = re.sub(r"[^\w.-]+", "_", os.path.basename(file["name"])) or "experiment.yml"
        (files / (name if number == 0 else f"{number}-{name}")).write_text(file["text"])
    (files / "resolved.yml").write_text(shown["resolved"])
    _logs(client, word, place / "logs")
    form = "parquet" if parquet else "csv"
    for name, kind in (("metrics", None), ("resources", "resource")):
        _pour(client, client.points_url(word, format=form, kind=kind, replaced=True), place / f"{name}.{form}")
    _json(place / "records.json", client.records(word))
    kept = client.artifacts(word)
    _json(place / "artifacts.json", [client.artifact(entry["id"]) for entry in kept])
    if outputs:
        _outputs(client, word, place / "outputs")
    if artifacts:
        _artifacts(client, kept, place / "artifacts")


def _logs(client: Client, word: str, place: Path) -> None:
    """`logs/attempt-0/worker-1.log`; a later try is `worker-1.1.log`."""
    opened: dict[Path, IO[str]] = {}
    try:
        for line in client.logs(word):
            name = line["replica"] + (f".{line['try']}" if line["try"] else "") + ".log"
            path = place / f"attempt-{line['attempt']}" / name
            if path not in opened:
                path.parent.mkdir(parents=True, exist_ok=True)
                opened[path] = path.open("w", encoding="utf-8", errors="surrogateescape")
            opened[path].write(line["text"] + "\n")
    finally:
        for file in opened.values():
            file.close()
    place.mkdir(exist_ok=True)


def _pour(client: Client, url: str, target: Path) -> None:
    from shoal.cli.downloads import pour

    with target.open("wb") as file:
        pour(client, url, file)


def _outputs(client: Client, word: str, place: Path) -> None:
    from shoal.cli.downloads import Remote, fetch

    place.mkdir()
    found = client.outputs(word)
    fetch(client, [Remote(client.output_url(word, file["path"]), file["path"], file["size"]) for file in found], place)


def _artifacts(client: Client, kept: list[dict[str, Any]], place: Path) -> None:
    from shoal.cli.downloads import Remote, fetch

    place.mkdir()
    newest = {entry["name"]: entry for entry in sorted(kept, key=lambda entry: entry["version"])}
    taken: set[str] = set()
    for entry in newest.values():
        name = names.made(entry["name"], "artifact")  # one of an older Shoal may be called anything
        name = name if name not in taken else f"{name}-{entry['id']}"
        taken.add(name)
        files = client.artifact(entry["id"])["files"]
        fetch(
            client,
            [
                Remote(client.blob_url(file["hash"]), f"{name}/{file['path']}", file["size"], file["hash"])
                for file in files
            ],
            place,
        )


def _json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")


def _pack(place: Path, name: str, output: Path) -> None:
    """Whole or not at all."""
    packed = output.suffix in (".gz", ".tgz")
    temporary = output.with_name(f".{output.name}.{os.getpid()}.new")
    try:
        with tarfile.open(temporary, "w:gz") if packed else tarfile.open(temporary, "w") as archive:
            archive.add(place, arcname=name)
        os.replace(temporary, output)
    finally:
        temporary.unlink(missing_ok=True)
