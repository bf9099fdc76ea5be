"""Which experiments `[retention]` keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.engine.retention import DAY, Rules, expired, rules
from shoal.errors import UsageError

NOW = 1_800_000_000.0


def row(number: int, **more: Any) -> dict[str, Any]:
    """One that was over `number` days before day 10."""
    finished = NOW - (10 - number) * DAY
    ended = {"uid": f"u{number}", "number": number, "state": "succeeded", "tracked": True, "tags": []}
    return {**ended, "created": finished - 60, "finished": finished, **more}


TEN = [row(number) for number in range(1, 11)]


@pytest.mark.parametrize(
    ("wanted", "rows", "gone"),
    [
        pytest.param(Rules(), TEN, [], id="without rules everything stays"),
        pytest.param(Rules(keep_days=7.5), TEN, [1, 2], id="what is too old goes, the oldest first"),
        pytest.param(Rules(keep=7), TEN, [1, 2, 3], id="beyond the newest seven"),
        pytest.param(Rules(keep_days=7.5, keep=7), TEN, [1, 2, 3], id="either rule is enough"),
        pytest.param(Rules(keep=0), [row(1, state="running"), row(2, state="lost")], [], id="what is not over stays"),
        pytest.param(Rules(keep=0), [row(1, tracked=False)], [], id="what is not wholly read stays"),
        pytest.param(Rules(keep=0), [row(1, tags=["a", "keep"]), row(2, tags=["keeper"])], [2], id="a tag holds it"),
        pytest.param(Rules(keep=0), [row(3), row(4)], [4], id="an alias of its model holds it"),
        pytest.param(Rules(keep=1), [row(1), row(2, tags=["keep"])], [1], id="what is held counts as well"),
        pytest.param(Rules(keep_days=5), [row(1, finished=None)], [1], id="one that never ran is as old as it is"),
    ],
)
def test_which_go(wanted: Rules, rows: list[dict[str, Any]], gone: list[int]) -> None:
    assert expired(wanted, rows, {"u3"} if len(rows) == 2 else (), NOW) == [f"u{number}" for number in gone]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, None),
        ({"retention": {}}, None),
        ({"retention": {"keep_days": 90, "keep": 1000}}, Rules(90.0, 1000)),
        ({"retention": {"keep": 0}}, Rules(None, 0)),
    ],
)
def test_what_the_settings_say(config: dict[str, Any], found: Rules | None) -> None:
    assert rules(config, Path("config.toml")) == found


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"keep_days": "90"}, "retention.keep_days"),
        ({"keep_days": 0}, "retention.keep_days"),
        ({"keep_days": True}, "retention.keep_days"),
        ({"keep_days": float("nan")}, "retention.keep_days"),
        ({"keep": -1}, "retention.keep"),
        ({"keep": 1.5}, "retention.keep"),
        ({"keep_day": 3}, "retention.keep_day"),
        (90, "retention"),
    ],
)
def test_a_wrong_setting_is_named(section: Any, key: str) -> None:
    with pytest.raises(UsageError, match=rf"config\.toml: {key}:"):
        rules({"retention": section}, Path("config.toml"))
