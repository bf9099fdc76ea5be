"""The database: what it keeps, who may write, what a kill, a full disk or an older schema do to it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError

import shoal.store
from shoal.errors import Unavailable
from shoal.states import FAILED, FINAL, QUEUED, RUNNING, STARTING, SUCCEEDED, Status
from shoal.store import experiments as store
from shoal.store.database import Database, LeaseLost, check, migrate, on_network_filesystem
from shoal.store.tables import HEAD, metadata
from tests.fixtures import HERE

SCHEMAS = sorted((HERE / "schemas").glob("*.sql"))
MIGRATIONS = Path(shoal.store.__file__).parent / "migrations"

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


@pytest.fixture(params=[False, True], ids=["shared", "exclusive, as on a network filesystem"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "shoal.db", exclusive=request.param)
    opened.take_lease()
    yield opened
    opened.close()


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


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_nothing_behind(database: Database, error: type[BaseException]) -> None:
    def half(connection: Connection) -> None:
        store.create(connection, VALUES)
        raise error

    with pytest.raises(error), database.write() as connection:
        half(connection)
    with pytest.raises(error), database.read():
        raise error
    assert events(database) == []
    assert create(database)["number"] == 1


def test_a_transaction_that_sqlite_ended_by_itself_tells_its_own_error(database: Database) -> None:
    """As it does on some errors of the disk."""
    again = "INSERT OR ROLLBACK INTO lease SELECT * FROM lease"
    with pytest.raises(IntegrityError, match="UNIQUE"), database.write() as connection:
        connection.exec_driver_sql(again)
    assert create(database)["number"] == 1


def test_a_reader_sees_one_moment(tmp_path: Path) -> None:
    database = Database(tmp_path / "shoal.db", exclusive=False)
    database.take_lease()
    with database.read() as reader:
        assert store.newest(reader, 9) == []
        create(database)
        assert store.newest(reader, 9) == []
    with database.read() as reader:
        assert len(store.newest(reader, 9)) == 1
    database.close()


def test_who_lost_the_lease_writes_nothing(tmp_path: Path) -> None:
    first, second = (Database(tmp_path / "shoal.db", exclusive=False) for _ in range(2))
    first.take_lease()
    create(first)
    second.take_lease()
    with pytest.raises(LeaseLost, match="another server has taken over this home"):
        create(first)
    create(second, name="second")
    with pytest.raises(LeaseLost), first.write() as connection:
        store.create(connection, VALUES)
    assert events(first) == events(second) == [("created", "queued", None)] * 2
    first.take_lease()
    create(first)
    with pytest.raises(LeaseLost):
        create(second)
    first.close()
    second.close()


def test_without_a_lease_nothing_is_written(tmp_path: Path) -> None:
    database = Database(tmp_path / "shoal.db", exclusive=False)
    with pytest.raises(LeaseLost):
        create(database)
    database.close()


def test_many_threads_write_and_read(database: Database) -> None:
    seen: list[int] = []
    failures: list[BaseException] = []
    together = threading.Barrier(6)

    def work(write: bool) -> None:
        try:
            together.wait()
            for _ in range(20):
                if write:
                    create(database)
                with database.read() as connection:
                    numbers = [row["number"] for row in store.newest(connection, 999)]
                    assert len(store.events_after(connection, 0)) == len(numbers), "half a transaction was seen"
                seen.append(len(numbers))
        except BaseException as error:  # noqa: BLE001  the test tells of it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number < 4,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(seen) == 120
    with database.read() as connection:
        assert [row["number"] for row in store.newest(connection, 999)] == list(range(80, 0, -1))
    assert check(database)


def test_an_exclusive_database_needs_no_shared_memory(tmp_path: Path) -> None:
    database = Database(tmp_path / "shoal.db", exclusive=True)
    database.take_lease()
    create(database)
    with database.read() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert len(store.newest(connection, 9)) == 1
    assert not (tmp_path / "shoal.db-shm").exists()
    stranger = sqlite3.connect(tmp_path / "shoal.db", timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        stranger.execute("SELECT count(*) FROM experiments")
    stranger.close()
    database.close()
    reopened = Database(tmp_path / "shoal.db", exclusive=False)
    assert events(reopened) == [("created", "queued", None)]
    reopened.close()


def test_several_open_a_new_home_at_once(tmp_path: Path) -> None:
    opened: list[Database] = []
    failures: list[BaseException] = []
    together = threading.Barrier(6)

    def work() -> None:
        try:
            together.wait()
            opened.append(Database(tmp_path / "shoal.db", exclusive=False))
        except BaseException as error:  # noqa: BLE001  the test tells of it
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for database in opened:
        database.close()
    assert failures == []


def unreadable(place: Path) -> Path:
    (place / "shoal.db").write_bytes(b"this was never a database, and it is long enough to be read" * 100)
    return place / "shoal.db"


def a_directory(place: Path) -> Path:
    (place / "shoal.db").mkdir()
    return place / "shoal.db"


UNUSABLE = {
    "a file that is something else": unreadable,
    "a directory of that name": a_directory,
    "a home that is not there": lambda place: place / "nowhere" / "shoal.db",
}


@pytest.mark.parametrize("prepare", UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_opened_is_said(prepare: Any, tmp_path: Path) -> None:
    path = prepare(tmp_path)
    with pytest.raises(Unavailable, match="the database cannot be opened") as caught:
        Database(path)
    assert str(path) in str(caught.value)
    assert caught.value.problems[0].hint


# A mount table as the kernel writes it; the comment of each case says where the home lies.
USUAL = """\
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
overlay / overlay rw,relatime,lowerdir=/var/lib/a:/var/lib/b,upperdir=/var/lib/c,workdir=/var/lib/d 0 0
/dev/nvme0n1p2 /data ext4 rw,relatime 0 0
filer:/export/home /home nfs4 rw,relatime,vers=4.2,rsize=1048576,proto=tcp,addr=10.0.0.2 0 0
/dev/sdb1 /home/local ext4 rw,relatime 0 0
10.0.0.9@tcp:/scratch /scratch lustre rw,flock,lazystatfs 0 0
ann@far:/home/user /mnt/far fuse.sshfs rw,nosuid,nodev,relatime,user_id=1000,group_id=1000 0 0
tmpfs /scratch/fast tmpfs rw,nosuid,nodev 0 0
filer:/a /mnt/my\\040big\\011disk nfs rw 0 0
filer:/b /mnt/bücher cifs rw 0 0
filer:/c /mnt/back\\134slash nfs rw 0 0
/dev/sdc1 /mnt/twice ext4 rw 0 0
filer:/d /mnt/twice nfs4 rw 0 0
systemd-1 /net autofs rw,relatime,fd=30 0 0
share /mnt/vm 9p rw,trans=virtio 0 0
"""
MOUNTS = {
    "the root, an overlay": ("/opt/.shoal", False),
    "a disk": ("/data/ann/.shoal", False),
    "nfs": ("/home/user/.shoal", True),
    "the mount itself": ("/home", True),
    "a disk below nfs": ("/home/local", False),
    "a name that only begins like the mount": ("/home2/ann", False),
    "a name that only begins like the disk below": ("/home/local2", True),
    "lustre": ("/scratch/ann", True),
    "memory below lustre": ("/scratch/fast/ann", False),
    "sshfs": ("/mnt/far/.shoal", True),
    "a name with a space and a tab": ("/mnt/my big\tdisk/.shoal", True),
    "a name beyond ASCII": ("/mnt/bücher/.shoal", True),
    "a name with a backslash": ("/mnt/back\\slash/.shoal", True),
    "the last mount of two at one place": ("/mnt/twice/a", True),
    "an automatic mount that has not happened": ("/net/a", False),
    "a directory of the host of a virtual machine": ("/mnt/vm/a", True),
}


@pytest.mark.parametrize(("place", "expected"), MOUNTS.values(), ids=MOUNTS)
def test_a_network_filesystem_is_told_from_the_mount_table(place: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "mounts").write_bytes(b"/dev/sdz /mnt/\xff\xfe ext4 rw 0 0\n" + USUAL.encode())
    assert on_network_filesystem(Path(place), tmp_path / "mounts") is expected


def test_without_a_mount_table_a_filesystem_is_local(tmp_path: Path) -> None:
    assert on_network_filesystem(tmp_path, tmp_path / "none") is False
    (tmp_path / "empty").touch()
    assert on_network_filesystem(tmp_path, tmp_path / "empty") is False
    assert on_network_filesystem(Path("/proc")) is False


WRITER = """
import os, signal, sys
from pathlib import Path
from shoal.store import experiments as store
from shoal.store.database import Database
from tests.unit.test_store import VALUES, one_transaction

