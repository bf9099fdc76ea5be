"""Transactions: who may write, what a reader sees, what a kill, a full disk or another opener do to them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from shoal.errors import Unavailable
from shoal.store import experiments as store
from shoal.store.database import Database, LeaseLost, check, on_network_filesystem
from tests.fixtures import HERE
from tests.unit.test_store import VALUES, create, events


@pytest.fixture
def database(each_database: Database) -> Database:
    return each_database


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
from tests.unit.test_store import VALUES
from tests.unit.test_transactions import one_transaction

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


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "before"), [("shared", 0), ("shared", 3), ("exclusive", 1)])
def test_a_kill_in_the_middle_of_a_transaction_leaves_the_others(mode: str, before: int, tmp_path: Path) -> None:
    with writer(tmp_path / "shoal.db", mode, before) as process:
        output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert output == b"." * before
    assert (tmp_path / "shoal.db-wal").stat().st_size > 1_000_000, "nothing of it was in the file"
    assert written(tmp_path / "shoal.db") == before


@pytest.mark.slow
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
from tests.unit.test_store import VALUES
from tests.unit.test_transactions import one_transaction

path, amount, where = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
database = Database(path, exclusive=False)
database.take_lease()
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, most))
reached = False
try:
    with database.write() as connection:
        for _ in range(amount):
            store.create(connection, {**VALUES, "resolved": "x" * 250_000})
        reached = True
except OperationalError as error:
    print("refused", where == ("commit" if reached else "statement"), error.orig)
with database.read() as connection:
    print(len(store.newest(connection, 9)))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
with database.write() as connection:
    one_transaction(connection)
"""


@pytest.mark.slow
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
