"""Points in a database, as ingest puts them there: streams, heads of packed frames, and their compaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal import journal
from shoal.store import heads as reading
from shoal.store import series, streams
from shoal.store.chunks import Points
from shoal.store.curves import Choice, Curve, find, points_of
from shoal.store.database import Database

BEGAN = 1_750_000_000.0

Call = tuple[float, int, Mapping[str, float]]  # time, step, values


class Recorded:
    """One experiment of a database without anything around it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.uid = secrets.token_hex(16)
        self.summaries = series.Summaries()
        self.heads = reading.Heads()
        self.streams: dict[str, dict[str, Any]] = {}

    def restart(self) -> None:
        """What a server that begins knows: what is in the database."""
        self.summaries = series.Summaries()
        self.heads = reading.Heads()
        with self.database.read() as connection:
            for stream, row in self.streams.items():
                for data in streams.heads_of(connection, stream):
                    self.summaries.add(row, frames_of(data))

    def stream(self, replica: str = "worker-0", **more: Any) -> str:
        row = {
            "stream": secrets.token_hex(8), "uid": self.uid, "attempt": 0, "replica": replica, "try": 0, "process": 0,
            "rank": int(replica.rpartition("-")[2]), "restart": 0, "kind": "metric", "started": BEGAN, "header": {},
            "segment": 0, "offset": 0, "seq": 0, "closed": False, "dropped": 0, "gaps": [], "ended": None,
            "heard": BEGAN, **more,
        }  # fmt: skip
        with self.database.write() as connection:
            streams.add(connection, row)
        self.streams[row["stream"]] = row
        return str(row["stream"])

    def log(self, stream: str, calls: Iterable[Call]) -> None:
        """One batch of calls: neighbours with the same names are a group."""
        self.write(stream, grouped(list(calls)))

    def column(self, stream: str, name: str, steps: Any, values: Any, times: Any = None) -> None:
        """Many calls of one name."""
        times = BEGAN + np.arange(len(steps)) / 1000 if times is None else times
        group = journal.Group((name,), list(map(float, times)), list(map(int, steps)), [list(map(float, values))])
        self.write(stream, [group])

    def write(self, stream: str, groups: Sequence[journal.Group]) -> None:
        """One frame."""
        if not groups:
            return
        row = self.streams[stream]
        frame = journal.pack(journal.POINTS, row["seq"], journal.pack_points(groups))
        with self.database.write() as connection:
            count = sum(len(group.times) * len(group.names) for group in groups)
            streams.add_head(connection, stream, row["seq"], count, frame)
        row["seq"] += 1
        self.summaries.add(row, [groups])

    def compact(self, stream: str, *, close: bool = False) -> None:
        row = self.streams[stream]
        row["closed"] = row["closed"] or close
        with self.database.write() as connection:
            series.compact(connection, row)
        self.summaries.forget(stream)

    def curves(self, **choice: Any) -> list[Curve]:
        with self.database.read() as connection:
            return find(connection, self.uid, Choice(**choice), self.heads)

    def points(self, **choice: Any) -> dict[tuple[str, str, int], Points]:
        """(name, replica, process) -> its points, joined over attempts."""
        with self.database.read() as connection:
            found = find(connection, self.uid, Choice(**choice), self.heads)
            return {(curve.name, curve.replica, curve.process): points_of(connection, curve) for curve in found}


def frames_of(data: bytes) -> list[list[journal.Group]]:
    """What ingest reads from frames."""
    frames = [item for item in journal.scan(data)[0] if isinstance(item, journal.Frame)]
    return [list(journal.unpack_points(frame.body)) for frame in frames]


def grouped(calls: Sequence[Call]) -> list[journal.Group]:
    groups: list[journal.Group] = []
    for time, step, values in calls:
        names = tuple(values)
        if not groups or groups[-1].names != names:
            groups.append(journal.Group(names, [], [], [[] for _ in names]))
        group: Any = groups[-1]
        group.times.append(time)
        group.steps.append(step)
        for column, value in zip(group.values, values.values(), strict=True):
            column.append(value)
    return groups


def same(first: Any, second: Any) -> bool:
    """Equal numbers, where NaN is NaN and the zero has a sign."""
    one, two = np.asarray(first), np.asarray(second)
    if one.shape != two.shape:
        return False
    if one.dtype.kind == "f" or two.dtype.kind == "f":
        nan = np.isnan(one) & np.isnan(two)
        return bool((nan | ((one == two) & (np.signbit(one) == np.signbit(two)))).all())
    return bool((one == two).all())