database = Database(Path(sys.argv[1]), exclusive=sys.argv[2] == "exclusive")
database.take_lease()
for number in range(int(sys.argv[3])):
    with database.write() as connection:
        one_transaction(connection)
    os.write(1, b".")
with database.write() as connection:
    one_transaction(connection)
    os.kill(os.getpid(), signal.SIGKILL)
"""
UNITS = 4


def one_transaction(connection: Connection) -> None:
    """Large enough that a part of it is in the file before it is over."""
    row = store.create(connection, {**VALUES, "resolved": "x" * 3_000_000})
    units = [("port", row["number"] * UNITS + unit, "master-0") for unit in range(UNITS)]
    store.allocate(connection, row["uid"], units)


def written(path: Path) -> int:
    """How many transactions are in the database; each of them has to be whole."""
    database = Database(path, exclusive=False)
    try:
        assert check(database)
        with database.read() as connection:
            rows = store.newest(connection, 999)
            kept = {row["uid"]: len(store.allocated(connection, "port", row["uid"])) for row in rows}
            assert set(kept.values()) <= {UNITS}
            assert connection.execute(text("SELECT count(*) FROM allocations")).scalar() == UNITS * len(rows)
            assert len(store.events_after(connection, 0)) == len(rows)
            return len(rows)
    finally:
        database.close()


def writer(path: Path, mode: str, transactions: int) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", WRITER, str(path), mode, str(transactions)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=HERE.parent.parent)


@pytest.mark.parametrize(("mode", "before"), [("shared", 0), ("shared", 3), ("exclusive", 1)])
def test_a_kill_in_the_middle_of_a_transaction_leaves_the_others(mode: str, before: int, tmp_path: Path) -> None:
    with writer(tmp_path / "shoal.db", mode, before) as process:
        output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert output == b"." * before
    assert (tmp_path / "shoal.db-wal").stat().st_size > 1_000_000, "nothing of it was in the file"
    assert written(tmp_path / "shoal.db") == before


def test_a_kill_at_any_moment_leaves_whole_transactions(tmp_path: Path) -> None:
    before = 0
    for dots in (1, 2, 5):
        with writer(tmp_path / "shoal.db", "shared", 999) as process:
            assert process.stdout is not None
            seen = 0
            while seen < dots:
                seen += len(os.read(process.stdout.fileno(), 1))
            process.kill()
            seen += len(process.stdout.read())
        after = written(tmp_path / "shoal.db")
        assert seen <= after - before <= seen + 1, "what was told to be written is there"
        before = after


FULL = """
import resource, sys
from pathlib import Path
from sqlalchemy.exc import OperationalError
from shoal.store.database import Database
from shoal.store import experiments as store
from tests.unit.test_store import VALUES, one_transaction

