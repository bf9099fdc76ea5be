"""Whatever a script hands over, training goes on, nothing beside it is lost, and what is lost is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.recording import record, stream_below


def recorded(script: str, home: Path) -> tuple[Any, str]:
    errors = record(script, home)
    return stream_below(home), errors


def test_a_key_without_a_text_costs_nothing(tmp_path: Path) -> None:
    stream, errors = recorded(
        """
        import shoal
        class Odd:
            def __str__(self): raise RuntimeError("no text")
            __repr__ = __str__
        shoal.log(loss=0.0)
        for step in range(1, 1000):
            shoal.log({"loss": step})
        shoal.log({Odd(): 1.0})
        shoal.log({"deep": {Odd(): 2.0}})
        shoal.params({Odd(): Odd()})
        shoal.log(after=1)
        """,
        tmp_path / "home",
    )
    assert [value for _, value in stream.points["loss"]] == [float(step) for step in range(1000)]
    assert stream.points["<Odd>"] == [(0, 1.0)]
    assert stream.points["deep/<Odd>"] == [(0, 2.0)]
    assert stream.points["after"] == [(0, 1.0)]
    assert stream.end["dropped"] == 0, errors
    assert [event["values"] for event in stream.events if event["kind"] == "params"] == [{"<Odd>": "<Odd>"}]


def test_a_key_that_cannot_be_compared_costs_itself_and_is_counted(tmp_path: Path) -> None:
    stream, errors = recorded(
        """
        import shoal
        class Odd(str):
            def __eq__(self, other): raise RuntimeError("not comparable")
            __hash__ = str.__hash__
        shoal.log(loss=0.0)
        for step in range(1, 1000):
            shoal.log({"loss": step})
        for _ in range(3):
            shoal.log({Odd("loss"): 1.0})
        shoal.log(loss=1000)
        """,
        tmp_path / "home",
    )
    assert [value for _, value in stream.points["loss"]] == [float(step) for step in range(1001)]
    assert stream.end["dropped"] == 3
    assert errors.count("dropped and counted") == 1


def test_only_files_and_directories_are_kept(tmp_path: Path) -> None:
    stream, errors = recorded(
        """
        import os, shoal
        os.mkfifo("pipe")
        os.mkdir("several")
        os.mkfifo("several/pipe")
        open("several/file", "w").close()
        shoal.artifact("pipe")
        shoal.model("net", "/dev/zero")
        shoal.artifact("several")
        """,
        tmp_path / "home",
    )
    assert errors.count("neither a file nor a directory") == 2
    (event,) = [event for event in stream.events if event["kind"] in ("artifact", "model")]
    assert [file["path"] for file in event["files"]] == ["file"]


def test_a_name_that_cannot_be_one_is_said_and_the_content_is_kept(tmp_path: Path) -> None:
    stream, errors = recorded(
        """
        import shoal
        open("weights.pt", "w").close()
        shoal.model("", "weights.pt")
        shoal.model("a/b@c", "weights.pt")
        shoal.artifact("weights.pt", "bad/../name")
        shoal.artifact("weights.pt")
        """,
        tmp_path / "home",
    )
    kept = [(event["kind"], event["name"]) for event in stream.events if event["kind"] in ("artifact", "model")]
    assert kept == [("model", "weights.pt"), ("model", "a/b_c"), ("artifact", "bad/name"), ("artifact", "weights.pt")]
    assert "model: '' cannot be a name (it is empty); it is kept as 'weights.pt'" in errors
    assert "artifact: 'bad/../name' cannot be a name (a part of it is '..'); it is kept as 'bad/name'" in errors
