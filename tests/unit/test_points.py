"""What `Client.metrics` makes of answers."""

from __future__ import annotations

import pytest

from shoal.errors import UsageError
from shoal.points import aggregated

ENTRY = {
    "name": "loss",
    "kind": "metric",
    "members": [{"attempt": 0}, {"attempt": 2}],
    "x_last": [0, 5],
    "mean": [1.5, "NaN"],
}


def test_a_statistic_over_ranks_is_one_curve_of_the_newest_attempt() -> None:
    found = aggregated(ENTRY, "mean", "step")
    assert (found.replica, found.attempt, list(found.steps), found.values[0]) == ("mean", 2, [0, 5], 1.5)
    assert found.values[1] != found.values[1]


def test_several_statistics_are_no_curve() -> None:
    with pytest.raises(UsageError, match="a curve is of one statistic"):
        aggregated(ENTRY, "all", "step")
