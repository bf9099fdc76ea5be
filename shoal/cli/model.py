"""`shoal model`: the models of this home and their versions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from shoal.errors import UsageError


@click.group("model")
def command() -> None:
    """Look after models: numbered versions that scripts made with shoal.model.

    NAME@VERSION is a number, an alias or `latest`; NAME alone is the newest version.
    """


@command.command("ls")
@click.argument("name", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(name: str, as_json: bool) -> None:
    """List all versions of all models; NAME may be a pattern.

    \b
    shoal model ls
    shoal model ls 'resnet*'
    """
    from shoal.cli.table import table
    from shoal.cli.wording import clock, size
    from shoal.client import Client

    found = Client().models(name)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [
        (
            f"{m['name']}@{m['version']}", ", ".join(m["aliases"]), m["experiment"], m["replica"],
            "-" if m["step"] is None else str(m["step"]), size(m["size"]), clock(m["created"]), _metrics(m),
        )
        for m in found
    ]  # fmt: skip
    print(table(("model", "aliases", "experiment", "replica", "step", "size", "created", "metrics"), rows))


@command.command("show")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(model: str, as_json: bool) -> None:
    """Show one version: where it comes from, its metrics and its files."""
    from shoal.cli.outputs import manifest_table
    from shoal.cli.wording import clock, size
    from shoal.client import Client

    found = Client().model(*split(model))
    if as_json:
        print(json.dumps(found, indent=2))
        return
    aliases = f" ({', '.join(found['aliases'])})" if found["aliases"] else ""
    print(f"{found['name']}@{found['version']}{aliases}")
    step = "" if found["step"] is None else f", step {found['step']}"
    print(
        f"made by {found['experiment']} {found['replica']}, attempt {found['attempt']}{step}, {clock(found['created'])}"
    )
    if found["metrics"]:
        print(f"metrics {_metrics(found)}")
    print(f"{found['count']} files, {size(found['size'])}\n")
    print(manifest_table(found["files"]))


@command.command("get")
@click.argument("model")
@click.option("--to", metavar="DIRECTORY", type=click.Path(path_type=Path), help="Default: here.")
def get(model: str, to: Path | None) -> None:
    """Fetch the files of one version; goes on where an earlier download broke off.

    \b
    shoal model get resnet@production --to serving
    """
    from shoal.cli.downloads import Remote, fetch
    from shoal.client import Client

    client = Client()
    found = client.model(*split(model))
    files = [Remote(client.blob_url(f["hash"]), f["path"], f["size"], f["hash"]) for f in found["files"]]
    fetched = fetch(client, files, to or Path())
    print(f"{found['name']}@{found['version']}: {fetched} of {len(files)} files fetched", file=sys.stderr)


@command.command("promote")
@click.argument("model")
@click.argument("alias")
@click.option("--remove", is_flag=True, help="The alias means nothing any more.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def promote(model: str, alias: str, remove: bool, as_json: bool) -> None:
    """Let an alias mean this version, and no other any more.

    \b
    shoal model promote resnet@3 production
    shoal model promote resnet production --remove
    """
    from shoal.client import Client

    client = Client()
    name, version = split(model)
    if remove:
        client.demote(name, alias)
        print(json.dumps({"name": name, "alias": alias}) if as_json else f"{name}: {alias} removed")
        return
    found = client.promote(name, version, alias)
    print(json.dumps(found, indent=2) if as_json else f"{name}@{alias} is {name}@{found['version']}")


@command.command("rm")
@click.argument("models", nargs=-1, required=True, metavar="NAME@VERSION...")
def remove_versions(models: tuple[str, ...]) -> None:
    """Forget versions and free their space; each is named with its number."""
    from shoal.client import Client

    client = Client()
    for word in models:
        name, version = split(word)
        if not version.removeprefix("v").isdigit():
            raise UsageError(f"{word}: which version?", hint=f"shoal model rm {name}@3 removes version 3")
        client.remove_model(name, version)
        print(f"{name}@{version} removed")


def split(word: str) -> tuple[str, str]:
    """`resnet@3` -> (resnet, 3); without a version the newest."""
    name, at, version = word.rpartition("@")
    if not at:
        return word, "latest"
    if not name or not version:
        raise UsageError(f"{word!r} names no model", hint="NAME@VERSION, for example resnet@3")
    return name, version


def _metrics(model: dict[str, Any]) -> str:
    said = model["metrics"].items()
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in said)
