"""`shoal sync`: bring in runs that were recorded outside Shoal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.client import Client

ABOUT = "outside.json"


@click.command("sync")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """Bring in runs of scripts that Shoal did not start.

    Finds directories with an outside.json below each PATH; default: `outside` in the home. Can be repeated, and while
    the script still writes: only what is new is sent, and nothing comes twice.

    \b
    shoal sync
    shoal sync /scratch/runs
    """
    from shoal.cli.table import table
    from shoal.client import Client

    client = Client()
    home = client.home / "outside"
    runs = find(paths or (home,), given=bool(paths))
    found = [bring(client, run, about, home) for run, about in runs]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [(run["id"], run["name"] or "-", run["state"], str(run["bytes"]), run["path"]) for run in found]
    print(table(("id", "name", "state", "sent", "path"), rows) if rows else "there is nothing to bring in")


def find(paths: Sequence[Path], *, given: bool) -> list[tuple[Path, dict[str, Any]]]:
    """The run directories below the paths, with what each says of itself."""
    from shoal.errors import UsageError

    found: dict[Path, dict[str, Any]] = {}
    for path in paths:
        if given and not path.is_dir():
            raise UsageError(f"{path}: there is no such directory", hint="name the directory of a run, or one above it")
        before = len(found)
        for run in sorted(_runs(path.absolute())):
            found[run] = _about(run / ABOUT)
        if given and len(found) == before:
            raise UsageError(
                f"{path}: no run was recorded there",
                hint=f"a run is a directory with {ABOUT}: shoal.init(directory=…) or SHOAL_OUTSIDE makes one",
            )
    return list(found.items())


def _runs(path: Path) -> Iterator[Path]:
    for directory, below, names in os.walk(path):
        if ABOUT in names:
            below.clear()  # a run has no runs in it
            yield Path(directory)


def _about(file: Path) -> dict[str, Any]:
    from shoal.errors import UsageError

    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {error}", hint="was it cut off? Remove the directory, or mend the file") from None
    if not isinstance(value, dict):
        raise UsageError(f"{file}: not a JSON object", hint="it is written by shoal.init")
    return value


def bring(client: Client, run: Path, about: dict[str, Any], home: Path) -> dict[str, Any]:
    adopted = client.adopt(about)
    sent = 0
    if client.is_remote or run.parent != home:
        sent = sum(_ship(client, adopted["uid"], place) for place in _tries(run))
        client.adopt(about)  # what has come is read
    shown = client.show(adopted["id"])
    return {"id": adopted["id"], "name": shown["name"], "state": shown["state"], "bytes": sent, "path": str(run)}


def _tries(run: Path) -> list[Path]:
    return sorted(path for path in run.glob("attempt-*/*/try-*") if path.is_dir() and not path.is_symlink())


def _ship(client: Client, uid: str, place: Path) -> int:
    """Bytes of this try that the server did not have."""
    from shoal.errors import Unavailable, UsageError
    from shoal.launcher.shipping import Away, Closed, Mirror
    from shoal.launcher.sinks import HttpSink

    attempt, replica, try_ = place.parts[-3:]
    address, token, trusted = client.access()
    words = (uid, attempt.removeprefix("attempt-"), replica, try_.removeprefix("try-"))
    mirror = Mirror(str(place), HttpSink(address, "/".join(words), token, context=trusted))
    try:
        mirror.carry()
    except (Away, Closed) as error:
        raise Unavailable(f"{place}: not all of it could be sent: {error}", hint="run shoal sync again") from None
    mirror.close()
    if mirror.refused:
        path, why = next(iter(sorted(mirror.refused.items())))
        raise UsageError(f"{place / path}: the server does not take it: {why}", hint="the other files have been sent")
    return mirror.carried
