"""`shoal logs`: what replicas printed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from shoal.cli.following import frames


@click.command("logs")
@click.argument("experiment")
@click.option("-r", "--replica", metavar="REPLICA", help="Only this one; worker-* for all workers.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the experiment is over.")
@click.option(
    "-n", "--tail", type=click.IntRange(0, 100_000), metavar="N", help="Only the last N lines of each replica."
)
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only this attempt.")
@click.option("--since", metavar="AGO", help="Only lines of the last 30s, 10m, 2h, …")
@click.option("--until", metavar="AGO", help="Only lines older than this.")
@click.option("-g", "--grep", metavar="TEXT", help="Only lines that hold this text.")
@click.option("--stderr", is_flag=True, help="Only what was printed to stderr.")
@click.option("--collapse", is_flag=True, help="Show lines that several ranks printed once, as [×8].")
@click.option("--times", is_flag=True, help="Put the time before each line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def command(
    experiment: str,
    replica: str | None,
    follow: bool,
    tail: int | None,
    attempt: int | None,
    since: str | None,
    until: str | None,
    grep: str | None,
    stderr: bool,
    collapse: bool,
    times: bool,
    as_json: bool,
) -> None:
    """Print what replicas printed, in the order of time.

    \b
    shoal logs e7k2m9 -f
    shoal logs e7k2m9 -r worker-2 -n 100
    shoal logs e7k2m9 --collapse --since 10m
    """
    from shoal.client import Client
    from shoal.errors import UsageError

    client = Client()
    if follow:
        if any(value is not None for value in (tail, attempt, since, until)) or grep or stderr or collapse:
            raise UsageError("--follow shows everything from the beginning", hint="leave the other choices out, or -f")
        client.show(experiment)  # what cannot be reached at all, or is not there, is said at once
        _follow(frames(client, experiment, replica), as_json, times)
        return
    lines = client.logs(
        experiment,
        replica=replica,
        attempt=attempt,
        tail=tail,
        since=_moment(since),
        until=_moment(until),
        text=grep,
        stream=2 if stderr else None,
    )
    shown = _collapsed(lines) if collapse else ({**line, "count": 1} for line in lines)
    for line in shown:
        if as_json:
            print(json.dumps(line))
        else:
            who = line["replica"] if line["count"] == 1 else f"[×{line['count']}]"
            print(f"{_stamp(line) if times else ''}{who} | {line['text']}")


def _follow(frames: Iterable[dict[str, Any]], as_json: bool, times: bool) -> None:
    printer = Printer(times)
    for frame in frames:
        if as_json:
            print(json.dumps(frame), flush=True)
        else:
            printer.show(frame)
    printer.rest()


class Printer:
    """Frames of a follower as lines with the replica before them; beginnings of lines wait for their ends."""

    def __init__(self, times: bool = False, out: Any = None) -> None:
        self.times = times
        self.out = out or (lambda text: (sys.stdout.write(text), sys.stdout.flush()))
        self.begun: dict[tuple[str, int], str] = {}

    def show(self, frame: dict[str, Any]) -> None:
        gap = frame.get("gap")
        if gap is not None:
            self.out(f"{gap['replica']} | … {gap['length']:,} bytes are missing here ({gap['reason']}) …\n")
        log = frame.get("log")
        if log is None:
            return
        key = (log["replica"], log["stream"])
        *whole, rest = (self.begun.pop(key, "") + log["text"]).split("\n")
        if rest:
            self.begun[key] = rest
        if whole:
            stamp = _stamp(log) if self.times else ""
            self.out("".join(f"{stamp}{log['replica']} | {line}\n" for line in whole))

    def rest(self) -> None:
        for (replica, _), text in self.begun.items():
            self.out(f"{replica} | {text}\n")
        self.begun = {}


def _collapsed(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Equal lines of different replicas as one, where the first of them stood: the n-th with the n-th."""
    seen: dict[tuple[str, str], int] = {}
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        occurrence = seen.get((line["replica"], line["text"]), 0)
        seen[line["replica"], line["text"]] = occurrence + 1
        first = merged.setdefault((line["text"], occurrence), {**line, "count": 0, "replicas": []})
        first["count"] += 1
        first["replicas"].append(line["replica"])
    yield from merged.values()


def _moment(ago: str | None) -> float | None:
    """`10m` -> that long ago, in UTC seconds."""
    if ago is None:
        return None
    from shoal.errors import UsageError

    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if ago[-1:] not in units or not ago[:-1].replace(".", "", 1).isdigit():
        raise UsageError(f"{ago!r} is not a duration", hint="write 30s, 10m, 2h or 1d")
    return time.time() - float(ago[:-1]) * units[ago[-1]]


def _stamp(line: dict[str, Any]) -> str:
    from shoal.cli.wording import clock

    return f"{clock(line['time'])} "
