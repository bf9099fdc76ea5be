"""`shoal stacks`: where every rank is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click


@click.command("stacks")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(experiment: str, as_json: bool) -> None:
    """Show where every rank of a running experiment is: stacks merged as a tree.

    Ranks that are in the same calls are shown together, so the one that is elsewhere is seen at once. Scripts that use
    the SDK answer by themselves, also while they wait for each other; others are read by py-spy, if it is installed.
    """
    from shoal.client import Client

    found = Client().stacks(experiment)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(found["verdict"])
    everybody = len([rank for rank in found["ranks"] if rank["frames"]])
    for line in _lines(found["tree"], everybody, 0):
        print(line)
    for rank in found["ranks"]:
        if rank["error"]:
            print(f"{rank['name']}: {rank['error']}", file=sys.stderr)
    for note in found["notes"]:
        print(f"note: {note}", file=sys.stderr)


def _lines(nodes: list[dict[str, Any]], everybody: int, depth: int) -> Iterator[str]:
    """Calls, indented where ranks part; a chain of calls that the same ranks are in stays at one depth."""
    for node in nodes:
        yield ""
        yield f"{'  ' * depth}{_who(node['ranks'], everybody)}"
        while True:
            yield f"{'  ' * depth}  {node['function']}  {node['file']}:{node['line']}"
            if len(node["children"]) != 1 or node["children"][0]["ranks"] != node["ranks"]:
                break
            node = node["children"][0]
        yield from _lines(node["children"], everybody, depth + 1)


def _who(ranks: list[str], everybody: int) -> str:
    if len(ranks) == everybody and everybody > 1:
        return f"all {everybody} ranks"
    if len(ranks) <= 6:
        return ", ".join(ranks)
    return f"{len(ranks)} ranks: {', '.join(ranks[:5])}, …"
