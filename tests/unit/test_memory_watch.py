"""The watch that stands in for control groups where there are none."""

from __future__ import annotations

import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.launcher.limits import Exceeded, MemoryWatch
from tests.unit.test_limits import MIB, fill

GROWS = """
import sys
held = []
print("ready", flush=True)
for line in sys.stdin:
    held.append(bytearray(int(line)))
    print("held", flush=True)
"""


def grow(child: subprocess.Popen[bytes], size: int) -> None:
    assert child.stdin
    assert child.stdout
    child.stdin.write(f"{size}\n".encode())
    child.stdin.flush()
    assert child.stdout.readline() == b"held\n"


def test_a_process_that_grows_beyond_the_limit_is_noticed(children: list[subprocess.Popen[bytes]]) -> None:
    child = subprocess.Popen([sys.executable, "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    children.append(child)
    assert child.stdout
    assert child.stdout.readline() == b"ready\n"
    watch = MemoryWatch(128 * MIB, lambda: [child.pid])
    assert watch.check(0) is None
    before = watch.peak
    assert 0 < before < 64 * MIB
    grow(child, 32 * MIB)
    assert watch.check(100) is None
    assert watch.peak >= 32 * MIB  # its own; its part of what it shares shrinks when others come to share it
    grow(child, 128 * MIB)
    assert watch.check(100.01) is None  # too early
    exceeded = watch.check(200)
    assert exceeded == Exceeded(watch.peak, 128 * MIB)
    assert exceeded.peak >= 160 * MIB
    child.kill()
    child.wait()
    assert watch.check(300) is None
    assert watch.peak == exceeded.peak


def test_a_page_shared_by_many_processes_counts_once() -> None:
    size, sharers = 64 * MIB, 4
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the children share that with us as well
    pages = mmap.mmap(-1, size)
    pages.write(b"\1" * size)
    release_read, release_write = os.pipe()
    ready_read, ready_write = os.pipe()
    pids = []
    try:
        for _ in range(sharers):
            pid = os.fork()
            if pid == 0:
                os.close(release_write)
                sum(pages[i] for i in range(0, size, mmap.PAGESIZE))
                os.write(ready_write, b"r")
                os.read(release_read, 1)
                os._exit(0)
            pids.append(pid)
        os.close(ready_write)
        for _ in range(sharers):
            assert os.read(ready_read, 1) == b"r"
        watch = MemoryWatch(None, lambda: pids)
        assert watch.check(0) is None
        assert size / 2 < watch.peak < mine + 2 * size
    finally:
        os.close(release_write)
        for pid in pids:
            os.waitpid(pid, 0)
        for fd in (release_read, ready_read):
            os.close(fd)
        pages.close()


class Recording:
    """/proc of two processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pids = [1, 2]
        self.listed = 0

    def list(self) -> list[int]:
        self.listed += 1
        return self.pids

    def says(self, pid: int, resident: int, share: int | None) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        fill(self.root / str(pid), {"statm": f"99999 {resident // page} 1 1 0 1 0\n"})
        if share is not None:
            text = f"55f0-7ffd ---p 00000000 00:00 0   [rollup]\nRss:  {resident >> 10} kB\nPss:    {share >> 10} kB\n"
            fill(self.root / str(pid), {"smaps_rollup": text + "Pss_Dirty:    4 kB\n"})

    def watch(self, limit: int | None) -> MemoryWatch:
        return MemoryWatch(limit, self.list, proc_root=str(self.root), clock=lambda: 0.0)


SUMS = {
    "shares where they are told": ([(64, 40), (64, 40)], 80),
    "resident sizes where they are not": ([(64, None), (64, None)], 128),
    "of each what is told": ([(64, 40), (64, None)], 104),
}


@pytest.mark.parametrize(("sizes", "expected"), SUMS.values(), ids=SUMS.keys())
def test_the_watch_adds_up(tmp_path: Path, sizes: list[tuple[int, int | None]], expected: int) -> None:
    recording = Recording(tmp_path)
    for pid, (resident, share) in enumerate(sizes, 1):
        recording.says(pid, resident * MIB, share * MIB if share else None)
    watch = recording.watch(100 * MIB)
    found = watch.check(0)
    assert watch.peak == expected * MIB
    assert found == (Exceeded(expected * MIB, 100 * MIB) if expected > 100 else None)


def test_a_process_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.says(1, MIB, MIB)
    watch = recording.watch(None)
    watch.check(0)
    assert watch.peak == MIB


def test_processes_are_listed_less_often_than_looked_at(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.says(1, MIB, MIB)
    watch = recording.watch(8 * MIB)
    for step in range(80):
        watch.check(step / 10)
    assert recording.listed == 4


def test_nobody_is_blamed_for_a_process_that_is_no_longer_listed(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.says(1, MIB, MIB)
    watch = recording.watch(8 * MIB)
    watch.check(0)
    recording.pids = [1]
    recording.says(2, 64 * MIB, 64 * MIB)  # the number was given to a stranger
    assert watch.check(1) is None
    assert watch.peak == MIB


def test_a_clock_that_is_turned_back_does_not_blind_the_watch(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.says(1, MIB, MIB)
    watch = recording.watch(2 * MIB)
    watch.check(1_000_000)
    recording.says(1, 4 * MIB, 4 * MIB)
    assert watch.check(900_000) == Exceeded(4 * MIB, 2 * MIB)


def test_looking_that_takes_long_is_done_seldom(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    ticks = iter(range(1000))
    watch = MemoryWatch(None, recording.list, proc_root=str(tmp_path), clock=lambda: next(ticks) * 0.02)
    watch.check(0)
    assert watch.due == pytest.approx(4.0)
