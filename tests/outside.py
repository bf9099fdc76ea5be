"""Runs outside Shoal written by hand, without the SDK: many ranks from one process, and any time on their clocks."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from shoal.journalfile import JournalFile
from shoal.launcher import processes


def begin(home: Path, key: str, **about: Any) -> Path:
    """The directory of a run that the server of the home finds."""
    run = home / "outside" / key
    run.mkdir(parents=True, exist_ok=True)
    said = {"key": key, "name": key, "started": time.time(), "command": ["train.py"], "cwd": str(home), **about}
    new = run / "outside.json.new"
    new.write_text(json.dumps({"params": {}, "tags": [], **said}))
    new.rename(run / "outside.json")
    return run


def stream(run: Path, rank: int, world: int, **more: Any) -> JournalFile:
    """The stream of one rank, a replica of its own. The server takes the calling process for its writer."""
    replica = f"worker-{rank}"
    directory = run / "attempt-0" / replica / "try-0" / "streams"
    directory.mkdir(parents=True, exist_ok=True)
    header = {
        "experiment": "",
        "key": run.name,
        "replica": replica,
        "role": "worker",
        "index": rank,
        "attempt": 0,
        "try": 0,
        "rank": rank,
        "process": 0,
        "world": world,
        "restart": 0,
        "host": socket.gethostname(),
        "boot": processes.boot_id(),
        "pid": os.getpid(),
        "pid_start": processes.start_time(os.getpid()),
        "started": time.time(),
        "kind": "metric",
        "parent": None,
        "sdk": "by hand",
        "program": ["train.py"],
    }
    return JournalFile(str(directory), {**header, **more})


def end(stream: JournalFile) -> None:
    stream.end({"time": time.time(), "how": "finished", "error": "", "dropped": 0})
