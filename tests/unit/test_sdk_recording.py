"""What scripts say with the SDK, as it lies in their streams; wrong values, runs outside Shoal, the documentation."""

from __future__ import annotations

import doctest
import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.recording import record, start, stream_below, streams_below

CALLS = ["calls", "replicas", "running"]
REPLICA = {
    "SHOAL_STREAMS": "/try/streams",
    "SHOAL_EXPERIMENT": "e7k2m9",
    "SHOAL_REPLICA": "worker-1",
    "SHOAL_ROLE": "worker",
    "SHOAL_INDEX": "1",
    "SHOAL_ATTEMPT": "2",
    "SHOAL_TRY": "3",
    "SHOAL_CLUSTER_SPEC": '{"master": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}',
}


def test_everything_that_can_be_logged(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"w" * 1000)
    errors = record(
        """
        import argparse, decimal, shoal
        shoal.log(loss=1.5)
        shoal.log({"loss": 2, "flag": True, "exact": decimal.Decimal("0.5")})
        shoal.log({"train": {"lr": 0.1, "deep": {"er": 3}}}, step=10)
        shoal.log({"train": {"lr": 0.2}, "word": "hello"}, 20)
        shoal.log({"a": float("nan"), "b": float("inf")}, c=7)
        shoal.log({"half": 1}, commit=False)
        shoal.log(other=2)
        shoal.params(argparse.Namespace(depth=3), width=float("nan"))
        shoal.tag("one", ["two", "three"])
        shoal.progress(0.25)
        shoal.progress(7)
        shoal.text("note", "first")
        shoal.text("note", "second")
        shoal.table("t", ["x", "y"], [[1, "a"], (2, None)], step=5)
        shoal.histogram("h", [1, 2, 3, 4], bins=2)
        shoal.image("i/1", shoal.sdk.media.png(1, 1, 1, b"0"), caption="grey")
        shoal.artifact("weights", metadata={"k": 1})
        shoal.model("net", "weights", metrics={"loss": 0.5}, step=3)
        shoal.checkpoint("weights", 30)
        """,
        tmp_path / "home",
    )
    assert errors == ""
    stream = stream_below(tmp_path / "home")
    assert stream.points["loss"] == [(0, 1.5), (1, 2.0)]
    assert stream.points["flag"] == [(0, 1.0)]
    assert stream.points["exact"] == [(0, 0.5)]
    assert stream.points["train/lr"] == [(10, 0.1), (20, 0.2)]
    assert stream.points["train/deep/er"] == [(10, 3.0)]
    assert math.isnan(stream.points["a"][0][1])
    assert stream.points["b"] == [(0, math.inf)]
    assert (stream.points["c"], stream.points["half"], stream.points["other"]) == ([(0, 7.0)], [(0, 1.0)], [(0, 2.0)])
    assert stream.of_kind("params")[0]["values"] == {"depth": 3, "width": "NaN"}
    assert stream.of_kind("tag")[0]["tags"] == ["one", "two", "three"]
    assert [event["fraction"] for event in stream.of_kind("progress")] == [1.0]
    assert [(event["text"], event["step"]) for event in stream.of_kind("text")] == [
        ("hello", 20),
        ("first", 0),
        ("second", 1),
    ]
    (table,) = stream.of_kind("table")
    assert (table["columns"], table["rows"], table["step"]) == (["x", "y"], [[1, "a"], [2, None]], 5)
    (histogram,) = stream.of_kind("histogram")
    assert (histogram["edges"], histogram["counts"]) == ([1.0, 2.5, 4.0], [2, 2])
    files = next((tmp_path / "home").glob("**/files"))
    (image,) = stream.of_kind("image")
    assert (image["format"], image["width"], image["caption"]) == ("png", 1, "grey")
    assert (files / image["file"]["staged"]).stat().st_size == image["file"]["size"]
    (artifact,), (model,) = stream.of_kind("artifact"), stream.of_kind("model")
    assert (artifact["name"], artifact["type"], artifact["metadata"]) == ("weights", "artifact", {"k": 1})
    assert (model["name"], model["metrics"], model["step"]) == ("net", {"loss": 0.5}, 3)
    assert (files / model["files"][0]["staged"]).read_bytes() == b"w" * 1000
    (checkpoint,) = stream.of_kind("checkpoint")
    assert (checkpoint["path"], checkpoint["step"]) == (str(tmp_path / "weights"), 30)
    (host,) = stream.of_kind("host")
    assert "pytest" in host["packages"]
    assert stream.end is not None
    assert {**stream.end, "time": 0} == {"time": 0, "how": "exited", "error": "", "dropped": 0}
    assert stream.seqs == list(range(len(stream.seqs)))


