"""Rows of the store -> what the API shows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.errors import Problem
from shoal.server.live import try_directory
from shoal.spec import Source
from shoal.spec.reading import parse
from shoal.store import defined, listing, logs, progress, streams
from shoal.store import experiments as store

Row = Mapping[str, Any]

SHOWN = (
    "id", "uid", "number", "state", "reason", "framework", "backend", "cluster", "attempt", "created", "started",
    "finished", "params", "tags", "first_failure", "origin", "scale",
)  # fmt: skip
REPLICA = (
    "replica", "role", "index", "rank", "attempt", "try", "state", "reason", "exit_code", "node", "started", "finished",
)  # fmt: skip


def experiment(row: Row, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`metrics` are those of an experiment that is not over, whose row does not have them yet."""
    return {
        **{key: row[key] for key in SHOWN},
        "name": row["name"] or None,
        "metrics": listing.plain(row["metrics"] or {} if metrics is None else metrics),
        "progress": progress.shown(row["progress"], row["state"], time.time()),
    }


def replica(row: Row) -> dict[str, Any]:
    return {**{key: row[key] for key in REPLICA}, "signal": row["signal"] or None}


def newest_tries(row: Row, replicas: Iterable[Row], attempt: int | None = None) -> list[dict[str, Any]]:
    """Each replica of an attempt (default: the newest) in its newest try; planned ones that have not started are
    created."""
    newest: dict[str, Row] = {}
    for entry in replicas:
        if entry["attempt"] == (row["attempt"] if attempt is None else attempt):
            newest[entry["replica"]] = entry
    return [
        replica(newest[planned["replica"]]) if planned["replica"] in newest else _not_started(row, planned)
        for planned in row["plan"]["replicas"]
    ]


def _not_started(row: Row, planned: Row) -> dict[str, Any]:
    state = "stopped" if row["state"] in ("stopped", "failed") else "created"
    return {
        **{key: planned[key] for key in ("replica", "role", "index", "rank")},
        "attempt": row["attempt"],
        "try": 0,
        "state": state,
        "reason": row["reason"] if state == "stopped" else "",
        "exit_code": None,
        "signal": None,
        "node": "",
        "started": None,
        "finished": None,
    }


def detail(connection: Any, row: Row, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
    replicas = store.replicas_of(connection, row["uid"])
    shown = newest_tries(row, replicas)
    newest = {(entry["attempt"], entry["replica"], entry["try"]) for entry in shown}
    earlier = [replica(e) for e in replicas if (e["attempt"], e["replica"], e["try"]) not in newest]
    return {
        **experiment(row, metrics),
        "replicas": shown,
        "history": earlier,
        "command": row["plan"]["command"],
        "directory": row["cwd"],
        "description": description_in(row["resolved"]),
        "resolved": row["resolved"],
        "files": row["sources"]["files"],
        "provenance": row["provenance"] or {},
        "summary": defined.summary_of(connection, row["uid"]),
        "losses": losses(connection, row["uid"]),
    }


@lru_cache(256)
def description_in(resolved: str) -> str | None:
    """What the file says of itself. It is parsed only when it has such a key."""
    if re.search(r"^description:", resolved, re.MULTILINE) is None:
        return None
    value = parse(Source("experiment", resolved))[0].plain().get("description")
    return None if value is None else str(value)


def losses(connection: Any, uid: str) -> list[dict[str, Any]]:
    """What is not in the store although scripts said it; one entry for each process that lost something."""
    found: dict[tuple[int, str, int], dict[str, Any]] = {}
    for stream in streams.streams_of(connection, uid):
        if not stream["dropped"] and not stream["gaps"]:
            continue
        who = {key: stream[key] for key in ("attempt", "replica", "process")}
        nothing = {**who, "dropped": 0, "gaps": 0, "damaged": 0}
        entry = found.setdefault((stream["attempt"], stream["replica"], stream["process"]), nothing)
        entry["dropped"] += stream["dropped"]
        entry["gaps"] += len(stream["gaps"])
        entry["damaged"] += sum(gap.get("length") or 0 for gap in stream["gaps"])
    return list(found.values())


def summary(connection: Any, row: Row) -> dict[str, Any]:
    """What the follower of an experiment is told at each change."""
    return {**experiment(row), "replicas": newest_tries(row, store.replicas_of(connection, row["uid"]))}


def ranks(directory: Path, shown: list[dict[str, Any]], signs: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Every rank with its last line, how old it is, and how old its other signs of life are."""
    now = time.time()
    result = []

    def age(when: float | None) -> float | None:
        return max(0.0, now - when) if when is not None else None

    for entry in shown:
        sign = signs.get((entry["replica"], entry["try"]), {})
        place = try_directory(directory, entry["attempt"], entry["replica"], entry["try"])
        last = logs.tail(place / "log", 1)
        line = last[-1] if last else None
        text = line.text.decode("utf-8", "replace").rstrip("\n").rpartition("\r")[2] if line is not None else None
        result.append(
            {
                **{key: entry[key] for key in ("replica", "state", "reason", "exit_code", "signal")},
                "last_line": text,
                "last_line_age": age(line.time if line is not None else None),
                "last_metric_age": age(sign.get("metric")),
                "heartbeat_age": age(sign.get("sample")),
                "pid": sign.get("pid"),
            }
        )
    return result


def note(problem: Problem) -> dict[str, Any]:
    return problem.json()
