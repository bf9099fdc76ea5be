"""`shoal why`: what went wrong, or what everybody is doing."""

from __future__ import annotations

import json

import click


@click.command("why")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(experiment: str, as_json: bool) -> None:
    """Tell why an experiment is in its state: the first failure, and what every rank did last."""
    from shoal.cli.table import table
    from shoal.cli.wording import age, failure, how_it_ended
    from shoal.client import Client

    found = Client().why(experiment)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['id']} is {found['state']}{': ' + found['reason'] if found['reason'] else ''}")
    if found["first_failure"]:
        print("\n" + failure(found["first_failure"]))
    rows = [
        (
            rank["replica"],
            rank["state"],
            how_it_ended(rank),
            f"{age(rank['last_line_age'])} ago" if rank["last_line_age"] is not None else "-",
            (rank["last_line"] or "")[:120],
        )
        for rank in found["ranks"]
    ]
    print("\n" + table(("replica", "state", "exit", "last line", ""), rows))
