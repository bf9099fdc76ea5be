"""How fast each rank is beside the best rank and beside itself, window by window. Pure: arrays in, scores out.

A score is a part of the best: 1 is as fast as it gets, 0.5 takes twice as long. `relative` is the best rank's time of
the same window divided by the own, `individual` the best window of its own divided by this one. A rank is flagged where
a score is below LOW in at least IN_SEQUENCE windows after one another: a single slow step flags nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LOW = 0.75
IN_SEQUENCE = 3
MATTERS = 0.05  # of a step: who loses less holds nobody up, however much longer it takes than the best
WINDOW = 5  # steps, at least; fewer where there are so few that they would not make three windows
MOST_WINDOWS = 50
CHRONIC, ONE_OFF = "chronic", "one-off"

Series = tuple[NDArray[Any], NDArray[Any]]  # steps, and seconds of each


class Score(NamedTuple):
    """Of one rank. The two scores are those of its newest window; `slow` are windows in which it is flagged."""

    relative: float | None
    individual: float | None
    windows: int
    slow: NDArray[np.bool_]  # beside the others
    slower: NDArray[np.bool_]  # than it has been itself
    excess: NDArray[Any]  # seconds of a step more than the best rank

    @property
    def pattern(self) -> str | None:
        """chronic: slow in most windows; one-off: in some, one after another; None: it is not flagged."""
        count = int(self.slow.sum())
        return None if not count else CHRONIC if 2 * count > self.windows else ONE_OFF

    @property
    def now(self) -> bool:
        """Whether it is slow in the newest window."""
        return bool(self.slow.size and self.slow[-1])

    def json(self) -> dict[str, Any]:
        return {
            "relative": self.relative,
            "individual": self.individual,
            "windows": self.windows,
            "slow": int(self.slow.sum()),
            "slower": int(self.slower.sum()),
            "pattern": self.pattern,
            "now": self.now,
        }


def scores(means: NDArray[Any], steps: Sequence[float | None]) -> list[Score | None]:
    """A score for each rank, by its times in each window; None where nothing is known.

    `steps` is the time of a whole step of each rank, of which a loss has to be a part that matters; None: any does.
    """
    if not means.size:
        return [None for _ in steps]
    relative, individual = beside_the_best(means), beside_itself(means)
    excess = means - _least(means, axis=0)
    found: list[Score | None] = []
    for number, step in enumerate(steps):
        known = np.isfinite(means[number])
        if not known.any():
            found.append(None)
            continue
        matters = excess[number] >= MATTERS * (step or 0.0)
        found.append(
            Score(
                _newest(relative[number]),
                _newest(individual[number]),
                int(known.sum()),
                in_sequence((relative[number] < LOW) & matters),
                in_sequence(individual[number] < LOW),
                excess[number],
            )
        )
    return found


def windows(measured: Sequence[Series | None]) -> tuple[NDArray[Any], int]:
    """(the mean of each rank in each window, NaN where it has none; steps of a window).

    Ranks meet by step. The last window counts once it is half full.
    """
    known = [entry[0] for entry in measured if entry is not None and len(entry[0])]
    every = np.unique(np.concatenate(known)) if known else np.empty(0)
    width = max(1, min(WINDOW, len(every) // IN_SEQUENCE), -(-len(every) // MOST_WINDOWS))
    count = (len(every) + width // 2) // width
    means = np.full((len(measured), count), np.nan)
    for number, entry in enumerate(measured):
        if entry is None or not len(entry[0]):
            continue
        place = np.searchsorted(every, entry[0]) // width
        inside = place < count
        sums = np.bincount(place[inside], entry[1][inside], count)
        counts = np.bincount(place[inside], minlength=count)
        filled = counts > 0
        means[number, filled] = sums[filled] / counts[filled]
    return means, width


def beside_the_best(means: NDArray[Any]) -> NDArray[Any]:
    """The best rank's time divided by the own; NaN in windows of which only one rank tells."""
    found = _part(_least(means, axis=0), means)
    found[:, np.isfinite(means).sum(axis=0) < 2] = np.nan
    return found


def beside_itself(means: NDArray[Any]) -> NDArray[Any]:
    """The own best time divided by that of each window."""
    return _part(_least(means, axis=1)[:, None], means)


def in_sequence(low: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Those that are part of a row of at least IN_SEQUENCE."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], low.astype(np.int8), [0]])))
    found = np.zeros(len(low), bool)
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        found[start:end] = end - start >= IN_SEQUENCE
    return found


def _least(means: NDArray[Any], axis: int) -> NDArray[Any]:
    """Of what is known; infinite where nothing is."""
    found: NDArray[Any] = np.where(np.isfinite(means), means, np.inf).min(axis=axis)
    return found


def _part(best: NDArray[Any], means: NDArray[Any]) -> NDArray[Any]:
    """best / means; who takes no time at all is as fast as it gets."""
    best = np.broadcast_to(best, means.shape)
    found: NDArray[Any] = np.divide(best, means, out=np.ones(means.shape), where=means > 0)
    found[~np.isfinite(means)] = np.nan
    return found


def _newest(values: NDArray[Any]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else None
