"""Times, ages and states in words, the same in every verb."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any


def age(seconds: float) -> str:
    """`4s`, `3m 20s`, `2h 13m`, `5d 1h`"""
    whole = int(seconds)
    for unit, size, below, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit} {rest}{below}" if rest else f"{whole // size}{unit}"
    return f"{max(0, whole)}s"


def seconds(value: float) -> str:
    """`1.52 s`, `84 ms`, `120 µs`"""
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def duration(experiment: dict[str, Any]) -> str:
    started = experiment["started"]
    return age((experiment["finished"] or time.time()) - started) if started else "-"


def progress(experiment: dict[str, Any]) -> str:
    """`42 %, 3m 20s left`; empty when its script does not tell, or it is over."""
    said = experiment.get("progress")
    if not said or experiment["state"] in ("succeeded", "failed", "stopped"):
        return ""
    left = f", {age(said['eta'])} left" if said["eta"] is not None else ""
    return f"{said['fraction'] * 100:.0f} %{left}"


def clock(moment: float | None) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if moment else "-"


def size(count: int) -> str:
    """`812 B`, `1.5 KiB`, `3.2 GiB`"""
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1024 or unit == "TiB":
            break
    return f"{amount:.1f} {unit}"


def how_it_ended(entry: dict[str, Any]) -> str:
    """`SIGKILL (137)`, `exit 3`, `0`"""
    if entry["signal"]:
        return f"{entry['signal']} ({entry['exit_code']})"
    return "" if entry["exit_code"] is None else str(entry["exit_code"])


def losses(found: Sequence[dict[str, Any]]) -> list[str]:
    """What scripts said and nobody can read any more, a line for each process."""
    lines = []
    for entry in found:
        who = f"{entry['replica']}:{entry['process']}" if entry["process"] else entry["replica"]
        who += f" in attempt {entry['attempt']}" if entry["attempt"] else ""
        if entry["dropped"]:
            calls = "1 call was" if entry["dropped"] == 1 else f"{entry['dropped']:,} calls were"
            lines.append(f"of {who}, {calls} dropped: they came too fast, or could not be written")
        if entry["gaps"]:
            gaps = "1 gap" if entry["gaps"] == 1 else f"{entry['gaps']:,} gaps"
            lost = f"{size(entry['damaged'])} cannot be read" if entry["damaged"] else "a part of it never came"
            lines.append(f"{gaps} in what {who} wrote: {lost}")
    return lines


def failure(first: dict[str, Any]) -> str:
    """The first failure with its last lines."""
    end = how_it_ended({"signal": first["signal"], "exit_code": first["exit_code"]})
    reason = f": {first['reason']}" if first["reason"] else ""
    end = f" with {end}" if end else "" if reason else " with no exit code"
    attempt = f", attempt {first['attempt']}" if first["attempt"] else ""
    when = f"{clock(first['time'])}{attempt}"
    head = f"first failure: {first['replica']} ended{end}{reason} at {when}"
    lines = "\n".join(f"  {first['replica']} | {line}" for line in first["lines"])
    return f"{head}\n{lines}" if lines else head
