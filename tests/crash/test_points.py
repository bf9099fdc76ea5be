"""Points survive: a script, its launcher or the server is killed, and what was logged before is in the store once.

The scripts keep their own notes outside the home (points_script.py); what they noted is compared with what the API
says.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal.client import Client
from shoal.errors import ShoalError
from tests import recording, running
from tests.running import kill, launchers_of, nothing_left, server_pid, submit, until

SCRIPT = Path(__file__).with_name("points_script.py")
FLUSH = 0.5  # seconds: what is older is safe
ROUNDS, AT_ONCE = 100, 10
KILLS = 4  # of a server


class Note(NamedTuple):
    step: int
    time: float  # after the call had returned


class Killed(NamedTuple):
    name: str
    time: float


def test_a_script_that_is_killed_has_lost_no_point_older_than_the_flush_interval(home: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    chance = random.Random(5)
    killed = [each for _ in range(ROUNDS // AT_ONCE) for each in kill_some(notes, chance)]
    begun = len(list(home.glob("outside/*/outside.json")))
    client = Client(home)
    until(lambda: len(over(client)) == begun, "the end of all runs")
    words = {entry["name"]: entry["id"] for entry in over(client)}
    compared = 0
    for name, when in killed:
        noted = read(notes / name)
        safe = [note for note in noted if note.time < when - FLUSH - starved(noted, when)]
        compared += len(safe)
        if name in words:
            compare(client, words[name], "master-0", safe, noted)
        else:
            assert not safe, f"{name} has logged {len(noted)} points, and nobody knows of it"
    print(f"{compared} points compared, of {begun} runs")
    assert compared > ROUNDS


DROPS = """
import signal, sys
import shoal
shoal.log(i=0)
session = shoal.sdk.session.current()
session.flush()
sys.setswitchinterval(1000)  # the writer hardly gets a turn, so the buffer fills
calls = 1
while session.dropped < 1000:
    shoal.log(i=calls)
    calls += 1
