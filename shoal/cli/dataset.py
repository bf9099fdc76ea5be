"""`shoal dataset`: data sets in versions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.client import Client

READ = 1 << 20

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("dataset")
def command() -> None:
    """Keep data sets in versions, for `data:` in experiment files.

    \b
    shoal dataset add cifar10 /data/cifar10         what lies there now is cifar10@v1
    shoal dataset add imagenet s3://bucket/imagenet
    shoal dataset upload labels labels.csv          Shoal keeps the content itself
    """


@command.command("add")
@click.argument("name")
@click.argument("uri", metavar="PATH|s3://…|gs://…")
@click.option("--anonymous", is_flag=True, help="Read a public bucket without credentials.")
@click.option("--endpoint", metavar="URL", default="", help="A server that speaks the protocol of S3.")
@click.option("--region", metavar="REGION", default="", help="The bucket's region; default: AWS_REGION, us-east-1.")
@as_json_option
def add(name: str, uri: str, anonymous: bool, endpoint: str, region: str, as_json: bool) -> None:
    """Make a version of data that stays where it is.

    Every file is written down: with its hash at a path, with its etag in a bucket. An experiment that uses the version
    is refused when something of it has changed. The same content again is the same version. Credentials for a bucket
    are taken from the variables here (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, …) and are not kept.
    """
    from shoal.client import Client
    from shoal.data.buckets import only_for_buckets

    variables = only_for_buckets(os.environ)
    options = {"anonymous": anonymous, "endpoint": endpoint, "region": region}
    _say(Client().add_dataset(name, uri, os.getcwd(), variables, **options), as_json=as_json)


@command.command("upload")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@as_json_option
def upload(name: str, path: Path, as_json: bool) -> None:
    """Make a version of a file or a directory whose content Shoal keeps.

    Content that is there already is not sent again: an upload that broke goes on where it was.
    """
    from shoal.client import Client
    from shoal.data import manifests

    manifest = manifests.of_path(path.absolute())
    files = [{key: entry[key] for key in ("path", "size", "hash")} for entry in manifest.entries]
    places = {entry["hash"]: path if manifest.single else path / str(entry["path"]) for entry in files}
    sizes = {entry["hash"]: int(entry["size"]) for entry in files}
    client = Client()
    answer = client.add_managed(name, files, single=manifest.single)
    for _ in range(3):  # what nobody names is collected: rarely something is missing that was just put
        for number, hash_ in enumerate(answer["missing"], 1):
            _progress(f"{number} of {len(answer['missing'])} files: {places[hash_]}")
            client.put_blob(hash_, _read(places[hash_]), sizes[hash_])
        if answer["missing"]:
            answer = client.add_managed(name, files, single=manifest.single)
    _progress("")
    _say(answer, as_json=as_json)


@command.command("ls")
@as_json_option
def ls(as_json: bool) -> None:
    """List all versions of all data sets."""
    from shoal.cli.table import table
    from shoal.cli.wording import clock
    from shoal.client import Client

    found = Client().datasets()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [
        (_word(d), d["kind"], f"{d['files']:,}", _size(d["size"]), clock(d["created"]), d["uri"] or "-") for d in found
    ]
    print(table(("data set", "kind", "files", "size", "created", "where"), rows))


@command.command("show")
@click.argument("dataset", metavar="NAME[@VERSION]")
@as_json_option
def show(dataset: str, as_json: bool) -> None:
    """Show one version and its files; without a version the newest."""
    from shoal.cli.table import table
    from shoal.cli.wording import clock
    from shoal.client import Client

    found = Client().dataset(dataset)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{_word(found)} {found['kind']} {found['uri']}".rstrip())
    print(f"{_files(found)}, {_size(found['size'])}, created {clock(found['created'])}, {found['digest']}")
    rows = [
        (e["path"], f"{e['size']:,}", (e.get("hash") or e.get("etag", "").strip('"'))[:16]) for e in found["manifest"]
    ]
    print("\n" + table(("file", "bytes", "content"), rows))


@command.command("get")
@click.argument("dataset", metavar="NAME[@VERSION]")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="The same as DIRECTORY.")
def get(dataset: str, directory: Path | None, to: Path | None) -> None:
    """Copy a version into a new directory, verified.

    Objects come straight from their bucket, with the credentials of the variables here. What broke goes on where
    it was.
    """
    from shoal.client import Client

    if (directory is None) == (to is None):
        raise UsageError("where to: one directory", hint=f"shoal dataset get {dataset} DIRECTORY")
    directory = directory or to
    assert directory is not None
    client = Client()
    found = client.dataset(dataset)
    target = directory.absolute()
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    if target.exists():
        raise UsageError(f"{directory} is not empty", hint="name a new directory")
    if found["kind"] == "object":
        _from_bucket(found, target)
    else:
        _from_server(client, found, target)
    print(f"{_word(found)} is in {directory}: {_files(found)}, {_size(found['size'])}")


@command.command("rm")
@click.argument("words", nargs=-1, required=True, metavar="NAME[@VERSION]...")
def rm(words: Sequence[str]) -> None:
    """Forget a version, or all versions of a name.

    Content that Shoal keeps or has fetched is deleted; data at a path or in a bucket stays where it is.
    """
    from shoal.client import Client

    client = Client()
    for word in words:
        client.remove_dataset(word)
        print(f"{word} removed")


def _from_bucket(found: dict[str, Any], target: Path) -> None:
    from shoal.data import buckets, downloads

    address = buckets.address_of(found["uri"], found["options"], os.environ)
    single = bool(found["options"].get("single"))

    def progress(done: int) -> None:
        _progress(f"{_size(done)} of {_size(found['size'])}")

    bucket = buckets.Bucket(address, os.environ)
    downloads.fetch(bucket, found["manifest"], target, single=single, progress=progress)
    for entry in found["manifest"]:
        os.chmod(target / entry["path"], 0o644)
    _progress("")


def _from_server(client: Client, found: dict[str, Any], target: Path) -> None:
    from shoal.data.manifests import hash_of, safe

    part = target.with_name(f"{target.name}.part")
    for number, entry in enumerate(found["manifest"], 1):
        if not safe(entry["path"]):
            raise UsageError(f"{entry['path']!r} is no path below a directory")
        file = part / entry["path"]
        _progress(f"{number} of {found['files']} files")
        if file.is_file() and hash_of(file) == entry["hash"]:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "wb") as out:
            for block in client.dataset_content(_word(found), entry["path"]):
                out.write(block)
        if hash_of(file) != entry["hash"]:
            raise UsageError(
                f"{_word(found)}: {entry['path']} is not what was added: it has changed",
                hint=f"shoal dataset add {found['name']} {found['uri']} makes a new version",
            )
    part.rename(target)
    _progress("")


def _read(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while block := file.read(READ):
            yield block


def _say(answer: dict[str, Any], *, as_json: bool) -> None:
    found = answer["dataset"]
    if found is None:
        raise UsageError("the content changed while it was sent", hint="upload it again")
    if as_json:
        print(json.dumps({**found, "new": answer["new"]}, indent=2))
        return
    print(_word(found), flush=True)  # before what is said beside it
    known = "" if answer["new"] else ", as before: nothing has changed"
    print(f"{_files(found)}, {_size(found['size'])}{known}", file=sys.stderr)


def _progress(text: str) -> None:
    """A line that is written over, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _word(found: dict[str, Any]) -> str:
    return f"{found['name']}@v{found['version']}"


def _files(found: dict[str, Any]) -> str:
    return f"{found['files']:,} files" if found["files"] != 1 else "1 file"


def _size(count: int) -> str:
    """`120 MiB`"""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}" if unit != "bytes" else f"{count} bytes"
        value /= 1024
    return f"{value:,.3g} TiB"
