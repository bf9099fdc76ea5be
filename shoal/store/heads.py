"""Reads heads: frames of points as scripts wrote them, as columns.

Calls that logged the same names share their times and steps, so a head is a few tables, one for each set of names.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from shoal import journal
from shoal.store.chunks import Floats, Ints, Points, join
from shoal.store.tables import heads

MOST_BYTES = 64 << 20  # of decoded heads that are kept
SHORT = 16 << 10  # bytes of names that are worth being remembered


class Table(NamedTuple):
    """Calls that logged the same names, in their order."""

    names: tuple[str, ...]
    frames: Ints  # the places of their frames in the head
    steps: Ints
    times: Ints
    values: Floats  # a row for each name

    def column(self, index: int) -> Points:
        return Points(self.steps, self.times, self.values[index])


class Columns:
    """All points of a head, by name."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._where: dict[str, list[tuple[Table, int]]] = {}
        for table in tables:
            for index, name in enumerate(table.names):
                self._where.setdefault(name, []).append((table, index))

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def points(self, name: str) -> Points:
        """In the order of the calls: that of their frames, and within a frame that of times and steps."""
        found = self._where[name]
        if len(found) == 1:
            return found[0][0].column(found[0][1])
        steps, times, values = join([table.column(index) for table, index in found])
        order = np.lexsort((steps, times, np.concatenate([table.frames for table, _ in found])))
        return Points(steps[order], times[order], values[order])

    def extended(self, data: Iterable[bytes]) -> Columns:
        """These and those of further rows of the head."""
        start = max((int(table.frames[-1]) + 1 for table in self._tables), default=0)
        new: dict[tuple[str, ...], list[tuple[int, Group]]] = {}
        for place, groups in enumerate((groups for row in data for groups in frames_of(row)), start):
            for group in groups:
                new.setdefault(group.names, []).append((place, group))
        known = {table.names: table for table in self._tables}
        for names, more in new.items():
            known[names] = _joined([*([known[names]] if names in known else []), _table(names, more)])
        return Columns(list(known.values()))

    def size(self) -> int:
        """Bytes, roughly."""
        return sum(table.values.nbytes + 3 * table.steps.nbytes for table in self._tables) + 100 * len(self._where)


NOTHING = Columns(())


def microseconds(times: Floats) -> Ints:
    """UTC seconds -> microseconds; what is no time, or none of this age of the world, is the nearest there is."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(np.nan_to_num(times * 1e6, nan=0.0, posinf=2.0**62, neginf=-(2.0**62)))
    return np.clip(scaled, -(2.0**62), 2.0**62).astype(np.int64)


def read(connection: Connection, stream: str, after: int = -1, base: Columns = NOTHING) -> Columns:
    """The head of a stream; with `base`, the rest of what is known up to the row `after`."""
    rows = select(heads.c.data).where(heads.c.stream == stream, heads.c.seq > after).order_by(heads.c.seq)
    return base.extended(connection.execute(rows).scalars())


class Heads:
    """Decoded heads that were asked for lately. Rows of heads never change, so only new ones are read."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._known: OrderedDict[str, tuple[int, int, Columns]] = OrderedDict()  # first and last seq
        self._lock = threading.Lock()

    def of(self, connection: Connection, streams: Sequence[str]) -> Mapping[str, Columns]:
        """stream -> its head, of those that have one."""
        found: dict[str, Columns] = {}
        for stream, first, last in _extents(connection, streams):
            with self._lock:
                known = self._known.get(stream)
            if known is not None and known[0] == first and known[1] >= last:
                columns = known[2]
            elif known is not None and known[0] == first:
                columns = read(connection, stream, known[1], known[2])
            else:
                columns = read(connection, stream)
            found[stream] = columns
            self._keep(
                stream, (first, max(last, known[1] if known is not None and known[0] == first else last), columns)
            )
        return found

    def forget(self, streams: Iterable[str]) -> None:
        """They are removed: what has their names later is not they."""
        with self._lock:
            for stream in streams:
                self._known.pop(stream, None)

    def _keep(self, stream: str, entry: tuple[int, int, Columns]) -> None:
        with self._lock:
            self._known[stream] = entry
            self._known.move_to_end(stream)
            size = sum(columns.size() for _, _, columns in self._known.values())
            while size > self._most and self._known:
                _, (_, _, columns) = self._known.popitem(last=False)
                size -= columns.size()


def _extents(connection: Connection, streams: Sequence[str]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for start in range(0, len(streams), 500):
        query = select(heads.c.stream, func.min(heads.c.seq), func.max(heads.c.seq))
        query = query.where(heads.c.stream.in_(streams[start : start + 500])).group_by(heads.c.stream)
        found += [(stream, first, last) for stream, first, last in connection.execute(query)]
    return found


class Group(NamedTuple):
    """As journal.Group, with arrays: there may be thousands of one row each, and an object for each column is dear."""

    names: tuple[str, ...]
    times: Floats
    steps: Ints
    values: Floats  # a row for each name


def unpack(body: bytes) -> list[Group]:
    """The groups of a frame of points that have any; ValueError when they are no such thing. They hold on to `body`."""
    groups = []
    place = 0
    while place < len(body):
        if len(body) - place < journal.GROUP.size:
            raise ValueError("a group without its head")
        rows, count, length = journal.GROUP.unpack_from(body, place)
        place += journal.GROUP.size
        names = (_known_names if length <= SHORT else _names)(body[place : place + length])
        place += length
        numbers = rows * (count + 2)
        if len(names) != count or place + 8 * numbers > len(body):
            raise ValueError("a group that is shorter than its head says")
        if rows:
            table = np.frombuffer(body, "<f8", numbers, place)
            steps = table[rows : 2 * rows].view("<i8")
            groups.append(Group(names, table[:rows], steps, table[2 * rows :].reshape(count, rows)))
        place += 8 * numbers
    return groups


def frames_of(data: bytes) -> Iterator[list[Group]]:
    """What a row of heads holds: the groups of one frame after another."""
    for item in journal.scan(data, over=True)[0]:
        if isinstance(item, journal.Frame) and item.kind == journal.POINTS:
            yield unpack(item.body)


def _table(names: tuple[str, ...], groups: Sequence[tuple[int, Group]]) -> Table:
    places, found = zip(*groups, strict=True)
    _, times, steps, values = zip(*found, strict=True)
    together = np.concatenate(steps)
    frames = np.repeat(np.array(places), [len(few) for few in steps])
    return Table(names, frames, together, microseconds(np.concatenate(times)), np.concatenate(values, axis=1))


def _names(joined: bytes) -> tuple[str, ...]:
    return tuple(joined.decode("utf-8").split("\0"))


_known_names = lru_cache(maxsize=256)(_names)


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    columns: Any = zip(*[table[1:4] for table in tables], strict=True)
    frames, steps, times = (np.concatenate(parts) for parts in columns)
    return Table(tables[0].names, frames, steps, times, np.concatenate([table.values for table in tables], axis=1))
