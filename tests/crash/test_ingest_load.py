from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.benchmarks import ingest_load
from tests.conftest import ROOT

ROUNDS = 6
OF_A_POINT = 8  # bytes: nothing can hold on to a point with less than its value


def test_everything_that_64_processes_log_is_in_the_store_once(home: Path) -> None:
    """The short form of the load that `make bench` runs for ten minutes; its times are no matter here."""
    rows = 12
    ingest_load.load(home, rows, hertz=2.0)
    assert ingest_load.missing(home, rows) == []


def test_ingest_holds_no_more_memory_the_more_points_there_are(home: Path) -> None:
    """From the second third of all points to the last one it grows by less than half of what their values take."""
    command = [sys.executable, "-m", "tests.crash.ingest_memory", str(home), str(ROUNDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(found) == ROUNDS
    third = ROUNDS // 3
    second, last = found[third : 2 * third], found[2 * third :]
    grown = min(size for _, size in last) - min(size for _, size in second)
    points = last[-1][0] - second[-1][0]
    assert grown < OF_A_POINT * points / 2, f"{grown} bytes for {points} points: {found}"
