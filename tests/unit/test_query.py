"""The query language: what each condition finds, what an order does, and how mistakes are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UsageError
from shoal.store import query
from tests.conftest import at_most

NOW = 1_793_620_800.0  # 2026-11-02 12:00:00 UTC
DAY = 86400.0


def experiment(**changes: Any) -> dict[str, Any]:
    return {
        "id": "e7k2m9",
        "uid": "0" * 32,
        "number": 12,
        "name": "mnist-base",
        "state": "failed",
        "reason": "worker-1 failed",
        "framework": "pytorch",
        "backend": "native",
        "cluster": "local",
        "origin": "run",
        "tags": ["big", "Night"],
        "attempt": 1,
        "created": NOW - DAY,  # 2026-11-01 12:00
        "started": NOW - DAY + 60,
        "finished": NOW - DAY + 660,
        "params": {
            "lr": 0.02,
            "opt": "adam",
            "amp": True,
            "model": {"layers": 3},
            "a.b": 1,
            "seed": "08",
            "none": None,
        },
        "metrics": {
            "loss": {"last": 0.2, "min": 0.1, "max": 2.5, "step": 90, "time": NOW},
            "val/acc": {"last": 0.9, "min": 0.1, "max": 0.9, "step": 90, "time": NOW},
            "bad": {"last": "NaN", "min": 1.0, "max": "Infinity", "step": 3, "time": NOW},
            "run.max": {"last": 7, "min": 7, "max": 7, "step": 1, "time": NOW},
        },
        "progress": {"fraction": 0.5},
        "scale": None,
        "replicas": 3,
        "first_failure": {"replica": "worker-1", "reason": "OOMKilled: 5 GiB", "exit_code": 137, "signal": "SIGKILL"},
        **changes,
    }


FOUND = """
    state:failed
    status: failed
    state:failed|stopped
    state:~running
    state:~running|queued
    id:e7k2m9
    number:12
    number:10..20
    number:~13
    name:mnist%
    name:%base
    name:%NIST%
    name:~%cifar%
    name:"mnist-base"
    framework:pytorch, backend:native, cluster:local
    tags:big
    tags:small|big
    tags:~small
    tags:night%
    tags:~nil
    attempt:>0
    attempt:1
    replicas:>=3
    replicas:3
    duration:600
    duration:10m
    duration:>5m, duration:<1h
    duration:9m30s..11m
    created:2026-11-01
    created_at: 2026-11-01
    created:>=2026-11-01
    created:<=2026-11-01
    created:>2026-10-31
    created:<2026-11-02
    created:2026-11-01 12:00
    created:2026-11-01T12:00Z
    created:2026-11-01 14:00+02:00
    created:>=2026-11-01 12:00:00
    created:>-2d
    created:<-23h
    created:yesterday
    created:2026-10-01 .. 2026-11-01
    created:~2026-10-01..2026-10-31
    created:~2026-10-01
    finished:~nil
    params.lr:>0.01
    params.lr:0.02
    params.lr:2e-2
    params.lr:0.01..0.02
    params.lr:~0.03
    params.lr:0.01|0.02
    params.opt:adam
    params.opt:~sgd
    params.opt:%DA%
    params.opt:>aaa
    params.opt:~nil
    params.amp:true
    params.model.layers:3
    params.a.b:1
    params.seed:08
    params.seed:"08"
    params.none:nil
    params.nothing:nil
    params.nothing:~adam
    declarations.opt:adam
    metrics.loss:<0.3
    metric.loss:<0.3
    metrics.loss:~>=0.3
    metrics.loss.min:<=0.1
    metrics.loss.max:>2
    metrics.loss.step:90
    metrics.val/acc:>0.8
    metrics."val/acc":>0.8
    metrics.bad:nan
    metrics.bad.max:inf
    metrics.bad:~nil
    metrics.run.max:7
    metrics.nothing:nil
    progress:>0.4
    scale:nil
    first_failure.reason:oom%
    first_failure.exit_code:137
    first_failure.signal:SIGKILL
    state:failed, params.lr:>0.01, metrics.loss:<0.3
""".strip().splitlines()

NOT_FOUND = """
    state:running
    state:~failed
    state:~failed|stopped
    id:e7k2m
    number:13..20
    number:~10..20
    name:MNIST-base
    name:base%
    tags:big, tags:small
    tags:~big
    tags:nil
    attempt:<1
    duration:<600
    created:2026-11-02
    created:>2026-11-01
    created:<2026-11-01
    created:today
    created:>-23h
    created:~2026-11-01
    finished:nil
    params.lr:adam
    params.lr:>a
    params.opt:>0.01
    params.lr:"0.02"
    params.amp:1
    params.nothing:>0
    params.nothing:~>0
    params.nothing:~0..1
    params.lr:nil
    params.opt:nil
    metrics.loss:>0.2
    metrics.loss:nan
    metrics.bad:<1
    metrics.bad:~<1
    metrics.bad:>1
    metrics.bad:nil
    metrics.nothing:<1
    metrics.nothing.max:<1
    metrics.loss:~nil, state:running
    first_failure.reason:%evicted%
