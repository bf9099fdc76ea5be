"""Series: heads made into chunks, and what can be said of a series without reading its points.

A series is one metric of one stream. Its chunks are counted by the place of their first point, so a chunk's number and
count tell which points it holds. New points are merged with the newest chunks while those are at most twice as large:
each point is written a few times at most, and a long series is nearly all full chunks. When its stream is over, the
rest is merged too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from shoal import journal
from shoal.store import chunks as codec
from shoal.store import defined
from shoal.store import heads as reading
from shoal.store.chunks import SIZE, Floats, Points
from shoal.store.tables import chunks, heads, series, streams

Row = Mapping[str, Any]
Extremes = tuple[float | None, float | None]
Group = journal.Group | reading.Group
_Moment = tuple[int, float, int]  # the frame, then time and step within: clocks may jump between two frames

NOT_RESOURCES = ("metric", "tensorboard", "import")
OF_STREAM = ("attempt", "replica", "try", "process", "rank", "restart", "kind", "started")


def compact(connection: Connection, stream: Row) -> None:
    """Moves the head of a stream into chunks. When the stream is closed, its small chunks become large ones."""
    key = stream["stream"]
    columns = reading.read(connection, key)
    query = select(series).where(series.c.stream == key)
    before: dict[str, Row] = {row["name"]: dict(row) for row in connection.execute(query).mappings()}
    tails = _tails(connection, key)
    new = {name: columns.points(name) for name in columns}
    ids = _summarised(connection, stream, before, new)
    names = {number: name for name, number in ids.items()}
    wanted = set(ids) if stream["closed"] else set(new)
    merged: list[
        tuple[int, int, list[int], Points | None]
    ] = []  # series, first place, places of old chunks, new points
    for number, name in names.items():
        if name not in wanted:
            continue
        points = new.get(name)
        at = before[name]["count"] if name in before else 0
        size = len(points.steps) if points is not None else 0
        old: list[int] = []
        for place, count in reversed(tails.get(number, [])):
            if not (stream["closed"] or count <= 2 * size):
                break
            old.insert(0, place)
            at, size = place, size + count
        if points is not None or len(old) > 1:
            merged.append((number, at, old, points))
    _rewritten(connection, merged)
    connection.execute(delete(heads).where(heads.c.stream == key))


def remove(connection: Connection, uid: str) -> None:
    """Deletes every point of an experiment; before its streams are forgotten."""
    mine = select(series.c.id).where(series.c.uid == uid)
    connection.execute(delete(chunks).where(chunks.c.series.in_(mine)))
    connection.execute(delete(series).where(series.c.uid == uid))
    connection.execute(delete(heads).where(heads.c.stream.in_(select(streams.c.stream).where(streams.c.uid == uid))))


def summary_of(points: Points) -> dict[str, Any]:
    """The columns of table series that points have by themselves. NaN is None."""
    steps, times, values = points
    return {
        "count": len(steps),
        "first_step": int(steps[0]),
        "last_step": int(steps[-1]),
        "min_step": int(steps.min()),
        "max_step": int(steps.max()),
        "first_time": int(times[0]) / 1e6,
        "last_time": int(times[-1]) / 1e6,
        "last": _number(values[-1]),
        "min": _number(np.fmin.reduce(values)),
        "max": _number(np.fmax.reduce(values)),
    }


def added(first: Row, second: Row) -> dict[str, Any]:
    """The summary of points and of points after them."""
    return {
        "count": first["count"] + second["count"],
        **{key: first[key] for key in ("first_step", "first_time")},
        **{key: second[key] for key in ("last_step", "last_time", "last")},
        "min_step": min(first["min_step"], second["min_step"]),
        "max_step": max(first["max_step"], second["max_step"]),
        "min": min((row["min"] for row in (first, second) if row["min"] is not None), default=None),
        "max": max((row["max"] for row in (first, second) if row["max"] is not None), default=None),
    }


class Summaries:
    """What is known of series whose points are still in heads. One fold for all names of a call: nothing per name."""

    def __init__(self) -> None:
        self._streams: dict[str, tuple[dict[str, Any], dict[tuple[str, ...], _Fold]]] = {}
        self._of: dict[str, set[str]] = {}
        self._turn = 0
        self._lock = threading.Lock()

    def add(self, stream: Row, frames: Iterable[Iterable[Group]]) -> None:
        """Points that are in the head of the stream from now on: the groups of one frame after another."""
        with self._lock:
            told = {key: stream[key] for key in ("stream", "uid", *OF_STREAM)}
            folds = self._streams.setdefault(stream["stream"], (told, {}))[1]
            self._of.setdefault(stream["uid"], set()).add(stream["stream"])
            for groups in frames:
                self._turn += 1
                for group in groups:
                    if not len(group.times):
                        continue
                    fold = folds.get(group.names)
                    if fold is None:
                        fold = folds[group.names] = _Fold()
                    fold.add(self._turn, group)

    def forget(self, stream: str) -> None:
        """Its head is in chunks, or removed."""
        with self._lock:
            known = self._streams.pop(stream, None)
            if known is not None:
                mine = self._of[known[0]["uid"]]
                mine.discard(stream)
                if not mine:
                    del self._of[known[0]["uid"]]

    def of(self, uid: str, only: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Rows like those of table series, with the columns of their streams; of all streams, or of some."""
        with self._lock:
            found = []
            known = self._of.get(uid, set())
            for stream in sorted(known if only is None else known.intersection(only)):
                told, folds = self._streams[stream]
                rows: dict[str, tuple[_Moment, dict[str, Any]]] = {}
                # In the order of their last calls, so that what is said last stays last.
                for names, fold in sorted(folds.items(), key=lambda item: item[1].ended):
                    for name, row in fold.rows(names):
                        if name in rows:
                            other_began, other = rows[name]
                            joined = added(other, row)
                            if fold.began < other_began:
                                joined |= {key: row[key] for key in ("first_step", "first_time")}
                            rows[name] = min(fold.began, other_began), joined
                        else:
                            rows[name] = fold.began, row
                found += [{**told, "name": name, **row} for name, (_, row) in rows.items()]
            return found

    def streams(self, uid: str) -> set[str]:
        """Of which it knows something."""
        with self._lock:
            return set(self._of.get(uid, ()))

    def extremes(self, uid: str, only: Collection[str]) -> dict[str, Extremes]:
        """name -> minimum and maximum in the heads of some streams, resources left out; None where all is NaN."""
        found: dict[str, Extremes] = {}
        with self._lock:
            alike: dict[tuple[str, ...], list[_Fold]] = {}
            for stream in self._of.get(uid, set()).intersection(only):
                told, folds = self._streams[stream]
                if told["kind"] in NOT_RESOURCES:
                    for names, fold in folds.items():
                        alike.setdefault(names, []).append(fold)
            for names, many in alike.items():
                low = np.fmin.reduce([fold.min for fold in many]).tolist()
                high = np.fmax.reduce([fold.max for fold in many]).tolist()
                for name, least, most in zip(names, low, high, strict=True):
                    found[name] = _wider(found.get(name), (_number(least), _number(most)))
        return found