HELD = {
    "values that are held go with the next call": (
        [({"a": 1}, {"commit": False}), ({"b": 2}, {})],
        {"a": [(0, 1.0)], "b": [(0, 2.0)]},
    ),
    "the next call has the step": (
        [({"a": 1}, {"commit": False}), ({"b": 2}, {"step": 7})],
        {"a": [(7, 1.0)], "b": [(7, 2.0)]},
    ),
    "or they have it themselves": (
        [({"a": 1}, {"step": 5, "commit": False}), ({"b": 2}, {}), ({"b": 3}, {})],
        {"a": [(5, 1.0)], "b": [(5, 2.0), (6, 3.0)]},
    ),
    "at another step they stay at their own": (
        [({"a": 1}, {"step": 5, "commit": False}), ({"b": 2}, {"step": 6})],
        {"a": [(5, 1.0)], "b": [(6, 2.0)]},
    ),
    "each step of a loop keeps its own": (
        [*(({"c": s}, {"step": s, "commit": False}) for s in range(10, 15)), ({"d": 1}, {"step": 15})],
        {"c": [(s, float(s)) for s in range(10, 15)], "d": [(15, 1.0)]},
    ),
    "a call that is the only one is written at the end": (
        [({"a": 1}, {"step": 5, "commit": False})],
        {"a": [(5, 1.0)]},
    ),
    "what nothing follows is written at the end": (
        [({"c": s}, {"step": s, "commit": False}) for s in (1, 2)],
        {"c": [(1, 1.0), (2, 2.0)]},
    ),
}


@pytest.mark.parametrize(("calls", "points"), HELD.values(), ids=HELD)
def test_values_that_wait_for_more(calls: list[Any], points: dict[str, list[Any]], tmp_path: Path) -> None:
    lines = [f"shoal.log({values!r}, **{options!r})" for values, options in calls]
    assert record("\n".join(["import shoal", *lines]), tmp_path / "home") == ""
    assert stream_below(tmp_path / "home").points == points


def test_what_waits_is_not_the_forks(tmp_path: Path) -> None:
    record(
        """
        import os, shoal
        shoal.log({"a": 1}, step=5, commit=False)
        if not os.fork():
            shoal.log({"b": 2}, commit=False)
            shoal.log({"c": 3})
            shoal.finish()
            os._exit(0)
        os.wait()
        """,
        tmp_path / "home",
    )
    found = sorted(streams_below(tmp_path / "home"), key=lambda stream: sorted(stream.points))
    assert [stream.points for stream in found] == [{"a": [(5, 1.0)]}, {"b": [(0, 2.0)], "c": [(0, 3.0)]}]


def test_the_number_of_a_step_may_be_that_of_numpy(tmp_path: Path) -> None:
    errors = record(
        """
        import numpy, shoal
        for number in numpy.arange(100, 103):
            with shoal.step(number): pass
        shoal.step("soon")
        """,
        tmp_path / "home",
    )
    assert errors.splitlines()[0].startswith("shoal: step='soon' cannot be used")
    assert [step for step, _ in stream_below(tmp_path / "home").points["shoal/step_busy"]] == [100, 101, 102]


