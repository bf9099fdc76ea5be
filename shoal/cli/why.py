"""`shoal why`: what went wrong, or what everybody is doing."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("why")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(experiment: str, as_json: bool) -> None:
    """Tell why an experiment is in its state: the first failure, and what every rank did last."""
    from shoal.cli.table import table
    from shoal.cli.wording import age, failure, how_it_ended, losses
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
    for line in losses(found["losses"]):
        print("\n" + line)
    if found["stragglers"]:
        print("\n" + _held_up(found["stragglers"]))


def _held_up(report: dict[str, Any]) -> str:
    """The verdict, and below it the times of each rank."""
    from shoal.cli.table import table
    from shoal.cli.wording import seconds

    def told(entry: dict[str, Any] | None) -> tuple[str, str]:
        return (seconds(entry["mean"]), seconds(entry["p95"])) if entry else ("-", "-")

    def scored(score: dict[str, Any] | None) -> tuple[str, str]:
        if not score or score["relative"] is None:
            return "-", ""
        return f"{score['relative']:.2f}", score["pattern"] or ""

    slowest = (report["slowest"] or {}).get("name")
    gpus = any(rank["gpu"] is not None for rank in report["ranks"])
    rows = [
        (
            rank["name"],
            str(rank["rank"]),
            *told(rank["step_time"]),
            *told(rank["busy"]),
            "-" if rank["cpu"] is None else f"{rank['cpu']:.2f}",
            *(["-" if rank["gpu"] is None else f"{rank['gpu']:.0%}"] if gpus else []),
            *scored(rank["score"]),
            "slowest" if rank["name"] == slowest else "",
        )
        for rank in report["ranks"]
    ]
    used = ("cores", "gpu") if gpus else ("cores",)
    head = ("replica", "rank", "step", "p95", "own part", "p95", *used, "score", "", "")
    return f"{report['verdict']}\n\n{table(head, rows)}"
