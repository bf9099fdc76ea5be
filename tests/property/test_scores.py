"""Scores of ranks over windows of made-up steps: what holds whatever the times are, and who is flagged when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shoal.store import scores
from shoal.store.scores import CHRONIC, IN_SEQUENCE, LOW, ONE_OFF, Score
from shoal.store.stragglers import STEP_BUSY, STEP_TIME, Points, Process, report
from tests.conftest import at_most

TIMES = st.floats(1e-4, 1e3)


@st.composite
def means(draw: st.DrawFn) -> NDArray[Any]:
    """Ranks × windows; some are not known."""
    ranks, windows = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    values = draw(st.lists(st.one_of(TIMES, st.just(np.nan)), min_size=ranks * windows, max_size=ranks * windows))
    return np.array(values).reshape(ranks, windows)


def flags(found: list[Score | None]) -> list[Any]:
    return [score.json() if score is not None else None for score in found]


@settings(max_examples=at_most(200))
@given(means())
def test_a_score_is_a_part_of_the_best(times: NDArray[Any]) -> None:
    relative, individual = scores.beside_the_best(times), scores.beside_itself(times)
    for found in (relative, individual):
        known = found[np.isfinite(found)]
        assert ((known > 0) & (known <= 1)).all()
    for window in np.flatnonzero(np.isfinite(times).sum(axis=0) > 1):
        assert np.nanmax(relative[:, window]) == 1, "somebody is the best"
    assert (np.isfinite(relative).sum(axis=0) != 1).all(), "nobody is compared with nobody"
    for rank in np.flatnonzero(np.isfinite(times).any(axis=1)):
        assert np.nanmax(individual[rank]) == 1, "everybody has a best window"


@settings(max_examples=at_most(200))
@given(means(), st.sampled_from([0.25, 2.0, 1024.0]), st.randoms(use_true_random=False))
def test_neither_units_nor_the_order_of_ranks_matter(times: NDArray[Any], unit: float, random: Any) -> None:
    none = [None] * len(times)
    before = flags(scores.scores(times, none))
    assert flags(scores.scores(times * unit, none)) == before
    order = list(range(len(times)))
    random.shuffle(order)
    assert flags(scores.scores(times[order], none)) == [before[place] for place in order]


@settings(max_examples=at_most(200))
@given(st.lists(st.booleans(), max_size=30))
def test_only_rows_of_low_windows_are_flagged(low: list[bool]) -> None:
    found = scores.in_sequence(np.array(low, bool))
    text = "".join("x" if one else " " for one in low)
    rows = [row for row in text.split(" ") if len(row) >= IN_SEQUENCE]
    assert found.sum() == sum(len(row) for row in rows)
    assert not (found & ~np.array(low, bool)).any()


@settings(max_examples=at_most(200))
@given(st.integers(2, 6), st.integers(1, 400), st.data())
def test_every_step_is_in_a_window_but_for_those_of_one_that_is_not_half_full(
    ranks: int, count: int, data: st.DataObject
) -> None:
    value = data.draw(TIMES)
    found, width = scores.windows([(np.arange(count), np.full(count, value)) for _ in range(ranks)])
    assert found.shape[0] == ranks
    assert found.shape[1] <= scores.MOST_WINDOWS
    assert np.isfinite(found).all()
    assert found == pytest.approx(np.full(found.shape, value))
    assert abs(count - found.shape[1] * width) <= width / 2 + 0.5
    if count >= IN_SEQUENCE:
        assert found.shape[1] >= IN_SEQUENCE


@settings(max_examples=at_most(200))
@given(st.integers(2, 6), st.integers(30, 200), st.floats(0.001, 1), st.floats(1.5, 50), st.data())
def test_a_rank_that_is_always_slow_is_named_and_chronic(
    ranks: int, steps: int, time: float, factor: float, data: st.DataObject
) -> None:
    slow = data.draw(st.integers(0, ranks - 1))
    found = report([busy(rank, np.full(steps, time * (factor if rank == slow else 1))) for rank in range(ranks)])
    assert (found["slowest"]["rank"], found["slowest"]["pattern"]) == (slow, CHRONIC)
    score = found["ranks"][slow]["score"]
    assert score["relative"] == pytest.approx(1 / factor)
    assert (score["individual"], score["slow"], score["slower"]) == (pytest.approx(1), score["windows"], 0)
    assert [rank["score"]["pattern"] for rank in found["ranks"] if rank["rank"] != slow] == [None] * (ranks - 1)


STEPS = np.arange(201)


def busy(rank: int, values: Any, step_time: float | None = None) -> Process:
    values = np.asarray(values, float)
    steps = np.arange(len(values))
    series = {STEP_BUSY: Points(steps, steps * 1.0, values)}
    if step_time is not None:
        series[STEP_TIME] = Points(steps, steps * 1.0, np.full(len(values), step_time))
    return Process(rank, f"worker-{rank}", 0, series)


def of_one(slow: Any, step_time: float | None = None) -> dict[str, Any]:
    """What is said when worker-1 takes these times, and the others 100 ms."""
    return report([busy(n, slow if n == 1 else np.full(len(STEPS), 0.1), step_time) for n in range(4)])


@pytest.mark.parametrize(
    ("times", "pattern", "now", "text"),
    [
        (np.where(STEPS <= 40, 0.3, 0.1), ONE_OFF, False, "worker-1 (rank 1) was slow for a while (8 of 40 windows): "
         "it worked 300 ms on its part of a step, the others 100 ms"),
        (np.where(STEPS >= 181, 0.3, 0.1), ONE_OFF, True, "worker-1 (rank 1) has become slow (4 of 40 windows): it "
         "works 300 ms on its part of a step, the others 100 ms: they wait 200 ms for it in every step"),
        (np.where(STEPS >= 61, 0.3, 0.1), CHRONIC, True, "worker-1 (rank 1) works 240 ms on its part of a step, the "
         "others 100 ms: they wait 140 ms for it in every step"),
        (np.where((STEPS > 100) & (STEPS <= 110), 9.0, 0.1), None, False, "no rank stands out: worker-1 works longest"),
        (np.where(STEPS % 40 == 7, 2.0, 0.1), None, False, "no rank stands out: worker-1 works longest"),
        (np.full(201, 0.13), None, False, "no rank stands out: worker-1 works longest, 130 ms a step"),
    ],
    ids=[
        "slow at first",
        "slow since a moment ago",
        "slow most of the time",
        "two windows are not enough",
        "a slow step now and then is no habit",
        "a little slower",
    ],
)  # fmt: skip
def test_slow_for_ever_slow_for_a_while_and_not_slow(
    times: NDArray[Any], pattern: str | None, now: bool, text: str
) -> None:
    found = of_one(times)
    score = found["ranks"][1]["score"]
    assert (score["pattern"], score["now"]) == (pattern, now)
    assert (found["slowest"] or {"pattern": None})["pattern"] == pattern
    assert found["verdict"].startswith(text)


def test_a_rank_that_is_slower_than_it_was_is_seen_although_all_of_them_are() -> None:
    later = np.where(STEPS >= 101, 0.2, 0.1)
    found = report([busy(n, later) for n in range(3)])
    assert found["slowest"] is None
    assert [(rank["score"]["relative"], rank["score"]["individual"]) for rank in found["ranks"]] == [(1.0, 0.5)] * 3
    assert [rank["score"]["slower"] for rank in found["ranks"]] == [20] * 3


@pytest.mark.parametrize(("step_time", "named"), [(None, True), (0.2, True), (30.0, False)])
def test_what_is_lost_has_to_matter_in_a_step(step_time: float | None, named: bool) -> None:
    """Three times as long as the others, but of a step of half a minute it is nothing."""
    assert (of_one(np.full(201, 0.3), step_time)["slowest"] is not None) == named


def test_one_fast_rank_makes_the_others_no_stragglers() -> None:
    found = report([busy(n, np.full(201, 0.05 if n == 1 else 0.1)) for n in range(4)])
    assert found["slowest"] is None
    assert [rank["score"]["relative"] for rank in found["ranks"]] == [0.5, 1.0, 0.5, 0.5]


def test_ranks_meet_by_step_and_not_by_place() -> None:
    """One that began later is compared with what the others did then."""
    all_slow_at_first = np.where(STEPS < 101, 0.4, 0.1)
    late = Process(2, "worker-2", 0, {STEP_BUSY: Points(STEPS[101:], STEPS[101:] * 1.0, np.full(100, 0.1))})
    found = report([busy(0, all_slow_at_first), busy(1, all_slow_at_first), late])
    assert found["slowest"] is None
    assert found["ranks"][2]["score"]["windows"] == 20


def test_the_threshold_is_three_quarters() -> None:
    assert LOW == 0.75
    assert of_one(np.full(201, 0.1 / 0.76))["ranks"][1]["score"]["pattern"] is None
    assert of_one(np.full(201, 0.1 / 0.74))["ranks"][1]["score"]["pattern"] == CHRONIC