WRONG = {
    "a list is no number": ("shoal.log(a=[1, 2])", "log: a is a list that is no number"),
    "None is left out": ("shoal.log(a=None)", "log: a is None"),
    "a complex number": ("shoal.log(a=1j)", "log: a is a complex that is no number"),
    "a step that is no number": ("shoal.log(a=1, step='x')", "step='x' cannot be used"),
    "half a step": ("shoal.log(a=1, step=0.5)", "step=0.5 cannot be used"),
    "no dict": ("shoal.log(7)", "log: TypeError: int is no dict"),
    "a missing file": ("shoal.artifact('nowhere')", "nowhere: No such file or directory"),
    "a missing checkpoint": ("shoal.checkpoint('nowhere', 1)", "nowhere: No such file or directory"),
    "no image": ("shoal.image('i', b'text')", "image: ValueError: not an image"),
    "no array": ("shoal.image('i', 7)", "image: "),
    "params that are none": ("shoal.params(7)", "params: TypeError: int is no dict"),
    "progress that is none": ("shoal.progress('soon')", "progress: ValueError"),
    "a value with a mind of its own": (
        "shoal.log(a=type('X', (), {'__float__': lambda self: 1 / 0})())",
        "log: a is a X that is no number",
    ),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_one_line_on_stderr_and_training_goes_on(call: str, said: str, tmp_path: Path) -> None:
    errors = record(f"import shoal\nfor _ in range(3): {call}\nshoal.log(after=1)\n", tmp_path / "home")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("shoal: ")
    assert said in errors
    assert stream_below(tmp_path / "home").points["after"] == [(0, 1.0)]


def test_a_table_that_is_too_large_is_refused_and_counted(tmp_path: Path) -> None:
    errors = record("import shoal; shoal.table('t', ['x'], [['y' * 1000]] * 20_000)", tmp_path / "home")
    assert "a table of 19 MiB is not recorded" in errors
    end = stream_below(tmp_path / "home").end
    assert end is not None
    assert end["dropped"] == 1


FAILING = {
    "log": (["shoal.log(7)"] * 3, 1),
    "image": (["shoal.image('i', b'text')", "shoal.image('j', 'nowhere')"], 1),
    "artifact": (["shoal.artifact('one')", "shoal.artifact('two')", "shoal.artifact('two')"], 2),
    "model": (["shoal.model('net', 'one')", "shoal.model('net', path='two')"], 2),
    "checkpoint": (["shoal.checkpoint('one', 1)", "shoal.checkpoint('two', 2)", "shoal.checkpoint(7, 2)"], 3),
}


@pytest.mark.parametrize(("calls", "lines"), FAILING.values(), ids=FAILING)
def test_calls_that_fail_are_counted_and_each_path_is_said(calls: list[str], lines: int, tmp_path: Path) -> None:
    errors = record("\n".join(["import shoal", *calls]), tmp_path / "home")
    assert len(errors.splitlines()) == lines
    stream = stream_below(tmp_path / "home")
    assert [event["calls"] for event in stream.of_kind("dropped")][-1] == len(calls)
    assert stream.end is not None
    assert stream.end["dropped"] == len(calls)


OUTSIDE = {
    "a name, params and tags": (
        "shoal.init('digits', params={'lr': 0.1}, tags=['a', 'b'])",
        {"name": "digits", "params": {"lr": 0.1}, "tags": ["a", "b"]},
    ),
    "nothing is said": ("shoal.init()", {"name": "python", "params": {}, "tags": []}),
    "in the manner of wandb": (
        "shoal.init(project='p', config={'lr': 1}, group='g', resume='allow')",
        {"project": "p", "group": "g", "params": {"lr": 1}},
    ),
}


@pytest.mark.parametrize(("call", "expected"), OUTSIDE.values(), ids=OUTSIDE)
def test_a_run_outside_introduces_itself(call: str, expected: dict[str, Any], tmp_path: Path) -> None:
    assert record(f"import shoal; {call}", tmp_path / "home") == ""
    (about,) = (tmp_path / "home" / "outside").glob("*/outside.json")
    written = json.loads(about.read_text())
    assert {key: written[key] for key in expected} == expected
    assert written["key"] == about.parent.name
    assert written["cwd"] == str(tmp_path)
    stream = stream_below(tmp_path / "home")
    assert stream.header["key"] == written["key"]
    assert stream.end is not None


@pytest.mark.parametrize("way", ["init", "variable"])
def test_a_run_outside_can_lie_elsewhere(way: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    if way == "init":
        record(f"import shoal; shoal.init(directory={str(elsewhere)!r})", tmp_path / "home")
    else:
        record("import shoal; shoal.log(a=1)", tmp_path / "home", SHOAL_OUTSIDE=str(elsewhere))
    assert len(list(elsewhere.glob("*/outside.json"))) == 1
    assert not (tmp_path / "home").exists()


def test_runs_one_after_another_in_one_process(tmp_path: Path) -> None:
    record(
        """
        import shoal
        for number in range(3):
            with shoal.init(f"run {number}") as run:
                run.log(number=number)
        shoal.log(late=1)
        """,
        tmp_path / "home",
    )
    names = [
        json.loads(file.read_text())["name"] for file in sorted((tmp_path / "home").glob("outside/*/outside.json"))
    ]
    assert sorted(names) == ["run 0", "run 1", "run 2"]
    streams = streams_below(tmp_path / "home")
    assert sorted(stream.points["number"][0][1] for stream in streams if "number" in stream.points) == [0.0, 1.0, 2.0]
    (late,) = [stream for stream in streams if "late" in stream.points]
    assert len({stream.header["key"] for stream in streams}) == 3
    assert late.header["key"].endswith("-3")


def test_a_second_init_goes_on_in_the_run_that_is_open_and_says_so(tmp_path: Path) -> None:
    errors = record(
        """
        import shoal
        run = shoal.init("one", params={"lr": 1})
        assert shoal.init() is shoal.init("one", tags=["a"]) is run
        assert shoal.init("two", params={"lr": 2}) is shoal.init("three") is run
        assert run.name == "one"
        """,
        tmp_path / "home",
    )
    assert errors == "shoal: init: a run is open and goes on, without the name 'two'; shoal.finish() first\n"
    stream = stream_below(tmp_path / "home")
    assert [event["values"] for event in stream.of_kind("params")] == [{"lr": 1}, {"lr": 2}]


def test_a_name_that_comes_after_the_first_word_is_said_to_be_late(tmp_path: Path) -> None:
    errors = record("import shoal; shoal.log(a=1); shoal.init('late'); shoal.log(a=2)", tmp_path / "home")
    assert errors == "shoal: init: a run is open and goes on, without the name 'late'; shoal.finish() first\n"
    assert stream_below(tmp_path / "home").points["a"] == [(0, 1.0), (1, 2.0)]


def test_an_exception_ends_the_run_of_its_block(tmp_path: Path) -> None:
    record("import shoal\nwith shoal.init(): raise ValueError('no data')", tmp_path / "home", code=1)
    end = stream_below(tmp_path / "home").end
    assert end is not None
    assert (end["how"], end["error"]) == ("exception", "ValueError: no data")


def test_a_replica_needs_no_init_and_knows_itself(tmp_path: Path) -> None:
    streams = tmp_path / "try-3" / "streams"
    errors = record(
        """
        import shoal
        shoal.log(loss=1)
        me = shoal.replica
        print(me.name, me.role, me.index, me.rank, me.world, me.local_rank, me.attempt, me.try_, me.experiment)
        assert str(me.outputs).endswith("own") and me.outputs.is_dir() and str(me.shared_outputs).endswith("all")
        assert me.params == {"lr": 0.1} and me.data is None and str(me.resume_from) == "/old/step-7"
        """,
        tmp_path / "home",
        **{**REPLICA, "SHOAL_STREAMS": str(streams), "SHOAL_PARAMS": '{"lr": 0.1}'},
        SHOAL_OUTPUTS=str(tmp_path / "all"),
        SHOAL_REPLICA_OUTPUTS=str(tmp_path / "own"),
        SHOAL_RESUME_FROM="/old/step-7",
    )
    assert errors == ""
    assert not (tmp_path / "home").exists()
    header = stream_below(tmp_path).header
    expected = {"experiment": "e7k2m9", "replica": "worker-1", "rank": 2, "attempt": 2, "try": 3, "kind": "metric"}
    assert {key: header[key] for key in expected} == expected
    assert "key" not in header


def test_a_replica_outside_has_outputs_too(tmp_path: Path) -> None:
    process = start("import shoal; print(shoal.replica.outputs); print(shoal.replica)", tmp_path / "home")
    output, errors = process.communicate()
    assert errors == ""
    path, text = output.splitlines()
    assert Path(path).is_dir()
    assert Path(path).parent.parent.parent == tmp_path / "home" / "outside"
    assert text == "<shoal.replica master-0, rank 0 of 1, attempt 0>"


DISABLED = """
import shoal
run = shoal.init("x", params={"lr": 1})
shoal.log(a=1); shoal.log({"a": 1}, step=3); run.log(b=2)
with shoal.step(): pass
shoal.step(); shoal.params(a=1); shoal.tag("a"); shoal.text("a", "b"); shoal.image("a", b"")
shoal.artifact("nowhere"); shoal.checkpoint("nowhere", 1); shoal.progress(1); shoal.finish()
print(shoal.replica.name)
"""


def test_disabled_does_nothing_at_all(tmp_path: Path) -> None:
    assert record(DISABLED, tmp_path / "home", SHOAL_DISABLED="1") == ""
    assert list(tmp_path.iterdir()) == []


def test_the_disabled_mode_of_wandb_lasts_until_the_run_is_over(tmp_path: Path) -> None:
    record(
        """
        import shoal
        shoal.init(mode="disabled"); shoal.log(a=1); shoal.finish()
        shoal.init(); shoal.log(b=1)
        """,
        tmp_path / "home",
    )
    assert set(stream_below(tmp_path / "home").points) == {"b"}


@pytest.mark.parametrize("module", CALLS)
def test_the_examples_in_the_documentation_run(module: str, tmp_path: Path) -> None:
    tests = doctest.DocTestFinder().find(importlib.import_module(f"shoal.sdk.{module}"))
    assert sum(len(test.examples) for test in tests) > 1
    errors = record(
        f"""
        import doctest, sys
        import shoal.sdk.{module} as module
        failures, _ = doctest.testmod(module)
        sys.exit(failures)
        """,
        tmp_path / "home",
    )
    assert errors == ""


GUIDE = (ROOT / "docs" / "guides" / "tracking.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"snippet {number}" for number in range(len(SNIPPETS))])
def test_the_snippets_of_the_guide_run(snippet: str, tmp_path: Path) -> None:
    assert record(snippet, tmp_path / "home") == ""
    assert streams_below(tmp_path / "home") or "shoal.replica" in snippet


def test_the_import_loads_nothing(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import shoal; print(*(set(sys.modules) - before))"
    process = start(code, tmp_path / "home")
    assert process.communicate()[0].split() == ["shoal"]


def test_a_name_that_there_is_not() -> None:
    shoal: Any = importlib.import_module("shoal")
    with pytest.raises(AttributeError, match="has no attribute 'loog'"):
        _ = shoal.loog
    assert {"log", "init", "Client"} <= set(dir(shoal))
    assert shoal.Client.__name__ == "Client"
