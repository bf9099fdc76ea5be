"""A launcher that gets no turn at the worst moment: it looks at its pipes and signals only when its command is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.store import logs
from tests import launched

LATE = """
import os, signal, shoal.launcher.replica as replica

look = replica.Launcher.step

def step(launcher):
    os.waitid(os.P_PID, launcher.child.pid, os.WEXITED | os.WNOWAIT)
    {then}

replica.Launcher.step = step
{before}
"""


def ran_late(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, then: str = "pass", before: str = ""
) -> Path:
    """The directory of the try. `before`: what its program does first; `then`: when its command is gone."""
    monkeypatch.setattr(launched, "PROGRAM", LATE.format(then=then, before=before) + launched.PROGRAM)
    return launched.ran(place, command)


def ending(place: Path, monkeypatch: pytest.MonkeyPatch, command: str, then: str = "pass") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ran_late(place, monkeypatch, command, then=then) / "exit.json").read_text())
    return found


@pytest.mark.parametrize("count", range(8))
def test_of_two_streams_that_wait_the_output_comes_before_the_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    others = (
        f"opened = [os.open('/dev/null', os.O_RDONLY) for _ in range({count})]"  # the numbers of pipes depend on them
    )
    command = "echo one; echo two; echo alas >&2"
    directory = ran_late(tmp_path, monkeypatch, command, then="look(launcher)", before=others)
    assert [line.text for line in logs.lines(directory / "log")] == [b"one", b"two", b"alas"]


def test_told_to_stop_like_its_command_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = ending(tmp_path, monkeypatch, "kill -TERM $PPID; kill -TERM $$; sleep 60")
    assert (end["stopped"], end["exit_code"], end["signal"]) == (True, 143, "SIGTERM")


def test_so_it_was_when_a_shell_tells_the_signal_by_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = ending(tmp_path, monkeypatch, "kill -TERM $PPID; bash -c 'kill -TERM $$'; exit $?")
    assert (end["stopped"], end["exit_code"]) == (True, 143)


def test_told_to_stop_a_command_that_failed_by_itself_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = ending(tmp_path, monkeypatch, "exit 3", "os.kill(os.getpid(), signal.SIGTERM)")
    assert (end["stopped"], end["exit_code"], end["signal"]) == (False, 3, "")


def test_without_a_stop_a_command_that_dies_of_sigterm_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = ending(tmp_path, monkeypatch, "kill -TERM $$; sleep 60")
    assert (end["stopped"], end["exit_code"], end["signal"]) == (False, 143, "SIGTERM")
