"""Series in a real database: how points become chunks, what is known without reading them, how curves are joined."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from shoal import journal
from shoal.sdk.points import Points
from shoal.store import charts, chunks, curves, drawing, heads, series, streams
from shoal.store.chunks import SIZE
from shoal.store.database import Database
from shoal.store.tables import chunks as chunk_table
from shoal.store.tables import heads as head_table
from shoal.store.tables import series as series_table
from tests.tracking import BEGAN, Recorded, same


def sizes(recorded: Recorded) -> list[int]:
    query = select(chunk_table.c.count).order_by(chunk_table.c.series, chunk_table.c.number)
    with recorded.database.read() as connection:
        return list(connection.execute(query).scalars())


def metrics(recorded: Recorded) -> dict[str, dict[str, Any]]:
    with recorded.database.read() as connection:
        return series.metrics_of(connection, recorded.uid, recorded.summaries)


def summaries(recorded: Recorded) -> list[dict[str, Any]]:
    with recorded.database.read() as connection:
        return series.summaries_of(connection, recorded.uid, recorded.summaries)


@pytest.mark.parametrize(
    ("batches", "closed", "expected"),
    [
        pytest.param([100], False, [100], id="the first points are a chunk"),
        pytest.param([100, 100], False, [200], id="a chunk as large as the new points is merged"),
        pytest.param([200, 100], False, [300], id="one twice as large is merged"),
        pytest.param([201, 100], False, [201, 100], id="a larger one stays"),
        pytest.param([201, 100, 60], False, [361], id="a merged one may be large enough for the next"),
        pytest.param([201, 100], True, [301], id="when the stream is over all small ones are merged"),
        pytest.param([SIZE, 1], True, [SIZE, 1], id="a full one stays"),
        pytest.param([3000, 3000], False, [SIZE, 6000 - SIZE], id="what is too much becomes a full one and a rest"),
        pytest.param([3 * SIZE + 5], False, [SIZE, SIZE, SIZE, 5], id="many points become several"),
        pytest.param([50] * 100, True, [SIZE, 5000 - SIZE], id="many small batches end as full ones"),
    ],
)
def test_chunks_grow_together(recorded: Recorded, batches: list[int], closed: bool, expected: list[int]) -> None:
    stream = recorded.stream()
    at = 0
    for count in batches:
        recorded.column(stream, "loss", range(at, at + count), np.arange(at, at + count) / 7)
        recorded.compact(stream)
        at += count
    if closed:
        recorded.compact(stream, close=True)
    assert sizes(recorded) == expected
    (points,) = recorded.points().values()
    assert points.steps.tolist() == list(range(at))
    assert points.values.tolist() == (np.arange(at) / 7).tolist()


@pytest.mark.slow
def test_no_point_is_written_more_than_a_few_times(recorded: Recorded) -> None:
    stream = recorded.stream()
    written = 0
    for number in range(200):
        recorded.column(stream, "loss", range(number * 50, number * 50 + 50), np.zeros(50))
        before = rows(recorded)
        recorded.compact(stream)
        written += sum(row[2] for row in rows(recorded) - before)
    assert written < 10_000 * 6


def rows(recorded: Recorded) -> set[tuple[int, int, int]]:
    query = select(chunk_table.c.series, chunk_table.c.number, chunk_table.c.count)
    with recorded.database.read() as connection:
        return {(one, two, three) for one, two, three in connection.execute(query)}


@pytest.mark.slow
def test_a_typical_curve_takes_few_bytes(recorded: Recorded, tmp_path: Path) -> None:
    """10 series at 1 kHz with times that jitter, compacted as they come; all files of the database are counted."""
    chance = np.random.default_rng(1)
    stream = recorded.stream()
    names = tuple(f"train/{number}" for number in range(10))
    steps = np.arange(40_000)
    times = BEGAN + np.cumsum(chance.normal(1e-3, 1e-4, len(steps)))
    for start in range(0, len(steps), 5000):
        here = slice(start, start + 5000)
        values = [array("d", np.exp(-steps[here] / 1e4) + chance.normal(0, 0.1, 5000)) for _ in names]
        group = journal.Group(names, array("d", times[here]), array("q", steps[here]), values)
        frame = journal.pack(journal.POINTS, start, journal.pack_points([group]))
        with recorded.database.write() as connection:
            connection.execute(head_table.insert().values(stream=stream, seq=start, points=50_000, data=frame))
        recorded.compact(stream, close=start + 5000 == len(steps))
    with recorded.database.read() as connection:
        columns = func.sum(func.length(chunk_table.c.data) + func.length(chunk_table.c.groups))
        assert connection.execute(select(columns)).scalar_one() / 400_000 < 9.5
    recorded.database.close()
    assert sum(file.stat().st_size for file in tmp_path.glob("shoal.db*")) / 400_000 < 16


@pytest.mark.parametrize("compacted", [True, False], ids=["in chunks", "in heads"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([3.0, 1.0, 2.0], (2.0, 1.0, 3.0), id="last, minimum, maximum"),
        pytest.param([1.0, math.nan], ("NaN", 1.0, 1.0), id="the last is NaN"),
        pytest.param([math.nan, math.nan], ("NaN", "NaN", "NaN"), id="all is NaN"),
        pytest.param([math.inf, 1.0, -math.inf], ("-Infinity", "-Infinity", "Infinity"), id="infinities"),
        pytest.param([math.nan, math.inf], ("Infinity", "Infinity", "Infinity"), id="NaN and an infinity"),
    ],
)
def test_metrics_are_summarised(
    recorded: Recorded, compacted: bool, values: list[float], expected: tuple[Any, ...]
) -> None:
    stream = recorded.stream()
    recorded.log(stream, [(BEGAN + step, 10 * step, {"loss": value}) for step, value in enumerate(values)])
    if compacted:
        recorded.compact(stream)
    found = metrics(recorded)["loss"]
    assert (found["last"], found["min"], found["max"]) == expected
    assert (found["step"], found["time"]) == (10 * (len(values) - 1), BEGAN + len(values) - 1)


def test_the_last_value_is_of_the_lowest_rank_in_the_newest_attempt(recorded: Recorded) -> None:
    told = [("worker-0", 0, 5.0), ("worker-1", 0, 9.0), ("worker-1", 1, 2.0), ("worker-2", 1, 1.0)]
    for replica, attempt, value in told:
        recorded.log(recorded.stream(replica, attempt=attempt), [(BEGAN, attempt, {"loss": value})])
    recorded.log(recorded.stream("worker-0", kind="resource"), [(BEGAN, 0, {"cpu": 1.0})])
    assert metrics(recorded) == {"loss": {"last": 2.0, "min": 1.0, "max": 9.0, "step": 1, "time": BEGAN}}


def test_what_is_known_of_heads_does_not_change_when_they_are_compacted(recorded: Recorded) -> None:
    stream = recorded.stream()
    recorded.log(stream, [(BEGAN, 7, {"a": 1.0, "b": 2.0}), (BEGAN + 1, 3, {"a": 5.0}), (BEGAN + 2, 4, {"b": -1.0})])
    recorded.log(stream, [(BEGAN + 3, 5, {"b": 0.5, "a": 0.25})])

    def known(live: series.Summaries | None) -> list[dict[str, Any]]:
        with recorded.database.read() as connection:
            found = series.summaries_of(connection, recorded.uid, live)
        return sorted(({**row, "id": None} for row in found), key=lambda row: row["name"])

    live, read = known(recorded.summaries), known(None)
    stale = recorded.summaries
    recorded.compact(stream)
    compacted = known(recorded.summaries)
    assert live == read == compacted
    stale.add(recorded.streams[stream], [[journal.Group(("a",), [BEGAN], [1], [[1.0]])]])
    assert known(stale) == compacted  # its head is gone, whatever it says
    first = compacted[0]
    assert (first["count"], first["first_step"], first["last_step"], first["min_step"], first["max_step"]) == (
        3,
        7,
        5,
        3,
        7,
    )


def test_summaries_forget_what_they_are_told_to(recorded: Recorded) -> None:
    one, two = recorded.stream(), recorded.stream("worker-1")
    for stream in (one, two):
        recorded.log(stream, [(BEGAN, 0, {"loss": 1.0})])
    recorded.summaries.forget(one)
    assert [row["stream"] for row in recorded.summaries.of(recorded.uid)] == [two]
    recorded.summaries.forget(two)
    recorded.summaries.forget("nobody")
    assert recorded.summaries.of(recorded.uid) == []


def test_removing_an_experiment_removes_its_points_only(database: Database) -> None:
    kept, gone = Recorded(database), Recorded(database)
    for one in (kept, gone):
        stream = one.stream()
        one.column(stream, "loss", range(10), range(10))
        one.compact(stream)
        one.column(stream, "loss", range(10), range(10))
    with database.write() as connection:
        series.remove(connection, gone.uid)
        for table in (series_table, chunk_table, head_table):
            assert connection.execute(select(func.count()).select_from(table)).scalar() == 1
    assert len(kept.points()) == 1
    assert not gone.points()


def test_streams_of_one_incarnation_are_merged_by_time(recorded: Recorded) -> None:
    """A process and the one it forked log at the same time; a third comes after them."""
    for start, times in ((0, [0.0, 0.2, 0.4]), (10, [0.1, 0.3]), (20, [5.0])):
        stream = recorded.stream(started=BEGAN + times[0])
        recorded.column(stream, "loss", range(start, start + len(times)), times, [BEGAN + time for time in times])
    (points,) = recorded.points().values()
    assert points.values.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 5.0]
    with recorded.database.read() as connection:
        (drawn,) = drawing.chart(connection, recorded.curves(), "relative").curves
    assert drawn.last.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 5.0]


CHOICES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "all but resources",
        {},
        ["loss worker-0 0", "loss worker-1 0", "loss worker-1 1", "train/acc worker-0 0", "x[0] worker-0 0"],
    ),
    ("a name", {"names": ["train/acc"]}, ["train/acc worker-0 0"]),
    ("a name that looks like a pattern", {"names": ["x[0]"]}, ["x[0] worker-0 0"]),
    ("patterns", {"names": ["train/*", "x*"]}, ["train/acc worker-0 0", "x[0] worker-0 0"]),
    ("a replica", {"replicas": ["worker-1"]}, ["loss worker-1 0", "loss worker-1 1"]),
    ("a process", {"process": 1}, ["loss worker-1 1"]),
    ("an attempt", {"attempt": 1}, ["loss worker-1 0"]),
    ("resources", {"kinds": ["resource"]}, ["cpu worker-0 0"]),
    ("nothing", {"names": ["nothing"]}, []),
]  # fmt: skip


@pytest.mark.parametrize(("choice", "expected"), [case[1:] for case in CHOICES], ids=[case[0] for case in CHOICES])
@pytest.mark.parametrize("compacted", [True, False], ids=["in chunks", "in heads"])
def test_curves_are_chosen(recorded: Recorded, compacted: bool, choice: dict[str, Any], expected: list[str]) -> None:
    made: list[tuple[str, dict[str, Any], dict[str, float]]] = [
        ("worker-0", {}, {"loss": 1.0, "train/acc": 2.0, "x[0]": 3.0}),
        ("worker-1", {}, {"loss": 1.0}),
        ("worker-1", {"process": 1, "rank": 2}, {"loss": 1.0}),
        ("worker-1", {"attempt": 1}, {"loss": 1.0}),
        ("worker-0", {"kind": "resource"}, {"cpu": 1.0}),
    ]
    for replica, more, values in made:
        stream = recorded.stream(replica, **more)
        recorded.log(stream, [(BEGAN, 0, values)])
        if compacted:
            recorded.compact(stream)
    assert [f"{c.name} {c.replica} {c.process}" for c in recorded.curves(**choice)] == expected


def test_time_can_be_counted_from_the_start_of_each_replica(recorded: Recorded) -> None:
    """The clock of one machine is an hour off; its curve still lies over the others."""
    for replica, off in (("worker-0", 0.0), ("worker-1", 3600.0)):
        stream = recorded.stream(replica, started=BEGAN + off)
        recorded.column(stream, "loss", range(100), range(100), BEGAN + off + np.arange(100))
    with recorded.database.read() as connection:
        one, two = drawing.chart(connection, recorded.curves(), "relative").curves
    assert one.x_first.tolist() == two.x_first.tolist() == list(range(100))


def test_a_metric_can_be_the_axis(recorded: Recorded) -> None:
    stream, other = recorded.stream(), recorded.stream("worker-1")
    recorded.log(stream, [(BEGAN + step, step, {"loss": float(-step)}) for step in range(10)])
    recorded.log(stream, [(BEGAN + 20 + step, step, {"epoch": step / 4}) for step in (1, 2, 5, 8, 30)])
    recorded.log(stream, [(BEGAN + 40, 8, {"epoch": math.nan})])
    recorded.log(other, [(BEGAN, 0, {"loss": 0.0})])
    with recorded.database.read() as connection:
        found = recorded.curves(names=["loss"])
        others = curves.companions(connection, recorded.uid, found, "epoch", recorded.heads)
        drawn = drawing.chart(connection, found, "epoch", others=others)
        part = drawing.chart(connection, found, "epoch", 0.5, 1.0, others=others)
    assert [other is None for other in others] == [False, True]
    assert drawn.curves[0].x_first.tolist() == [0.25, 0.5, 1.25]  # at step 8 it was last NaN
    assert drawn.curves[0].last.tolist() == [-1.0, -2.0, -5.0]
    assert drawn.curves[1].points.sum() == 0
    assert part.curves[0].last.tolist() == [-2.0]


def test_heads_are_read_once(recorded: Recorded) -> None:
    stream = recorded.stream()
    recorded.column(stream, "loss", range(5), range(5))

    def head() -> heads.Columns:
        with recorded.database.read() as connection:
            return recorded.heads.of(connection, [stream])[stream]

    first = head()
    assert head() is first
    recorded.column(stream, "loss", range(5, 8), range(5, 8))
    assert head().points("loss").steps.tolist() == list(range(8))
    recorded.compact(stream)
    recorded.column(stream, "loss", range(8, 9), range(8, 9))
    assert head().points("loss").steps.tolist() == [8]
    small = heads.Heads(most=1)
    with recorded.database.read() as connection:
        assert small.of(connection, [stream])[stream].points("loss").steps.tolist() == [8]


@pytest.mark.parametrize(
    "time",
    [pytest.param(value, id=str(value)) for value in (math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, -1.0)],
)
def test_a_time_that_is_none_is_kept_as_some_time(recorded: Recorded, time: float) -> None:
    stream = recorded.stream()
    recorded.log(stream, [(time, 0, {"loss": 1.0}), (BEGAN, 1, {"loss": 2.0})])
    for _ in range(2):
        (points,) = recorded.points().values()
        assert points.values.tolist() == [1.0, 2.0]
        with recorded.database.read() as connection:
            for axis in ("step", "time", "relative"):
                assert drawing.chart(connection, recorded.curves(), axis).curves[0].points.sum() == 2
            assert math.isfinite(series.summaries_of(connection, recorded.uid, recorded.summaries)[0]["first_time"])
        recorded.compact(stream)


def buckets_of(values: dict[int, list[float]]) -> charts.Buckets:
    """Points by bucket, all at its start, of width 1."""
    x = np.array([float(start) for start, inside in values.items() for _ in inside])
    return charts.bucketed(charts.rows_of_points(x, np.array([v for inside in values.values() for v in inside])), 1.0)


def test_curves_are_aggregated_over_ranks() -> None:
    found = charts.aggregated(
        [
            buckets_of({0: [1.0, 3.0], 1: [5.0]}),
            buckets_of({0: [4.0], 2: [math.nan]}),
            buckets_of({0: [-1.0, math.inf], 1: [7.0]}),
        ]
    )
    assert found.start.tolist() == [0.0, 1.0, 2.0]
    assert (found.min[:2].tolist(), found.min_of.tolist()) == ([-1.0, 5.0], [2, 0, -1])
    assert (found.max[:2].tolist(), found.max_of.tolist()) == ([math.inf, 7.0], [2, 2, -1])
    assert found.mean[:2].tolist() == pytest.approx([5 / 3, 6.0])
    assert found.p50[:2].tolist() == [2.0, 6.0]
    assert found.p95[:2].tolist() == pytest.approx([np.percentile([2.0, 4.0, -1.0], 95), np.percentile([5, 7], 95)])
    assert np.isnan([column[2] for column in (found.min, found.max, found.mean, found.p50, found.p95)]).all()
    assert (found.points.tolist(), found.curves.tolist()) == ([5, 2, 1], [3, 2, 1])
    assert found.finite.tolist() == [4, 2, 0]


def test_nothing_can_be_aggregated() -> None:
    assert all(len(column) == 0 for column in charts.aggregated([]))
    assert all(len(column) == 0 for column in charts.aggregated([buckets_of({}), buckets_of({})]))


@pytest.mark.parametrize(
    ("low", "high", "most", "smallest", "expected"),
    [
        pytest.param(0, 999, 1000, 1.0, 1.0, id="a bucket for each step"),
        pytest.param(0, 1000, 1000, 1.0, 2.0, id="one step too many"),
        pytest.param(0, 999_999, 1000, 1.0, 1024.0, id="a million steps"),
        pytest.param(5, 5, 1000, 1.0, 1.0, id="one step"),
        pytest.param(0, 1, 1000, 0.0, 2.0**-9, id="less than one"),
        pytest.param(-1, 1, 2, 0.0, 2.0, id="both sides of zero"),
        pytest.param(-1e308, 1e308, 2, 0.0, 2.0**1023, id="as far as numbers go"),
        pytest.param(-(2.0**63), 2.0**63, 1000, 1.0, 2.0**55, id="all steps there are"),
    ],
)
def test_widths(low: float, high: float, most: int, smallest: float, expected: float) -> None:
    assert charts.width_for(low, high, most, smallest) == expected


@pytest.mark.parametrize("decode", [chunks.decode, lambda data: chunks.decode_groups([data])], ids=["points", "groups"])
def test_what_a_newer_version_wrote_is_not_misread(decode: Any) -> None:
    with pytest.raises(ValueError, match="version 9"):
        decode(b"\x09" + bytes(200))


def test_whoever_looks_at_an_older_state_sees_nothing_of_a_newer_one(recorded: Recorded) -> None:
    """A chart that began before a compaction, and ends after another has remembered what that made."""
    remembered, stream = drawing.Outlines(), recorded.stream()
    recorded.column(stream, "loss", range(4396), range(4396))
    recorded.compact(stream)
    recorded.column(stream, "loss", range(4396, 12396), range(4396, 12396))
    with recorded.database.read() as old:
        before = curves.find(old, recorded.uid, curves.Choice(), recorded.heads)
        recorded.compact(stream)
        with recorded.database.read() as new:
            after = curves.find(new, recorded.uid, curves.Choice(), recorded.heads)
            drawing.chart(new, after, outlines=remembered)
        for low, high, count in ((-np.inf, np.inf, 12396), (9000.0, 9010.0, 11)):
            (drawn,) = drawing.chart(old, before, "step", low, high, 10, outlines=remembered).curves
            assert drawn.points.sum() == count


def test_a_stream_that_was_removed_and_comes_again_is_read_anew(recorded: Recorded) -> None:
    stream = recorded.stream()
    frames = [
        journal.pack(journal.POINTS, n, journal.pack_points([journal.Group(("loss",), [1.0], [n], [[float(n)]])]))
        for n in range(10)
    ]
    with recorded.database.write() as connection:
        for number, frame in enumerate(frames[:5]):
            streams.add_head(connection, stream, number, 1, frame)
    with recorded.database.read() as connection:
        recorded.heads.of(connection, [stream])
    with recorded.database.write() as connection:
        series.remove(connection, recorded.uid)
        streams.remove(connection, recorded.uid)
        recorded.heads.forget([stream])
        streams.add(connection, recorded.streams[stream])
        streams.add_head(connection, stream, 0, 10, b"".join(frames))
    with recorded.database.read() as connection:
        assert len(recorded.heads.of(connection, [stream])[stream].points("loss").steps) == 10


def test_what_is_remembered_of_full_chunks_changes_nothing(recorded: Recorded) -> None:
    remembered = drawing.Outlines()
    chance = np.random.default_rng(1)
    first, second = recorded.stream(), recorded.stream(attempt=1, started=BEGAN + 60)
    at = 0
    for number, stream in enumerate((first, first, first, second, second)):
        start = at if stream == first else at - 3000  # the second attempt resumes from an older step
        recorded.column(
            stream,
            "loss",
            range(start, start + 5000),
            chance.normal(size=5000),
            BEGAN + at / 100 + np.arange(5000) / 1e3,
        )
        at = start + 5000
        if number != 2:
            recorded.compact(stream)
        for axis in ("step", "time", "relative"):
            for low, high in ((-np.inf, np.inf), (4000.0, 9000.0)):
                for most in (20, 1000):
                    with recorded.database.read() as connection:
                        found = curves.find(connection, recorded.uid, curves.Choice(), recorded.heads)
                        fresh = drawing.chart(connection, found, axis, low, high, most)
                        again = drawing.chart(connection, found, axis, low, high, most, outlines=remembered)
                    assert again.width == fresh.width
                    (one,), (two,) = again.curves, fresh.curves
                    assert one.points.sum() == two.points.sum()
                    if low == -np.inf:
                        assert all(same(a, b) for a, b in zip(one, two, strict=True))
    small = drawing.Outlines(most=1)
    with recorded.database.read() as connection:
        drawing.chart(connection, found, outlines=small)
    assert small.get(1, ("stats", "steps")) is None


@pytest.mark.parametrize("known", ["live", "read again", "compacted"])
def test_calls_with_other_names_between_keep_the_order_of_all(recorded: Recorded, known: str) -> None:
    """A flush writes calls with the same names together; the newest value of a name is still its last."""
    stream = recorded.stream()
    sdk = Points()
    for batch in (range(48), range(48, 100)):
        entries = [(BEGAN + at, at, {"loss": 100.0 - at, **({"val": 1.0} if at % 10 == 5 else {})}) for at in batch]
        sdk.add(entries)
        for groups, _ in sdk.frames():
            assert len(groups) == 2
            recorded.write(stream, groups)
    if known == "read again":
        recorded.restart()
    elif known == "compacted":
        recorded.compact(stream)
    assert (metrics(recorded)["loss"]["last"], metrics(recorded)["loss"]["step"]) == (1.0, 99)
    (row,) = [row for row in summaries(recorded) if row["name"] == "loss"]
    assert (row["first_step"], row["last_step"], row["last_time"]) == (0, 99, BEGAN + 99)
    points = recorded.points(names=("loss",)).popitem()[1]
    assert list(points.steps) == list(range(100))


def test_a_clock_that_jumps_back_between_two_flushes_changes_no_order(recorded: Recorded) -> None:
    stream = recorded.stream()
    for step, when in enumerate((BEGAN, BEGAN - 3600)):
        names = ("loss", "val") if step else ("loss",)
        recorded.write(stream, [journal.Group(names, [when], [step], [[float(step)] for _ in names])])
    assert metrics(recorded)["loss"]["last"] == 1.0
    recorded.compact(stream)
    assert metrics(recorded)["loss"]["last"] == 1.0
    assert list(recorded.points(names=("loss",)).popitem()[1].steps) == [0, 1]