def summaries_of(
    connection: Connection, uid: str, live: Summaries | None, only: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """One row for each series of an experiment (or of some of its streams), with the columns of its stream.

    What `live` does not know (the server has just begun) is read from the heads.
    """
    columns = [streams.c[key] for key in OF_STREAM]
    query = select(series, *columns).join(streams, streams.c.stream == series.c.stream).where(series.c.uid == uid)
    if only is not None:
        query = query.where(series.c.stream.in_(only))
    found = {(row["stream"], row["name"]): dict(row) for row in connection.execute(query).mappings()}
    told, unknown = _open(connection, uid, live)
    for stream in told + unknown if only is None else [stream for stream in told + unknown if stream in only]:
        rows = live.of(uid, [stream]) if live is not None and stream in told else _read_rows(connection, stream)
        for row in rows:
            key = stream, row["name"]
            found[key] = {**found[key], **added(found[key], row)} if key in found else row
    return list(found.values())


def metrics_of(connection: Connection, uid: str, summaries: Summaries | None) -> dict[str, dict[str, Any]]:
    """name -> {last, min, max, step, time}: `last` of the lowest rank in the newest attempt, `min` and `max` of all.

    Where the script said what stands for a metric, that is its `value`; numbers it set by hand are metrics too.
    NaN and infinities are strings, as in JSON. Thousands of series cost little: all but one stream only take part in
    the extremes, which are not computed row by row.
    """
    extremes = _extremes(connection, uid, summaries)
    keys = ("stream", "attempt", "rank", "try", "restart")
    query = select(*[streams.c[key] for key in keys]).where(streams.c.uid == uid, streams.c.kind.in_(NOT_RESOURCES))
    order = {
        row["stream"]: (row["attempt"], -row["rank"], row["try"], row["restart"])
        for row in connection.execute(query).mappings()
    }
    best: dict[str, tuple[tuple[Any, ...], Row]] = {}
    first = [stream for stream, place in order.items() if place == max(order.values())]
    for only in (first, None):  # what the first rank did not log is looked for everywhere
        if len(best) == len(extremes):
            break
        known = set(best)
        for row in summaries_of(connection, uid, summaries, only):
            if row["stream"] in order and row["name"] not in known:
                place = (*order[row["stream"]], row["last_time"])
                if row["name"] not in best or place > best[row["name"]][0]:
                    best[row["name"]] = place, row
    found = {
        name: {
            "last": json_number(row["last"]),
            "min": json_number(extremes[name][0]),
            "max": json_number(extremes[name][1]),
            "step": row["last_step"],
            "time": row["last_time"],
        }
        for name, (_, row) in sorted(best.items())
    }
    return defined.with_values(connection, uid, found, NOT_RESOURCES)


def json_number(value: float | None) -> float | str:
    """As JSON can say it; None, which is how NaN is kept, is NaN."""
    if value is None or math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


class _Fold:
    """All calls of one stream that logged the same names, folded into one row for each name."""

    def __init__(self) -> None:
        self.count = 0
        self.began: _Moment = (0, 0.0, 0)
        self.ended: _Moment = (0, 0.0, 0)
        self.steps = (0, 0)  # smallest, largest
        self.last: Floats = np.empty(0)
        self.min: Floats = np.empty(0)
        self.max: Floats = np.empty(0)

    def add(self, turn: int, group: Group) -> None:
        rows = len(group.times)
        values, steps = _matrix(group), np.asarray(group.steps)
        # Nothing here may hold on to the points themselves: they may be megabytes.
        last = low = high = values[:, -1].copy()
        if rows > 1:
            low, high = np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
        smallest, largest = int(steps.min()), int(steps.max())
        if self.count:
            low, high = np.fmin(self.min, low), np.fmax(self.max, high)
            smallest, largest = min(smallest, self.steps[0]), max(largest, self.steps[1])
        else:
            self.began = turn, _moment(group.times[0]), int(steps[0])
        self.ended = turn, _moment(group.times[-1]), int(steps[-1])
        self.steps = smallest, largest
        self.last, self.min, self.max = last, low, high
        self.count += rows

    def rows(self, names: tuple[str, ...]) -> Iterable[tuple[str, dict[str, Any]]]:
        _, first_time, first_step = self.began
        _, last_time, last_step = self.ended
        shared = {
            "count": self.count,
            "first_step": first_step,
            "last_step": last_step,
            "min_step": self.steps[0],
            "max_step": self.steps[1],
            "first_time": first_time,
            "last_time": last_time,
        }
        columns = zip(names, self.last.tolist(), self.min.tolist(), self.max.tolist(), strict=True)
        for name, last, low, high in columns:
            yield name, {**shared, "last": _number(last), "min": _number(low), "max": _number(high)}


def _extremes(connection: Connection, uid: str, live: Summaries | None) -> dict[str, Extremes]:
    """name -> minimum and maximum over all series, resources left out."""
    query = select(series.c.name, func.min(series.c.min), func.max(series.c.max))
    query = query.join(streams, streams.c.stream == series.c.stream)
    query = query.where(series.c.uid == uid, streams.c.kind.in_(NOT_RESOURCES)).group_by(series.c.name)
    found: dict[str, Extremes] = {name: (low, high) for name, low, high in connection.execute(query)}
    told, unknown = _open(connection, uid, live)
    more = live.extremes(uid, told) if live is not None else {}
    for name, extremes in more.items():
        found[name] = _wider(found.get(name), extremes)
    for stream in unknown:
        for row in _read_rows(connection, stream):
            if row["kind"] in NOT_RESOURCES:
                found[row["name"]] = _wider(found.get(row["name"]), (row["min"], row["max"]))
    return found


def _open(connection: Connection, uid: str, live: Summaries | None) -> tuple[list[str], list[str]]:
    """Streams that have heads: those of which `live` knows, and the others. Of a stream that has none, it knows what
    is in chunks already."""
    mine = select(heads.c.stream).join(streams, streams.c.stream == heads.c.stream).where(streams.c.uid == uid)
    found = set(connection.execute(mine.distinct()).scalars())
    known = live.streams(uid) if live is not None else set()
    return sorted(found & known), sorted(found - known)


def _read_rows(connection: Connection, stream: str) -> list[dict[str, Any]]:
    """What `Summaries.of` would tell of a stream."""
    query = select(*[streams.c[key] for key in ("stream", "uid", *OF_STREAM)]).where(streams.c.stream == stream)
    its = dict(connection.execute(query).mappings().one())
    head = reading.read(connection, stream)
    return [{**its, "name": name, **summary_of(head.points(name))} for name in head]


def _wider(one: Extremes | None, two: Extremes) -> Extremes:
    lows = [value for value in (one[0] if one else None, two[0]) if value is not None]
    highs = [value for value in (one[1] if one else None, two[1]) if value is not None]
    return min(lows, default=None), max(highs, default=None)


def _matrix(group: Group) -> Floats:
    """The values, a row for each name."""
    return group.values if isinstance(group.values, np.ndarray) else np.array(group.values, np.float64)


def _moment(time: float) -> float:
    """As the codec keeps it."""
    return int(reading.microseconds(np.array([time]))[0]) / 1e6


def _tails(connection: Connection, stream: str) -> dict[int, list[tuple[int, int]]]:
    """series -> (place, count) of its chunks that are not full, in order. They lie among its last points: each is
    less than half as large as the one before it."""
    query = (
        select(chunks.c.series, chunks.c.number, chunks.c.count)
        .join(series, series.c.id == chunks.c.series)
        .where(series.c.stream == stream, chunks.c.number > series.c.count - 2 * SIZE, chunks.c.count < SIZE)
        .order_by(chunks.c.series, chunks.c.number)
    )
    found: dict[int, list[tuple[int, int]]] = {}
    for number, place, count in connection.execute(query):
        found.setdefault(number, []).append((place, count))
    return found


def _summarised(
    connection: Connection, stream: Row, before: Mapping[str, Row], new: Mapping[str, Points]
) -> dict[str, int]:
    """Keeps the summaries with the new points in them; name -> id of every series of the stream."""
    ids = {name: int(row["id"]) for name, row in before.items()}
    fresh, known = [], []
    for name, points in new.items():
        summary = summary_of(points)
        if name in before:
            known.append({"key": ids[name], **added(before[name], summary)})
        else:
            fresh.append({"stream": stream["stream"], "uid": stream["uid"], "name": name, **summary})
    if known:
        changed: dict[str, Any] = {key: bindparam(key) for key in known[0] if key != "key"}
        connection.execute(update(series).where(series.c.id == bindparam("key")).values(changed), known)
    if fresh:
        connection.execute(insert(series), fresh)
        mine = select(series.c.name, series.c.id).where(series.c.stream == stream["stream"])
        ids = {name: int(number) for name, number in connection.execute(mine)}
    return ids


def _rewritten(connection: Connection, merged: Sequence[tuple[int, int, list[int], Points | None]]) -> None:
    """Old chunks and new points become chunks of full size and a rest."""
    gone = [{"its": number, "place": place} for number, _, old, _ in merged for place in old]
    rows: list[dict[str, Any]] = []
    its = (chunks.c.series == bindparam("its"), chunks.c.number == bindparam("place"))
    read = select(chunks.c.data).where(*its)
    for number, at, old, points in merged:
        parts = [codec.decode(connection.execute(read, {"its": number, "place": place}).scalar_one()) for place in old]
        rows += [{"series": number, **row} for row in packed(codec.join([*parts, *([points] if points else [])]), at)]
    if gone:
        connection.execute(delete(chunks).where(*its), gone)
    if rows:
        connection.execute(insert(chunks), rows)


def packed(points: Points, at: int) -> list[dict[str, Any]]:
    """Points that begin at place `at` of a series, as rows of table chunks."""
    rows = []
    for start in range(0, len(points.steps), SIZE):
        here = slice(start, start + SIZE)
        part = Points(points.steps[here], points.times[here], points.values[here])
        place = at + start
        rows.append(
            {
                "number": place,
                "count": len(part.steps),
                "min_step": int(part.steps.min()),
                "max_step": int(part.steps.max()),
                "min_time": int(part.times.min()) / 1e6,
                "max_time": int(part.times.max()) / 1e6,
                "groups": codec.encode_groups(codec.summarise(part, place), place),
                "data": codec.encode(part),
            }
        )
    return rows


def _number(value: Any) -> float | None:
    """For a column in which NULL is NaN."""
    return None if value != value else float(value)
