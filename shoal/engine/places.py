"""Where experiments lie in the home, and their tries in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def experiment_directory(home: Path, row: Mapping[str, Any]) -> Path:
    """Where the files of an experiment lie: those of runs outside Shoal stay where their scripts write."""
    if row["origin"] != "run":
        return home / "outside" / str(row["origin_key"])
    return home / "experiments" / str(row["id"])


def tries(experiment: Path) -> list[tuple[int, str, int, str]]:
    """(attempt, replica, try, directory) of everything that was started."""
    found = []
    for attempt in _numbered(str(experiment), "attempt-"):
        for replica in _directories(attempt[1]):
            for try_ in _numbered(replica.path, "try-"):
                found.append((attempt[0], replica.name, try_[0], try_[1]))
    return found


def _numbered(directory: str, prefix: str) -> list[tuple[int, str]]:
    return sorted(
        (int(entry.name[len(prefix) :]), entry.path)
        for entry in _directories(directory)
        if entry.name.startswith(prefix) and entry.name[len(prefix) :].isdigit()
    )


def _directories(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
