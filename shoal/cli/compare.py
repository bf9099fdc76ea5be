"""`shoal compare`: experiments side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click


@click.command("compare")
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--all", "everything", is_flag=True, help="Show params that are the same, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(experiments: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Put experiments side by side: states, times, params that differ, metrics.

    Of each metric the last value is shown, with the smallest and the largest below it where they differ.

    \b
    shoal compare e7k2m9 e3x8qa
    shoal compare 12 13 14 --json
    """
    from shoal.client import Client

    client = Client()
    found = [client.show(word) for word in experiments]
    told = compared(found, everything=everything, now=time.time())
    print(json.dumps(told, indent=2) if as_json else _text(told))


def compared(found: Sequence[dict[str, Any]], *, everything: bool, now: float) -> dict[str, Any]:
    """{experiments, params, metrics}; params and metrics by name, with one value for each experiment."""
    params = {name: [e["params"].get(name) for e in found] for name in _names(found, "params")}
    metrics: dict[str, dict[str, list[Any]]] = {}
    for name in _names(found, "metrics"):
        mine = [e["metrics"].get(name) or {} for e in found]
        metrics[name] = {key: [entry.get(key) for entry in mine] for key in ("last", "min", "max", "step")}
    about = (
        "id",
        "number",
        "name",
        "state",
        "reason",
        "framework",
        "attempt",
        "created",
        "started",
        "finished",
        "tags",
    )
    return {
        "experiments": [
            {
                **{key: e[key] for key in about},
                "duration": (e["finished"] or now) - e["started"] if e["started"] else None,
                "replicas": len(e["replicas"]),
            }
            for e in found
        ],
        "params": {name: row for name, row in params.items() if everything or any(one != row[0] for one in row)},
        "metrics": metrics,
    }


def _names(found: Sequence[dict[str, Any]], key: str) -> list[str]:
    """In the order in which they first appear."""
    return list(dict.fromkeys(name for e in found for name in e[key]))


def _text(told: dict[str, Any]) -> str:
    from shoal.cli.fields import shown
    from shoal.cli.table import table
    from shoal.cli.wording import age, clock

    about = told["experiments"]
    rows: list[Sequence[str]] = [
        ("number", *(f"#{e['number']}" for e in about)),
        ("name", *(e["name"] or "-" for e in about)),
        ("state", *(e["state"] for e in about)),
        ("framework", *(e["framework"] for e in about)),
        ("replicas", *(str(e["replicas"]) for e in about)),
        ("created", *(clock(e["created"]) for e in about)),
        ("ran", *(age(e["duration"]) if e["duration"] is not None else "-" for e in about)),
    ]
    rows += [(f"params.{name}", *map(shown, values)) for name, values in told["params"].items()]
    for name, entry in told["metrics"].items():
        rows.append((f"metrics.{name}", *map(shown, entry["last"])))
        for key in ("min", "max"):
            if entry[key] != entry["last"]:
                rows.append((f"  {key}", *map(shown, entry[key])))
    return table(("", *(e["id"] for e in about)), rows)