sys.setswitchinterval(0.005)
print(calls, session.dropped, flush=True)
signal.pause()
"""


def test_a_script_that_is_killed_has_told_how_many_calls_it_dropped(home: Path) -> None:
    script = recording.start(DROPS, home)
    try:
        assert script.stdout is not None
        calls, dropped = map(int, script.stdout.readline().split())

        def told() -> bool:
            stream = recording.stream_below(home)
            counts = [event["calls"] for event in stream.of_kind("dropped")]
            return counts[-1:] == [dropped] and len(stream.points["i"]) == calls - dropped

        until(told, "the number of dropped calls in the stream")
    finally:
        script.kill()
        _, errors = script.communicate()
    assert errors.count("calls are dropped and counted") == 1
    client = Client(home)
    (entry,) = until(lambda: over(client), "the end of the run")
    lost = {"replica": "master-0", "process": 0, "attempt": 0, "dropped": dropped, "gaps": 0, "damaged": 0}
    assert client.show(entry["id"])["losses"] == [lost]
    assert f"of master-0, {dropped:,} calls were dropped" in running.shoal("show", entry["id"]).stdout
    (curve,) = client.metrics(entry["id"], "i")
    assert len(curve.values) == calls - dropped


def kill_some(notes: Path, chance: random.Random) -> list[Killed]:
    """Scripts that log and are killed at moments of chance."""
    scripts = [subprocess.Popen([sys.executable, str(SCRIPT), str(notes), "100000"]) for _ in range(AT_ONCE)]
    moments = sorted((chance.uniform(0.0, 1.6), script) for script in scripts)
    for script in scripts:
        until(lambda script=script: (notes / f"pid-{script.pid}").exists(), "its first note")
    started = time.monotonic()
    killed = []
    for moment, script in moments:
        while time.monotonic() < started + moment:
            time.sleep(0.002)
        when = time.time()
        script.kill()
        script.wait()
        killed.append(Killed(f"pid-{script.pid}", when))
    return killed


def starved(noted: list[Note], when: float) -> float:
    """How long the script could not run in its last seconds, on a machine that has no time for it: then its writer
    could not either. It notes every 5 ms."""
    times = [note.time for note in noted] + [when]
    pauses = [later - earlier for earlier, later in pairwise(times) if later > when - 2.0]  # the first may be long
    return sum(pause - 0.05 for pause in pauses if pause > 0.05)


def over(client: Client) -> list[Any]:
    return [entry for entry in client.experiments(limit=1000) if entry["state"] in ("succeeded", "failed", "stopped")]


def read(path: Path) -> list[Note]:
    """The last line may be torn."""
    lines = path.read_bytes().decode().split("\n")[:-1]
    return [Note(int(step), float(when)) for step, when in (line.split() for line in lines)]


def compare(client: Client, word: str, replica: str, safe: list[Note], noted: list[Note]) -> None:
    """What is safe is there, everything is there once, and nothing that was never logged."""
    found = points(client, word, replica)
    for name, factor in (("loss", 0.5), ("accuracy", 0.25)):
        steps = [step for step, _, _ in found.get(name, [])]
        assert len(set(steps)) == len(steps), f"{word}: points of {name} are doubled"
        lost = {note.step for note in safe} - set(steps)
        assert not lost, f"{word}: {len(lost)} points of {name} are lost, first step {min(lost)} of {len(noted)}"
        assert set(steps) <= {note.step for note in noted} | {len(noted)}
        assert all(value == step * factor for step, _, value in found.get(name, []))


def points(client: Client, word: str, replica: str) -> dict[str, list[list[float]]]:
    """Every point, also those that a later start of the script replaced."""
    path = f"/api/experiments/{word}/points?replica={replica}&replaced=true"
    found: dict[str, list[list[float]]] = {}
    for entry in client._ask("GET", path):
        found.setdefault(entry["name"], []).extend(entry["points"])
    return found


def start(tmp_path: Path, *options: str, steps: int) -> str:
    (tmp_path / "notes").mkdir()
    command = " ".join(["exec", sys.executable, str(SCRIPT), str(tmp_path / "notes"), str(steps), *options])
    text = f"framework: none\nrun: {{cmd: '{command}'}}\ngrace: {{stop: 5s}}\n"
    return submit(tmp_path, text + "environment: {replicas: {n_workers: 2, master: false}}\n")


def test_a_server_that_is_killed_again_and_again_has_every_point_once(home: Path, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    word = start(tmp_path, "--until", str(enough), steps=1_000_000)
    chance = random.Random(6)
    notes = {name: tmp_path / "notes" / name for name in ("worker-0", "worker-1")}
    until(lambda: all(path.exists() for path in notes.values()), "the first notes")
    kills = 0
    while kills < KILLS:
        time.sleep(chance.random() * 0.3)
        try:
            Client(home).chart(word, name="loss")  # starts one, which reads from where the last one was
            kill(server_pid(home))
            kills += 1
        except (ShoalError, ProcessLookupError):
            continue
    enough.touch()
    assert finished(home, word)["state"] == "succeeded"
    for replica, path in notes.items():
        compare(Client(home), word, replica, read(path), read(path))
    nothing_left(home)


def test_a_launcher_that_is_killed_has_lost_no_point_older_than_the_flush_interval(home: Path, tmp_path: Path) -> None:
    word = start(tmp_path, steps=100_000)
    notes = {name: tmp_path / "notes" / name for name in ("worker-0", "worker-1")}
    until(lambda: all(path.exists() and len(read(path)) > 200 for path in notes.values()), "two hundred notes")
    when = time.time()
    kill(launchers_of(home, word)["worker-1"])
    end = finished(home, word)
    assert end["first_failure"]["replica"] == "worker-1"
    for replica, path in notes.items():
        noted = read(path)
        safe = [note for note in noted if note.time < when - FLUSH - starved(noted, when)]
        assert safe
        compare(Client(home), word, replica, safe, noted)
    nothing_left(home)


def finished(home: Path, word: str) -> Any:
    """The experiment, once it is over; also while servers die."""

    def over() -> Any:
        try:
            found = Client(home).show(word)
        except ShoalError:
            return None
        return found if found["state"] in ("succeeded", "failed", "stopped") else None

    return until(over, f"the end of {word}")


@pytest.mark.parametrize("off", [3600, -3600], ids=["fast", "slow"])
@pytest.mark.parametrize(
    "fails", [0, 1], ids=["the one with the right clock fails", "the one with the wrong clock fails"]
)
def test_a_clock_that_is_an_hour_off_changes_no_curve_and_no_first_failure(
    home: Path, tmp_path: Path, off: int, fails: int
) -> None:
    word = start(tmp_path, "--fails", str(fails), "--off", str(off), steps=100)
    end = running.finished(word)
    assert end["state"] == "failed"
    assert end["first_failure"]["replica"] == f"worker-{fails}"
    assert "the loss is not a number" in "\n".join(end["first_failure"]["lines"])
    for name in ("worker-0", "worker-1"):
        noted = read(tmp_path / "notes" / name)
        compare(Client(home), word, name, noted if name == f"worker-{fails}" else [], noted)
    curves = Client(home).chart(word, name="loss")["series"]
    assert [curve["rank"] for curve in curves] == [0, 1]
    assert all(curve["start"] == sorted(curve["start"]) for curve in curves)
    assert all(curve["last"][0] == curve["x_last"][0] * 0.5 for curve in curves)
