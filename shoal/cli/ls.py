"""`shoal ls`: the experiments of this home."""

from __future__ import annotations

import json

import click


@click.command("ls")
@click.option("-n", "--limit", default=20, type=click.IntRange(1, 1000), help="How many at most; default: 20.")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in this state; can be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(limit: int, states: tuple[str, ...], as_json: bool) -> None:
    """List experiments, newest first.

    \b
    shoal ls
    shoal ls --state running --json
    """
    from shoal.cli.table import table
    from shoal.cli.wording import clock, duration
    from shoal.client import Client

    found = Client().experiments(limit, states)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [
        (e["id"], f"#{e['number']}", e["name"] or "-", e["state"], duration(e), clock(e["created"]), e["reason"])
        for e in found
    ]
    print(table(("id", "number", "name", "state", "ran", "created", "reason"), rows))
