"""Runs of tests that meet on one machine: one of them starts what all use, and the last ends it, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.daemons import end, start_time
from tests.conftest import ROOT

RUN = """
import json, os, signal, subprocess, sys
from pathlib import Path
from tests.clusters.daemons import end, start_time
from tests.clusters.sharing import Shared

place, how = Path(sys.argv[1]), sys.argv[2]
pid = place / "pid"

def note(what):
    with (place / "story").open("a") as file:
        file.write(what + "\\n")

def up():
    note("up")
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pid.write_text(json.dumps([process.pid, start_time(process.pid)]))
    if how == "die in up":
        os.kill(os.getpid(), signal.SIGKILL)

def alive():
    if not pid.exists():
        return False
    known = json.loads(pid.read_text())
    return start_time(known[0]) == known[1]

def down():
    if how == "die in down" and alive():
        os.kill(os.getpid(), signal.SIGKILL)
    if alive():
        note("down")
        end(json.loads(pid.read_text()))
    pid.unlink(missing_ok=True)

shared = Shared(place, alive=alive, up=up, down=down, ended=lambda: note("looked"))
if how == "end":
    shared.end()
else:
    with shared.used(keep=how == "keep"):
        print("uses it" if alive() else "has nothing", flush=True)
        if how == "use":
            sys.stdin.readline()
        assert alive()
        note("leaves")
"""


class Runs:
    """Processes that use one thing, which is a process too."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.all: list[subprocess.Popen[str]] = []

    def start(self, how: str = "use") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(self.place), how],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.all.append(process)
        return process

    def using(self, how: str = "use") -> subprocess.Popen[str]:
        process = self.start(how)
        assert process.stdout is not None
        assert process.stdout.readline() == "uses it\n"
        return process

    def story(self) -> list[str]:
        path = self.place / "story"
        return path.read_text().split() if path.exists() else []


def leave(process: subprocess.Popen[str]) -> None:
    """It is asked to; whoever has to wait for others does."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert start_time(process.pid) is None


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = Runs(tmp_path)
    yield found
    for process in found.all:
        process.kill()
        process.communicate()
    if (tmp_path / "pid").exists():
        end(json.loads((tmp_path / "pid").read_text()))


def test_one_starts_it_and_the_last_ends_it(runs: Runs) -> None:
    first = runs.using()
    second = runs.using()
    leave(first)
    assert first.wait(30) == 0
    assert runs.story() == ["up", "leaves"]
    leave(second)
    assert second.wait(30) == 0
    assert runs.story() == ["up", "leaves", "leaves", "down", "looked"]


def test_who_come_at_once_have_the_same(runs: Runs) -> None:
    processes = [runs.start() for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "uses it\n"
    for process in processes:
        leave(process)
    assert [process.wait(30) for process in processes] == [0] * 4
    assert runs.story() == ["up", *["leaves"] * 4, "down", "looked"]


def test_what_shall_stay_stays_until_it_is_ended(runs: Runs) -> None:
    first = runs.using()
    assert runs.using("keep").wait(30) == 0
    leave(first)
    assert first.wait(30) == 0
    third = runs.using()
    ending = runs.start("end")
    assert ending.stderr is not None
    assert ending.stderr.readline() == "tests use it; it is ended when they are over\n"
    leave(third)
    assert (third.wait(30), ending.wait(30)) == (0, 0)
    assert runs.story() == ["up", "leaves", "leaves", "leaves", "down", "looked"]
    leave(fourth := runs.using())
    assert fourth.wait(30) == 0
    assert runs.story()[6:] == ["up", "leaves", "down", "looked"], "it is not kept any more"


def test_what_a_run_left_that_was_killed_is_ended_by_the_next(runs: Runs) -> None:
    kill(runs.using())
    leave(second := runs.using())
    assert second.wait(30) == 0
    assert runs.story() == ["up", "leaves", "down", "looked"]


def test_when_the_one_is_killed_that_started_it_those_who_use_it_go_on_and_end_it(runs: Runs) -> None:
    first, second, third = runs.using(), runs.using(), runs.using()
    kill(first)
    for process in (second, third):
        leave(process)
        assert process.wait(30) == 0
    assert runs.story() == ["up", "leaves", "leaves", "down", "looked"]


@pytest.mark.parametrize(
    ("how", "before"),
    [
        pytest.param("die in up", ["up"], id="while it started it"),
        pytest.param("die in down", ["up", "leaves"], id="while it ended it"),
    ],
)
def test_nobody_uses_the_half_of_what_was_left_by_a_run_that_was_killed(
    runs: Runs, how: str, before: list[str]
) -> None:
    first = runs.start(how)
    assert first.wait(30) == -signal.SIGKILL
    assert runs.story() == before
    leave(second := runs.using())
    assert second.wait(30) == 0
    assert runs.story() == [*before, "down", "up", "leaves", "down", "looked"]
