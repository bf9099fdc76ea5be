"""Experiments in the database: how they are found, what a change keeps of them, what they hold."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from shoal.states import FAILED, FINAL, QUEUED, RUNNING, STARTING, SUCCEEDED, Status
from shoal.store import experiments as store
from shoal.store.database import Database

VALUES = {
    "name": "digits",
    "framework": "none",
    "backend": "native",
    "cluster": "local",
    "params": {"lr": 0.1, "text": "é 🐟"},
    "tags": [],
    "sources": {"files": []},
    "resolved": "",
    "plan": {"replicas": []},
    "policy": {},
    "cwd": "/",
}
PLACES = {
    name: {"role": name.partition("-")[0], "index": int(name[-1]), "rank": rank}
    for rank, name in enumerate(("master-0", "worker-0"))
}


@pytest.fixture
def database(each_database: Database) -> Database:
    return each_database


def create(database: Database, **more: object) -> store.Row:
    with database.write() as connection:
        return store.create(connection, {**VALUES, **more})


def events(database: Database) -> list[tuple[str, str, str | None]]:
    with database.read() as connection:
        return [(e["from_state"], e["to_state"], e["replica"]) for e in store.events_after(connection, 0)]


def test_a_new_experiment_waits_in_the_queue(database: Database) -> None:
    row = create(database)
    assert (row["state"], row["number"], row["attempt"], row["handle"]) == (QUEUED, 1, 0, None)
    assert row["params"] == VALUES["params"]
    assert row["oversubscribe"] is False
    assert len(row["uid"]) == 32
    assert len(row["id"]) == 6
    assert events(database) == [("created", "queued", None)]


def test_an_experiment_is_found_by_what_a_person_types(database: Database) -> None:
    first, second, third = create(database), create(database, name="other"), create(database)
    fourth = create(database, name=first["id"])
    unnamed = create(database, name="")
    cases = {
        first["id"]: first,  # rather than the one of that name
        fourth["id"]: fourth,
        first["uid"]: first,
        "2": second,
        "#2": second,
        "other": second,
        "digits": third,  # the newest of that name
        "#5": unnamed,
        "#99": None,
        "99999999999999999999": None,
        "²": None,
        "#": None,
        "": None,
        "nobody": None,
        "%": None,
    }
    with database.read() as connection:
        for word, expected in cases.items():
            assert store.find(connection, word) == expected, word


def test_the_newest_and_the_unfinished(database: Database) -> None:
    rows = [create(database) for _ in range(5)]
    with database.write() as connection:
        store.change(connection, rows[1], RUNNING, "")
        store.change(connection, rows[2], SUCCEEDED, "")
        store.change(connection, rows[3], FAILED, "why")
    with database.read() as connection:
        assert [row["number"] for row in store.unfinished(connection)] == [1, 2, 5]
        assert [row["number"] for row in store.newest(connection, 2)] == [5, 4]
        assert [row["number"] for row in store.newest(connection, 2, before=4)] == [3, 2]
        assert [row["number"] for row in store.newest(connection, 9, states=tuple(FINAL))] == [4, 3]


def test_a_change_is_an_event_only_when_the_state_changes(database: Database) -> None:
    row = create(database)
    steps: list[tuple[str, str, dict[str, Any]]] = [
        (QUEUED, "waits for 1 cpu", {}),  # a reason
        (QUEUED, "waits for 1 cpu", {}),  # nothing
        (QUEUED, "waits for 1 cpu", {"handle": "h"}),  # a value
        (STARTING, "", {}),
        (STARTING, "", {}),
        (RUNNING, "", {"started": 12.5}),
    ]
    for state, reason, values in steps:
        with database.write() as connection:
            store.change(connection, store.get(connection, row["uid"]), state, reason, **values)
    assert events(database) == [
        ("created", "queued", None),
        ("queued", "starting", None),
        ("starting", "running", None),
    ]
    with database.read() as connection:
        kept = store.get(connection, row["uid"])
        assert store.last_event(connection) == 3
        assert [event["number"] for event in store.events_after(connection, 1, uid=row["uid"])] == [2, 3]
        assert [event["number"] for event in store.events_after(connection, 0, limit=1)] == [1]
        assert list(store.events_after(connection, 0, uid="other")) == []
    assert (kept["state"], kept["handle"], kept["started"]) == (RUNNING, "h", 12.5)


def test_an_event_tells_the_attempt_that_begins(database: Database) -> None:
    row = create(database)
    with database.write() as connection:
        store.change(connection, row, "restarting", "attempt 1 of at most 3", attempt=1, handle=None)
    with database.read() as connection:
        last = store.events_after(connection, 1)[0]
    assert (last["attempt"], last["reason"]) == (1, "attempt 1 of at most 3")


def test_recording_twice_is_recording_once(database: Database) -> None:
    row = create(database)
    seen = [
        Status("master-0", 0, RUNNING, node="here", started=1.5),
        Status("worker-0", 0, FAILED, "why", 137, "SIGKILL", "here", 1.5, 2.5, ("last line",)),
    ]
    for _ in range(2):
        with database.write() as connection:
            store.record(connection, row, PLACES, seen)
    once = events(database)
    assert once[1:] == [("created", "running", "master-0"), ("created", "failed", "worker-0")]
    with database.read() as connection:
        kept = store.replicas_of(connection, row["uid"], 0)
    assert [(r["replica"], r["rank"], r["state"], r["exit_code"], r["signal"]) for r in kept] == [
        ("master-0", 0, RUNNING, None, ""),
        ("worker-0", 1, FAILED, 137, "SIGKILL"),
    ]


def test_earlier_tries_and_attempts_are_never_overwritten(database: Database) -> None:
    row = create(database)
    with database.write() as connection:
        store.record(connection, row, PLACES, [Status("worker-0", 0, FAILED, exit_code=3)])
        store.record(connection, row, PLACES, [Status("worker-0", 1, RUNNING)])
        store.change(connection, row, "restarting", "", attempt=1)
        row = store.get(connection, row["uid"])
        store.record(connection, row, PLACES, [Status("worker-0", 0, RUNNING), Status("master-0", 0, RUNNING)])
        store.record(connection, row, PLACES, [Status("worker-0", 0, SUCCEEDED, exit_code=0)])
    with database.read() as connection:
        kept = store.replicas_of(connection, row["uid"])
        newest = store.replicas_of(connection, row["uid"], 1)
    assert [(r["attempt"], r["replica"], r["try"], r["state"]) for r in kept] == [
        (0, "worker-0", 0, FAILED),
        (0, "worker-0", 1, RUNNING),
        (1, "master-0", 0, RUNNING),
        (1, "worker-0", 0, SUCCEEDED),
    ]
    assert [r["replica"] for r in newest] == ["master-0", "worker-0"]


def test_a_change_that_is_no_new_state_is_kept_without_an_event(database: Database) -> None:
    row = create(database)
    with database.write() as connection:
        store.record(connection, row, PLACES, [Status("master-0", 0, RUNNING)])
        store.record(connection, row, PLACES, [Status("master-0", 0, RUNNING, node="there")])
    assert len(events(database)) == 2
    with database.read() as connection:
        assert store.replicas_of(connection, row["uid"])[0]["node"] == "there"


def test_a_taken_unit_is_refused_and_with_it_all_others(database: Database) -> None:
    with database.write() as connection:
        store.allocate(connection, "a", [("gpu", 0, "master-0"), ("port", 20000, "master-0")])
        store.allocate(connection, "a", [])
    with pytest.raises(IntegrityError), database.write() as connection:
        store.allocate(connection, "b", [("gpu", 1, "x"), ("gpu", 0, "x"), ("port", 20001, "x")])
    with database.read() as connection:
        assert [(unit["uid"], unit["unit"]) for unit in store.allocated(connection, "gpu")] == [("a", 0)]
        assert list(store.allocated(connection, "gpu", "b")) == []
    with database.write() as connection:
        store.release(connection, "a")
        store.release(connection, "a")
        store.allocate(connection, "b", [("gpu", 1, "x"), ("gpu", 0, "x")])
    with database.read() as connection:
        assert [unit["unit"] for unit in store.allocated(connection, "gpu", "b")] == [0, 1]


def test_a_refused_unit_leaves_nothing_even_when_the_transaction_goes_on(database: Database) -> None:
    with database.write() as connection:
        store.allocate(connection, "a", [("gpu", 0, "master-0")])
        with pytest.raises(IntegrityError):
            store.allocate(connection, "b", [("gpu", 1, "x"), ("gpu", 0, "x")])
    with database.read() as connection:
        assert [unit["uid"] for unit in store.allocated(connection, "gpu")] == ["a"]


def test_what_is_removed_is_gone_and_its_events_are_not_numbered_again(database: Database) -> None:
    row, other = create(database), create(database)
    with database.write() as connection:
        store.record(connection, other, PLACES, [Status("master-0", 0, RUNNING)])
        store.allocate(connection, other["uid"], [("gpu", 0, "master-0")])
        last = store.last_event(connection)
        store.remove(connection, other["uid"])
    with database.read() as connection:
        assert store.find(connection, other["id"]) is None
        assert list(store.replicas_of(connection, other["uid"])) == []
        assert list(store.allocated(connection, "gpu")) == []
        assert store.find(connection, row["id"]) == row
    with database.write() as connection:
        store.change(connection, row, RUNNING, "")
        assert store.last_event(connection) == last + 1, "a stream with a cursor would miss it"
