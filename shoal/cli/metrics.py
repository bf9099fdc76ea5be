"""`shoal metrics`: what was measured, as small charts in the terminal, or every point."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.client import Client

MOST_BUCKETS = 100_000
COLUMNS = 32  # of a sparkline
BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-=+*#"  # for terminals without Unicode
NEITHER = "x"  # all of it is NaN or infinite


@click.command("metrics")
@click.argument("experiment")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-r", "--replica", "replicas", multiple=True, metavar="REPLICA", help="Only this one; worker-* for all.")
@click.option("--process", type=click.IntRange(0), metavar="N", help="Only this process (local rank) of each replica.")
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only this attempt; default: joined by step.")
@click.option(
    "--agg",
    type=click.Choice(["min", "mean", "max", "p50", "p95", "all"]),
    help="One row for each name: that statistic over all ranks.",
)
@click.option("--resources", is_flag=True, help="CPU, memory, network, disk and GPU instead of what scripts logged.")
@click.option("--x", metavar="X", help="step (default, if the script defined no other), time, relative, or a metric.")
@click.option("--from", "low", type=float, metavar="X", help="Only from this x on.")
@click.option("--to", "high", type=float, metavar="X", help="Only up to this x.")
@click.option("--replaced", is_flag=True, help="Also points that a later attempt or try replaced.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: every point.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: every point.")
@click.option("--parquet", type=click.Path(dir_okay=False), metavar="FILE", help="Write every point into a file.")
def command(
    experiment: str,
    names: tuple[str, ...],
    replicas: tuple[str, ...],
    process: int | None,
    attempt: int | None,
    agg: str | None,
    resources: bool,
    x: str | None,
    low: float | None,
    high: float | None,
    replaced: bool,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """Show what was measured: a small chart for every metric of every rank, or every point.

    \b
    shoal metrics e7k2m9
    shoal metrics e7k2m9 'train/*' --replica worker-0
    shoal metrics e7k2m9 loss --agg all
    shoal metrics e7k2m9 loss --csv > loss.csv
    shoal metrics e7k2m9 loss --from 1000 --to 2000 --agg mean --csv
    """
    from shoal.client import Client
    from shoal.errors import UsageError

    if sum((as_json, as_csv, bool(parquet))) > 1:
        raise UsageError("--json, --csv and --parquet are three formats", hint="choose one of them")
    if agg and replaced:
        raise UsageError("--agg is over what counts, not over what was replaced", hint="leave one of them out")
    if replaced and not (as_json or as_csv or parquet):
        raise UsageError("--replaced is about points", hint="add --json, --csv or --parquet FILE")
    choice: dict[str, Any] = {"name": names, "replica": replicas, "process": process, "attempt": attempt, "x": x}
    choice |= {"kind": "resource" if resources else None, "from": low, "to": high}
    client = Client()
    if as_json or as_csv or parquet:
        _check_there(client, experiment, choice)
    if agg and as_json:
        print(json.dumps(client.chart(experiment, agg=agg, **choice)["series"], indent=2))
    elif agg and (as_csv or parquet):
        from shoal.cli.statistics import write

        write(client.chart(experiment, agg=agg, buckets=MOST_BUCKETS, **choice), agg, parquet)
    elif as_json or as_csv or parquet:
        kind = "json" if as_json else "csv" if as_csv else "parquet"
        _export(client, client.points_url(experiment, format=kind, replaced=replaced, **choice), parquet)
    else:
        _show(client, experiment, agg, choice)


def _check_there(client: Client, experiment: str, choice: Mapping[str, Any]) -> None:
    """A name that means nothing is a mistake, whatever is printed."""
    keys = ("name", "replica", "process", "attempt", "kind")
    wanted = {key: choice[key] for key in keys}
    if any(wanted[key] not in (None, ()) for key in keys[:4]) and not client.series(experiment, **wanted):
        _nothing(client, experiment, choice)


def _export(client: Client, url: str, file: str | None) -> None:
    with client.content(url) as parts:
        if file is None:
            for part in parts:
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
            return
        from shoal.errors import Unavailable

        beside = f"{file}.part"  # a download that breaks off leaves no half of a file
        try:
            with open(beside, "wb") as target:
                for part in parts:
                    target.write(part)
            os.replace(beside, file)
        except OSError as error:
            raise Unavailable(f"{file}: {error.strerror}", hint="choose another place") from None


def _show(client: Client, experiment: str, agg: str | None, choice: Mapping[str, Any]) -> None:
    from shoal.cli.table import table
    from shoal.cli.wording import losses

    found = client.chart(experiment, agg=agg, buckets=COLUMNS, **choice)
    entries = [entry for entry in found["series"] if entry["start"]]
    if not entries:
        _nothing(client, experiment, choice)
        return
    first = min(float(entry["start"][0]) for entry in entries)
    glyphs = BLOCKS if "utf" in (sys.stdout.encoding or "").lower() else PLAIN
    several = any(entry.get("process") for entry in entries)
    axis = "steps" if found["x"] == "step" else found["x"]
    rows = []
    for entry in entries:
        trend = agg if agg and agg != "all" else "mean"
        line = sparkline(entry["start"], entry[trend], first, found["width"], glyphs)
        ends = f"{_number(entry['x_first'][0])}..{_number(entry['x_last'][-1])}"
        if agg == "all":
            last = [_number(entry[key][-1]) for key in ("min", "mean", "p50", "p95", "max")]
            extremes = [_member(entry, "min_of"), _member(entry, "max_of")]
            rows.append((entry["name"], str(len(entry["members"])), line, *last, *extremes, ends))
        elif agg:
            who = _member(entry, f"{agg}_of") if agg in ("min", "max") else "-"
            low, high = _lowest(entry[agg]), _highest(entry[agg])
            rows.append(
                (entry["name"], str(len(entry["members"])), line, _number(entry[agg][-1]), who, low, high, ends)
            )
        else:
            who = f"{entry['replica']}:{entry['process']}" if several else entry["replica"]
            low, high = _lowest(entry["min"]), _highest(entry["max"])
            count = f"{sum(entry['count']):,}"
            rows.append((entry["name"], who, line, _number(entry["last"][-1]), low, high, ends, count))
    headers: dict[bool | None, tuple[str, ...]] = {
        None: ("metric", "replica", "", "last", "min", "max", axis, "points"),
        True: ("metric", "ranks", "", "min", "mean", "p50", "p95", "max", "min is", "max is", axis),
        False: ("metric", "ranks", str(agg), "last", "which", "lowest", "highest", axis),
    }
    print(table(headers[agg == "all" if agg else None], rows))
    for line in losses(client.show(experiment)["losses"]):
        print(line, file=sys.stderr)


def sparkline(starts: Sequence[Any], values: Sequence[Any], first: float, width: float, glyphs: str) -> str:
    """One character for each bucket from `first` on; a blank where there is none."""
    numbers = {round((float(start) - first) / width): float(v) for start, v in zip(starts, values, strict=True)}
    finite = [value for value in numbers.values() if value - value == 0]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    line = ""
    for column in range(max(numbers, default=-1) + 1):
        value = numbers.get(column)
        if value is None:
            line += " "
        elif value - value != 0:
            line += NEITHER
        elif low == high:
            line += glyphs[len(glyphs) // 2]
        else:
            line += glyphs[min(len(glyphs) - 1, int((value / 2 - low / 2) / (high / 2 - low / 2) * len(glyphs)))]
    return line


def _nothing(client: Client, experiment: str, choice: Mapping[str, Any]) -> None:
    """Says that there is nothing, or what there is instead."""
    from shoal.errors import UsageError

    known = client.series(experiment, kind=choice["kind"])
    if known:
        wanted = choice["replica"]
        if wanted and not client.series(experiment, kind=choice["kind"], replica=wanted):
            there = _some(entry["replica"] for entry in known)
            raise UsageError(f"{experiment} has no metrics of {', '.join(wanted)}", hint=f"there are those of {there}")
        there = _some(entry["name"] for entry in known)
        raise UsageError(f"{experiment} has no metric like that", hint=f"there are {there}; what it used: --resources")
    over = client.show(experiment)["state"] in ("succeeded", "failed", "stopped")
    what = "samples" if choice["kind"] else "metrics"
    print(f"{experiment} has no {what}{'' if over else ' yet'}", file=sys.stderr)


def _some(words: Iterable[str]) -> str:
    found = list(dict.fromkeys(words))
    return ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")


def _member(entry: Mapping[str, Any], key: str) -> str:
    index = entry[key][-1]
    if index < 0:
        return "-"
    member = entry["members"][index]
    several = any(one["process"] for one in entry["members"])
    return f"{member['replica']}:{member['process']}" if several else str(member["replica"])


def _lowest(values: Sequence[Any]) -> str:
    return _number(min((v for v in map(float, values) if v == v), default="NaN"))


def _highest(values: Sequence[Any]) -> str:
    return _number(max((v for v in map(float, values) if v == v), default="NaN"))


def _number(value: Any) -> str:
    """Six digits are enough to read; integers are whole."""
    number = float(value)
    if number - number != 0:
        return "NaN" if number != number else "Inf" if number > 0 else "-Inf"
    return str(int(value)) if number == int(number) and abs(number) < 1e15 else f"{number:.6g}"
