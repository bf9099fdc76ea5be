"""Real processes of every unpleasant sort, found and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.launcher import processes
from shoal.launcher.processes import Process

DEADLINE = 60.0

# Each script writes a line `pid start` into $RECORD for every process that must be ended, then waits for ever.
PRELUDE = """
import os, signal, sys, time
def record():
    stat = open("/proc/self/stat").read()
    line = "%d %s\\n" % (os.getpid(), stat.rpartition(")")[2].split()[19])
    fd = os.open(os.environ.get("RECORD", RECORD), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)
def for_ever():
    while True:
        signal.pause()
"""

PLAIN = "record(); for_ever()"

CHILD = """
if os.fork() == 0:
    record()
    for_ever()
record()
for_ever()
"""

OWN_SESSION = """
if os.fork() == 0:
    os.setsid()
    record()
    for_ever()
record()
for_ever()
"""

DOUBLE_FORK_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        record()
        for_ever()
    os._exit(0)
os.wait()
record()
for_ever()
"""

DAEMON_OF_A_DEAD_ROOT = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        record()
        for_ever()
    os._exit(0)
os.wait()
"""

WIPED_ENVIRONMENT = """
again = "RECORD = %r" % RECORD + PRELUDE + "record(); for_ever()"
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-c", again], {})
record()
for_ever()
"""

WIPED_ENVIRONMENT_OF_A_DEAD_ROOT = """
again = "RECORD = %r" % RECORD + PRELUDE + "record(); for_ever()"
if os.fork() == 0:
    os.execve(sys.executable, [sys.executable, "-c", again], {})
"""

DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); record(); for_ever()"

STOPPED = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); record(); os.kill(os.getpid(), signal.SIGSTOP)"

# One process at a time, each the child of the one before: what was listed is gone when it is signalled.
RUNS_AWAY = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
record()
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""

FORKS_WHILE_KILLED = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
record()
while True:
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.3)
        os._exit(0)
    time.sleep(0.02)
"""

FIRST_THREAD_ENDS = """
import ctypes, threading
threading.Thread(target=for_ever).start()
record()
ctypes.CDLL(None).pthread_exit(None)
"""

CLEANS_UP_WHEN_ASKED = """
def clean(*_):
    if os.fork() == 0:
        os.execv("/bin/sh", ["sh", "-c", "read line < $FIFO; echo $line > $CLEANED"])
    os._exit(0)
signal.signal(signal.SIGTERM, clean)
record()
for_ever()
"""


