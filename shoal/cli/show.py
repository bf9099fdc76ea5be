"""`shoal show`: one experiment and its replicas."""

from __future__ import annotations

import json

import click


@click.command("show")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(experiment: str, as_json: bool) -> None:
    """Show one experiment and its replicas.

    EXPERIMENT is an id, a number or a name; of several with one name the newest.
    """
    from shoal.cli.table import table
    from shoal.cli.wording import clock, duration, failure, how_it_ended
    from shoal.client import Client

    found = Client().show(experiment)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['id']} #{found['number']} {found['name'] or ''}".rstrip())
    print(f"{found['state']}{': ' + found['reason'] if found['reason'] else ''}")
    facts = [f"framework {found['framework']}", f"cluster {found['cluster']}", f"created {clock(found['created'])}"]
    facts.append(f"ran {duration(found)}")
    if found["attempt"]:
        facts.append(f"attempt {found['attempt']}")
    print(", ".join(facts))
    if found["params"]:
        print("params " + json.dumps(found["params"]))
    rows = [
        (e["replica"], str(e["rank"]), e["state"], how_it_ended(e), str(e["try"] or ""), e["node"], e["reason"])
        for e in found["replicas"]
    ]
    print("\n" + table(("replica", "rank", "state", "exit", "try", "node", "reason"), rows))
    if found["first_failure"]:
        print("\n" + failure(found["first_failure"]))
