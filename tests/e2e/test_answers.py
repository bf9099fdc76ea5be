"""What the command line answers about one experiment, and that a mistake is never answered with silence."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import journal
from shoal.client import Client
from tests import outside
from tests.conftest import clear
from tests.recording import record
from tests.running import shoal, until

WANDB = """
import shoal as wandb
run = wandb.init(project="p", name="summed", config={"lr": 0.1})
wandb.define_metric("loss", summary="min", step_metric="epoch")
for epoch, loss in enumerate([3.0, 1.0, 2.0]):
    wandb.log({"epoch": epoch * 10, "loss": loss})
wandb.summary["best"] = 0.25
wandb.summary["verdict"] = "good"
print(run.url)
"""


def points(stream: object, name: str, steps: range, value: float) -> None:
    group = journal.Group((name,), [float(step) for step in steps], list(steps), [[value + step for step in steps]])
    stream.points([group])  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with three runs: one of wandb's manner, one of two ranks that lost something, one that was restarted."""
    home = tmp_path_factory.mktemp("answers") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", str(home))
        ranks = outside.begin(home, "ranks")
        for rank in range(2):
            stream = outside.stream(ranks, rank, 2)
            points(stream, "loss", range(10), rank * 100.0)
            stream.event({"kind": "progress", "time": time.time(), "fraction": 0.5})
            stream.end({"time": time.time(), "how": "finished", "error": "", "dropped": 772 * rank})
        again = outside.begin(home, "again")
        for attempt in (1, 0):
            stream = outside.stream(again, 0, 1, attempt=attempt)
            points(stream, "loss", range(5 * attempt, 10), attempt * 100.0)
            outside.end(stream)
            if attempt:
                (again / "attempt-0").rename(again / "attempt-1")
        empty = outside.stream(outside.begin(home, "empty"), 0, 1)
        outside.end(empty)
        record(WANDB, home)
        client = Client(home)
        until(lambda: sum(e["state"] == "succeeded" for e in client.experiments()) == 4, "the runs in the store")
        yield home
        clear(home)


def ok(*arguments: str) -> str:
    result = shoal(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_what_a_script_of_wandb_sums_up_is_shown(place: Path) -> None:
    shown = json.loads(ok("show", "summed", "--json"))
    assert shown["summary"] == {"best": 0.25, "verdict": "good"}
    assert (shown["metrics"]["loss"]["last"], shown["metrics"]["loss"]["value"]) == (2.0, 1.0)
    text = ok("show", "summed")
    assert "loss 1" in text
    assert "best 0.25" in text
    assert 'summary {"verdict": "good"}' in text
    listed = ok("ls", "-q", "metrics.best:<0.3, metrics.loss:1", "--columns", "metrics.loss.last").splitlines()
    assert len(listed) == 2
    assert listed[0].split()[-4:] == ["metrics.loss.last", "metrics.best", "metrics.loss", "reason"]
    assert listed[1].split()[-3:] == ["2", "0.25", "1"]
    assert ok("ls", "-q", "metrics.loss:2", "--json") == "[]\n"


def test_a_chart_is_drawn_over_what_the_script_defined(place: Path) -> None:
    client = Client(place)
    assert client.chart("summed", name="loss")["x"] == "epoch"
    assert client.chart("summed", name="loss", x="step")["x"] == "step"
    assert client.chart("summed")["x"] == "step"  # epoch itself has no such axis
    assert "0..20" in ok("metrics", "summed", "loss")


def test_what_was_lost_is_said(place: Path) -> None:
    said = "of worker-1, 772 calls were dropped: they came too fast, or could not be written"
    assert said in ok("show", "ranks")
    assert said in ok("why", "ranks")
    assert said in shoal("metrics", "ranks").stderr
    lost = {"replica": "worker-1", "process": 0, "attempt": 0, "dropped": 772, "gaps": 0, "damaged": 0}
    for verb in ("show", "why"):
        assert json.loads(ok(verb, "ranks", "--json"))["losses"] == [lost]


def test_a_hole_in_a_stream_is_said_and_the_rest_is_there(place: Path, tmp_path: Path) -> None:
    run = outside.begin(tmp_path, "holed")
    stream = outside.stream(run, 0, 1)
    edges: list[int] = []
    for start in range(0, 40, 10):
        points(stream, "loss", range(start, start + 10), 0.0)
        (file,) = run.glob("**/streams/*")
        edges.append(file.stat().st_size)
    outside.end(stream)
    with file.open("r+b") as hole:
        hole.seek(edges[0])
        hole.write(bytes(edges[1] - edges[0]))
    ok("sync", str(run))
    client = Client(place)
    (over,) = until(lambda: client.experiments("name:holed, state:succeeded"), "the run in the store")

    length = edges[1] - edges[0]
    said = f"1 gap in what worker-0 wrote: {length} B cannot be read"
    assert said in ok("show", "holed")
    assert said in ok("why", "holed")
    assert said in shoal("metrics", "holed").stderr
    lost = {"replica": "worker-0", "process": 0, "attempt": 0, "dropped": 0, "gaps": 1, "damaged": length}
    for verb in ("show", "why"):
        assert json.loads(ok(verb, "holed", "--json"))["losses"] == [lost]
    assert client.show(over["id"])["losses"] == [lost]
    (curve,) = client.metrics("holed", "loss")
    assert list(curve.steps) == [*range(10), *range(20, 40)]


def test_the_range_and_the_statistics_of_points(place: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ok("metrics", "ranks", "loss", "--from", "3", "--to", "4", "--csv"))))
    assert [(row["replica"], row["step"]) for row in rows] == [
        ("worker-0", "3"), ("worker-0", "4"), ("worker-1", "3"), ("worker-1", "4"),
    ]  # fmt: skip
    means = list(csv.DictReader(io.StringIO(ok("metrics", "ranks", "loss", "--agg", "mean", "--to", "1", "--csv"))))
    assert [(row["step"], row["mean"], row["ranks"]) for row in means] == [("0", "50.0", "2"), ("1", "51.0", "2")]
    every = list(csv.DictReader(io.StringIO(ok("metrics", "ranks", "loss", "--agg", "all", "--csv"))))
    assert (every[0]["min is"], every[0]["max is"], every[0]["max"]) == ("worker-0", "worker-1", "100.0")


