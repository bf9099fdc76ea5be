"""Trackio, local: calls are queued, and a thread writes them to SQLite twice a second, one JSON row for each call."""

from __future__ import annotations

import glob
import json
import os
import sqlite3
from collections.abc import Callable
from typing import Any

TITLE = "Trackio"
WATCH = "rows"
DURABLE = "committed in its SQLite"

run: Any = None


def start(directory: str) -> Callable[..., Any]:
    global run
    os.environ["TRACKIO_DIR"] = directory  # read when it is imported
    import trackio

    run = trackio.init(project="bench", embed=False)
    return run.log


def finish() -> None:
    run.finish()


def rows(directory: str) -> int:
    """Calls that are committed; readers of a write-ahead log do not get into the way of the writer."""
    for path in glob.glob(os.path.join(directory, "bench*.db")):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as connection:
            try:
                return int(connection.execute("select count(*) from metrics").fetchone()[0])
            except sqlite3.OperationalError:
                return 0
    return 0


def count(directory: str) -> int:
    for path in glob.glob(os.path.join(directory, "bench*.db")):
        with sqlite3.connect(path) as connection:
            return sum(len(json.loads(row[0])) for row in connection.execute("select metrics from metrics"))
    return 0


def listing(directory: str, runs: int) -> Callable[[], Any]:
    """Ten steps of each run, put into its table at once. There is no last value to ask for: its pages read the logs."""
    start(directory)({"loss": 0.0}, step=0)  # makes the tables
    finish()
    from trackio import server

    row = "insert into metrics (timestamp, run_id, run_name, step, metrics) values (?, ?, ?, ?, ?)"
    metrics = json.dumps({f"metric_{key}": 0.5 for key in range(10)})
    rows = [
        (f"2026-01-01T00:00:{step:02d}+00:00", f"{number:032x}", f"run-{number}", step, metrics)
        for number in range(runs)
        for step in range(10)
    ]
    with sqlite3.connect(glob.glob(os.path.join(directory, "bench*.db"))[0]) as connection:
        connection.executemany(row, rows)

    def ask() -> None:
        found = server.get_runs_for_project("bench")
        wanted = [{"run": entry["name"], "run_id": entry["id"]} for entry in found]
        for first in range(0, len(wanted), 64):  # more at once are refused
            server.get_logs_batch("bench", wanted[first : first + 64])
        assert len(wanted) >= runs

    return ask


def chart(directory: str, points: int) -> Callable[[], Any]:
    start(directory)({"loss": 0.0}, step=0)  # makes the tables
    finish()
    from trackio import server

    row = "insert into metrics (timestamp, run_id, run_name, step, metrics) values (?, 'r', 'r', ?, ?)"
    rows = [(f"2026-01-01T00:00:00.{step:06d}+00:00", step, json.dumps({"loss": step * 0.5})) for step in range(points)]
    with sqlite3.connect(glob.glob(os.path.join(directory, "bench*.db"))[0]) as connection:
        connection.executemany(row, rows)

    def ask() -> None:
        assert server.get_logs("bench", "r", "r")

    return ask
