"""Tries as launchers leave them, for tests of how they travel."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from shoal import journal
from shoal.journalfile import JournalFile

MIB = 1 << 20


def tree(directory: Path) -> dict[str, bytes]:
    """Every file below a directory that is carried."""
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if re.match(r"(streams|log|files)/|exit\.json$", path)}


def fill(directory: Path, seed: int = 1) -> None:
    """A try with something of everything."""
    chance = random.Random(seed)
    for path, size in {
        "log/000000": 3 * MIB // 2,
        "log/000000.index": 240,
        "files/a/model.bin": 2 * MIB + 17,
        "files/a/empty": 0,
        "files/ä b%?#": 10,
    }.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(chance.randbytes(size))
    (directory / "streams").mkdir()
    stream = JournalFile(str(directory / "streams"), {"kind": "metric", "rank": 0, "started": 1.0}, segment=4096)
    for step in range(200):
        stream.points([journal.Group(("loss",), [float(step)], [step], [[chance.random()]])])
    stream.end({"time": 1.0, "how": "finished", "error": "", "dropped": 0})


def over(directory: Path) -> None:
    (directory / "exit.json").write_text(json.dumps({"exit_code": 0}))