def test_python_has_axis_range_and_statistics(place: Path) -> None:
    client = Client(place)
    (curve,) = client.metrics("ranks", "loss", replica="worker-1", start=2, end=4)
    assert (list(curve.steps), list(curve.values), curve.xs) == ([2, 3, 4], [102.0, 103.0, 104.0], None)
    (over,) = client.metrics("summed", "loss", x="epoch")
    assert (list(over.xs), list(over.values)) == ([0.0, 10.0, 20.0], [3.0, 1.0, 2.0])
    (most,) = client.metrics("ranks", "loss", agg="max", end=1)
    assert (most.replica, list(most.steps), list(most.values)) == ("max", [0, 1], [100.0, 101.0])
    assert math.isnan(most.times[0])
    assert len(client.metrics("again", "loss").columns()["step"]) == 10
    assert len(client.metrics("again", "loss", replaced=True).columns()["step"]) == 15


def test_an_export_has_every_point(place: Path, tmp_path: Path) -> None:
    ok("export", "again", str(tmp_path / "out"))
    rows = list(csv.DictReader((tmp_path / "out" / "metrics.csv").open()))
    assert sorted((row["attempt"], int(row["step"])) for row in rows) == [
        *[("0", step) for step in range(10)],
        *[("1", step) for step in range(5, 10)],
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ls", "--state", "bogus"], "there is no state 'bogus'"),
        (["ls", "--state", "faild"], "did you mean failed?"),
        (["ls", "-q", 'name:"'], 'query:1:6: " is not closed'),
        (["metrics", "ranks", "nothere"], "ranks has no metric like that"),
        (["metrics", "ranks", "nothere", "--json"], "ranks has no metric like that"),
        (["metrics", "ranks", "nothere", "--csv"], "ranks has no metric like that"),
        (["metrics", "ranks", "loss", "-r", "worker-9", "--json"], "ranks has no metrics of worker-9"),
        (["show", ""], "no experiment is named"),
        (["outputs", "ranks", "cat", "../metrics"], "'../metrics' is no name or path"),
        (["model", "show", "../models"], "'../models' is no name or path"),
        (["dataset", "get", "nothing"], "where to: one directory"),
        (["dataset", "get", "nothing", "--to", "here"], "there is no data set"),
        (["scale", "file.yml", "--workers", "1", "--on", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_said(place: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "file.yml").write_text("framework: none\nrun: {cmd: 'true'}\n")
    result = shoal(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result
    assert said in result.stderr
    assert result.stdout == ""


def test_one_that_is_over_has_no_metrics_and_will_have_none(place: Path) -> None:
    assert shoal("metrics", "empty").stderr == "empty has no metrics\n"
    assert ok("metrics", "empty", "--json") == "[]"


def test_garbage_is_no_event_file(place: Path, tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"garbage" * 1000)
    before = len(Client(place).experiments())
    result = shoal("import", "tensorboard", str(tmp_path))
    assert (result.returncode, "is no event file" in result.stderr) == (2, True)
    assert len(Client(place).experiments()) == before


def test_a_run_knows_its_page(place: Path) -> None:
    import subprocess
    import sys

    from tests.recording import environment_for

    script = "import shoal as wandb; run = wandb.init(project='p'); wandb.log({'a': 1}); print(run.id, run.url)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment_for(place), capture_output=True, text=True, check=True
    )
    key, url = done.stdout.split()
    assert url == f"{Client(place).access()[0]}/experiments/{key}"
    until(lambda: any(e["name"] for e in Client(place).experiments("state:succeeded") if e["metrics"].get("a")))
    assert Client(place).show(key)["metrics"]["a"]["last"] == 1.0
