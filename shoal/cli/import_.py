"""`shoal import`: runs of other trackers as experiments."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.importing.writing import Run


@click.group("import")
def command() -> None:
    """Bring in runs of TensorBoard or MLflow as experiments.

    Importing again brings in only what is new; nothing comes twice.
    """


@command.command("tensorboard")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", default="", metavar="NAME", help="Of the experiment; default: that of the directory.")
@click.option("--each", is_flag=True, help="Every directory in PATH is an experiment of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tensorboard(path: Path, name: str, each: bool, as_json: bool) -> None:
    """Import the event files below a directory as one experiment.

    A metric is called by its tag, behind the directories below PATH that its file lies in: train/loss.

    \b
    shoal import tensorboard logs/digits
    shoal import tensorboard runs --each
    """
    from shoal.importing import tensorboard as source

    _bring(source.runs(path, name, each=each), as_json)


@command.command("mlflow")
@click.argument("store", metavar="PATH|sqlite:///FILE")
@click.option("--unfinished", is_flag=True, help="Import runs that MLflow calls running, too, as failed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def mlflow(store: str, unfinished: bool, as_json: bool) -> None:
    """Import the runs of an MLflow store: a directory mlruns, or its SQLite database.

    Each run becomes an experiment: params, tags, metrics with their steps and times, its state; its artifacts are
    listed, and stay where they are.

    \b
    shoal import mlflow mlruns
    shoal import mlflow sqlite:///mlflow.db
    """
    from shoal.importing import mlflow as source

    def chosen() -> Iterable[Run]:
        for status, run in source.runs(store):
            if status in source.UNFINISHED and not unfinished:
                print(f"{run.name} is not over: left out (--unfinished imports it)", file=sys.stderr)
            else:
                yield run

    _bring(chosen(), as_json)


def _bring(runs: Iterable[Run], as_json: bool) -> None:
    from shoal.cli.sync import bring
    from shoal.cli.table import table
    from shoal.client import Client
    from shoal.importing.writing import brought, write

    client = Client()
    home = client.home / "outside"
    found: list[dict[str, Any]] = []
    for run in runs:
        new = write(run, home)
        if new.experiment and not new.changed:
            shown = client.show(new.experiment)
        else:
            shown = bring(client, new.directory, dict(new.about), home)
            brought(new.directory, shown["id"])
        about = {key: shown[key] for key in ("id", "name", "state")}
        found.append({**about, "points": new.points, "source": run.source})
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [(e["id"], e["name"] or "-", e["state"], str(e["points"]), e["source"]) for e in found]
    print(table(("id", "name", "state", "new points", "source"), rows) if rows else "there is nothing to bring in")
