"""Draws curves: reads groups for what is far away and points for what is near, and puts them into buckets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, or_, select, tuple_

from shoal.store import charts
from shoal.store import chunks as codec
from shoal.store.charts import Buckets, Mask, Rows
from shoal.store.chunks import GROUP, SIZE, Floats, Groups, Points, Stats
from shoal.store.curves import (
    BATCH,
    RELATIVE,
    STEP,
    TIME,
    Curve,
    Part,
    against,
    axis_of,
    incarnations,
    on_axis,
    overlapping,
    points_of,
)
from shoal.store.tables import chunks

MOST_BYTES = 64 << 20  # of decoded groups that are kept


class Outlines:
    """Decoded groups of full chunks that were asked for lately: those never change, and a live chart asks again."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._size = 0
        self._known: OrderedDict[tuple[int, tuple[str, ...]], Groups] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, number: int, parts: tuple[str, ...]) -> Groups | None:
        """Of a series, from its first point on."""
        with self._lock:
            if (number, parts) in self._known:
                self._known.move_to_end((number, parts))
            return self._known.get((number, parts))

    def keep(self, number: int, parts: tuple[str, ...], groups: Groups) -> None:
        with self._lock:
            self._drop((number, parts))
            self._known[number, parts] = groups
            self._size += _bytes(groups)
            while self._size > self._most:
                self._drop(next(iter(self._known)))

    def _drop(self, key: tuple[int, tuple[str, ...]]) -> None:
        gone = self._known.pop(key, None)
        self._size -= _bytes(gone) if gone is not None else 0


class Chart(NamedTuple):
    """Buckets of one width for each curve."""

    width: float
    curves: list[Buckets]


def chart(
    connection: Connection,
    curves: Sequence[Curve],
    axis: str = STEP,
    low: float = -np.inf,
    high: float = np.inf,
    most: int = 1000,
    others: Sequence[Curve | None] = (),
    outlines: Outlines | None = None,
    least: float = 0.0,
) -> Chart:
    """The curves from `low` to `high` in about `most` buckets, not narrower than `least`, a power of two.

    With another metric as axis, `others` are its curves.
    """
    if axis not in (STEP, TIME, RELATIVE):
        pairs = [against(connection, curve, other) for curve, other in zip(curves, others, strict=True)]
        raw = [(x, points.values) for x, points in pairs]
        return _chart_of_points(raw, low, high, most, least)
    smallest = max(least, 1.0 if axis == STEP else 0.0)
    plain = [curve for curve in curves if not any(map(overlapping, incarnations(curve)))]
    made = _views(connection, plain, axis, low, high, outlines or Outlines())
    views = {id(curve): view for curve, view in zip(plain, made, strict=True)}
    merged: dict[int, tuple[Floats, Floats]] = {}
    for curve in curves:
        if id(curve) not in views:
            points = points_of(connection, curve)
            x = axis_of(curve, points, axis)
            inside = (x >= low) & (x <= high)
            merged[id(curve)] = x[inside], points.values[inside]
    extents = [view.extent(low, high) for parts in views.values() for view in parts]
    extents += [(float(x.min()), float(x.max())) for x, _ in merged.values() if len(x)]
    lows, highs = [e[0] for e in extents if e[0] <= e[1]], [e[1] for e in extents if e[0] <= e[1]]
    width = charts.width_for(min(lows), max(highs), most, smallest) if lows else smallest or 1.0
    for parts in views.values():
        for view in parts:
            view.decide(width)
    _load(connection, [view for parts in views.values() for view in parts])
    found = []
    for curve in curves:
        if id(curve) in views:
            rows = charts.joined([view.rows(width, low, high) for view in views[id(curve)]])
        else:
            rows = charts.rows_of_points(*merged[id(curve)])
        found.append(charts.bucketed(rows, width))
    return Chart(width, found)


