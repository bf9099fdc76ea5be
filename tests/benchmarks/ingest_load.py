"""64 processes that log 200 metrics once a second: what the server pays for it, and whether a point is missing.

    python -m tests.benchmarks.ingest_load --minutes 10

The streams are written by two processes that hold 32 each, to leave the machine to the server. `make bench` runs ten
minutes and writes docs/reference/ingest.md; tests/crash/test_ingest_load.py runs a few seconds.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from array import array
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from shoal import __version__
from shoal.client import Client
from shoal.journal import Group
from tests import outside
from tests.benchmarks.pages import write_page
from tests.conftest import ROOT
from tests.running import until

STREAMS, METRICS, WRITERS = 64, 200, 2
NAMES = tuple(f"layer_{number // 10}/metric_{number % 10}" for number in range(METRICS))
KEY = "load"
PARTS = 8


class Felt(NamedTuple):
    """What the server used while the streams were written."""

    seconds: float
    cpu: float  # of one core
    memory: list[float]  # MiB, a look each second or so


def write(home: Path, first: int, count: int, rows: int, hertz: float) -> None:
    """Streams first … first + count - 1, `rows` rows each; spread evenly over each period."""
    run = home / "outside" / KEY
    streams = [outside.stream(run, rank, STREAMS) for rank in range(first, first + count)]
    started = time.monotonic()
    for row in range(rows):
        for place, stream in enumerate(streams):
            pause = started + (row + place / count) / hertz - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            values = [array("d", [row + metric / 1000]) for metric in range(METRICS)]
            stream.points([Group(NAMES, array("d", [time.time()]), array("q", [row]), values)])
    for stream in streams:
        outside.end(stream)


def load(home: Path, rows: int, hertz: float) -> Felt:
    """Runs the writers against the home's server, until everything is in the store."""
    outside.begin(home, KEY)
    pid = int(Client(home).server()["pid"])
    each = STREAMS // WRITERS
    started, before = time.monotonic(), ticks(pid)
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.benchmarks.ingest_load",
                "--write",
                *map(str, (home, first, each, rows, hertz)),
            ],
            cwd=ROOT,
        )
        for first in range(0, STREAMS, each)
    ]
    memory = [resident(pid)]
    while any(writer.poll() is None for writer in writers):
        time.sleep(0.2)
        memory.append(resident(pid))
    seconds = time.monotonic() - started
    used = (ticks(pid) - before) / os.sysconf("SC_CLK_TCK")
    assert all(writer.returncode == 0 for writer in writers)
    until(lambda: tracked(home), "the end of the ingest")
    return Felt(seconds, used / seconds, memory)


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def tracked(home: Path) -> bool:
    with closing(sqlite3.connect(f"file:{home / 'shoal.db'}?mode=ro", uri=True)) as connection:
        return connection.execute("select tracked from experiments where origin_key = ?", [KEY]).fetchone() == (1,)


def stored(home: Path) -> dict[tuple[str, str], Counter[tuple[int, float]]]:
    """(replica, metric) -> how often each (step, value) is in the store. Everything is decoded."""
    from shoal.store import chunks

    found: dict[tuple[str, str], Counter[tuple[int, float]]] = {}
    query = (
        "select streams.replica, series.name, chunks.data from chunks join series on series.id = chunks.series"
        " join streams on streams.stream = series.stream where streams.kind = 'metric'"
    )
    with closing(sqlite3.connect(f"file:{home / 'shoal.db'}?mode=ro", uri=True)) as connection:
        for replica, name, data in connection.execute(query):
            steps, _, values = chunks.decode(data)
            found.setdefault((replica, name), Counter()).update(zip(steps.tolist(), values.tolist(), strict=True))
    return found


def missing(home: Path, rows: int) -> list[str]:
    """What is not in the store exactly once; empty when all is well."""
    found = stored(home)
    wrong = []
    for rank in range(STREAMS):
        for metric, name in enumerate(NAMES):
            expected = Counter({(row, row + metric / 1000): 1 for row in range(rows)})
            if found.get((f"worker-{rank}", name)) != expected:
                wrong.append(f"worker-{rank} {name}")
    return wrong


def page(place: Path, minutes: float) -> str:
    home, rows = place / "home", int(minutes * 60)
    felt = load(home, rows, 1.0)
    wrong = missing(home, rows)
    part = max(1, len(felt.memory) // PARTS)
    memory = [statistics.median(felt.memory[start : start + part]) for start in range(0, part * PARTS, part)]
    points = STREAMS * METRICS * rows
    database = (home / "shoal.db").stat().st_size
    return "\n".join(
        [
            "# Ingest under load",
            "",
            f"Written by `make bench`: shoal {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores."
            f" {STREAMS} processes logged {METRICS} metrics once a second for {felt.seconds / 60:.1f} minutes.",
            "",
            "| | |",
            "|---|---|",
            f"| the server used | {felt.cpu * 100:.0f} % of one core |",
            f"| its memory, in {PARTS} equal parts of the time | {', '.join(f'{each:.0f}' for each in memory)} MiB |",
            f"| series with a point missing or doubled | {len(wrong)} of {STREAMS * METRICS:,} |",
            f"| points in the store | {points:,}, {database / points:.1f} bytes each |",
            "",
            "The first points go from heads into chunks when a process has logged 65,536 of them, here after five "
            "minutes. All processes come to that at once; they take turns, beside what is read.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--write", nargs=5, metavar=("HOME", "FIRST", "COUNT", "ROWS", "HERTZ"))
    options = parser.parse_args()
    if options.write:
        home, first, count, rows, hertz = options.write
        write(Path(home), int(first), int(count), int(rows), float(hertz))
        return
    write_page("ingest.md", lambda place: page(place, options.minutes))


if __name__ == "__main__":
    main()
