"""Ingest in a process of its own: how much memory it holds after each round of points.

    python -m tests.crash.ingest_memory HOME ROUNDS

In a round every stream logs as many points as fit into its head, in many looks, so that each of them goes from heads
into chunks once. Prints for each round how many points were kept until then, and how many bytes the process holds.
"""

from __future__ import annotations

import gc
import os
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

from shoal.engine.ingest import LARGE_POINTS, Ingest
from shoal.engine.outside import read_about
from shoal.journal import Group
from shoal.store import experiments as store
from shoal.store.database import Database
from tests import outside
from tests.benchmarks.ingest_load import KEY, METRICS, NAMES

STREAMS, LOOKS = 4, 40


def held(home: Path, rounds: int) -> Iterator[tuple[int, int]]:
    run = outside.begin(home, KEY)
    database = Database(home / "shoal.db", exclusive=False)
    database.take_lease()
    ingest = Ingest(home, database)
    streams = [outside.stream(run, rank, STREAMS) for rank in range(STREAMS)]
    uid = ingest.adopt(read_about(run) or {})["uid"]
    rows = LARGE_POINTS // METRICS // LOOKS + 1
    step = 0
    for _ in range(rounds):
        for _ in range(LOOKS):
            steps = array("q", range(step, step + rows))
            times = array("d", (1.7e9 + number for number in steps))
            for stream in streams:
                stream.points([Group(NAMES, times, steps, [array("d", steps)] * METRICS)])
            step += rows
            ingest.catch_up(uid)
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        yield STREAMS * METRICS * step, pages * os.sysconf("SC_PAGE_SIZE")
    for stream in streams:
        outside.end(stream)
    ingest.catch_up(uid)
    with database.read() as connection:
        assert store.get(connection, uid)["tracked"]
    database.close()


if __name__ == "__main__":
    for points, size in held(Path(sys.argv[1]), int(sys.argv[2])):
        print(points, size, flush=True)
