"""Lists of experiments: what they say is what the rows hold, also after a change, and for those that run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import insert, update

from shoal.server import views
from shoal.store import experiments as store
from shoal.store import query
from shoal.store.database import Database
from shoal.store.listing import Listing
from shoal.store.tables import experiments, replicas

NOW = time.time()
METRICS = {"loss": {"last": 0.25, "min": 0.125, "max": 2.0, "step": 9, "time": 5.5}}


def row(number: int, **values: Any) -> dict[str, Any]:
    failure = {"replica": "worker-1", "process": None, "attempt": 0, "try": 0, "exit_code": 3, "signal": None}
    return {
        "uid": f"{number:032x}",
        "id": f"e{number:05d}",
        "number": number,
        "name": f"name {number}",
        "state": "failed",
        "reason": 'worker-1 failed: "é"\n',
        "framework": "none",
        "backend": "native",
        "cluster": "local",
        "attempt": 0,
        "created": 1_700_000_000.123456 + number,
        "started": 1_700_000_001.7654321,
        "finished": 1_700_000_002.1,
        "params": {"lr": 0.1, "inf": "Infinity", "deep": {"a.b": [1, "x"]}},
        "tags": ["a", "b\u2028"],
        "sources": {},
        "resolved": "",
        "plan": {"replicas": [{}] * 3},
        "policy": {},
        "cwd": "/",
        "first_failure": {**failure, "reason": None, "time": 1.0, "lines": ["a\tb"]},
        "tracked": True,
        "metrics": METRICS,
        "progress": {"fraction": 0.5, "time": 1_700_000_001.9},
        "scale": {"id": "s1", "workers": 2},
        **values,
    }


def add(database: Database, *rows: Mapping[str, Any]) -> None:
    with database.write() as connection:
        for values in rows:
            connection.execute(insert(experiments).values(**values))


def listed(database: Database, lists: Listing, live: Any = lambda uid: None, **choice: Any) -> Any:
    given = {"limit": 100, **choice}
    with database.read() as connection:
        return json.loads(lists.text(connection, now=NOW, live=live, **given))


def test_a_list_says_what_the_view_of_each_row_says(database: Database) -> None:
    odd = {"x": {"last": "NaN", "min": float("nan"), "max": float("inf"), "step": 1, "time": 2.0}}
    add(
        database,
        row(1),
        row(2, name="", first_failure=None, progress=None, scale=None, metrics=None, started=None, finished=None),
        row(3, metrics=odd),
        row(4, params={}, tags=[], state="succeeded", reason=""),
    )
    lists = Listing()
    with database.read() as connection:
        expected = [views.experiment(store.get(connection, f"{number:032x}")) for number in (4, 3, 2, 1)]
    for _ in range(2):  # the second is what the first has kept
        assert listed(database, lists) == json.loads(json.dumps(expected))
    assert listed(database, lists)[1]["metrics"]["x"] == {
        "last": "NaN", "min": "NaN", "max": "Infinity", "step": 1, "time": 2.0,
    }  # fmt: skip


def test_every_change_of_a_row_is_seen(database: Database) -> None:
    add(database, row(1), row(2))
    lists = Listing()
    assert [entry["reason"] for entry in listed(database, lists)] == [row(1)["reason"]] * 2
    with database.write() as connection:
        store.change(connection, store.get(connection, row(1)["uid"]), "failed", "another reason")
        connection.execute(update(experiments).where(experiments.c.number == 2).values(tags=["new"]))
    found = listed(database, lists)
    assert (found[1]["reason"], found[0]["tags"]) == ("another reason", ["new"])
    with database.write() as connection:
        store.remove(connection, row(2)["uid"])
    assert [entry["number"] for entry in listed(database, lists)] == [1]


@pytest.mark.parametrize(
    ("choice", "numbers", "total"),
    [
        pytest.param({"limit": 3}, [7, 6, 5], 7, id="the first"),
        pytest.param({"limit": 3, "offset": 3}, [4, 3, 2], 7, id="the next"),
        pytest.param({"limit": 3, "offset": 6}, [1], 7, id="the last"),
        pytest.param({"limit": 3, "offset": 7}, [], 7, id="after the last"),
        pytest.param({"limit": 9}, [7, 6, 5, 4, 3, 2, 1], 7, id="all"),
        pytest.param({"limit": 2, "offset": 1, "wanted": "number:>2"}, [6, 5], 5, id="of those that a query finds"),
        pytest.param({"limit": 2, "offset": 5, "keys": "number"}, [6, 7], 7, id="in another order"),
        pytest.param({"limit": 2, "offset": 1, "states": ["failed"]}, [6, 5], 7, id="in a state"),
    ],
)
def test_a_part_of_a_list_says_how_long_the_list_is(
    database: Database, choice: dict[str, Any], numbers: list[int], total: int
) -> None:
    add(database, *(row(number) for number in range(1, 8)))
    given = {
        **choice,
        "wanted": query.conditions(choice.get("wanted", ""), NOW),
        "keys": query.order(choice.get("keys", "")),
    }
    with database.read() as connection:
        text, found = Listing().page(connection, now=NOW, live=lambda uid: None, **given)
    assert ([entry["number"] for entry in json.loads(text)], found) == (numbers, total)


def test_one_that_is_not_over_has_the_metrics_of_now(database: Database) -> None:
    running = {"state": "running", "tracked": False, "finished": None, "metrics": None, "first_failure": None}
    waiting = {**running, "state": "queued", "started": None}
    add(database, row(1), row(2, **running), row(3, state="succeeded", tracked=False), row(4, **waiting))
    lists = Listing()
    values = {row(2)["uid"]: 1, row(3)["uid"]: 2}

    def live(uid: str) -> dict[str, Any]:
        values[uid] += 10
        return {"loss": {"last": values[uid], "min": 0, "max": 99, "step": 1, "time": 1.0}}

    first, second = (listed(database, lists, live) for _ in range(2))
    assert [entry["metrics"].get("loss", {}).get("last") for entry in first] == [None, 12, 11, 0.25]
    assert [entry["metrics"].get("loss", {}).get("last") for entry in second] == [None, 22, 21, 0.25]
    wanted = query.conditions("metrics.loss:>=25", NOW)
    assert [entry["number"] for entry in listed(database, lists, live, wanted=wanted)] == [3, 2]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("number:>1", [3, 2]),
        ("metrics.loss:<0.3", [3, 1]),
        ("metrics.loss.max:2", [3, 1]),
        ("metrics.'a\"b':nil", [3, 2, 1]),
        ("metrics.x.y:7", [2]),
        ("metrics.ü:8", [2]),
        ("metrics.日本/🐟.min:<3", [2]),
        ("outputs.x.y:7, inputs.lr:0.2", [2]),
        ("out.loss:<0.3, in.lr:0.1", [3, 1]),
        ("metrics.x.y.min:<7", [2]),
        ("metrics.gone:nil", [3, 2, 1]),
        ("metrics.nan:nan", [2]),
        ("metrics.nan:>0", []),
        ("params.lr:0.1, state:failed", [3, 1]),
        ("replicas:3", [3, 2, 1]),
        ("replicas:>3", []),
        ("scale:s1", [3, 2, 1]),
        ("duration:<1", [3, 2, 1]),
        ("progress:0.5", [3, 2, 1]),
        ("first_failure.exit_code:3", [3, 2, 1]),
        ("tags:a", [3, 2, 1]),
        ("name:%1", [1]),
    ],
)
def test_a_query_reads_only_what_it_needs_and_finds_the_same(database: Database, text: str, numbers: list[int]) -> None:
    odd = {"x.y": {"last": 7, "min": 6.5, "max": 8, "step": 1, "time": 1.0}, "nan": {"last": "NaN"}}
    odd |= {"ü": {"last": 8}, "日本/🐟": {"last": 5, "min": 2}}
    add(database, row(1), row(2, metrics=odd, params={"lr": 0.2}), row(3))
    assert [e["number"] for e in listed(database, Listing(), wanted=query.conditions(text, NOW))] == numbers


def test_order_limit_cursor_and_states(database: Database) -> None:
    add(database, *(row(n, params={"x": n % 3}, state="failed" if n % 2 else "succeeded") for n in range(1, 8)))
    lists = Listing()
    assert [e["number"] for e in listed(database, lists, limit=3)] == [7, 6, 5]
    assert [e["number"] for e in listed(database, lists, limit=3, before=5)] == [4, 3, 2]
    assert [e["number"] for e in listed(database, lists, states=["succeeded"])] == [6, 4, 2]
    keys = query.order("params.x,number")
    assert [e["number"] for e in listed(database, lists, keys=keys, limit=4)] == [3, 6, 1, 4]


def test_more_than_is_kept_is_listed_all_the_same(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.store.listing.MOST_KEPT", 5)
    add(database, *(row(n) for n in range(1, 13)))
    lists = Listing()
    for _ in range(2):
        assert [e["number"] for e in listed(database, lists, limit=4)] == [12, 11, 10, 9]
        assert [e["number"] for e in listed(database, lists)] == list(range(12, 0, -1))


def test_a_page_tells_how_many_there_are_and_how_the_replicas_do(database: Database) -> None:
    places = [{"replica": f"worker-{i}", "role": "worker", "index": i, "rank": i} for i in range(3)]
    going = {"state": "running", "tracked": False, "attempt": 1, "plan": {"replicas": places}}
    add(database, row(1), row(2, **going), row(3, plan={"replicas": places}, state="failed"))
    with database.write() as connection:
        for attempt, index, try_, state in ((0, 0, 0, "failed"), (1, 0, 0, "failed"), (1, 0, 1, "running")):
            known = {"uid": row(2)["uid"], "attempt": attempt, **places[index], "try": try_, "state": state}
            connection.execute(insert(replicas).values(reason="", signal="", node="", **known))
    with database.read() as connection:
        page = {"now": NOW, "live": lambda uid: {}, "roles": True}
        text, total = Listing().page(connection, limit=2, **page)
        _, found = Listing().page(connection, limit=1, wanted=query.conditions("number:<3", NOW), **page)
    assert (total, found) == (3, 2)
    assert [entry["roles"] for entry in json.loads(text)] == [
        {"worker": {"stopped": 3}},
        {"worker": {"running": 1, "created": 2}},
    ]