class View:
    """One part of a curve on an axis: its pieces (groups as they lie in chunks), and points where they are needed."""

    def __init__(self, part: Part, axis: str, started: float) -> None:
        self.part = part
        self.axis = axis
        self.started = started
        self.chunks: list[tuple[int, int]] = []  # place and count of each chunk
        self.sizes: list[int] = []  # pieces of each
        self.data: dict[int, Points] = {}
        self.pieces: list[Groups] = []

    def add(self, mine: Sequence[tuple[int, int]], sizes: Sequence[int], groups: Groups) -> None:
        """Chunks that follow, with their groups; one size may stand for all."""
        self.chunks += mine
        self.sizes += sizes if len(sizes) == len(mine) else [sizes[0]] * len(mine)
        self.pieces.append(groups)

    def full(self) -> Groups:
        """The groups of the full chunks from the first point on: those never change again."""
        count = sum(size for size, (_, points) in zip(self.sizes, self.chunks, strict=True) if points == SIZE)
        return _sliced(_after_each_other(self.pieces), 0, count, copy=True)

    def complete(self, low: float, high: float) -> None:
        """All chunks are there: the head follows, and what lies outside is known."""
        head = self.part.head
        if head is not None:
            groups = codec.summarise(head, self.part.count)
            self.add([(self.part.count, len(head.steps))], [len(groups.counts)], groups)
            self.data[len(self.chunks) - 1] = head
        self.empty = not self.pieces
        if self.empty:
            return
        groups = _after_each_other(self.pieces)
        spans = groups.steps if self.axis == STEP else groups.times
        assert spans is not None
        assert groups.stats is not None
        self.counts, self.stats = groups.counts, groups.stats
        self.spans = tuple(on_axis(column, self.axis, self.started) for column in spans)
        below, above = self.spans[1], self.spans[2]
        self.outside: Mask = (above < low) | (below > high)
        self.partly: Mask = ~self.outside & ((below < low) | (above > high))
        if self.part.cut is not None:
            assert groups.steps is not None
            self.outside |= groups.steps.low >= self.part.cut
            self.partly = ~self.outside & (self.partly | (groups.steps.high >= self.part.cut))

    def extent(self, low: float, high: float) -> tuple[float, float]:
        """From where to where it goes; the wrong way round when there is nothing."""
        if self.empty or self.outside.all():
            return np.inf, -np.inf
        inside = ~self.outside
        first, last = float(self.spans[1][inside].min()), float(self.spans[2][inside].max())
        if self.part.cut is not None and self.axis == STEP:
            last = min(last, float(self.part.cut - 1))
        return max(first, low), min(last, high)

    def decide(self, width: float) -> None:
        """Which pieces are taken as they are, and of which the points are needed."""
        if self.empty:
            return
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        begins = np.concatenate(([True], owner[1:] != owner[:-1]))
        places = np.array([place for place, _ in self.chunks])
        follows = np.concatenate(([False], places[1:] == [place + count for place, count in self.chunks[:-1]]))
        cut = begins & (places % GROUP != 0)[owner]  # the first piece of a chunk that begins within a group
        gap = begins & ~follows[owner]
        self.together, self.key = charts.together(self.spans, ~cut | gap, gap, width)
        near = (self.spans[1] >= self.key - width / 2) & (self.spans[2] <= self.key + width / 2)
        self.taken = ~self.outside & ~self.partly & self.together & near
        self.wanted = ~self.outside & ~self.taken
        self.owner = owner

    def lacking(self) -> list[int]:
        """The chunks whose points are needed."""
        if self.empty:
            return []
        return [index for index in np.unique(self.owner[self.wanted]).tolist() if index not in self.data]

    def rows(self, width: float, low: float, high: float) -> Rows:
        """What goes into buckets, in the order of the points."""
        if self.empty:
            return charts.joined([])
        places = np.flatnonzero(self.taken)
        spans = tuple(column[places] for column in self.spans)
        stats = Stats._make(column[places] for column in self.stats)
        parts = [(charts.rows_of_groups(self.key[places], spans, stats, self.counts[places]), places)]
        needed = np.unique(self.owner[self.wanted]).tolist()
        if needed:
            of_needed = np.zeros(len(self.chunks), bool)
            of_needed[needed] = True
            pieces = np.flatnonzero(of_needed[self.owner])
            points = codec.join([self.data[index] for index in needed])
            of = np.repeat(pieces, self.counts[pieces])
            x = on_axis(points.steps if self.axis == STEP else points.times, self.axis, self.started)
            chosen = self.wanted[of] & (x >= low) & (x <= high)
            if self.part.cut is not None:
                chosen &= points.steps < self.part.cut
            x, values, of = x[chosen], points.values[chosen], of[chosen]
            key = self.key[of]
            key = np.where(self.together[of] & (np.abs(x - key) <= width / 2), key, x)
            parts.append((charts.rows_of_points(x, values, key), of))
        return charts.ordered(parts)


