"""Rows of the store -> what the API shows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal.errors import Problem
from shoal.server.live import try_directory
from shoal.store import experiments as store
from shoal.store import logs

Row = Mapping[str, Any]

SHOWN = (
    "id", "uid", "number", "state", "reason", "framework", "backend", "cluster", "attempt", "created", "started",
    "finished", "params", "tags", "first_failure",
)  # fmt: skip
REPLICA = (
    "replica", "role", "index", "rank", "attempt", "try", "state", "reason", "exit_code", "node", "started", "finished",
)  # fmt: skip


def experiment(row: Row) -> dict[str, Any]:
    return {**{key: row[key] for key in SHOWN}, "name": row["name"] or None, "metrics": {}}


def replica(row: Row) -> dict[str, Any]:
    return {**{key: row[key] for key in REPLICA}, "signal": row["signal"] or None}


def newest_tries(row: Row, replicas: Iterable[Row]) -> list[dict[str, Any]]:
    """Each replica of the newest attempt in its newest try; planned ones that have not started are created."""
    newest: dict[str, Row] = {}
    for entry in replicas:
        if entry["attempt"] == row["attempt"]:
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


def detail(connection: Any, row: Row) -> dict[str, Any]:
    replicas = store.replicas_of(connection, row["uid"])
    shown = newest_tries(row, replicas)
    newest = {(entry["attempt"], entry["replica"], entry["try"]) for entry in shown}
    earlier = [replica(e) for e in replicas if (e["attempt"], e["replica"], e["try"]) not in newest]
    return {
        **experiment(row),
        "replicas": shown,
        "history": earlier,
        "command": row["plan"]["command"],
        "directory": row["cwd"],
        "resolved": row["resolved"],
        "files": row["sources"]["files"],
    }


def summary(connection: Any, row: Row) -> dict[str, Any]:
    """What the follower of an experiment is told at each change."""
    return {**experiment(row), "replicas": newest_tries(row, store.replicas_of(connection, row["uid"]))}


def ranks(directory: Path, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every rank with its last line and how old it is."""
    now = time.time()
    result = []
    for entry in shown:
        place = try_directory(directory, entry["attempt"], entry["replica"], entry["try"])
        last = logs.tail(place / "log", 1)
        line = last[-1] if last else None
        text = line.text.decode("utf-8", "replace").rstrip("\n").rpartition("\r")[2] if line is not None else None
        result.append(
            {
                **{key: entry[key] for key in ("replica", "state", "reason", "exit_code", "signal")},
                "last_line": text,
                "last_line_age": max(0.0, now - line.time) if line is not None else None,
            }
        )
    return result


def note(problem: Problem) -> dict[str, Any]:
    return problem.json()
