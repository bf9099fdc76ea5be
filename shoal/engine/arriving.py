"""Tries whose files are carried here, piece by piece: what lacks of them is not lost, it is on its way.

A carrier's first piece of a stream leaves a mark; exit.json, which comes last, or the carrier's word that nothing more
is on its way takes it away. A carrier that has been silent for long is taken for dead. How long that is, the mark
tells: a cluster may have its launchers wait for hours for a server that is away.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from shoal.backends.local.files import REQUEST
from shoal.launcher.replica import read_json

MARK = "arriving"
SILENT = 600.0  # seconds; a launcher whose command is over gives up after half of that, if it is told nothing else


def is_expected(place: str | Path) -> bool:
    """Whether more may come to the directory of this try."""
    age = _age(place)
    return 0.0 <= age < SILENT or SILENT <= age < _silence(place)  # the mark is read only where that matters


def is_surely_expected(place: str | Path) -> bool:
    """Whether that stays so for a while."""
    return 0.0 <= _age(place) < SILENT / 2


def expect(place: str | Path) -> None:
    mark = Path(place, MARK)
    if mark.exists():
        mark.touch()
        return
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark.write_text(f"{max(SILENT, 2 * _carry(os.path.join(mark.parent.parent.parent, REQUEST))):g}\n")


def end(place: str | Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(place, MARK))


def _age(place: str | Path) -> float:
    """Seconds since the last piece; less than 0 when none is expected."""
    try:
        return max(0.0, time.time() - os.stat(os.path.join(place, MARK)).st_mtime)
    except OSError:
        return -1.0


def _silence(place: str | Path) -> float:
    """Seconds after which its carrier is taken for dead."""
    try:
        return max(SILENT, float(Path(place, MARK).read_text()))
    except (OSError, ValueError):
        return SILENT


@lru_cache(maxsize=256)
def _carry(request: str) -> float:
    """Seconds that launchers of an attempt go on after the end of their commands; 0 when it does not tell.

    A request is written before anything is started, and is long where there are many replicas: it is read once.
    """
    try:
        told = (read_json(request) or {}).get("carry", 0.0)
    except (OSError, ValueError):
        return 0.0
    return float(told) if isinstance(told, (int, float)) else 0.0
