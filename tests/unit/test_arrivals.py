"""A reader of pipes that is killed, at any moment: every byte is in the log afterwards, once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.backends.local.shepherd import _keep_what_is_in
from shoal.launcher.arrivals import Arrivals, exist
from shoal.launcher.logfile import LogWriter
from shoal.store.logs import Chunk, closed, read
from tests.conftest import files_no_larger_than

PRINTED = {1: b"whole\na second and a third line\nhalf", 2: b"error\nand its end\n"}
CHUNK = 7  # so that lines come in pieces
LARGE = 16  # so that a new file begins every few pieces


class Place:
    """A try and the pipes of its command, with what that printed; they outlive whoever reads them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pipes: list[int] = []
        for printed in PRINTED.values():
            end, inlet = os.pipe()
            os.write(inlet, printed)
            os.set_blocking(end, False)
            os.close(inlet)
            self.pipes.append(end)

    def reader(self) -> None:
        """What a launcher does until nothing comes any more; the beginning of a line is then in its memory."""
        arrivals = Arrivals(str(self.directory), CHUNK, LARGE)
        log = LogWriter(self.directory / "log", segment=32, cap=1 << 20, arrivals=arrivals)
        pieces = 0
        while pieces < sum(len(printed) // CHUNK + 1 for printed in PRINTED.values()):
            for stream, pipe in enumerate(self.pipes, start=1):
                if data := arrivals.take(stream, pipe):
                    log.write(stream, data, 10 + pieces)
                    pieces += 1

    def recovery(self) -> None:
        """What a shepherd does, or its twin, or the next server."""
        _keep_what_is_in(self.pipes, str(self.directory))

    def kept(self) -> dict[int, bytes]:
        found = {1: b"", 2: b""}
        for item in read(self.directory / "log", 0, 1 << 40):
            assert isinstance(item, Chunk), item
            found[item.stream] += item.data
        return found

    def close(self) -> None:
        for pipe in self.pipes:
            os.close(pipe)


def killed(moment: int, work: Callable[[], None]) -> bool:
    """Whether another process that does the work was killed at its n-th call of the system, or had fewer of them."""
    pid = os.fork()
    if pid == 0:
        left = moment

        def count(frame: Any, event: str, function: Any) -> None:
            nonlocal left
            if event in ("c_call", "c_return") and getattr(function, "__module__", "") == "posix":
                left -= 1
                if left < 0:
                    sys.setprofile(None)
                    os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            sys.setprofile(count)
            work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_no_byte_is_lost_or_doubled_whenever_a_reader_is_killed(tmp_path: Path) -> None:
    moment, was_killed = 0, True
    while was_killed:
        place = Place(tmp_path / str(moment))
        was_killed = killed(moment, place.reader)
        for again in (moment // 3, moment % 11):  # who cleans up may be killed too
            killed(again, place.recovery)
        place.recovery()
        assert place.kept() == PRINTED, f"killed at {moment}"
        assert closed(place.directory / "log")
        assert not exist(str(place.directory))
        place.close()
        moment += 1
    assert moment > 60, "the reader was killed before and after each of its calls"


def test_what_is_in_the_log_does_not_stay_here(tmp_path: Path) -> None:
    arrivals = Arrivals(str(tmp_path), large=1000)
    log = LogWriter(tmp_path / "log", arrivals=arrivals)
    end, inlet = os.pipe()
    for number in range(100):
        os.write(inlet, b"x" * 99 + b"\nbeginning of %3d" % number)
        log.write(1, arrivals.take(1, end), number)
        assert sum(path.stat().st_size for path in (tmp_path / "arrivals").iterdir()) < 2000
    log.close(100)
    arrivals.forget()
    assert not exist(str(tmp_path))
    os.close(end)
    os.close(inlet)


@pytest.mark.parametrize("most", [0, 20])
def test_a_disk_that_refuses_costs_no_line_while_the_reader_lives(tmp_path: Path, most: int) -> None:
    place, found = Place(tmp_path), {1: b"", 2: b""}
    with files_no_larger_than(most):
        arrivals = Arrivals(str(tmp_path))
        for stream, pipe in enumerate(place.pipes, start=1):
            while data := arrivals.take(stream, pipe):
                arrivals.will_be_logged(stream, len(found[stream]))
                found[stream] += data
                arrivals.are_logged(stream, len(data))
    assert found == PRINTED
    assert not exist(str(tmp_path)), "nobody takes what is left there for all that came"
    place.close()


def test_who_cannot_open_what_was_left_leaves_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert not killed(10_000, place.reader), "it ends without having closed its log"
    note = tmp_path / "arrivals" / "note"
    note.rename(tmp_path / "note")
    note.mkdir()  # stands for any error of the system
    Arrivals(str(tmp_path))
    note.rmdir()
    (tmp_path / "note").rename(note)
    place.recovery()
    assert place.kept() == PRINTED
    place.close()


def test_an_empty_pipe_is_not_an_end(tmp_path: Path) -> None:
    end, inlet = os.pipe()
    os.set_blocking(end, False)
    arrivals = Arrivals(str(tmp_path))
    with pytest.raises(BlockingIOError):
        arrivals.take(1, end)
    os.write(inlet, b"here")
    assert arrivals.take(1, end) == b"here"
    os.close(inlet)
    assert arrivals.take(1, end) == b""
    os.close(end)