def _views(
    connection: Connection, curves: Sequence[Curve], axis: str, low: float, high: float, outlines: Outlines
) -> list[list[View]]:
    """The parts of every curve with the groups of their chunks, all of which are decoded in one go."""
    found = [[View(part, axis, curve.started) for part in curve.parts] for curve in curves]
    by_series = {view.part.series: view for views in found for view in views if view.part.series is not None}
    cut = any(view.part.cut is not None for view in by_series.values())
    wanted = ("stats", "steps" if axis == STEP else "times", *(["steps"] if cut and axis != STEP else []))
    ends: dict[int, int] = {}  # series -> the place up to which its groups are known
    for number, view in by_series.items():
        known = outlines.get(number, wanted)
        if known is not None:
            # Whoever saw a later state may have filled it: only what this one has in chunks counts.
            ends[number] = min(len(known.counts) * GROUP, view.part.count // SIZE * SIZE)
            known = _sliced(known, 0, ends[number] // GROUP)
        if known is not None and ends[number]:
            view.add([(place, SIZE) for place in range(0, ends[number], SIZE)], [SIZE // GROUP], known)
    bounds = _bounds(curves, axis, low, high)
    rows = _groups(connection, [(number, ends.get(number, 0)) for number in by_series], bounds)
    groups, sizes = codec.decode_groups([row.groups for row in rows], wanted)
    start = 0
    for number, mates in groupby(zip(rows, sizes.tolist(), strict=True), key=lambda pair: pair[0].series):
        pairs = list(mates)
        end = start + sum(size for _, size in pairs)
        mine = [(row.number, row.points) for row, _ in pairs]
        by_series[number].add(mine, [size for _, size in pairs], _sliced(groups, start, end))
        if not bounds and mine[0][1] == SIZE:
            outlines.keep(number, wanted, by_series[number].full())
        start = end
    for views in found:
        for view in views:
            view.complete(low, high)
    return found


def _load(connection: Connection, views: Sequence[View]) -> None:
    """Reads the points that are needed."""
    lacking = {(view.part.series, view.chunks[index][0]): (view, index) for view in views for index in view.lacking()}
    for key, points in _data(connection, list(lacking)):
        view, index = lacking[key]
        view.data[index] = points


def _data(connection: Connection, keys: Sequence[Any]) -> Iterable[tuple[Any, Points]]:
    for start in range(0, len(keys), BATCH):
        pair = tuple_(chunks.c.series, chunks.c.number)
        query = select(chunks.c.series, chunks.c.number, chunks.c.data).where(pair.in_(keys[start : start + BATCH]))
        for number, place, data in connection.execute(query):
            yield (number, place), codec.decode(data)


def _groups(connection: Connection, wanted: Sequence[tuple[int, int]], bounds: Sequence[Any]) -> list[Any]:
    """Chunks of series, each from a place on."""
    found: list[Any] = []
    for start in range(0, len(wanted), BATCH):
        few = wanted[start : start + BATCH]
        mine: ColumnElement[bool] = chunks.c.series.in_([number for number, _ in few])
        if any(place for _, place in few):
            mine = or_(*[and_(chunks.c.series == number, chunks.c.number >= place) for number, place in few])
        query = select(chunks.c.series, chunks.c.number, chunks.c.count.label("points"), chunks.c.groups)
        query = query.where(mine, *bounds).order_by(chunks.c.series, chunks.c.number)
        found += connection.execute(query).all()
    return found


def _bounds(curves: Sequence[Curve], axis: str, low: float, high: float) -> list[Any]:
    """Conditions for chunks that may have something in the range."""
    columns = (chunks.c.min_step, chunks.c.max_step) if axis == STEP else (chunks.c.min_time, chunks.c.max_time)
    starts = [curve.started for curve in curves] if axis == RELATIVE else [0.0]
    found = []
    if np.isfinite(low) and starts:
        found.append(columns[1] >= low + min(starts) - (0 if axis == STEP else 1e-3))
    if np.isfinite(high) and starts:
        found.append(columns[0] <= high + max(starts) + (0 if axis == STEP else 1e-3))
    return found


def _chart_of_points(
    curves: Sequence[tuple[Floats, Floats]], low: float, high: float, most: int, smallest: float
) -> Chart:
    kept = []
    for x, values in curves:
        inside = (x >= low) & (x <= high)
        kept.append((x[inside], values[inside]))
    some = [x for x, _ in kept if len(x)]
    width = smallest or 1.0
    if some:
        width = charts.width_for(float(min(x.min() for x in some)), float(max(x.max() for x in some)), most, smallest)
    return Chart(width, [charts.bucketed(charts.rows_of_points(x, values), width) for x, values in kept])


def _sliced(groups: Groups, start: int, end: int, *, copy: bool = False) -> Groups:
    """A part of them; with `copy` it does not keep the rest in memory."""
    return _each(lambda column: column[start:end].copy() if copy else column[start:end], [groups])


def _after_each_other(many: Sequence[Groups]) -> Groups:
    return many[0] if len(many) == 1 else _each(lambda *columns: np.concatenate(columns), many)


def _each(made: Callable[..., Any], many: Sequence[Groups]) -> Groups:
    """Makes every column of the columns of that name; of the parts that all of them have."""

    def part(parts: Sequence[Any]) -> Any:
        if any(one is None for one in parts):
            return None
        return type(parts[0])._make(made(*columns) for columns in zip(*parts, strict=True))

    counts = made(*[groups.counts for groups in many])
    return Groups(counts, *[part([groups[index] for groups in many]) for index in (1, 2, 3)])


def _bytes(groups: Groups) -> int:
    return sum(column.nbytes for part in groups[1:] if part is not None for column in part) + groups.counts.nbytes
