"""Aim: a local repository; each call writes into RocksDB, whose write-ahead log is in the file when it returns."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from typing import Any

TITLE = "Aim"
WATCH = "return"
DURABLE = "the call has returned: RocksDB has written its log"

run: Any = None


def start(directory: str) -> Callable[..., Any]:
    global run
    import aim

    run = aim.Run(repo=directory)
    return run.track


def finish() -> None:
    run.close()


def compact(directory: str) -> None:
    """What RocksDB would do by itself one day."""
    import aimrocks

    for path in glob.glob(os.path.join(directory, ".aim", "*", "chunks", "*")):
        database = aimrocks.DB(path, aimrocks.Options(), read_only=False)
        database.flush()
        database.compact_range()


def count(directory: str) -> int:
    """What its own reader finds in a run that is taken up again, system metrics left out."""
    import aim

    found = 0
    repo = aim.Repo(directory)
    for name in repo.list_all_runs():
        one = aim.Run(name, repo=repo, force_resume=True, system_tracking_interval=None, capture_terminal_logs=False)
        for metric in one.metrics():
            if not metric.name.startswith("__"):
                found += len(metric.values.sparse_list()[1])
        one.close()
    return found
