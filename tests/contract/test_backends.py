"""The contract of backends, run on every cluster kind there is: tests/clusters/… run the same with another `place`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from shoal.backends.backend import Backend, Launch, Observation
from shoal.backends.local.backend import LocalBackend
from shoal.engine.act import free_ports
from shoal.engine.submission import policy_of
from shoal.launcher.archive import archive
from shoal.launcher.replica import write_json
from shoal.plan import plan
from shoal.spec import Source, interpret
from shoal.states import Outcome
from shoal.store import logs
from tests.conftest import clear
from tests.running import nothing_left, until


class Place(Protocol):
    """One cluster, without a server."""

    work: Path  # where tests put what replicas see
    backend: Backend

    def new_backend(self) -> Backend:
        """A backend that knows nothing of what another one started: as after a restart of the server."""

    def launch(self, text: str) -> Launch:
        """The first attempt of an experiment."""

    def seen(self, path: Path) -> str:
        """How replicas call something in `work`."""

    def printed(self, handle: str, replica: str) -> list[bytes]:
        """The lines of its first try."""

    def nothing_left(self) -> None:
        """Fails if something of an experiment stays."""


class LocalPlace:
    """This machine."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.work = place
        (self.home / "experiments").mkdir(parents=True)
        self.backend = self.new_backend()

    def new_backend(self) -> Backend:
        return LocalBackend(self.home, archive=archive(str(self.home / "launcher")))

    def launch(self, text: str) -> Launch:
        experiment = "eaaaaa"
        planned = plan(interpret([Source("test.yml", text)]).spec)
        directory = self.home / "experiments" / experiment
        directory.mkdir(exist_ok=True)
        write_json(str(directory / "environment.json"), {"PATH": os.environ["PATH"]})
        ports = dict(zip([r.name for r in planned.replicas], free_ports(len(planned.replicas), set()), strict=True))
        uid = secrets.token_hex(16)  # of nobody else: what is marked with it is ended
        return Launch(experiment, uid, 0, planned, policy_of(planned), str(self.work), ports=ports)

    def seen(self, path: Path) -> str:
        return str(path)

    def printed(self, handle: str, replica: str) -> list[bytes]:
        return printed(self.home, handle, replica)

    def nothing_left(self) -> None:
        nothing_left(self.home)

    def close(self) -> None:
        clear(self.home)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = LocalPlace(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=range(8))
def round_number(request: pytest.FixtureRequest) -> int:
    """For what depends on who is faster."""
    return int(request.param)


def printed(home: Path, handle: str, replica: str) -> list[bytes]:
    experiment, attempt = handle.split("/")[-2:]
    log = home / "experiments" / experiment / f"attempt-{attempt}" / replica / "try-0" / "log"
    return [line.text for line in logs.lines(log)]


def submit(place: Place, launch: Launch) -> str:
    return place.backend.submit(place.backend.render(launch, place.backend.probe()))


def outcome(backend: Backend, handle: str) -> Outcome:
    found = until(lambda: observed(backend, handle).outcome, "the end of the attempt")
    assert isinstance(found, Outcome)
    return found


def observed(backend: Backend, handle: str) -> Observation:
    return backend.observe([handle])[handle]


TWO = "framework: none\nrun: {cmd: '%s'}\nenvironment: {replicas: {n_workers: 2, master: false}}\ngrace: {stop: 5s}\n"


def test_submitting_twice_is_one_run(place: Place) -> None:
    witness = place.work / "witness"
    launch = place.launch(TWO % f"echo $SHOAL_REPLICA >> {place.seen(witness)}")
    handles = {submit(place, launch), submit(place, launch)}
    place.backend = place.new_backend()
    handles.add(submit(place, launch))
    (handle,) = handles
    assert outcome(place.backend, handle).state == "succeeded"
    handles.add(submit(place, launch))
    until(lambda: not observed(place.backend, handle).missing, "rest")
    assert sorted(witness.read_text().split()) == ["worker-0", "worker-1"]


def test_stopping_twice_is_silent_and_so_is_stopping_what_is_gone(place: Place) -> None:
    handle = submit(place, place.launch(TWO % "sleep 600"))
    place.backend.stop(handle, "enough", 5.0)
    place.backend.stop(handle, "enough", 5.0)
    end = outcome(place.backend, handle)
    assert (end.state, end.reason) == ("stopped", "enough")
    assert {status.state for status in end.statuses} == {"stopped"}
    place.backend.stop(handle, "enough", 5.0)
    place.nothing_left()


