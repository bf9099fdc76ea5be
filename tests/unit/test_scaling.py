"""What trials of several sizes tell."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.scaling import in_words, judged, throughput, trains


def trial(workers: int, speed: float | None, *, more: int = 0) -> dict[str, Any]:
    return {"workers": workers, "replicas": workers + more, "trains": workers, "throughput": speed}


@pytest.mark.parametrize(
    ("curves", "mean", "expected"),
    [
        ([[1, 1, 10, 20]], False, 15),
        ([[1, 1, 10, 20], [5, 5]], False, 20),
        ([[1, 1, 10, 20], [5, 5]], True, 10),
        ([[1, float("nan"), 4]], False, 4),
        ([[], [float("inf")]], False, None),
        ([], False, None),
    ],
    ids=["the second half", "added up", "or not", "without NaN", "nothing finite", "nobody logs"],
)
def test_throughput(curves: list[list[float]], mean: bool, expected: float | None) -> None:
    assert throughput(curves, mean=mean) == expected


@pytest.mark.parametrize(
    ("framework", "role", "expected"),
    [
        ("mxnet", "master", False),  # the scheduler
        ("mxnet", "worker", True),
        ("tensorflow", "master", True),
        ("tensorflow", "ps", False),
        ("pytorch", "master", True),
    ],
)
def test_who_trains(framework: str, role: str, expected: bool) -> None:
    assert trains(framework, role) is expected


def test_numbers_of_workers_in_words() -> None:
    assert [in_words(workers) for workers in (1, 2)] == ["1 worker", "2 workers"]


def test_cost_counts_every_replica_and_efficiency_those_that_train() -> None:
    one, four = judged([trial(1, 10.0, more=1), trial(4, 32.0, more=1)], None)["trials"]
    assert (one["cost"], four["cost"]) == (2 / 10, 5 / 32)
    assert (four["speed_up"], four["efficiency"]) == (3.2, 0.8)
    priced = judged([trial(1, 10.0), trial(4, 32.0)], 36.0)["trials"]
    assert priced[0]["cost"] == pytest.approx(36.0 / 3600 / 10)


@pytest.mark.parametrize(
    ("trials", "verdict"),
    [
        ([trial(1, 10), trial(2, 18), trial(4, 34)], "yes, up to 4 workers: 3.40 times as fast as 1 worker, at 85 %"),
        ([trial(1, 10), trial(2, 18), trial(4, 20)], "yes, up to 2 workers: 1.80 times as fast"),
        ([trial(1, 10), trial(2, 12)], "only if time matters more than cost: with 2 workers it is 1.20 times as fast"),
        ([trial(1, 10), trial(2, 9), trial(4, 6)], "no: more workers are not faster here; stay with 1 worker"),
        ([trial(2, 10), trial(4, 19), trial(1, None)], "yes, up to 4 workers: 1.90 times as fast as 2 workers"),
        ([trial(1, 10), trial(2, None)], "1 of 2 trials can be compared: too few to tell"),
    ],
    ids=["worth it", "up to a size", "dear", "not at all", "the smallest failed", "nothing to compare"],
)
def test_the_verdict(trials: list[dict[str, Any]], verdict: str) -> None:
    assert judged(trials, None)["verdict"].startswith(verdict)
