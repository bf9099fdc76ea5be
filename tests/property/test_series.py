"""Series against plain models: the codec, compaction, joining of attempts, down-sampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from shoal.store import charts, chunks, drawing, series
from shoal.store.charts import Buckets
from shoal.store.chunks import GROUP, SIZE, Points
from shoal.store.database import Database
from shoal.store.tables import chunks as chunk_table
from shoal.store.tables import heads as head_table
from tests.conftest import at_most
from tests.tracking import BEGAN, Recorded, same

FEWER = settings(max_examples=at_most(max(50, settings().max_examples // 4)))
WITH_A_DATABASE = settings(max_examples=at_most(max(50, settings().max_examples // 10)))

LARGEST = 2**63 - 1
integers = st.integers(-LARGEST - 1, LARGEST) | st.sampled_from([-LARGEST - 1, LARGEST, 0]) | st.integers(-5, 5)
floats = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    opened = Database(tmp_path_factory.mktemp("series") / "shoal.db")
    opened.take_lease()
    yield opened
    opened.close()


@st.composite
def any_points(draw: st.DrawFn, most: int = 300) -> Points:
    count = draw(st.integers(1, most))
    rows = draw(st.lists(st.tuples(integers, integers, floats), min_size=1, max_size=count))
    repeated = (rows * (count // len(rows) + 1))[:count]
    steps, times, values = zip(*repeated, strict=True)
    return Points(np.array(steps, np.int64), np.array(times, np.int64), np.array(values))


@st.composite
def curves(draw: st.DrawFn, *, forward: bool = False) -> Points:
    """Curves of up to a thousand points in runs of different pace, some of them backwards."""
    runs = draw(st.lists(st.tuples(st.integers(1, 300), st.integers(0 if forward else -3, 40)), min_size=1, max_size=5))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = np.cumsum(np.concatenate([np.full(count, pace) for count, pace in runs]))
    values = chance.normal(size=len(steps))
    strange = draw(st.sampled_from([0.0, 0.02, 0.9]))
    values = np.where(chance.random(len(steps)) < strange, chance.choice([np.nan, np.inf, -np.inf], len(steps)), values)
    pauses = chance.choice([1, 1000, 1000, 60_000_000], len(steps))
    return Points(steps, np.int64(BEGAN * 1e6) + np.cumsum(pauses), values)


@given(points=any_points())
@FEWER
def test_a_chunk_gives_back_what_was_put_into_it(points: Points) -> None:
    for kept, given_ in zip(chunks.decode(chunks.encode(points)), points, strict=True):
        assert same(kept, given_)


def test_a_full_chunk_of_noise_gives_back_what_was_put_into_it() -> None:
    chance = np.random.default_rng(1)
    bits = chance.integers(0, 2**64, (3, SIZE), np.uint64)
    points = Points(bits[0].view(np.int64), bits[1].view(np.int64), bits[2].view(np.float64))
    for kept, given_ in zip(chunks.decode(chunks.encode(points)), points, strict=True):
        assert same(kept, given_)


@given(many=st.lists(st.tuples(any_points(), st.integers(0, 200)), min_size=1, max_size=4))
@FEWER
def test_groups_tell_what_is_in_the_points(many: list[tuple[Points, int]]) -> None:
    blobs = [chunks.encode_groups(chunks.summarise(points, before), before) for points, before in many]
    kept, sizes = chunks.decode_groups(blobs)
    assert kept.steps is not None
    assert kept.times is not None
    assert kept.stats is not None
    row = 0
    for (points, before), size in zip(many, sizes.tolist(), strict=True):
        place = 0
        for number in range(size):
            end = min((before // GROUP + number + 1) * GROUP - before, len(points.steps))
            here = slice(place, end)
            values = points.values[here]
            real = values[~np.isnan(values)]
            low, high = (real.min(), real.max()) if len(real) else (math.nan, math.nan)
            assert kept.counts[row] == end - place
            assert same([kept.stats.min[row], kept.stats.max[row]], [low, high]) or low == 0 or high == 0
            assert same(kept.stats.last[row], values[-1])
            assert kept.stats.nans[row] == np.isnan(values).sum()
            assert kept.stats.infs[row] == np.isinf(values).sum()
            first = int(np.flatnonzero(values == low)[0]) if len(real) else 0
            for spans, column in ((kept.steps, points.steps[here]), (kept.times, points.times[here])):
                assert (spans.first[row], spans.low[row], spans.high[row]) == (column[0], column.min(), column.max())
                assert spans.at_min[row] == column[first]
            place, row = end, row + 1
        assert place == len(points.steps)
    assert row == len(kept.counts)


# One flush after another may come from a clock that was set back; within one, time goes on.
calls = st.lists(
    st.tuples(
        st.floats(BEGAN, BEGAN + 1e6),
        st.integers(-1000, 1000) | integers,
        st.dictionaries(st.sampled_from(["a", "b", "c", "é/🐟"]), floats, min_size=1, max_size=4),
    ),
    max_size=40,
    unique_by=lambda call: round(call[0] * 1e6),
).map(lambda found: sorted(found, key=lambda call: call[0]))
stories = st.lists(
    st.tuples(st.sampled_from(["log", "log", "log many", "compact", "restart"]), calls, st.integers(1, 3000)),
    max_size=8,
)


@given(story=stories, chance=st.integers(0, 2**32))
@WITH_A_DATABASE
def test_compaction_keeps_exactly_the_points(database: Database, story: list[Any], chance: int) -> None:
    recorded = Recorded(database)
    stream = recorded.stream()
    expected: dict[str, list[tuple[int, int, float]]] = {}
    numbers = np.random.default_rng(chance)

    def check() -> None:
        found = {name: points for (name, _, _), points in recorded.points().items()}
        assert set(found) == set(expected)
        for name, points in found.items():
            steps, times, values = zip(*expected[name], strict=True)
            assert same(points.steps, np.array(steps))
            assert same(points.times, np.array(times))
            assert same(points.values, np.array(values))
        with database.read() as connection:
            rows = {row["name"]: row for row in series.summaries_of(connection, recorded.uid, recorded.summaries)}
        assert set(rows) == set(expected)
        for name, row in rows.items():
            assert {key: row[key] for key in series.summary_of(found[name])} == series.summary_of(found[name])

    for what, some, many in story:
        if what == "log":
            recorded.log(stream, some)
            for time, step, logged in some:
                for name, value in logged.items():
                    expected.setdefault(name, []).append((step, round(time * 1e6), value))
        elif what == "log many":
            values = numbers.normal(size=many)
            recorded.column(stream, "a", range(many), values)
            times = np.rint((BEGAN + np.arange(many) / 1000) * 1e6).astype(int).tolist()
            expected.setdefault("a", []).extend(zip(range(many), times, values.tolist(), strict=True))
        elif what == "compact":
            recorded.compact(stream)
        else:
            recorded.restart()
        check()
    recorded.compact(stream, close=True)
    check()
    with database.read() as connection:
        assert not connection.execute(select(head_table.c.seq).where(head_table.c.stream == stream)).all()
        sizes: dict[int, list[int]] = {}
        mine = select(series.series.c.id).where(series.series.c.uid == recorded.uid)
        order = (chunk_table.c.series, chunk_table.c.number)
        query = select(*order, chunk_table.c.count).where(chunk_table.c.series.in_(mine)).order_by(*order)
        for number, place, count in connection.execute(query):
            assert place == sum(sizes.setdefault(number, []))
            sizes[number].append(count)
    assert all(size == SIZE for counts in sizes.values() for size in counts[:-1])


lives = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)),
        st.lists(st.integers(0, 60), min_size=1, max_size=150),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda life: life[0],
)


@given(incarnations=lives, compacted=st.lists(st.booleans(), min_size=5, max_size=5))
@WITH_A_DATABASE
def test_a_later_incarnation_replaces_the_steps_from_its_first_one_on(
    database: Database, incarnations: list[Any], compacted: list[bool]
) -> None:
    recorded = Recorded(database)
    expected: list[tuple[int, float]] = []
    clock = BEGAN
    for number, ((attempt, try_, restart), steps) in enumerate(sorted(incarnations)):
        stream = recorded.stream(attempt=attempt, restart=restart, started=clock, **{"try": try_})
        times = clock + np.arange(len(steps)) / 10
        clock += 1000
        values = [number + step / 1000 for step in steps]
        recorded.column(stream, "loss", steps, values, times)
        if compacted[number]:
            recorded.compact(stream)
        expected = [point for point in expected if point[0] < min(steps)]
        expected += list(zip(steps, values, strict=True))
    (points,) = recorded.points().values()
    assert list(zip(points.steps.tolist(), points.values.tolist(), strict=True)) == expected
    with database.read() as connection:
        found = recorded.curves()
        for axis in ("step", "time", "relative"):
            for most in (2, 7, 1000):
                (drawn,) = drawing.chart(connection, found, axis, most=most).curves
                assert drawn.points.sum() == len(expected)
                assert drawn.min.min() == min(value for _, value in expected)
                assert drawn.max.max() == max(value for _, value in expected)


def modelled(x: list[float], values: list[float], width: float) -> dict[float, dict[str, float]]:
    """Which point is in which bucket, one after the other, as the module of charts says it."""
    buckets: dict[float, list[tuple[float, float]]] = {}
    small = False
    for start in range(0, len(x), GROUP):
        group = x[start : start + GROUP]
        for place, number in enumerate(group, start):
            with_first = small and abs(number - group[0]) <= width / 2
            bucket = math.floor((group[0] if with_first else number) / width) * width
            buckets.setdefault(bucket, []).append((number, values[place]))
        small = max(group) - min(group) <= width / 2
    return {start: about(points) for start, points in buckets.items()}


def about(points: list[tuple[float, float]]) -> dict[str, float]:
    real = [value for _, value in points if not math.isnan(value)]
    finite = [value for value in real if math.isfinite(value)]
    return {
        "x_first": min(x for x, _ in points),
        "x_last": max(x for x, _ in points),
        "min": min(real, default=math.nan),
        "max": max(real, default=math.nan),
        "last": points[-1][1],
        "mean": math.fsum(finite) / len(finite) if finite else math.nan,
        "points": len(points),
    }


def as_model(buckets: Buckets) -> dict[float, dict[str, float]]:
    keys = ("x_first", "x_last", "min", "max", "last", "mean", "points")
    columns = [getattr(buckets, key).tolist() for key in keys]
    return {
        start: dict(zip(keys, row, strict=True))
        for start, row in zip(buckets.start.tolist(), zip(*columns, strict=True), strict=True)
    }


def written(recorded: Recorded, points: Points, cuts: list[int], compacted: int) -> None:
    """Puts points into batches; some of them become chunks in between."""
    stream = recorded.stream()
    places = [0, *sorted({cut % (len(points.steps) + 1) for cut in cuts}), len(points.steps)]
    for number, (start, end) in enumerate(pairwise(places)):
        if start < end:
            here = slice(start, end)
            recorded.column(stream, "loss", points.steps[here], points.values[here], points.times[here] / 1e6)
        if compacted >> number & 1:
            recorded.compact(stream)


@given(
    points=curves(),
    cuts=st.lists(st.integers(0, 10_000), max_size=5),
    compacted=st.integers(0, 63),
    most=st.integers(2, 60),
    axis=st.sampled_from(["step", "time"]),
)
@WITH_A_DATABASE
def test_every_point_is_in_one_bucket_which_has_its_minimum_and_maximum(
    database: Database, points: Points, cuts: list[int], compacted: int, most: int, axis: str
) -> None:
    recorded = Recorded(database)
    written(recorded, points, cuts, compacted)
    with database.read() as connection:
        drawn = drawing.chart(connection, recorded.curves(), axis, most=most)
    x = (points.steps.astype(float) if axis == "step" else points.times / 1e6).tolist()
    expected = modelled(x, points.values.tolist(), drawn.width)
    (buckets,) = drawn.curves
    assert list(as_model(buckets)) == sorted(expected)
    for start, bucket in as_model(buckets).items():
        assert bucket == pytest.approx(expected[start], rel=1e-9, abs=1e-12, nan_ok=True)
    assert math.frexp(drawn.width)[0] == 0.5
    assert len(buckets.start) <= most + 1
    has = ~np.isnan(buckets.min)
    known = dict.fromkeys(zip(x, points.values.tolist(), strict=True))
    assert all((at, value) in known for at, value in zip(buckets.min_x[has], buckets.min[has], strict=True))
    assert all((at, value) in known for at, value in zip(buckets.max_x[has], buckets.max[has], strict=True))


@given(
    points=curves(forward=True),
    cuts=st.lists(st.integers(0, 10_000), min_size=1, max_size=5),
    compacted=st.integers(0, 63),
    most=st.integers(2, 40),
)
@WITH_A_DATABASE
def test_new_points_change_the_last_bucket_only_until_the_width_doubles(
    database: Database, points: Points, cuts: list[int], compacted: int, most: int
) -> None:
    recorded = Recorded(database)
    stream = recorded.stream()
    places = [0, *sorted({cut % len(points.steps) for cut in cuts}), len(points.steps)]
    before, width = Buckets(*[np.empty(0)] * len(Buckets._fields)), 0.0
    for number, (start, end) in enumerate(pairwise(places)):
        if start == end:
            continue
        here = slice(start, end)
        recorded.column(stream, "loss", points.steps[here], points.values[here], points.times[here] / 1e6)
        if compacted >> number & 1:
            recorded.compact(stream)
        with database.read() as connection:
            drawn = drawing.chart(connection, recorded.curves(), most=most)
        (now,) = drawn.curves
        assert drawn.width >= width
        if drawn.width == width:
            kept = len(before.start) - 1
            for name in Buckets._fields:
                column, earlier = getattr(now, name)[:kept], getattr(before, name)[:kept]
                if name == "mean":  # sums of sums differ in their last bit
                    assert np.allclose(column, earlier, rtol=1e-9, atol=1e-12, equal_nan=True)
                else:
                    assert same(column, earlier), name
        before, width = now, drawn.width


@given(
    points=curves(),
    cuts=st.lists(st.integers(0, 10_000), max_size=5),
    compacted=st.integers(0, 63),
    ends=st.tuples(st.floats(-100, 12_000), st.floats(0, 6_000)),
    most=st.integers(2, 60),
)
@WITH_A_DATABASE
def test_a_range_has_exactly_the_points_in_it(
    database: Database, points: Points, cuts: list[int], compacted: int, ends: tuple[float, float], most: int
) -> None:
    recorded = Recorded(database)
    written(recorded, points, cuts, compacted)
    low, high = ends[0], ends[0] + ends[1]
    with database.read() as connection:
        drawn = drawing.chart(connection, recorded.curves(), "step", low, high, most)
    (buckets,) = drawn.curves
    inside = (points.steps >= low) & (points.steps <= high)
    assert buckets.points.sum() == inside.sum()
    if inside.any():
        assert same(np.fmin.reduce(buckets.min), np.fmin.reduce(points.values[inside]))
        assert same(np.fmax.reduce(buckets.max), np.fmax.reduce(points.values[inside]))
        assert (buckets.x_first.min(), buckets.x_last.max()) == (points.steps[inside].min(), points.steps[inside].max())
    assert (buckets.x_last < buckets.start + 1.5 * drawn.width).all()
    assert (buckets.x_first >= buckets.start - drawn.width / 2).all()


@given(low=st.floats(-1e300, 1e300), spread=st.floats(0, 1e300), most=st.integers(2, 5000))
def test_the_width_is_the_least_power_of_two_that_is_enough(low: float, spread: float, most: int) -> None:
    high = low + spread
    width = charts.width_for(low, high, most)
    assert math.frexp(width)[0] == 0.5
    assert math.floor(high / width) - math.floor(low / width) < most
    finest = math.frexp(max(abs(low), abs(high), 1e-290))[1] - 50
    if width > math.ldexp(1.0, finest):
        assert math.floor(high / (width / 2)) - math.floor(low / (width / 2)) >= most
