"""What the store costs: bytes of a run after compaction, a list of ten thousand experiments, a chart of millions.

Shoal's times are those of whole requests to a real server on loopback, from the first byte sent to the last received,
and what its process used of a core meanwhile. Peers are asked in their own process, without HTTP, to their advantage.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from array import array
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from shoal.client import Client
from shoal.journal import Group
from tests import outside
from tests.benchmarks.ingest_load import ticks
from tests.benchmarks.peers.running import adapter, ask, size
from tests.conftest import clear
from tests.running import until

RUNS, METRICS = 10_000, 10
RANKS, POINTS, BUCKETS = 8, 1_000_000, 1000
PEER_POINTS = 100_000
REQUESTS = 21
VALUES = {
    "name": "resnet",
    "framework": "pytorch",
    "backend": "native",
    "cluster": "local",
    "params": {"lr": 0.01, "epochs": 10},
    "tags": ["bench"],
    "sources": {"files": [], "params": [], "directory": ""},
    "resolved": "",
    "plan": {"command": "python train.py", "replicas": []},
    "policy": {"grace_stop": 0.0},
    "cwd": "",
    "oversubscribe": True,
}


def reads(place: Path) -> list[str]:
    """The lines of the page."""
    listed = list_time(place / "list")
    packed, spelled, ingested = chart_times(place / "chart")
    peers = ("mlflow", "trackio")
    lists = {name: ask(name, place / f"list-{name}" / name, "listing", str(RUNS)) for name in peers}
    charts = {name: ask(name, place / f"chart-{name}" / name, "chart", str(PEER_POINTS)) for name in peers}
    return [
        f"## A list of {RUNS:,} experiments, each with the last values of {METRICS} metrics",
        "",
        "| | time | of it on a core | the first time |",
        "|---|---|---|---|",
        f"| Shoal, the whole request | {listed} |",
        *[f"| {adapter(name).TITLE}, in its process | {milli(found)} | | |" for name, found in lists.items()],
        "",
        "The goal is less than 100 ms. Trackio keeps no last values; it reads ten steps of each run, as its pages do.",
        "Aim, wandb offline and tensorboardX are left out: so many runs would take hours to make, or there is no list.",
        "",
        "## A chart",
        "",
        f"Shoal sends about {BUCKETS:,} buckets for each rank, with minimum, maximum and last value.",
        "",
        "| | points | time | of it on a core | the first time |",
        "|---|---|---|---|---|",
        f"| Shoal, the whole request, packed | {RANKS} ranks × {POINTS:,} | {packed} |",
        f"| Shoal, the whole request, as JSON | {RANKS} ranks × {POINTS:,} | {spelled} |",
        *[
            f"| {adapter(name).TITLE}, in its process | 1 rank × {PEER_POINTS:,} | {milli(found)} | | |"
            for name, found in charts.items()
        ],
        "",
        f"The goal is less than 100 ms. Shoal's server took {ingested:.1f} s to bring the {RANKS * POINTS:,} points "
        "from the streams into the store. MLflow and Trackio send evenly chosen points: a spike may be between them.",
        "",
    ]


def compacted(home: Path) -> int:
    """Bytes of a run that is over: the database of its home and what is left of its directory."""
    client = Client(home)
    try:
        until(lambda: tracked(home), "the end of its ingest")
        client.end_server()
    finally:
        clear(home)
    database = sum(path.stat().st_size for path in home.glob("shoal.db*"))
    return database + size(home / "outside") + size(home / "experiments")


class Asked(NamedTuple):
    """Seconds of one request: the median, what the server's process used of a core for it, and the first one."""

    median: float
    used: float
    first: float

    def __str__(self) -> str:
        return " | ".join(milli(seconds) for seconds in self)


def list_time(home: Path) -> Asked:
    from sqlalchemy import insert

    from shoal import home as homes
    from shoal.store import experiments as store
    from shoal.store.database import Database
    from shoal.store.tables import experiments

    homes.prepare(home)
    database = Database(home / "shoal.db")
    database.take_lease()
    with database.write() as connection:
        first = dict(store.create(connection, VALUES, state="succeeded"))
        metrics = {
            f"train/metric_{number}": {"last": 0.1, "min": 0.1, "max": 1.0, "step": 1000, "time": 1.7e9 + number}
            for number in range(METRICS)
        }
        first |= {"tracked": True, "metrics": metrics, "started": first["created"], "finished": first["created"]}
        many = [
            {**first, "uid": f"{number:032x}", "id": f"e{number:05d}", "number": number, "origin_key": None}
            for number in range(2, RUNS + 1)
        ]
        connection.execute(insert(experiments), many)
    database.close()
    try:
        return timed(home, f"/api/experiments?limit={RUNS}")
    finally:
        clear(home)


def chart_times(home: Path) -> tuple[Asked, Asked, float]:
    """A chart as packed arrays and as JSON, and the seconds of the ingest."""
    import numpy as np

    noise = np.random.default_rng(1)
    run = outside.begin(home, "chart")
    piece = 50_000
    for rank in range(RANKS):
        stream = outside.stream(run, rank, RANKS)
        for start in range(0, POINTS, piece):
            steps = np.arange(start, start + piece)
            times = 1.7e9 + steps * 0.05 + noise.normal(0, 0.002, piece)
            values = (np.exp(-steps / 3e5) + noise.normal(0, 0.05, piece)).astype(np.float32).astype(np.float64)
            stream.points([Group(("loss",), column("d", times), column("q", steps), [column("d", values)])])
        outside.end(stream)
    started = time.monotonic()
    Client(home)
    until(lambda: tracked(home), "the end of its ingest")
    ingested = time.monotonic() - started
    path = f"/api/experiments/1/series?name=loss&buckets={BUCKETS}"
    try:
        return timed(home, f"{path}&format=binary"), timed(home, path), ingested
    finally:
        clear(home)


def column(code: str, values: Any) -> array[Any]:
    found = array(code)
    found.frombytes(values.astype("f8" if code == "d" else "i8").tobytes())
    return found


def timed(home: Path, path: str) -> Asked:
    client = Client(home)
    pid = int(client.server()["pid"])

    def once() -> float:
        started = time.perf_counter()
        answer = client._http.get(path, timeout=120)
        taken = time.perf_counter() - started
        answer.raise_for_status()
        return taken

    first = once()
    before = ticks(pid)
    median = statistics.median(once() for _ in range(REQUESTS))
    return Asked(median, (ticks(pid) - before) / os.sysconf("SC_CLK_TCK") / REQUESTS, first)


def tracked(home: Path) -> bool:
    """Whether all experiments are over and in the store, read beside the server."""
    with closing(sqlite3.connect(f"file:{home / 'shoal.db'}?mode=ro", uri=True)) as connection:
        found = connection.execute("select tracked from experiments").fetchall()
    return bool(found) and all(entry == (1,) for entry in found)


def milli(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
