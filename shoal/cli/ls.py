"""`shoal ls`: the experiments of this home."""

from __future__ import annotations

import json
import re

import click


@click.command("ls")
@click.option("-q", "--query", default="", metavar="QUERY", help="Only those it finds: state:failed, params.lr:>0.01")
@click.option(
    "-s", "--sort", default="", metavar="FIELDS", help="For example -metrics.acc,created; default: newest first."
)
@click.option("-n", "--limit", default=20, type=click.IntRange(1, 10_000), help="How many at most; default: 20.")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in this state; can be repeated.")
@click.option("--columns", default="", metavar="FIELDS", help="Show these too: params.lr,metrics.loss,metrics.loss.min")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(query: str, sort: str, limit: int, states: tuple[str, ...], columns: str, as_json: bool) -> None:
    """List experiments, newest first.

    A query is conditions with commas between them, all of which hold. The params and metrics that it or the order
    names are shown as columns.

    \b
    shoal ls
    shoal ls -q "state:failed, params.lr:>0.01, metrics.loss:<0.3" --sort -metrics.acc
    shoal ls --state running --json
    """
    from shoal.cli.fields import check, value
    from shoal.cli.table import table
    from shoal.cli.wording import clock, duration, progress
    from shoal.client import Client

    more = check([name.strip() for name in columns.split(",") if name.strip()])
    more += [name for name in re.findall(r"\b(?:params|metrics)\.[\w./-]*\w", f"{query},{sort}") if name not in more]
    found = Client().experiments(query, sort=sort, limit=limit, states=states)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [
        (
            e["id"],
            f"#{e['number']}",
            e["name"] or "-",
            e["state"],
            duration(e),
            clock(e["created"]),
            *(value(e, name) for name in more),
            "; ".join(filter(None, (e["reason"], progress(e)))),
        )
        for e in found
    ]
    print(table(("id", "number", "name", "state", "ran", "created", *more, "reason"), rows))