""".strip().splitlines()


@pytest.mark.parametrize("text", [line.strip() for line in FOUND])
def test_it_is_found_by(text: str) -> None:
    assert query.matches(query.conditions(text, NOW), experiment(), NOW)


@pytest.mark.parametrize("text", [line.strip() for line in NOT_FOUND])
def test_it_is_not_found_by(text: str) -> None:
    assert not query.matches(query.conditions(text, NOW), experiment(), NOW)


def test_nothing_is_asked_for_by_an_empty_text() -> None:
    assert query.conditions("  ", NOW) == ()
    assert query.order("") == ()


def test_names_and_values_in_quotes_may_hold_anything() -> None:
    shown = experiment(name="a, b|c: d", metrics={"x, y:z": {"last": 1, "min": 0}})
    for text in ('name:"a, b|c: d"', "name:'a, b|c: d'", 'metrics."x, y:z":1', 'metrics."x, y:z".min:0'):
        assert query.matches(query.conditions(text, NOW), shown, NOW), text


def test_one_that_has_not_begun_has_no_duration_and_one_that_runs_has_one() -> None:
    wanted = query.conditions("duration:>1m", NOW)
    assert not query.matches(wanted, experiment(started=None, finished=None), NOW)
    assert query.matches(wanted, experiment(started=NOW - 61, finished=None), NOW)


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("stat:failed", 1, "there is no field 'stat'", "did you mean state?"),
        ("state:failed, foo:1", 15, "there is no field 'foo'", "metrics.NAME"),
        ("metrics:1", 1, "metrics needs a name", "metrics.loss"),
        ("params.:1", 1, "params needs a name", "params.lr"),
        ("metric.:1", 1, "metrics needs a name", "metrics.loss"),
        ("state:faild", 7, "there is no state 'faild'", "did you mean failed?"),
        ("state:failed|runnin", 14, "there is no state 'runnin'", "did you mean running?"),
        ("state", 1, "'state' says nothing of its value", "state:value"),
        ("state:", 7, "a value is missing", "state:failed"),
        ("state:~", 8, "a value is missing", "state:failed"),
        ("name:a|", 8, "a value is missing", "name:value"),
        ("state:failed,", 14, "a condition is missing", "commas"),
        (",", 1, "a condition is missing", "commas"),
        ("state:>failed", 7, "state has no order: > cannot be used", "a|b"),
        ("name: <=x", 7, "name has no order: <= cannot be used", "%text%"),
        ("metrics.loss:low", 14, "'low' is not a number", "metrics.loss:<0.3"),
        ("metrics.loss:%1%", 14, "metrics.loss is no text: % cannot be used", "metrics.loss:<0.3"),
        ("metrics.loss:>", 14, "a value is missing", "metrics.loss:<0.3"),
        ("metrics.loss:0.1..", 14, "a value is missing", "metrics.loss:<0.3"),
        ("number:many", 8, "'many' is not a number", "number:>1"),
        ("duration:>soon", 10, "'soon' is not a duration", "duration:>10m"),
        ("created:soon", 9, "'soon' is not a date", "2026-11-01"),
        ("created:2026-13-01", 9, "'2026-13-01' is not a date", "2026-11-01"),
        ("created:-2d", 9, "-2d is a moment", "created:>-2d"),
        ("params.lr:a..b", 11, "a range is of numbers", "0.01..0.1"),
        ('name:"', 6, '" is not closed', "close it"),
        ("state:failed, name:it's, id:x", 22, "' is not closed", "close it"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, place: int, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        query.conditions(text, NOW)
    (problem,) = raised.value.problems
    assert (str(problem.where), problem.message) == (f"query:1:{place}", message)
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("created,", 9, "a field is missing"),
        ("-metrics", 2, "metrics needs a name"),
        ("created, -speed", 11, "there is no field 'speed'"),
        ("-params.'lr", 9, "' is not closed"),
    ],
)
def test_a_mistake_in_an_order_is_told_with_its_place(text: str, place: int, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        query.order(text)
    (problem,) = raised.value.problems
    assert (str(problem.where), problem.message) == (f"sort:1:{place}", message)


def metric(value: Any) -> dict[str, Any]:
    return {"acc": {"last": value, "min": 0, "max": 1, "step": 1, "time": NOW}} if value is not None else {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [5, 4, 3, 2, 1]),
        ("number", [1, 2, 3, 4, 5]),
        ("-metrics.acc", [3, 5, 1, 4, 2]),
        ("metrics.acc", [5, 1, 3, 4, 2]),
        ("name,-number", [5, 4, 3, 2, 1]),
        ("-params.x", [4, 3, 2, 1, 5]),
        ("params.x, number", [1, 2, 3, 4, 5]),
    ],
)
def test_an_order_puts_what_has_no_value_last(text: str, expected: list[int]) -> None:
    values = {1: 0.5, 2: None, 3: 0.9, 4: "NaN", 5: 0.5}
    params: dict[int, Any] = {1: {"x": 1}, 2: {"x": 2.5}, 3: {"x": "a"}, 4: {"x": "b"}, 5: {}}
    shown = [experiment(number=n, metrics=metric(values[n]), params=params[n]) for n in (5, 4, 3, 2, 1)]
    assert [entry["number"] for entry in query.ordered(query.order(text), shown, NOW)] == expected


@given(st.text(alphabet="state:metricsparams.<>=~|%\"', 0129-\\", max_size=40))
@settings(max_examples=at_most(500))
def test_any_text_is_a_query_or_a_clear_mistake(text: str) -> None:
    try:
        wanted = query.conditions(text, NOW)
    except UsageError:
        return
    assert query.matches(wanted, experiment(), NOW) in (True, False)
