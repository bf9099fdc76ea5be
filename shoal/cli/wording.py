"""Times, ages and states in words, the same in every verb."""

from __future__ import annotations

import time
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


def duration(experiment: dict[str, Any]) -> str:
    started = experiment["started"]
    return age((experiment["finished"] or time.time()) - started) if started else "-"


def clock(moment: float | None) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if moment else "-"


def how_it_ended(entry: dict[str, Any]) -> str:
    """`SIGKILL (137)`, `exit 3`, `0`"""
    if entry["signal"]:
        return f"{entry['signal']} ({entry['exit_code']})"
    return "" if entry["exit_code"] is None else str(entry["exit_code"])


def failure(first: dict[str, Any]) -> str:
    """The first failure with its last lines."""
    end = how_it_ended({"signal": first["signal"], "exit_code": first["exit_code"]})
    reason = f": {first['reason']}" if first["reason"] else ""
    attempt = f", attempt {first['attempt']}" if first["attempt"] else ""
    when = f"{clock(first['time'])}{attempt}"
    head = f"first failure: {first['replica']} ended with {end or 'no exit code'}{reason} at {when}"
    lines = "\n".join(f"  {first['replica']} | {line}" for line in first["lines"])
    return f"{head}\n{lines}" if lines else head