def test_stopping_what_was_never_there_is_silent(place: Place) -> None:
    place.backend.stop("local:somewhere/else/ezzzzz/0", "enough", 5.0)


def test_the_crash_of_one_replica_is_seen_with_its_exit_code(place: Place) -> None:
    handle = submit(place, place.launch(TWO % "if [ $SHOAL_INDEX = 1 ]; then echo alas; exit 7; else sleep 600; fi"))
    end = outcome(place.backend, handle)
    found = {status.replica: status for status in end.statuses}
    assert (end.state, end.reason) == ("failed", "worker-1 failed: exit code 7")
    assert (found["worker-1"].state, found["worker-1"].exit_code) == ("failed", 7)
    assert (found["worker-0"].state, found["worker-0"].reason) == ("stopped", "worker-1 failed")
    assert end.failures[0].replica == "worker-1"
    assert end.failures[0].lines == ("alas",)


def test_logs_are_complete_after_the_end(place: Place) -> None:
    handle = submit(place, place.launch(TWO % "seq 20000; printf last"))
    outcome(place.backend, handle)
    expected = [*(str(number).encode() for number in range(1, 20001)), b"last"]
    for replica in ("worker-0", "worker-1"):
        assert place.printed(handle, replica) == expected


def test_another_backend_adopts_what_one_started(place: Place) -> None:
    go = place.work / "go"
    handle = submit(place, place.launch(TWO % f"while [ ! -e {place.seen(go)} ]; do sleep 0.02; done"))
    until(lambda: [s.state for s in observed(place.backend, handle).statuses] == ["running"] * 2, "the start")
    other = place.new_backend()
    assert {status.state for status in observed(other, handle).statuses} == {"running"}
    assert not observed(other, handle).missing
    go.touch()
    assert outcome(other, handle).state == "succeeded"


def test_what_nobody_started_is_missing(place: Place) -> None:
    assert observed(place.backend, "local:here/boot/ezzzzz/0").missing


def test_a_command_that_cannot_start_fails_with_the_reason(place: Place) -> None:
    launch = place.launch("run: {cmd: x}\n")
    gone = Launch(**{**launch.__dict__, "cwd": str(place.work / "nowhere")})
    end = outcome(place.backend, submit(place, gone))
    assert end.state == "failed"
    assert "nowhere" in end.statuses[0].reason


def test_a_replica_is_restarted_alone_where_the_policy_says_so(place: Place) -> None:
    once = place.seen(place.work / "once")
    command = f"if [ $SHOAL_INDEX = 1 ] && [ ! -e {once} ]; then touch {once}; exit 9; fi; echo try $SHOAL_TRY"
    handle = submit(place, place.launch(TWO % command + "restart: {policy: replica, max: 2, on_exit_codes: [9]}\n"))
    end = outcome(place.backend, handle)
    assert end.state == "succeeded"
    assert [(s.replica, s.try_, s.exit_code) for s in end.history] == [("worker-1", 0, 9)]
    assert {(s.replica, s.try_, s.exit_code) for s in end.statuses} == {("worker-0", 0, 0), ("worker-1", 1, 0)}


def test_time_is_limited(place: Place) -> None:
    end = outcome(place.backend, submit(place, place.launch(TWO % "sleep 600" + "timeout: 0.2s\n")))
    assert (end.state, end.reason) == ("failed", "TimedOut: ran longer than 0.2 s")
    assert {status.state for status in end.statuses} == {"stopped"}
    place.nothing_left()


def test_a_stop_in_the_first_moments_is_not_lost(place: Place, round_number: int) -> None:
    """The master ends at once, so that the others are stopped while they start."""
    text = "framework: none\nrun: {cmd: '[ $SHOAL_ROLE = master ] || exec sleep 600'}\n"
    text += "environment: {replicas: {n_workers: 4}}\ngrace: {finish: 0s, stop: 1h}\n"
    end = outcome(place.backend, submit(place, place.launch(text)))
    assert end.state == "succeeded"
    assert {status.state for status in end.statuses if status.replica != "master-0"} == {"stopped"}
    place.nothing_left()