class Replica:
    """A marked command and what it recorded."""

    def __init__(self, directory: Path) -> None:
        self.uid = f"test-{uuid.uuid4().hex}"
        self.record = directory / f"{self.uid}.record"
        self.roots: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, **env: str) -> subprocess.Popen[bytes]:
        code = f"RECORD = {str(self.record)!r}\nPRELUDE = {PRELUDE!r}\n{PRELUDE}\n{script}"
        root = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", code],
            env={**os.environ, **env, processes.MARK: self.uid, "RECORD": str(self.record)},
            start_new_session=True,
        )
        self.roots.append(root)
        return root

    def recorded(self) -> dict[int, int]:
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return {int(pid): int(started) for pid, started in (line.split() for line in lines)}

    def settled(self, count: int) -> dict[int, int]:
        until(lambda: len(self.recorded()) >= count)
        return self.recorded()

    def living(self) -> set[int]:
        return {pid for pid, started in self.recorded().items() if processes.alive(pid, started)}

    def clear(self) -> None:
        for pid, started in self.recorded().items():
            if processes.alive(pid, started):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for pid in processes.marked(self.uid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for root in self.roots:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(root.pid, signal.SIGKILL)
            root.wait()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    replica = Replica(tmp_path)
    yield replica
    replica.clear()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


HARMLESS = {
    "one process": (PLAIN, 1),
    "a child": (CHILD, 2),
    "a child in a session of its own": (OWN_SESSION, 2),
    "a daemon that forked twice": (DOUBLE_FORK_DAEMON, 2),
    "a daemon whose root is gone": (DAEMON_OF_A_DEAD_ROOT, 1),
    "a child with a wiped environment": (WIPED_ENVIRONMENT, 2),
    "an orphan with a wiped environment, by its session": (WIPED_ENVIRONMENT_OF_A_DEAD_ROOT, 1),
    "a process whose first thread has ended": (FIRST_THREAD_ENDS, 1),
}


@pytest.mark.parametrize(("script", "count"), HARMLESS.values(), ids=HARMLESS.keys())
def test_sigterm_reaches(replica: Replica, script: str, count: int) -> None:
    root = replica.start(script)
    assert len(replica.settled(count)) == count
    assert processes.end({root.pid}, replica.uid, grace=DEADLINE) == []
    assert replica.living() == set()


def test_a_root_that_was_reaped_still_names_its_session(replica: Replica) -> None:
    root = replica.start(WIPED_ENVIRONMENT_OF_A_DEAD_ROOT)
    replica.settled(1)
    root.wait()
    assert processes.end({root.pid}, replica.uid, grace=DEADLINE) == []
    assert replica.living() == set()


STUBBORN = {
    "a process that ignores SIGTERM": DEAF,
    "a process that runs away by forking": RUNS_AWAY,
    "a process that forks while it is killed": FORKS_WHILE_KILLED,
}


@pytest.mark.parametrize("script", STUBBORN.values(), ids=STUBBORN.keys())
def test_sigkill_reaches(replica: Replica, script: str) -> None:
    root = replica.start(script)
    replica.settled(1)
    remaining: list[int] = []
    killed = processes.end({root.pid}, replica.uid, grace=0.05, give_up=DEADLINE, left=remaining.extend)
    assert (root.pid in killed) == (script != RUNS_AWAY)
    assert remaining == []
    assert processes.marked(replica.uid) == set()
    assert processes.find([(root.pid, processes.GONE)]) == []


def test_a_stopped_process_hears_sigterm(replica: Replica) -> None:
    root = replica.start(STOPPED)
    until(lambda: _state(root.pid) == "T")
    assert processes.end({root.pid}, replica.uid, grace=DEADLINE) == []
    assert root.wait() == 0


def test_what_a_handler_starts_may_finish_within_the_grace(replica: Replica, tmp_path: Path) -> None:
    fifo, cleaned = tmp_path / "fifo", tmp_path / "cleaned"
    os.mkfifo(fifo)
    root = replica.start(CLEANS_UP_WHEN_ASKED, FIFO=str(fifo), CLEANED=str(cleaned))
    replica.settled(1)
    # Blocks until the handler's child reads, which is after SIGTERM and after its parent has gone.
    writer = subprocess.Popen(["sh", "-c", f"echo done > {fifo}"])
    try:
        assert processes.end({root.pid}, replica.uid, grace=DEADLINE) == []
    finally:
        writer.kill()
        writer.wait()
    assert cleaned.read_text() == "done\n"


def test_several_replicas_share_one_grace(replica: Replica, tmp_path: Path) -> None:
    other = Replica(tmp_path)
    try:
        for each in (replica, other):
            each.start(DOUBLE_FORK_DAEMON)
        for each in (replica, other):
            each.settled(2)
        assert processes.end(set(), [replica.uid, other.uid], grace=DEADLINE) == []
        assert replica.living() | other.living() == set()
    finally:
        other.clear()


def test_what_is_listed_otherwise_is_ended_too(replica: Replica, tmp_path: Path) -> None:
    stranger = Replica(tmp_path)
    try:
        pid = stranger.start(PLAIN).pid
        stranger.settled(1)
        processes.end(set(), replica.uid, grace=DEADLINE, more=lambda: [pid])
        assert stranger.living() == set()
    finally:
        stranger.clear()


def test_other_replicas_live_on(replica: Replica, tmp_path: Path) -> None:
    other = Replica(tmp_path)
    try:
        other.start(DOUBLE_FORK_DAEMON)
        root = replica.start(DOUBLE_FORK_DAEMON)
        expected = set(other.settled(2))
        replica.settled(2)
        processes.end({root.pid}, replica.uid, grace=DEADLINE)
        assert other.living() == expected
    finally:
        other.clear()


def test_the_caller_and_its_ancestors_are_spared(replica: Replica) -> None:
    """A process marked and named itself ends its children, and only them."""
    script = f"""
sys.path.insert(0, {str(Path(processes.__file__).parents[2])!r})
from shoal.launcher import processes
child = os.fork()
if child == 0:
    record()
    for_ever()
while not os.path.exists(RECORD):
    time.sleep(0.005)
processes.end({{os.getpid(), 1, 0}}, {replica.uid!r}, grace={DEADLINE})
sys.exit(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""
    root = replica.start(script)
    assert root.wait(DEADLINE) == signal.SIGTERM


def test_nothing_to_end_is_silent() -> None:
    assert processes.end(set(), f"test-{uuid.uuid4().hex}", grace=DEADLINE) == []


def test_what_cannot_be_killed_is_waited_for_a_while_and_reported(replica: Replica) -> None:
    root = replica.start(PLAIN)
    replica.settled(1)
    remaining: list[int] = []
    with frozen(root.pid) as immune:
        killed = processes.end({root.pid}, replica.uid, grace=0, give_up=0.1, left=remaining.extend)
    assert killed == [root.pid]
    assert not immune or remaining == [root.pid]
    until(lambda: replica.living() == set())


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[bool]:
    """Keeps a process from dying, by the freezer of control groups (version 1); false where that cannot be had."""
    group = Path("/sys/fs/cgroup/freezer", f"shoal-test-{uuid.uuid4().hex}")
    try:
        group.mkdir()
    except OSError:
        yield False
        return
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        until(lambda: (group / "freezer.state").read_text() == "FROZEN\n")
        yield True
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_marks_are_compared_exactly(replica: Replica) -> None:
    root = replica.start(PLAIN)
    replica.settled(1)
    assert processes.marked(replica.uid) == {root.pid}
    assert processes.marked(replica.uid[:-1]) == set()
    assert processes.marked(replica.uid + "0") == set()


def test_marked_processes_are_listed_by_the_beginning_of_their_uid(replica: Replica) -> None:
    root = replica.start(PLAIN)
    replica.settled(1)
    assert processes.marked_all(replica.uid[:-1]) == {root.pid: replica.uid}
    assert processes.marked_all()[root.pid] == replica.uid
    assert os.getpid() not in processes.marked_all()


def test_descendants_are_those_below(replica: Replica) -> None:
    root = replica.start(CHILD)
    recorded = set(replica.settled(2))
    assert processes.descendants(root.pid) == recorded - {root.pid}
    assert recorded <= processes.descendants(os.getpid())


def test_a_zombie_is_not_alive(replica: Replica) -> None:
    root = replica.start(PLAIN)
    started = replica.settled(1)[root.pid]
    assert processes.alive(root.pid, started)
    assert processes.start_time(root.pid) == started
    root.kill()
    until(lambda: _state(root.pid) == "Z")
    assert not processes.alive(root.pid, started)
    assert root.pid not in processes.descendants(os.getpid())
    root.wait()
    assert processes.start_time(root.pid) is None


def test_a_process_whose_first_thread_has_ended_is_alive(replica: Replica) -> None:
    root = replica.start(FIRST_THREAD_ENDS)
    started = replica.settled(1)[root.pid]
    until(lambda: _state(root.pid) == "Z")
    assert processes.alive(root.pid, started)


def test_another_process_with_the_same_number_is_not_meant(replica: Replica) -> None:
    root = replica.start(PLAIN)
    started = replica.settled(1)[root.pid]
    actual = processes.table()[root.pid]
    stranger = actual._replace(started=started - 1)
    processes.send(stranger, signal.SIGKILL)
    assert not processes.alive(root.pid, started - 1)
    assert processes.find([stranger.identity]) == []
    processes.send(actual, signal.SIGTERM)
    assert root.wait(DEADLINE) == -signal.SIGTERM


def _refused(pid: int) -> int:
    raise PermissionError(pid)


@pytest.mark.parametrize(
    "pidfd_open",
    [getattr(os, "pidfd_open", None), None, _refused],
    ids=["with descriptors", "without descriptors", "where a sandbox refuses them"],
)
def test_waiting_ends_with_the_processes(replica: Replica, pidfd_open: Callable[[int], int] | None) -> None:
    root = replica.start(PLAIN)
    replica.settled(1)
    process = processes.table()[root.pid]
    assert not processes.wait([process], 0.02, pidfd_open=pidfd_open)
    root.terminate()
    assert processes.wait([process], DEADLINE, pidfd_open=pidfd_open)
    assert processes.wait([process], 0, pidfd_open=pidfd_open)


def test_the_boot_has_a_name() -> None:
    assert uuid.UUID(processes.boot_id())


@pytest.mark.slow
@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=15))
def test_a_process_may_have_any_name(name: str) -> None:
    line = f"4711 ({name}) S 4700 4711 4699 34816 4711 4194304 1 2 3 4 5 6 7 8 20 0 3 0 98765 1 2\n"
    assert processes.parse_stat(line) == Process(4711, "S", 4700, 4711, 4699, 3, 98765)


@pytest.mark.parametrize("text", ["", "\n", "4711", "4711 (x)", "4711 (x) S 1 2 3"])
def test_a_torn_line_is_no_process(text: str) -> None:
    assert processes.parse_stat(text) is None


@pytest.mark.parametrize(
    ("environment", "uid"),
    [
        (b"", None),
        (b"PATH=/bin\0SHOAL_REPLICA_UID=u1\0", "u1"),
        (b"SHOAL_REPLICA_UID=u1", "u1"),
        (b"NOT_SHOAL_REPLICA_UID=u1\0", None),
        (b"SHOAL_REPLICA_UIDS=u1\0", None),
        (b"A=SHOAL_REPLICA_UID=u1\0", None),
        (b"SHOAL_REPLICA_UID=\0", ""),
    ],
)
def test_the_mark_in_an_environment(environment: bytes, uid: str | None) -> None:
    assert processes.mark_in(environment) == uid


def row(pid: int, parent: int, group: int = 0, session: int = 0, started: int = 1, state: str = "S") -> Process:
    return Process(pid, state, parent, group, session, 1, started)


def rows(*processes: Process) -> dict[int, Process]:
    return {process.pid: process for process in processes}


SHEPHERD, LAUNCHER = row(10, 1, 10, 10), row(20, 10, 10, 10)

FAMILIES = {
    "a child and its child": (rows(row(30, 20), row(31, 30), row(32, 31)), {(30, 1)}, {30, 31, 32}),
    "a member of a session whose leader is gone": (rows(row(31, 1, 30, 30)), {(30, 1)}, {31}),
    "a member of a group whose leader is gone": (rows(row(31, 1, 30, 5)), {(30, 1)}, {31}),
    "not those of another process with the number": (
        rows(row(30, 1, 30, 30, 7), row(31, 30, 30, 30)),
        {(30, 1)},
        set(),
    ),
    "not a zombie, but its children": (rows(row(30, 20, state="Z"), row(31, 30)), {(30, 1)}, {31}),
    "not the spared, nor what is below them": (rows(SHEPHERD, LAUNCHER, row(30, 20, 30, 30)), {(30, 1)}, {30}),
    "what is below a spared one that is known": (rows(SHEPHERD, LAUNCHER, row(30, 20, 30, 30)), {(20, 1)}, {30}),
    "two that lead each other": (rows(row(30, 31, 31, 31), row(31, 30, 30, 30)), {(30, 1)}, {30, 31}),
}


@pytest.mark.parametrize(("table", "known", "expected"), FAMILIES.values(), ids=FAMILIES.keys())
def test_a_family_is(table: dict[int, Process], known: set[tuple[int, int]], expected: set[int]) -> None:
    assert processes.family(table, known, spared={1, 10, 20}) == expected


def test_a_group_with_a_spared_process_is_not_signalled_as_a_whole() -> None:
    table = rows(SHEPHERD, LAUNCHER, row(30, 20, 30, 30), row(31, 30, 10, 10))
    known = {(10, 1), (30, 1), (31, 1), (32, 1), (1, 1)}
    assert processes.led_groups(table, known, spared={1, 10, 20}) == {30, 31, 32}


def test_a_group_whose_number_was_reused_is_not_signalled() -> None:
    assert processes.led_groups(rows(row(30, 20, 30, 30, started=7)), {(30, 1)}, spared={1}) == set()


def _state(pid: int) -> str:
    process = processes.table().get(pid)
    return process.state if process else ""
