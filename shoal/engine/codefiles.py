"""The files of a directory that no commit tells of: enough of them to see later whether the code is still the same.

Bounded, because a directory may be anything: small files only, the nearest first, and what programs make by themselves
is left out. `complete` says whether all that was wanted fitted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import deque
from collections.abc import Mapping
from typing import Any

MOST_FILES = 500
MOST_SEEN = 5_000  # entries of directories that are looked at
LARGEST = 1 << 20  # bytes of one file: larger ones are data
MOST_BYTES = 32 << 20
LEFT_OUT = frozenset(("__pycache__", "node_modules", "venv", "env", "outputs", "wandb", "mlruns", "runs"))
MADE = (".pyc", ".pyo", ".so", ".log", ".out")


def describe(directory: str, home: str) -> dict[str, Any]:
    """{digest, complete, hashes: {path: hash}} without the home, which changes; no link to a directory is followed."""
    hashes: dict[str, str] = {}
    complete = True
    seen = total = 0
    away = os.path.realpath(home)
    waiting: deque[str] = deque([""])
    while waiting:
        below = waiting.popleft()
        for entry in _entries(os.path.join(directory, below)):
            seen += 1
            if seen > MOST_SEEN or len(hashes) >= MOST_FILES or total >= MOST_BYTES:
                complete = False
                waiting.clear()
                break
            path = os.path.join(below, entry.name)
            if entry.name.startswith(".") or entry.name in LEFT_OUT or entry.name.endswith(MADE):
                continue
            if entry.is_dir(follow_symlinks=False):
                if os.path.realpath(entry.path) != away:
                    waiting.append(path)
                continue
            content = _content(os.path.join(directory, path))
            if content is not None:
                total += len(content)
                hashes[path.encode("utf-8", "replace").decode()] = hashlib.sha256(content).hexdigest()[:16]
    told = json.dumps(sorted(hashes.items())).encode()
    return {"digest": hashlib.sha256(told).hexdigest(), "complete": complete, "hashes": hashes}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], place: str, *, exact: bool) -> list[str]:
    """What is no longer as it was, in sentences; with `exact` also that not everything was looked at."""
    found = []
    then, here = before["hashes"], now["hashes"]
    whole = before["complete"] and now["complete"]
    groups = {
        "changed": [path for path in here if path in then and then[path] != here[path]],
        # Most new files are what the run itself wrote.
        "new": [path for path in here if path not in then] if whole and exact else [],
        "gone": [path for path in then if path not in here] if whole else [],
    }
    for word, paths in groups.items():
        if paths:
            more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
            found.append(f"{place}: files are {word}: {', '.join(sorted(paths)[:3])}{more}")
    if exact and not found and not whole:
        found.append(f"{place}: there are too many files to tell whether they are those of then")
    return found


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _content(path: str) -> bytes | None:
    """Of a file that is small enough; a pipe is not waited for."""
    try:
        # By an opener: what cannot be read, as the directory that a link leads to, is closed again.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST else None
    except OSError:
        return None
