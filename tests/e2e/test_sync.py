"""Runs that were recorded elsewhere: `shoal sync` brings them in, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import journal
from shoal.client import Client
from shoal.journalfile import JournalFile
from shoal.launcher.shipping import PIECE
from tests.api.speaking import Served
from tests.recording import record
from tests.running import shoal
from tests.tries import tree


def outside(place: Path, key: str = "run-1", name: str = "mine") -> JournalFile:
    """A run directory as the SDK makes it, and its stream."""
    directory = place / key
    streams = directory / "attempt-0" / "worker-0" / "try-0" / "streams"
    streams.mkdir(parents=True)
    about = {"key": key, "name": name, "started": 1.7e9, "command": ["train.py"], "cwd": "/", "host": "far"}
    (directory / "outside.json").write_text(json.dumps({**about, "user": "u", "python": "3", "params": {}, "tags": []}))
    header = {"kind": "metric", "rank": 0, "process": 0, "attempt": 0, "try": 0, "replica": "worker-0", "host": "far"}
    return JournalFile(str(streams), {**header, "started": 1.7e9, "experiment": "", "key": key})


def log(stream: JournalFile, *steps: int) -> None:
    stream.points([journal.Group(("loss",), [float(s) for s in steps], list(steps), [[s / 2 for s in steps]])])


def test_sync_brings_in_what_is_new_and_nothing_twice(home: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stream = outside(runs)
    log(stream, 0, 1)
    first = json.loads(shoal("sync", str(runs), "--json").stdout)
    assert [(run["name"], run["state"], run["bytes"] > 0) for run in first] == [("mine", "running", True)]
    assert json.loads(shoal("sync", str(runs), "--json").stdout) == [{**first[0], "bytes": 0}]
    log(stream, 2)
    stream.end({"time": 1.7e9 + 5, "how": "finished", "error": "", "dropped": 0})
    last = json.loads(shoal("sync", str(runs / "run-1"), "--json").stdout)
    assert 0 < last[0]["bytes"] < first[0]["bytes"]
    assert (last[0]["id"], last[0]["state"]) == (first[0]["id"], "succeeded")
    over_again = shoal("sync", str(runs))
    assert over_again.returncode == 0, over_again.stderr
    words = [first[0]["id"], "mine", "succeeded", "0", str(runs / "run-1")]
    assert over_again.stdout.split() == ["id", "name", "state", "sent", "path", *words]
    [shown] = Client(home).experiments()
    assert shown["metrics"]["loss"] == {**shown["metrics"]["loss"], "last": 1.0, "step": 2, "min": 0.0, "max": 1.0}


def test_a_run_of_this_machine_that_is_long_over_comes_whole(home: Path, tmp_path: Path) -> None:
    """Its process is known to be gone, and yet what is on its way is not taken for lost."""
    code = "import random, shoal\nfor n in range(300_000): shoal.log(loss=random.random(), lr=random.random())"
    record(code, tmp_path / "nowhere", SHOAL_OUTSIDE=str(tmp_path / "runs"))
    found = shoal("sync", str(tmp_path / "runs"), "--json")
    assert found.returncode == 0, found.stderr
    [run] = json.loads(found.stdout)
    assert run["state"] == "succeeded"
    assert run["bytes"] > 3 * PIECE
    assert [one["count"] for one in Client(home).series(run["id"])] == [300_000] * 2


def test_sync_of_the_home_only_looks(home: Path) -> None:
    assert shoal("sync").stdout == "there is nothing to bring in\n"
    stream = outside(home / "outside")
    log(stream, 0)
    [found] = json.loads(shoal("sync", "--json").stdout)
    assert (found["bytes"], found["state"]) == (0, "running")


def test_sync_speaks_to_a_server_elsewhere(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(home, Client(home))
    mine = tmp_path / "mine"
    stream = outside(mine / "outside")
    log(stream, 0, 1, 2)
    variables = {"SHOAL_SERVER": f"http://{served.host}", "SHOAL_TOKEN": served.token, "SHOAL_HOME": str(mine)}
    result = shoal("sync", "--json", **variables)
    assert result.returncode == 0, result.stderr
    [found] = json.loads(result.stdout)
    assert found["bytes"] > 0
    copy = home / "outside" / "run-1" / "attempt-0" / "worker-0" / "try-0"
    assert tree(copy) == tree(mine / "outside" / "run-1" / "attempt-0" / "worker-0" / "try-0")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda place: None, "there is no such directory", id="nothing there"),
        pytest.param(lambda place: place.mkdir(), "no run was recorded there", id="an empty directory"),
        pytest.param(lambda place: bad(place, "{"), "outside.json: Expecting", id="half an outside.json"),
        pytest.param(lambda place: bad(place, "[]"), "outside.json: not a JSON object", id="a list"),
        pytest.param(
            lambda place: bad(place, '{"key": "../x"}'), "cannot be the key of a run", id="a key that is a path"
        ),
    ],
)
def test_sync_says_what_is_wrong(home: Path, tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "runs")
    result = shoal("sync", str(tmp_path / "runs"))
    assert result.returncode == 2
    assert said in result.stderr
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr


def bad(place: Path, text: str) -> None:
    place.mkdir()
    (place / "outside.json").write_text(text)
