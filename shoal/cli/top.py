"""`shoal top`: what replicas use and what they logged last, live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.client import Client

RESOURCES = ("cpu", "memory", "memory_limit", "gpu*/utilization", "gpu*/memory")
MOST_METRICS = 3
PERIOD = 1.0  # seconds between looks
OURS = "shoal/"


@click.command("top")
@click.argument("experiment", required=False)
@click.option("-m", "--metrics", default="", metavar="NAMES", help="Metrics to show: loss,acc; default: three of them.")
@click.option("--once", is_flag=True, help="Print it once; without a terminal it always does.")
@click.option("--json", "as_json", is_flag=True, help="Print it once, as JSON.")
def command(experiment: str | None, metrics: str, once: bool, as_json: bool) -> None:
    """Watch replicas: what they use, what they logged last, how far they are.

    Without EXPERIMENT all that run are shown. Memory stands against its limit; the age is that of the newest point. q
    ends it.

    \b
    shoal top
    shoal top e7k2m9 -m loss,acc
    """
    from shoal.client import Client

    client = Client()
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if as_json:
        print(json.dumps(look(client, experiment, names), indent=2))
    elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(_text(look(client, experiment, names)))
    else:
        _watch(client, experiment, names)


def look(client: Client, word: str | None, names: Sequence[str]) -> list[dict[str, Any]]:
    """What is to be shown now: experiments, each with its replicas."""
    words = [word] if word else [e["id"] for e in client.experiments("state:starting|running|restarting|lost")]
    return [_experiment(client, one, names) for one in words]


def _experiment(client: Client, word: str, names: Sequence[str]) -> dict[str, Any]:
    from shoal.errors import ShoalError

    shown = client.show(word)
    newest = sorted(shown["metrics"], key=lambda name: -shown["metrics"][name]["time"])
    chosen = list(names) or [name for name in newest if not name.startswith(OURS)][:MOST_METRICS]
    try:
        series = client.series(shown["id"], name=[*RESOURCES, *chosen], kind="all", attempt=shown["attempt"])
    except ShoalError:
        series = []  # it may have been removed between two looks
    now = time.time()
    return {
        **{key: shown[key] for key in ("id", "number", "name", "state", "reason", "attempt", "started", "finished")},
        "progress": shown["progress"],
        "metrics": chosen,
        "replicas": [_replica(entry, series, chosen, now) for entry in shown["replicas"]],
    }


def _replica(
    entry: Mapping[str, Any], series: Sequence[Mapping[str, Any]], names: Sequence[str], now: float
) -> dict[str, Any]:
    mine = [row for row in series if row["replica"] == entry["replica"]]
    used = {row["name"]: row["last"] for row in mine if row["kind"] == "resource"}
    logged = [row for row in mine if row["kind"] != "resource"]
    metrics: dict[str, Any] = {}
    for row in sorted(logged, key=lambda row: -row["rank"]):  # that of its lowest rank stays
        metrics[row["name"]] = row["last"]
    last = max((row["last_time"] for row in logged), default=None)
    return {
        **{key: entry[key] for key in ("replica", "rank", "state", "reason", "node")},
        "cpu": used.get("cpu"),
        "memory": used.get("memory"),
        "memory_limit": used.get("memory_limit"),
        "gpus": [used[name] for name in sorted(used) if name.endswith("/utilization")],
        "gpu_memory": [used[name] for name in sorted(used) if name.endswith("/memory")],
        "metrics": {name: metrics[name] for name in names if name in metrics},
        "step": max((row["last_step"] for row in logged), default=None),
        "age": max(0.0, now - last) if last is not None else None,
    }


def _rows(experiment: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    from shoal.cli.fields import shown
    from shoal.cli.wording import age

    gpus = any(entry["gpus"] for entry in experiment["replicas"])
    head = ["replica", "state", "cpu", "memory", *(["gpu"] if gpus else []), *experiment["metrics"], "step", "age"]
    rows = []
    for entry in experiment["replicas"]:
        percent = [f"{float(value):.0f} %" for value in entry["gpus"]]
        rows.append(
            [
                entry["replica"],
                entry["state"],
                "-" if entry["cpu"] is None else f"{float(entry['cpu']):.2f}",
                _memory(entry),
                *([" ".join(percent) or "-"] if gpus else []),
                *(shown(entry["metrics"].get(name)) for name in experiment["metrics"]),
                "-" if entry["step"] is None else str(entry["step"]),
                "-" if entry["age"] is None else age(entry["age"]),
            ]
        )
    return head, rows


def _memory(entry: Mapping[str, Any]) -> str:
    """`1.2 GiB of 2.0 GiB`"""
    from shoal.cli.wording import size

    used, limit = entry["memory"], entry["memory_limit"]
    if used is None:
        return "-"
    return size(int(used)) + (f" of {size(int(limit))}" if limit else "")


def _title(experiment: Mapping[str, Any]) -> str:
    from shoal.cli.wording import duration, progress

    told = [experiment["state"], f"ran {duration(dict(experiment))}", progress(dict(experiment)), experiment["reason"]]
    return (
        f"{experiment['id']} #{experiment['number']} {experiment['name'] or ''}".rstrip()
        + ": "
        + ", ".join(filter(None, told))
    )


def _text(found: Sequence[Mapping[str, Any]]) -> str:
    from shoal.cli.table import table

    return "\n\n".join(f"{_title(entry)}\n{table(*_rows(entry))}" for entry in found) or "nothing runs"


def _watch(client: Client, word: str | None, names: Sequence[str]) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with _keys() as pressed, Live(Text("…"), console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(look(client, word, names)), refresh=True)
            deadline = time.monotonic() + PERIOD
            while (left := deadline - time.monotonic()) > 0:
                if pressed(left) in ("q", "Q", "\x03", "\x04"):
                    return


def _drawn(found: Sequence[Mapping[str, Any]]) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for experiment in found:
        head, rows = _rows(experiment)
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in head:
            table.add_column(Text(name, style="dim"))
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        parts += [Text(_title(experiment), style="bold"), table, Text("")]
    return Group(*(parts or [Text("nothing runs")]), Text("q ends this", style="dim"))


@contextmanager
def _keys() -> Iterator[Any]:
    """Gives a function that waits for a key, for some seconds; the terminal is as it was afterwards."""
    import select
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield lambda seconds: sys.stdin.read(1) if select.select([sys.stdin], [], [], seconds)[0] else ""
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
