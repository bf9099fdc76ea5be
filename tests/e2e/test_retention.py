"""Space comes back: by `shoal rm`, by a query, and by itself."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from shoal.client import Client
from tests.e2e.test_command_line import on_a_terminal
from tests.recording import record
from tests.running import SHOAL, finished, shoal, submit, until

SCRIPT = """
import shoal
shoal.init(name={name!r}, tags={tags!r})
shoal.log(loss=0.5)
with open("content", "w") as file:
    file.write({name!r} * 1000)
shoal.artifact("content")
if {model!r}:
    shoal.model("net", "content")
"""


def run(home: Path, name: str, tags: tuple[str, ...] = (), model: bool = False) -> None:
    record(SCRIPT.format(name=name, tags=tags, model=model), home)


def names(client: Client) -> list[str]:
    return sorted(entry["name"] for entry in client.experiments())


def blobs(home: Path) -> int:
    return sum(file.is_file() and len(file.name) == 64 for file in (home / "blobs").rglob("*"))


def all_tracked(client: Client, count: int) -> bool:
    """Read to their ends, with their files: then the streams are gone."""
    over = [entry for entry in client.experiments() if entry["state"] == "succeeded"]
    return len(over) == count and not any(client.home.glob("outside/*/attempt-0/*/try-0/streams/*"))


def test_what_is_not_kept_goes_by_itself(home: Path) -> None:
    client = Client(home)
    for number, name in enumerate(("old", "tagged", "served", "newest"), 1):
        run(home, name, tags=("keep",) if name == "tagged" else (), model=name == "served")
        until(lambda number=number: all_tracked(client, number), f"{name} in the store")
    client.promote("net", "1", "production")
    assert blobs(home) == 4
    client.end_server()

    (home / "config.toml").write_text("[retention]\nkeep = 1\n")
    client = Client(home)
    until(lambda: names(client) == ["newest", "served", "tagged"], "the retention")
    until(lambda: blobs(home) == 3, "the space")
    assert len(list((home / "outside").iterdir())) == 3
    until(lambda: "retention: forgot" in (home / "server.log").read_text(), "that it is said")


def test_a_wrong_setting_is_said_by_the_first_command(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[retention]\nkeep_days = "long"\n')
    result = shoal("ls")
    assert result.returncode == 2
    assert "retention.keep_days: 'long' is not a number of days" in result.stderr


def test_rm_does_all_it_can_and_says_the_rest(home: Path) -> None:
    for name in ("one", "two", "three"):
        run(home, name)
    client = Client(home)
    until(lambda: all_tracked(client, 3), "three runs in the store")
    result = shoal("rm", "1", "99", "3")
    assert result.returncode == 2
    assert result.stdout.splitlines() == ["1 removed", "3 removed"]
    assert "there is no experiment '99'" in result.stderr
    assert "1 of 3 not removed" in result.stderr
    assert [entry["number"] for entry in client.experiments()] == [2]


def test_rm_by_a_query(home: Path) -> None:
    for name in ("one", "two", "three"):
        run(home, name, tags=("drop",) if name != "two" else ())
    client = Client(home)
    until(lambda: all_tracked(client, 3), "three runs in the store")
    shown = shoal("rm", "-q", "tags:drop", "--dry-run")
    assert shown.returncode == 0
    assert sorted(line.split()[2] for line in shown.stdout.splitlines()) == ["one", "three"]
    unasked = shoal("rm", "-q", "tags:drop")
    assert unasked.returncode == 2
    assert "this would remove 2 experiments" in unasked.stderr
    assert len(client.experiments()) == 3
    assert shoal("rm", "-q", "tags:drop", "--yes").returncode == 0
    assert json.loads(shoal("ls", "--json").stdout)[0]["name"] == "two"
    nothing = shoal("rm", "-q", "tags:drop", "--yes")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "nothing to remove" in nothing.stderr
    both = shoal("rm", "1", "-q", "tags:drop")
    assert both.returncode == 2
    assert "experiments, or a query" in both.stderr


def test_what_is_not_over_would_not_go(home: Path, tmp_path: Path) -> None:
    word = submit(tmp_path, "framework: none\nrun: {cmd: 'while :; do sleep 0.02; done'}\n")
    shown = shoal("rm", word, "--dry-run")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "1 of 1 are not over and stay" in shown.stderr
    assert shoal("stop", word, "--now").returncode == 0
    finished(word)
    assert shoal("rm", word, "--dry-run").stdout.startswith(f"{word} #1 ")


def test_rm_by_a_query_asks_on_a_terminal(home: Path, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        run(home, name, tags=("drop",) if name != "two" else ())
    client = Client(home)
    until(lambda: all_tracked(client, 3), "three runs in the store")

    def answered(typed: bytes, *more: str) -> tuple[str, int]:
        return on_a_terminal([SHOAL, "rm", "-q", "tags:drop", *more], tmp_path, typed)

    for typed in (b"n\n", b"\n", b"what?\nno\n", b"\x04"):
        output, status = answered(typed)
        assert (output.count("Remove 2 experiments? [y/N]:") >= 1, status) == (True, 130), (typed, output)
        assert "removed" not in output
        assert len(client.experiments()) == 3
    assert answered(b"", "--dry-run")[1] == 0
    assert len(client.experiments()) == 3
    output, status = answered(b"y\n")
    assert (output.count("Remove 2 experiments?"), output.count(" removed"), status) == (1, 2, 0)
    assert names(client) == ["two"]
    output, status = answered(b"")
    assert ("Remove" in output, "nothing to remove" in output, status) == (False, True, 0)


def test_an_artifact_of_an_older_shoal_is_exported_below_its_directory(home: Path, tmp_path: Path) -> None:
    run(home, "old")
    client = Client(home)
    until(lambda: all_tracked(client, 1), "the run in the store")
    client.end_server()
    with closing(sqlite3.connect(home / "shoal.db")) as database, database:
        database.execute("update artifacts set name = '../../evil@1'")
    result = shoal("export", "1", str(tmp_path / "a" / "b" / "out"), "--artifacts")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "a" / "b" / "out" / "artifacts" / "evil_1" / "content").read_text() == "old" * 1000
