"""How far it is, and how long it will take: in whatever time the ranks live, and after whatever restart."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from shoal.store.progress import after, shown, spoken

NOW = 1000.0  # our own clock


def word(fraction: float, when: float | None, rank: int = 0, attempt: int = 0, started: float = 80.0) -> dict[str, Any]:
    stream = {"stream": f"{attempt}-{rank}", "attempt": attempt, "rank": rank, "restart": 0, "try": 0}
    return spoken({**stream, "started": started}, fraction, when, NOW)


CASES: dict[str, tuple[list[dict[str, Any]], float, tuple[float, float | None]]] = {
    "a quarter in 20 s: 60 s are left": ([word(0.25, 100.0)], NOW, (0.25, 60.0)),
    "10 s later": ([word(0.25, 100.0)], NOW + 10, (0.25, 50.0)),
    "much later, and not a word since": ([word(0.25, 100.0)], NOW + 900, (0.25, 0.0)),
    "nothing yet": ([word(0.0, 100.0)], NOW, (0.0, None)),
    "a clock that does not go": ([word(0.5, 80.0)], NOW, (0.5, None)),
    "no time at all": ([word(0.5, None)], NOW, (0.5, None)),
    "more than all is all": ([word(7.0, 100.0)], NOW, (1.0, 0.0)),
    "a clock that is an hour ahead": ([word(0.25, 3700.0, started=3680.0)], NOW, (0.25, 60.0)),
    "what resumes at half: only what was made since the first word counts": (
        [word(0.5, 90.0), word(0.6, 100.0), word(0.7, 110.0)],
        NOW,
        (0.7, pytest.approx(30.0)),  # type: ignore[dict-item]
    ),
    "the lowest rank that speaks counts": ([word(0.9, 100.0, rank=2), word(0.5, 100.0, rank=1)], NOW, (0.5, 20.0)),
    "a higher rank does not overtake": ([word(0.5, 100.0, rank=1), word(0.9, 100.0, rank=2)], NOW, (0.5, 20.0)),
    "the next attempt begins anew": (
        [word(0.9, 36_000.0), word(0.1, 36_100.0, rank=3, attempt=1, started=36_040.0)],
        NOW,
        (0.1, pytest.approx(540.0)),  # type: ignore[dict-item]
    ),
    "an attempt that is over comes late": (
        [word(0.1, 200.0, attempt=1, started=140.0), word(0.9, 100.0)],
        NOW,
        (0.1, pytest.approx(540.0)),  # type: ignore[dict-item]
    ),
}


@pytest.mark.parametrize(("words", "now", "expected"), CASES.values(), ids=CASES)
def test_what_is_left_follows_from_how_it_went(
    words: list[dict[str, Any]], now: float, expected: tuple[float, float | None]
) -> None:
    known: Any = None
    found = shown(reduce(after, words, known), "running", now)
    assert found is not None
    assert (found["fraction"], found["eta"]) == expected


def test_what_is_over_has_nothing_left() -> None:
    assert shown(word(0.5, 100.0), "succeeded", NOW) == {"fraction": 0.5, "eta": None}
    assert shown(None, "running", NOW) is None
    assert shown({"fraction": 0.5, "time": 90.0}, "running", NOW) == {"fraction": 0.5, "eta": None}, "as kept before"
