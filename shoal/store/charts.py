"""Down-sampling and aggregation. Pure: arrays in, arrays out.

The axis is cut at the multiples of a power of two. A point belongs to the bucket that its x lies in; where groups of
points are small against a bucket, to the bucket of its group's first point, when it lies within half a bucket of that.
So minimum, maximum and count of every bucket are exact for the points in it, every point is in one bucket, and new
points change the last bucket only, until the width doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.store.chunks import Floats, Ints, Spans, Stats

Mask = NDArray[np.bool_]


class Rows(NamedTuple):
    """What goes into buckets, in the order of the points: groups of points, or single ones."""

    key: Floats  # the x that tells the bucket
    low: Floats
    high: Floats
    min: Floats
    at_min: Floats
    max: Floats
    at_max: Floats
    last: Floats
    sum: Floats
    points: Ints
    finite: Ints


class Buckets(NamedTuple):
    """Buckets that are not empty. `x_first` and `x_last` are the smallest and the largest x, `mean` is of the
    `finite` ones among the `points`; `min` and `max` are NaN where all is NaN, and lie at `min_x` and `max_x`."""

    start: Floats
    x_first: Floats
    x_last: Floats
    min: Floats
    min_x: Floats
    max: Floats
    max_x: Floats
    last: Floats
    mean: Floats
    points: Ints
    finite: Ints


class Aggregate(NamedTuple):
    """Several curves as one. Minimum and maximum are of all points; mean and percentiles of the curves' means.

    `min_of` and `max_of` tell which curve it is, -1 for none; `curves` how many have points in the bucket.
    """

    start: Floats
    x_first: Floats
    x_last: Floats
    min: Floats
    min_of: Ints
    mean: Floats
    max: Floats
    max_of: Ints
    p50: Floats
    p95: Floats
    points: Ints
    finite: Ints
    curves: Ints


def width_for(low: float, high: float, most: int, smallest: float = 0.0) -> float:
    """The least power of two, not below `smallest`, of which at most `most` (two or more) cover low to high."""
    most = max(2, most)
    finest = math.frexp(max(abs(low), abs(high), 1e-290))[1] - 50  # below it neighbours cannot be told apart
    spread = high / most - low / most
    exponent = max(finest, math.frexp(spread)[1] - 1 if spread > 0 else finest)
    if smallest:
        exponent = max(exponent, math.frexp(smallest)[1] - 1)
    while exponent < 1023 and math.floor(math.ldexp(high, -exponent)) - math.floor(math.ldexp(low, -exponent)) >= most:
        exponent += 1
    return math.ldexp(1.0, exponent)


def rows_of_points(x: Floats, values: Floats, key: Floats | None = None) -> Rows:
    """A row for each point."""
    finite = np.isfinite(values)
    sums = np.where(finite, values, 0.0)
    ones = np.ones(len(x), np.int64)
    return Rows(x if key is None else key, x, x, values, x, values, x, values, sums, ones, finite.astype(np.int64))


def rows_of_groups(key: Floats, spans: tuple[Floats, ...], stats: Stats, counts: Ints) -> Rows:
    """A row for each group; `spans` is Spans on the axis of the chart."""
    _, low, high, at_min, at_max = spans
    finite = counts - stats.nans - stats.infs
    return Rows(key, low, high, stats.min, at_min, stats.max, at_max, stats.last, stats.sum, counts, finite)


def ordered(parts: Sequence[tuple[Rows, Ints]]) -> Rows:
    """Rows of several kinds in the order of their places; those of one place stay as they are."""
    if len(parts) == 1:
        return parts[0][0]
    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
    columns = zip(*[rows for rows, _ in parts], strict=True)
    return Rows._make(np.concatenate(column)[order] for column in columns)


def joined(rows: Sequence[Rows]) -> Rows:
    """Rows after rows."""
    if len(rows) == 1:
        return rows[0]
    return Rows._make(np.concatenate(columns) for columns in zip(*rows, strict=True)) if rows else _NO_ROWS


def together(spans: Spans | tuple[Floats, ...], fresh: Mask, gap: Mask, width: float) -> tuple[Mask, Floats]:
    """Whether the points of a piece go with the first of their group, and where that is.

    Pieces are groups, or parts of groups that a chunk's end cut: `fresh` are those that begin a group, `gap` those that
    do not follow the piece before. The group before decides, so that nothing changes while a group grows: it is small
    when it is not wider than half a bucket.
    """
    first, low, high = (np.asarray(column, np.float64) for column in spans[:3])
    if fresh.all():
        starts = owner = np.arange(len(fresh))
        small = high - low <= width / 2
    else:
        starts = np.flatnonzero(fresh)
        owner = np.cumsum(fresh) - 1
        small = np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts) <= width / 2
    chosen = np.zeros(len(starts), bool)
    chosen[1:] = small[:-1]
    chosen[gap[starts]] = False
    return chosen[owner], first[starts][owner]


def bucketed(rows: Rows, width: float) -> Buckets:
    """The rows in buckets, in the order of x. Of a bucket the last row tells its last value."""
    places = np.floor(rows.key / width)
    if len(places) > 1 and (places[1:] < places[:-1]).any():
        order = np.argsort(places, kind="stable")
        places = places[order]
        rows = Rows._make(column[order] for column in rows)
    if not len(places):
        return Buckets._make(column[:0] for column in (*rows[:9], rows.points, rows.finite))
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    ends = np.append(starts[1:], len(places)) - 1
    counts = ends - starts + 1
    low, high = np.fmin.reduceat(rows.min, starts), np.fmax.reduceat(rows.max, starts)
    finite = np.add.reduceat(rows.finite, starts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.where(finite > 0, np.add.reduceat(rows.sum, starts) / finite, np.nan)
    return Buckets(
        places[starts] * width,
        np.minimum.reduceat(rows.low, starts),
        np.maximum.reduceat(rows.high, starts),
        low,
        rows.at_min[_first(rows.min, low, starts, counts)],
        high,
        rows.at_max[_first(rows.max, high, starts, counts)],
        rows.last[ends],
        mean,
        np.add.reduceat(rows.points, starts),
        finite,
    )


def aggregated(curves: Sequence[Buckets]) -> Aggregate:
    """Curves with buckets of one width as one curve."""
    starts = np.unique(np.concatenate([curve.start for curve in curves])) if curves else np.empty(0)
    shape = (len(curves), len(starts))
    low, high, mean, x_first, x_last = (np.full(shape, np.nan) for _ in range(5))
    count, finite = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for number, curve in enumerate(curves):
        at = np.searchsorted(starts, curve.start)
        low[number, at], high[number, at], mean[number, at] = curve.min, curve.max, curve.mean
        x_first[number, at], x_last[number, at], count[number, at] = curve.x_first, curve.x_last, curve.points
        finite[number, at] = curve.finite
    valued = np.sort(mean, axis=0)  # NaN comes last
    known = np.count_nonzero(~np.isnan(mean), axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.where(known > 0, np.nansum(mean, axis=0) / np.maximum(known, 1), np.nan)
    least, most = np.fmin.reduce(low, axis=0, initial=np.nan), np.fmax.reduce(high, axis=0, initial=np.nan)
    return Aggregate(
        starts,
        np.fmin.reduce(x_first, axis=0, initial=np.nan),
        np.fmax.reduce(x_last, axis=0, initial=np.nan),
        least,
        _whose(low, least),
        means,
        most,
        _whose(high, most),
        _percentile(valued, known, 0.50),
        _percentile(valued, known, 0.95),
        count.sum(axis=0),
        finite.sum(axis=0),
        np.count_nonzero(count, axis=0),
    )


def matched(steps: Ints, other_steps: Ints, other_values: Floats) -> tuple[Ints, Floats]:
    """Which of the steps another metric has too, and its last value there."""
    order = np.argsort(other_steps, kind="stable")
    known = other_steps[order]
    places = np.searchsorted(known, steps, side="right") - 1
    here = np.flatnonzero((places >= 0) & (known[np.maximum(places, 0)] == steps)) if len(known) else places[:0]
    return here, other_values[order[places[here]]]


def cuts(incarnations: Sequence[int]) -> list[int | None]:
    """The smallest steps of incarnations in their order -> before which step the points of each count.

    A later one replaces the steps from its first one on; None for the last, which counts whole.
    """
    found: list[int | None] = []
    least: int | None = None
    for smallest in reversed(incarnations):
        found.append(least)
        least = smallest if least is None else min(least, smallest)
    return found[::-1]


_NO_ROWS = Rows._make([*[np.empty(0)] * 9, *[np.empty(0, np.int64)] * 2])


def _first(values: Floats, wanted: Floats, starts: Ints, counts: Ints) -> Ints:
    """Of each bucket the place of its first row with the wanted value; of its first row when that is NaN."""
    equal = np.flatnonzero(values == np.repeat(wanted, counts))
    places = starts.copy()
    owner = np.searchsorted(starts, equal, side="right") - 1
    places[owner[::-1]] = equal[::-1]
    return places


def _whose(values: Floats, best: Floats) -> Ints:
    """The first curve that has the extreme; -1 where no curve has a value."""
    has = values == best
    return np.where(has.any(axis=0), np.argmax(has, axis=0), -1) if len(values) else np.full(len(best), -1)


def _percentile(ascending: Floats, known: Ints, part: float) -> Floats:
    """Between neighbours in proportion; of the first `known` values of each column."""
    if not len(ascending):
        return np.full(len(known), np.nan)
    place = part * np.maximum(known - 1, 0)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(known - 1, 0))
    low = np.take_along_axis(ascending, below[None, :], axis=0)[0]
    high = np.take_along_axis(ascending, above[None, :], axis=0)[0]
    with np.errstate(invalid="ignore", over="ignore"):
        found: Floats = np.where(below == above, low, low + (high - low) * (place - below))
    return found
