"""Ingest: what is in the stream files is in the store, once, whoever wrote it and whenever it is read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from shoal import journal
from shoal.engine.ingest import Ingest
from shoal.engine.places import experiment_directory
from shoal.engine.reading import Position, read
from shoal.journalfile import JournalFile
from shoal.launcher import processes
from shoal.states import RUNNING, SUCCEEDED
from shoal.store import chunks, heads, streams, tables
from shoal.store import experiments as store
from shoal.store.database import Database
from tests.unit.test_store import VALUES


@pytest.fixture
def ingest(tmp_path: Path, database: Database) -> Ingest:
    return Ingest(tmp_path, database)


def new_experiment(database: Database, state: str = RUNNING) -> store.Row:
    with database.write() as connection:
        return store.create(connection, VALUES, state=state)


def finish(database: Database, row: store.Row) -> None:
    with database.write() as connection:
        store.change(connection, store.get(connection, row["uid"]), SUCCEEDED, "")


def writer(home: Path, row: store.Row, replica: str = "worker-0", **header: Any) -> JournalFile:
    place = experiment_directory(home, row) / "attempt-0" / replica / "try-0" / "streams"
    place.mkdir(parents=True, exist_ok=True)
    told = {"replica": replica, "rank": 0, "process": 0, "kind": "metric", "started": 1.0, **header}
    return JournalFile(str(place), told, segment=4000)


def log(file: JournalFile, first: int, count: int, name: str = "loss") -> None:
    steps = list(range(first, first + count))
    file.points([journal.Group((name,), [float(s) for s in steps], steps, [[s / 10 for s in steps]])])


def points(database: Database, row: store.Row, name: str = "loss") -> list[int]:
    """The steps that are in the store, of chunks and then of heads."""
    with database.read() as connection:
        query = select(tables.series.c.id).where(tables.series.c.uid == row["uid"], tables.series.c.name == name)
        packed = select(tables.chunks.c.data).where(tables.chunks.c.series.in_(query)).order_by(tables.chunks.c.number)
        found = [step for (data,) in connection.execute(packed) for step in chunks.decode(data).steps.tolist()]
        for stream in streams.streams_of(connection, row["uid"]):
            columns = heads.read(connection, stream["stream"])
            found += columns.points(name).steps.tolist() if name in columns else []
    return found


def test_what_is_written_in_many_looks_is_kept_once(tmp_path: Path, database: Database, ingest: Ingest) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    for start in range(0, 2000, 100):
        log(file, start, 100)
        ingest.catch_up(row["uid"])
        ingest.catch_up(row["uid"])
    assert points(database, row) == list(range(2000))
    assert len(list(Path(file.directory).iterdir())) > 1, "several segments"


def test_another_server_goes_on_where_the_first_stopped(tmp_path: Path, database: Database) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    for start in range(0, 500, 100):
        log(file, start, 100)
        Ingest(tmp_path, database).catch_up(row["uid"])
    summaries = Ingest(tmp_path, database).summaries
    assert [(entry["name"], entry["count"]) for entry in summaries.of(row["uid"])] == [("loss", 500)]
    assert points(database, row) == list(range(500))


def test_a_finished_experiment_is_tracked_and_its_stream_files_go(
    tmp_path: Path, database: Database, ingest: Ingest
) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    log(file, 0, 50)
    file.end({"how": "finished", "dropped": 3})
    finish(database, row)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        after = store.get(connection, row["uid"])
        (stream,) = streams.streams_of(connection, row["uid"])
        assert streams.head_sizes(connection) == {}
    assert after["tracked"]
    assert after["metrics"]["loss"]["last"] == pytest.approx(4.9)
    assert (stream["closed"], stream["dropped"], stream["gaps"]) == (True, 3, [])
    assert list(Path(file.directory).iterdir()) == []
    assert points(database, row) == list(range(50))


def test_dropped_calls_are_counted_although_the_writer_never_comes_to_its_end(
    tmp_path: Path, database: Database, ingest: Ingest
) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    counted = []
    for calls in (3, 10, "many", -1, 2**70, None, 4):  # the number since the stream began: the largest counts
        log(file, len(counted), 1)
        file.event({"kind": "dropped", "time": 1.0, "calls": calls})
        file.event({"kind": "known to a later version", "time": 1.0, "values": 7})
        ingest.catch_up(row["uid"])
        with database.read() as connection:
            counted += [stream["dropped"] for stream in streams.streams_of(connection, row["uid"])]
    assert counted == [3, 10, 10, 10, 10, 10, 10]
    finish(database, row)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        (stream,) = streams.streams_of(connection, row["uid"])
        assert streams.records_of(connection, row["uid"]) == []
    assert (stream["closed"], stream["ended"], stream["dropped"], stream["gaps"]) == (True, None, 10, [])
    assert points(database, row) == list(range(7))


def test_a_torn_tail_waits_while_the_writer_lives_and_is_a_gap_after_it(
    tmp_path: Path, database: Database, ingest: Ingest
) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    log(file, 0, 10)
    path = Path(file.directory, journal.segment_name(file.stream, 0))
    with path.open("ab") as torn:
        torn.write(journal.pack(journal.POINTS, 2, b"x" * 100)[:50])
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        assert streams.streams_of(connection, row["uid"])[0]["gaps"] == []
    finish(database, row)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        (stream,) = streams.streams_of(connection, row["uid"])
    assert [gap["length"] for gap in stream["gaps"]] == [50]
    assert points(database, row) == list(range(10))


def test_a_hole_of_zeros_costs_its_frames_and_says_how_many(tmp_path: Path, database: Database, ingest: Ingest) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    edges = []
    for start in range(0, 40, 10):
        log(file, start, 10)
        edges.append(os.path.getsize(Path(file.directory, journal.segment_name(file.stream, 0))))
    with open(Path(file.directory, journal.segment_name(file.stream, 0)), "r+b") as hole:
        hole.seek(edges[0])
        hole.write(bytes(edges[1] - edges[0]))
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        (stream,) = streams.streams_of(connection, row["uid"])
    assert [(gap["length"], gap["frames"]) for gap in stream["gaps"]] == [(edges[1] - edges[0], 1)]
    assert points(database, row) == [*range(10), *range(20, 40)]


@pytest.mark.slow
def test_a_hole_that_is_larger_than_any_frame_is_passed_over(
    tmp_path: Path, database: Database, ingest: Ingest
) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    path = Path(file.directory, journal.segment_name(file.stream, 0))
    log(file, 0, 10)
    begins, hole = path.stat().st_size, 2 * journal.LARGEST
    log(file, 10, 10)
    frame = path.read_bytes()[begins:]
    with path.open("r+b") as target:
        target.seek(begins)
        target.write(bytes(len(frame)))
        target.seek(begins + hole)
        target.write(frame)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        (stream,) = streams.streams_of(connection, row["uid"])
    assert sum(gap["length"] for gap in stream["gaps"]) == hole
    assert points(database, row) == list(range(20))


def test_a_frame_that_would_fill_the_memory_is_damage(tmp_path: Path, database: Database, ingest: Ingest) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    log(file, 0, 10)
    bomb = journal.pack(journal.EVENT, file.seq, bytes(journal.LARGEST + 1))
    assert len(bomb) < journal.LARGEST / 100
    with Path(file.directory, journal.segment_name(file.stream, 0)).open("ab") as segment:
        segment.write(bomb)
    file.seq += 1
    log(file, 10, 10)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        (stream,) = streams.streams_of(connection, row["uid"])
    assert [(gap["length"], gap["frames"]) for gap in stream["gaps"]] == [(len(bomb), 1)]
    assert points(database, row) == list(range(20))


@pytest.mark.slow
def test_a_backlog_of_many_streams_is_kept_as_it_is_read(tmp_path: Path, database: Database) -> None:
    row = new_experiment(database)
    for rank in range(100):  # more than are kept in one transaction
        file = writer(tmp_path, row, f"worker-{rank}", rank=rank)
        log(file, 0, 300)  # and more than one segment each
        log(file, 300, 300)
        file.end({"how": "finished", "dropped": 0})
    told: list[Any] = []
    ingest = Ingest(tmp_path, database)
    ingest.on_change = told.append
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        kept = streams.streams_of(connection, row["uid"])
    assert [(stream["closed"], stream["gaps"]) for stream in kept] == [(True, [])] * 100
    assert sum(found[row["uid"]][0] for found in told) == 100 * 600
    assert len(points(database, row)) == 100 * 600


def test_a_stream_that_cannot_be_read_costs_the_others_nothing(
    tmp_path: Path, database: Database, ingest: Ingest
) -> None:
    row = new_experiment(database)
    log(writer(tmp_path, row), 0, 10)
    bad = experiment_directory(tmp_path, row) / "attempt-1" / "worker-0" / "try-0" / "streams" / f"{'0' * 32}.000000"
    bad.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        ingest.catch_up(row["uid"])
    bad.rmdir()
    ingest.catch_up(row["uid"])
    assert points(database, row) == list(range(10))


def test_what_is_read_takes_little_more_memory_than_its_bytes(tmp_path: Path) -> None:
    """Also where each call is a frame of its own, with hundreds of names: a server that was busy finds many of them."""
    file = JournalFile(str(tmp_path), {"kind": "metric"})
    names = tuple(f"layer_{number}/norm" for number in range(200))
    for step in range(300):
        file.points([journal.Group(names, [float(step)], [step], [[step + number / 7] for number in range(200)])])
    file.close()
    read(str(tmp_path), file.stream, [0], Position(), over=False)  # what it imports is no matter
    tracemalloc.start()
    try:
        piece = read(str(tmp_path), file.stream, [0], Position(), over=False)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert piece.points == 300 * 200
    assert held < 2 * piece.size


def test_events_change_the_experiment_and_are_kept(tmp_path: Path, database: Database, ingest: Ingest) -> None:
    row = new_experiment(database)
    file = writer(tmp_path, row)
    file.event({"kind": "params", "time": 1.0, "values": {"lr": 0.1}})
    file.event({"kind": "tag", "time": 2.0, "tags": ["good"]})
    file.event({"kind": "progress", "time": 3.0, "fraction": 0.25})
    file.event({"kind": "text", "time": 4.0, "name": "note", "text": "hello", "step": 7})
    file.event({"kind": "host", "time": 5.0, "packages": {"torch": "2"}})
    file.event({"kind": "unheard of", "time": 6.0})
    ingest.catch_up(row["uid"])
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        after = store.get(connection, row["uid"])
        records = streams.records_of(connection, row["uid"])
    assert after["params"]["lr"] == 0.1
    assert "good" in after["tags"]
    assert after["progress"]["fraction"] == 0.25
    assert after["provenance"]["packages"] == {"torch": "2"}
    assert [(record["kind"], record["name"], record["step"]) for record in records] == [
        ("params", "", None),
        ("tag", "", None),
        ("text", "note", 7),
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["rank 0 first", "rank 1 first"])
def test_params_of_ranks_that_differ_are_those_of_the_lowest(
    tmp_path: Path, database: Database, ingest: Ingest, order: tuple[int, int]
) -> None:
    row = new_experiment(database)
    for rank in order:
        file = writer(tmp_path, row, rank=rank)
        file.event({"kind": "params", "time": 1.0 - rank, "values": {"seed": rank, f"only {rank}": rank}})
        ingest.catch_up(row["uid"])
    with database.read() as connection:
        params = store.get(connection, row["uid"])["params"]
    assert {name: params[name] for name in ("seed", "only 0", "only 1")} == {"seed": 0, "only 0": 0, "only 1": 1}


def test_a_removed_experiment_leaves_nothing(tmp_path: Path, database: Database, ingest: Ingest) -> None:
    from shoal.store import series

    row = new_experiment(database)
    file = writer(tmp_path, row)
    log(file, 0, 50_000)
    file.event({"kind": "text", "time": 4.0, "name": "note", "text": "hello"})
    file.end({"how": "finished"})
    finish(database, row)
    ingest.catch_up(row["uid"])
    ingest.forget(row["uid"])
    database.give_back()
    before = (tmp_path / "shoal.db").stat().st_size
    with database.write() as connection:
        series.remove(connection, row["uid"])
        streams.remove(connection, row["uid"])
        store.remove(connection, row["uid"])
    database.give_back()
    with database.read() as connection:
        for table in ("streams", "heads", "series", "chunks", "records", "experiments"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0, table
        assert connection.exec_driver_sql("PRAGMA freelist_count").scalar() == 0
    assert (tmp_path / "shoal.db").stat().st_size < before


ABOUT = {"key": "run-1", "name": "mine", "started": 5.0, "command": ["train.py"], "cwd": "/", "host": "here"}


def outside_header(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    start = processes.start_time(process.pid)
    return {"host": socket.gethostname(), "boot": processes.boot_id(), "pid": process.pid, "pid_start": start}


@pytest.fixture
def somebody() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        ({"how": "finished", "time": 9.0}, "succeeded", ""),
        ({"how": "exited", "time": 9.0}, "succeeded", ""),
        ({"how": "exception", "time": 9.0, "error": "ValueError: no"}, "failed", "master-0: ValueError: no"),
        (None, "failed", "master-0: its process was gone without a word"),
    ],
    ids=["said goodbye", "ended", "an exception", "killed"],
)
def test_a_run_outside_becomes_an_experiment_and_ends_as_its_stream_tells(
    end: dict[str, Any] | None,
    state: str,
    reason: str,
    tmp_path: Path,
    database: Database,
    ingest: Ingest,
    somebody: subprocess.Popen[bytes],
) -> None:
    row = ingest.adopt(ABOUT)
    assert (row["state"], row["name"], row["created"]) == (RUNNING, "mine", 5.0)
    assert ingest.adopt(ABOUT)["uid"] == row["uid"]
    file = writer(tmp_path, row, "master-0", **outside_header(somebody))
    log(file, 0, 10)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        assert store.get(connection, row["uid"])["state"] == RUNNING
        (replica,) = store.replicas_of(connection, row["uid"])
    assert (replica["replica"], replica["state"], replica["node"]) == ("master-0", RUNNING, socket.gethostname())
    log(file, 10, 10)
    if end is not None:
        file.end(end)
    else:
        somebody.kill()
        somebody.wait()
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        after = store.get(connection, row["uid"])
    assert (after["state"], after["reason"], after["tracked"]) == (state, reason, True)
    assert (after["first_failure"] is not None) == (state == "failed")
    assert points(database, row) == list(range(20))


def test_a_rank_that_comes_late_takes_the_run_up_again(
    tmp_path: Path, database: Database, ingest: Ingest, somebody: subprocess.Popen[bytes]
) -> None:
    row = ingest.adopt(ABOUT)
    first = writer(tmp_path, row, "worker-0", **outside_header(somebody))
    log(first, 0, 10)
    first.end({"how": "finished", "time": 9.0})
    ingest.catch_up(row["uid"])
    second = writer(tmp_path, row, "worker-1", rank=1, **outside_header(somebody))
    log(second, 0, 5, "other")
    second.end({"how": "finished", "time": 10.0})
    assert ingest.adopt(ABOUT)["state"] == RUNNING
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        after = store.get(connection, row["uid"])
        replicas = [entry["replica"] for entry in store.replicas_of(connection, row["uid"])]
    assert (after["state"], replicas) == (SUCCEEDED, ["worker-0", "worker-1"])
    assert (points(database, row), points(database, row, "other")) == (list(range(10)), list(range(5)))


def test_a_run_outside_is_found_in_the_home(tmp_path: Path, database: Database, ingest: Ingest) -> None:
    import json

    place = tmp_path / "outside" / "run-1"
    place.mkdir(parents=True)
    (place / "outside.json").write_text(json.dumps(ABOUT))
    (tmp_path / "outside" / "junk").mkdir()
    ingest.start()
    try:
        deadline = time.monotonic() + 20
        found = None
        while found is None and time.monotonic() < deadline:
            ingest.wake()
            with database.read() as connection:
                found = store.of_origin(connection, "run-1")
            time.sleep(0.02)
    finally:
        ingest.close()
    assert found is not None
    assert found["name"] == "mine"


def test_a_run_that_was_killed_before_it_recorded_anything_is_over(
    tmp_path: Path, database: Database, ingest: Ingest, somebody: subprocess.Popen[bytes]
) -> None:
    import json

    about = {**ABOUT, **outside_header(somebody)}
    place = tmp_path / "outside" / "run-1"
    place.mkdir(parents=True)
    (place / "outside.json").write_text(json.dumps(about))
    row = ingest.adopt(about)
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        assert store.get(connection, row["uid"])["state"] == RUNNING
    somebody.kill()
    somebody.wait()
    ingest.catch_up(row["uid"])
    with database.read() as connection:
        after = store.get(connection, row["uid"])
    assert (after["state"], after["tracked"]) == ("failed", True)
    assert after["reason"] == "its process was gone before it recorded anything"