path, amount, where = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
database = Database(path, exclusive=False)
database.take_lease()
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
reached = False
try:
    with database.write() as connection:
        for _ in range(amount):
            store.create(connection, {**VALUES, "resolved": "x" * 100_000})
        reached = True
except OperationalError as error:
    print("refused", where == ("commit" if reached else "statement"), error.orig)
with database.read() as connection:
    print(len(store.newest(connection, 9)))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
with database.write() as connection:
    one_transaction(connection)
"""


@pytest.mark.parametrize(("amount", "where"), [(1, "commit"), (40, "statement")], ids=["commit", "statement"])
def test_a_full_disk_refuses_a_transaction_and_no_later_one(amount: int, where: str, tmp_path: Path) -> None:
    """A limit of the size of files stands in for the disk."""
    arguments = [sys.executable, "-c", FULL, str(tmp_path / "shoal.db"), str(amount), where]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=HERE.parent.parent, check=False)
    assert done.returncode == 0, done.stderr
    refused, count = done.stdout.splitlines()
    assert refused.startswith("refused True")
    assert count == "0"
    assert written(tmp_path / "shoal.db") == 1


def schema(path: Path) -> dict[str, Any]:
    """Everything a schema promises, in words that do not depend on who wrote it."""
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            found = inspect(connection)
            statements = dict(connection.execute(text("SELECT name, sql FROM sqlite_master")).all())
            return {
                table: {
                    "columns": [
                        (c["name"], str(c["type"]), c["nullable"], c["default"], c["primary_key"])
                        for c in found.get_columns(table)
                    ],
                    "primary key": found.get_pk_constraint(table)["constrained_columns"],
                    "indexes": sorted((i["name"], i["column_names"], i["unique"]) for i in found.get_indexes(table)),
                    "unique": sorted(u["column_names"] for u in found.get_unique_constraints(table)),
                    "foreign keys": found.get_foreign_keys(table),
                    "numbers are not used again": "AUTOINCREMENT" in statements[table].upper(),
                }
                for table in found.get_table_names()
            }
    finally:
        engine.dispose()


def rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')] for table in tables}


@pytest.fixture
def newest(tmp_path: Path) -> Mapping[str, Any]:
    """The schema as the tables say it."""
    engine = create_engine(f"sqlite:///{tmp_path / 'newest.db'}")
    metadata.create_all(engine)
    engine.dispose()
    return schema(tmp_path / "newest.db")


def load(dump: Path, path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return path


@pytest.mark.parametrize("dump", SCHEMAS, ids=lambda dump: dump.stem)
def test_a_released_schema_becomes_the_newest_and_keeps_its_rows(
    dump: Path, tmp_path: Path, newest: Mapping[str, Any]
) -> None:
    path = load(dump, tmp_path / "shoal.db")
    before = rows(path)
    assert all(before[table] for table in ("experiments", "replicas", "events", "allocations", "lease"))
    Database(path, exclusive=False).close()
    assert schema(path) == newest
    after = rows(path)
    assert after.pop("alembic_version") == [{"version_num": HEAD}]
    del before["alembic_version"]
    for table, kept in before.items():
        assert [{key: row[key] for key in old} for old, row in zip(kept, after[table], strict=True)] == kept


@pytest.mark.parametrize("dump", SCHEMAS, ids=lambda dump: dump.stem)
def test_a_released_database_can_be_worked_with(dump: Path, tmp_path: Path) -> None:
    database = Database(load(dump, tmp_path / "shoal.db"), exclusive=False)
    database.take_lease()
    with database.read() as connection:
        last = store.last_event(connection)
        assert store.find(connection, "digits") is not None
        assert [row["number"] for row in store.unfinished(connection)] == [2]
    assert create(database)["number"] == 3
    with database.read() as connection:
        assert store.last_event(connection) == last + 1
    assert check(database)
    database.close()


def test_all_revisions_from_the_beginning_give_the_newest_schema(tmp_path: Path, newest: Mapping[str, Any]) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shoal.db'}")
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()
    assert schema(tmp_path / "shoal.db") == newest
    assert rows(tmp_path / "shoal.db")["alembic_version"] == [{"version_num": HEAD}]


def test_a_new_database_has_the_newest_schema(tmp_path: Path, newest: Mapping[str, Any]) -> None:
    for _ in range(2):
        Database(tmp_path / "shoal.db", exclusive=False).close()
        assert schema(tmp_path / "shoal.db") == newest
        assert rows(tmp_path / "shoal.db")["alembic_version"] == [{"version_num": HEAD}]


def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shoal.db"
    Database(path, exclusive=False).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = rows(path), schema(path)
    with pytest.raises(Unavailable, match="a newer version of Shoal") as caught:
        Database(path, exclusive=True)
    assert "schema 9999" in str(caught.value)
    assert "update Shoal" in caught.value.problems[0].hint
    assert (rows(path), schema(path)) == before


def test_the_head_is_the_newest_revision_and_every_revision_has_a_dump() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    revisions = [revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()]
    files = sorted((MIGRATIONS / "versions").glob("[0-9]*.py"), reverse=True)
    assert revisions[0] == HEAD
    assert [path.name[:4] for path in files] == revisions, "a file is called after its revision, and there is one line"
    assert [dump.stem for dump in reversed(SCHEMAS)] == revisions
