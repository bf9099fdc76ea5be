"""Curves: what one process of one replica logged under one name, over all its incarnations.

A curve is read from chunks and heads alike. Incarnations follow each other by attempt, try and restart; a later one
replaces the steps from its first one on, older steps stay. Streams of one incarnation are merged by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from shoal.store import charts
from shoal.store import chunks as codec
from shoal.store.chunks import Floats, Ints, Points
from shoal.store.heads import Heads
from shoal.store.series import NOT_RESOURCES
from shoal.store.tables import chunks, series, streams

STEP, TIME, RELATIVE = "step", "time", "relative"  # anything else is the name of a metric
BATCH = 400  # of what is asked for in one query


@dataclass(frozen=True)
class Choice:
    """Which curves: patterns for names and replicas, none of them for all."""

    names: Sequence[str] = ()
    replicas: Sequence[str] = ()
    process: int | None = None
    attempt: int | None = None
    kinds: Sequence[str] = NOT_RESOURCES


@dataclass
class Part:
    """What one stream has of a curve: chunks, a head, or both. Only steps before the cut count."""

    stream: Mapping[str, Any]
    series: int | None
    count: int  # in chunks
    head: Points | None
    min_step: int
    first_time: float
    last_time: float
    cut: int | None = None

    @property
    def incarnation(self) -> tuple[int, int, int]:
        return self.stream["attempt"], self.stream["try"], self.stream["restart"]


@dataclass
class Curve:
    kind: str
    name: str
    replica: str
    process: int
    started: float  # of the replica, by its own clock
    parts: list[Part] = field(default_factory=list)

    @property
    def attempt(self) -> int:
        """The newest that has points of it."""
        return int(self.parts[-1].stream["attempt"])

    @property
    def rank(self) -> int:
        return int(self.parts[-1].stream["rank"])


class Life(NamedTuple):
    """What one incarnation has of a curve."""

    attempt: int
    try_: int
    restart: int
    points: Points


def find(connection: Connection, uid: str, choice: Choice, heads: Heads) -> list[Curve]:
    """The chosen curves of an experiment, ordered by kind, name and rank."""
    mine = _streams(connection, uid, choice)
    patterns = not choice.names or any(map(_is_pattern, choice.names))
    open_ = heads.of(connection, list(mine))
    found: dict[tuple[str, str, str, int], dict[str, Part]] = {}
    begun: dict[str, float] = {}
    for stream in mine.values():
        if stream["started"] > 0:
            begun[stream["replica"]] = min(stream["started"], begun.get(stream["replica"], stream["started"]))
    for row in _series(connection, uid, choice.names):
        if row.stream in mine and matches(row.name, choice.names):
            stream = mine[row.stream]
            part = Part(stream, row.id, row.points, None, row.min_step, row.first_time, row.last_time)
            found.setdefault(_key(stream, row.name), {})[row.stream] = part
    for key, columns in open_.items():
        for name in columns if patterns else dict.fromkeys(choice.names):
            if name not in columns or not matches(name, choice.names):
                continue
            points = columns.points(name)
            first, last = int(points.times[0]) / 1e6, int(points.times[-1]) / 1e6
            parts = found.setdefault(_key(mine[key], name), {})
            known = parts.setdefault(key, Part(mine[key], None, 0, None, int(points.steps[0]), first, last))
            known.head, known.last_time = points, last
            known.min_step = min(known.min_step, int(points.steps.min()))
    curves = []
    for (kind, name, replica, process), parts in found.items():
        ordered = sorted(parts.values(), key=lambda part: (*part.incarnation, part.stream["started"], part.first_time))
        curve = Curve(kind, name, replica, process, begun.get(replica, ordered[0].first_time), ordered)
        _cut(curve)
        curves.append(curve)
    return sorted(curves, key=lambda curve: (curve.kind, curve.name, curve.rank, curve.replica, curve.process))


def lives(connection: Connection, curve: Curve, *, replaced: bool = False) -> list[Life]:
    """The points of each incarnation that count, in their order; with `replaced` all that were ever logged."""
    found = []
    for mates in incarnations(curve):
        points = codec.join([_whole_points(connection, part) for part in mates])
        if overlapping(mates):
            points = chosen(points, np.argsort(points.times, kind="stable"))
        if mates[0].cut is not None and not replaced:
            points = chosen(points, points.steps < mates[0].cut)
        found.append(Life(*mates[0].incarnation, points))
    return found


def points_of(connection: Connection, curve: Curve) -> Points:
    """All points of a curve that count, in their order."""
    return codec.join([life.points for life in lives(connection, curve)])


def axis_of(curve: Curve, points: Points, axis: str) -> Floats:
    """x of points, where it is not another metric."""
    return on_axis(points.steps if axis == STEP else points.times, axis, curve.started)


def against(connection: Connection, curve: Curve, other: Curve | None) -> tuple[Floats, Points]:
    """x and points of a curve against another of the same process: where both have the same step."""
    points = points_of(connection, curve)
    beside = points_of(connection, other) if other is not None else codec.join([])
    here, x = charts.matched(points.steps, beside.steps, beside.values)
    finite = np.isfinite(x)
    return x[finite], chosen(points, here[finite])


def companions(
    connection: Connection, uid: str, curves: Iterable[Curve], name: str, heads: Heads
) -> list[Curve | None]:
    """For each curve that of the named metric in the same process."""
    wanted = list(curves)
    attempts = {part.stream["attempt"] for curve in wanted for part in curve.parts}
    only = attempts.pop() if len(attempts) == 1 else None
    choice = Choice([name], attempt=only, kinds=(*NOT_RESOURCES, "resource"))
    found = {(c.kind, c.replica, c.process): c for c in find(connection, uid, choice, heads) if c.name == name}
    order = (*NOT_RESOURCES, "resource")

    def companion(curve: Curve) -> Curve | None:
        keys = [(kind, curve.replica, curve.process) for kind in (curve.kind, *order)]
        return next((found[key] for key in keys if key in found), None)

    return [companion(curve) for curve in wanted]


def incarnations(curve: Curve) -> list[list[Part]]:
    return [list(mates) for _, mates in groupby(curve.parts, key=lambda part: part.incarnation)]


def overlapping(mates: Sequence[Part]) -> bool:
    """Whether streams of one incarnation wrote at the same time."""
    return any(one.last_time > two.first_time for one, two in pairwise(mates))


def on_axis(column: Ints, axis: str, started: float) -> Floats:
    if axis == STEP:
        return column.astype(np.float64)
    if axis == RELATIVE:
        return (column - round(started * 1e6)) / 1e6
    return column / 1e6


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of the patterns, or meets one; with none of them, always."""
    return not patterns or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def chosen(points: Points, which: Any) -> Points:
    return Points(points.steps[which], points.times[which], points.values[which])


def _whole_points(connection: Connection, part: Part) -> Points:
    pieces = []
    if part.series is not None:
        query = select(chunks.c.data).where(chunks.c.series == part.series).order_by(chunks.c.number)
        pieces += [codec.decode(data) for data in connection.execute(query).scalars()]
    if part.head is not None:
        pieces.append(part.head)
    return codec.join(pieces)


def _streams(connection: Connection, uid: str, choice: Choice) -> dict[str, Mapping[str, Any]]:
    keys = ("stream", "attempt", "replica", "try", "process", "rank", "restart", "kind", "started")
    query = select(*[streams.c[key] for key in keys]).where(streams.c.uid == uid, streams.c.kind.in_(choice.kinds))
    if choice.process is not None:
        query = query.where(streams.c.process == choice.process)
    if choice.attempt is not None:
        query = query.where(streams.c.attempt == choice.attempt)
    rows = connection.execute(query).mappings()
    return {row["stream"]: dict(row) for row in rows if matches(row["replica"], choice.replicas)}


def _series(connection: Connection, uid: str, names: Sequence[str]) -> Sequence[Any]:
    keys = ("id", "stream", "name", "min_step", "first_time", "last_time")
    query = select(*[series.c[key] for key in keys], series.c.count.label("points")).where(series.c.uid == uid)
    if names and len(names) <= BATCH and not any(map(_is_pattern, names)):
        query = query.where(series.c.name.in_(names))
    return connection.execute(query).all()


def _key(stream: Mapping[str, Any], name: str) -> tuple[str, str, str, int]:
    return stream["kind"], name, stream["replica"], stream["process"]


def _cut(curve: Curve) -> None:
    """Tells each part from which step on a later incarnation counts; parts of one follow each other by time."""
    lives = [sorted(mates, key=lambda part: part.first_time) for mates in incarnations(curve)]
    smallest = [min(part.min_step for part in mates) for mates in lives]
    for mates, cut in zip(lives, charts.cuts(smallest), strict=True):
        for part in mates:
            part.cut = cut
    curve.parts = [part for mates in lives for part in mates]


def _is_pattern(name: str) -> bool:
    return not set(name).isdisjoint("*?[")
