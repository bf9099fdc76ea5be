"""Reading results from the command line and from Python: lists, comparisons, the live view, exports, scaling."""

from __future__ import annotations

import csv
import json
import math
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal as package
from shoal.client import Client
from tests.conftest import clear
from tests.running import finished, running, shoal, submit, until

TRAIN = """\
import os, pathlib, sys, time, shoal
lr = float(sys.argv[1])
for step in range(10):
    shoal.log(loss=lr / (step + 1), step=step)
    shoal.log({"val/acc": 1 - lr / (step + 1)}, step=step)
shoal.log(odd=float("nan"))
print("trained with", lr)
if lr > 0.5:  # the first to fail has the other one stopped: not before both have logged everything
    place = pathlib.Path(os.environ["SHOAL_OUTPUTS"])
    (place / os.environ["SHOAL_REPLICA"] / "logged").touch()
    while not all((place / f"worker-{index}" / "logged").exists() for index in (0, 1)):
        time.sleep(0.01)
    sys.exit(3)
"""
FILE = """\
name: %s
framework: none
params: {lr: %s, opt: adam}
tags: [reading]
run: {cmd: '%s train.py {{ lr }}'}
environment: {replicas: {n_workers: 2, master: false}}
"""
TRIALS = {"low": "0.01", "high": "0.1", "wild": "0.9"}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """name -> id of three experiments that are over; the last of them failed."""
    place = tmp_path_factory.mktemp("reading")
    (place / "train.py").write_text(TRAIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", str(place / "home"))
        words = {name: submit(place, FILE % (name, lr, sys.executable)) for name, lr in TRIALS.items()}
        for word in words.values():
            finished(word)
        yield words
        clear(place / "home")


def names(*arguments: str) -> list[str]:
    result = shoal("ls", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return [entry["name"] for entry in json.loads(result.stdout)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state:failed, params.lr:>0.01, metrics.loss:<0.3", ["wild"]),
        ("state:succeeded", ["high", "low"]),
        ("metrics.loss:<0.05, name:~wild", ["high", "low"]),
        ("metrics.loss.max:0.1", ["high"]),
        ("metrics.val/acc:>=0.99", ["high", "low"]),
        ("metrics.odd:nan", ["wild", "high", "low"]),
        ("params.opt:adam, tags:reading, replicas:2, created:>-1d", ["wild", "high", "low"]),
        ("first_failure.exit_code:3", ["wild"]),
        ("name:w%|l%", ["wild", "low"]),
        ("state:queued", []),
    ],
)
def test_a_query_finds_experiments(trials: dict[str, str], query: str, expected: list[str]) -> None:
    assert names("-q", query) == expected


def test_an_order_and_a_limit(trials: dict[str, str]) -> None:
    assert names("--sort", "metrics.loss") == ["low", "high", "wild"]
    assert names("--sort", "-params.lr", "-n", "2") == ["wild", "high"]


def test_columns_are_shown(trials: dict[str, str]) -> None:
    lines = shoal("ls", "-q", "metrics.loss:<0.05", "--columns", "params.lr,tags").stdout.splitlines()
    assert lines[0].split() == [
        "id",
        "number",
        "name",
        "state",
        "ran",
        "created",
        "params.lr",
        "tags",
        "metrics.loss",
        "reason",
    ]
    assert lines[1].split()[-3:] == ["0.1", "reading", "0.01"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("-q", "state:failed, parms.lr:>1"),
            "error: query:1:15: there is no field 'parms.lr'\n\nhint: did you mean params?",
        ),
        (("--sort", "-speed"), "error: sort:1:2: there is no field 'speed'"),
        (("--columns", "speed"), "error: --columns: 'speed' is no field"),
    ],
)
def test_a_mistake_is_told(trials: dict[str, str], arguments: tuple[str, ...], message: str) -> None:
    result = shoal("ls", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(message)


def test_show_has_the_metrics(trials: dict[str, str]) -> None:
    shown = json.loads(shoal("show", "high", "--json").stdout)
    loss = shown["metrics"]["loss"]
    assert (loss["last"], loss["min"], loss["max"], loss["step"]) == (0.01, 0.01, 0.1, 9)
    assert shown["metrics"]["odd"]["last"] == "NaN"


class TestCompare:
    def test_what_differs_is_shown_side_by_side(self, trials: dict[str, str]) -> None:
        lines = [line.split() for line in shoal("compare", "low", "wild").stdout.splitlines()]
        assert lines[0] == [trials["low"], trials["wild"]]
        assert ["state", "succeeded", "failed"] in lines
        assert ["params.lr", "0.01", "0.9"] in lines
        assert ["metrics.loss", "0.001", "0.09"] in lines
        assert ["max", "0.01", "0.9"] in lines
        assert not [line for line in lines if line[0] == "params.opt"]
        assert "params.opt" in shoal("compare", "low", "wild", "--all").stdout

    def test_as_json(self, trials: dict[str, str]) -> None:
        told = json.loads(shoal("compare", "low", "high", "--json").stdout)
        assert told["params"] == {"lr": [0.01, 0.1]}
        assert told["metrics"]["loss"]["last"] == [0.001, 0.01]
        assert [entry["replicas"] for entry in told["experiments"]] == [2, 2]


class TestExport:
    def test_a_directory_with_everything(self, trials: dict[str, str], tmp_path: Path) -> None:
        target = tmp_path / "out"
        result = shoal("export", "high", str(target))
        assert (result.returncode, result.stdout) == (0, f"{target}\n"), result.stderr
        told = json.loads((target / "experiment.json").read_text())
        assert (told["id"], told["params"]["lr"]) == (trials["high"], 0.1)
        with (target / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        mine = [row for row in rows if (row["name"], row["replica"]) == ("loss", "worker-1")]
        assert [float(row["value"]) for row in mine] == [0.1 / (step + 1) for step in range(10)]
        assert {row["name"] for row in csv.DictReader((target / "resources.csv").open())} >= {"cpu"}
        assert (target / "logs" / "attempt-0" / "worker-0.log").read_text() == "trained with 0.1\n"
        assert "lr: 0.1" in (target / "files" / "experiment.yml").read_text()
        assert json.loads((target / "artifacts.json").read_text()) == []
        assert "packages" in json.loads((target / "provenance.json").read_text())
        again = shoal("export", "high", str(target))
        assert again.returncode == 2
        assert "is there already" in again.stderr

    def test_a_tar_file(self, trials: dict[str, str], tmp_path: Path) -> None:
        target = tmp_path / "out.tar.gz"
        assert shoal("export", "low", "-o", str(target)).returncode == 0
        with tarfile.open(target) as archive:
            assert f"{trials['low']}/metrics.csv" in archive.getnames()
        assert [entry.name for entry in tmp_path.iterdir()] == ["out.tar.gz"]


class TestFromPython:
    def test_experiments_and_metrics_as_arrays(self, trials: dict[str, str]) -> None:
        client = package.Client()
        found = client.experiments("metrics.loss:<0.05, tags:reading", sort="-metrics.loss")
        assert [entry["name"] for entry in found] == ["high", "low"]
        curves = client.metrics("high", "loss", "val/*")
        assert [(curve.name, curve.replica, curve.rank) for curve in curves] == [
            ("loss", "worker-0", 0),
            ("loss", "worker-1", 1),
            ("val/acc", "worker-0", 0),
            ("val/acc", "worker-1", 1),
        ]
        assert list(curves[0].steps) == list(range(10))
        assert list(curves[1].values) == [0.1 / (step + 1) for step in range(10)]
        assert curves[0].values.dtype.kind == "f"
        (only,) = client.metrics("high", "odd", replica="worker-1")
        assert math.isnan(only.values[0])
        assert len(client.metrics("high").columns()["value"]) == 42
        assert {curve.name for curve in client.metrics("high", kind="resource")} >= {"cpu", "net_in"}

    def test_many_experiments_are_asked_for_page_by_page(self, trials: dict[str, str]) -> None:
        client = Client()
        first = client.experiments(limit=2)
        second = client.experiments(limit=2, before=first[-1]["number"])
        assert [entry["name"] for entry in (*first, *second)] == ["wild", "high", "low"]


LIVE = """\
import os, time, shoal
shoal.progress(0.25)
shoal.log(loss=0.5, step=7)
while not os.path.exists("go"): time.sleep(0.02)
"""


def test_the_live_view_shows_replicas_metrics_and_what_is_left(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LIVE)
    text = f"framework: none\nrun: {{cmd: {sys.executable} train.py}}\n"
    memory = "default_worker: {resources: {memory: {requests: 64, limits: 512}}}"
    word = submit(tmp_path, text + f"environment: {{replicas: {{n_workers: 2, master: false, {memory}}}}}\n")
    running(word)

    def all_there() -> Any:
        (found,) = json.loads(shoal("top", "--json").stdout)
        logged = all(entry["metrics"] and entry["cpu"] is not None for entry in found["replicas"])
        return found if logged and found["progress"] else None

    found = until(all_there, "samples and metrics of all replicas")
    assert (found["id"], found["progress"]["fraction"]) == (word, 0.25)
    assert [entry["metrics"] for entry in found["replicas"]] == [{"loss": 0.5}, {"loss": 0.5}]
    assert {entry["memory_limit"] for entry in found["replicas"]} == {512 * 1024 * 1024}
    assert found["replicas"][0]["step"] == 7
    text = shoal("top", word).stdout
    assert "running" in text.splitlines()[0]
    assert "25 %" in text.splitlines()[0]
    assert text.splitlines()[1].split() == ["replica", "state", "cpu", "memory", "loss", "step", "age"]
    assert "512.0 MiB" in text
    listed = shoal("ls", "-q", "progress:>0.2, metrics.loss:0.5").stdout
    assert word in listed
    assert "25 %" in listed
    assert "25 %" in shoal("show", word).stdout
    (tmp_path / "go").touch()
    assert finished(word)["progress"] == {"fraction": 0.25, "eta": None}
    assert shoal("top").stdout == "nothing runs\n"


SCALED = """\
import os, sys, shoal
nodes = int(os.environ["NUM_NODES"])
for step in range(20):
    shoal.log(samples_per_second=1000 if step < 10 else 100 / (1 + 0.25 * (nodes - 1)), step=step)
sys.exit(3 if nodes == 3 else 0)
"""


class TestScale:
    FILE = (
        "framework: pytorch\nrun: {cmd: '%s train.py'}\nparams: {epochs: 2}\nenvironment: {replicas: {master: false}}\n"
    )

    @pytest.fixture
    def place(self, home: Path, tmp_path: Path) -> Path:
        (tmp_path / "train.py").write_text(SCALED)
        (tmp_path / "experiment.yml").write_text(self.FILE % sys.executable)
        return tmp_path

    def test_sizes_are_compared_and_a_failed_one_is_told(self, place: Path) -> None:
        options = ("--workers", "1,2,3", "--cost-per-hour", "3.6", "-P", "epochs=1", "--oversubscribe")
        result = shoal("scale", str(place), *options, "--json")
        assert result.returncode == 1, result.stderr
        told = json.loads(result.stdout)
        one, two, three = told["trials"]
        assert (told["unit"], one["throughput"], two["throughput"]) == ("samples_per_second", 100, 160)
        assert (one["speed_up"], two["speed_up"], two["efficiency"]) == (1, 1.6, 0.8)
        assert (one["cost"], two["cost"]) == (pytest.approx(1e-5), pytest.approx(1.25e-5))
        assert (three["state"], three["throughput"]) == ("failed", None)
        assert three["error"].startswith("failed: worker-")
        assert told["verdict"].startswith("yes, up to 2 workers: 1.60 times as fast as 1 worker, at 80 % efficiency")
        linked = json.loads(shoal("ls", "-q", f"scale:{told['id']}", "--sort", "number", "--json").stdout)
        assert [entry["scale"]["workers"] for entry in linked] == [1, 2, 3]
        assert [entry["id"] for entry in linked] == [trial["experiment"] for trial in told["trials"]]
        assert {entry["params"]["epochs"] for entry in linked} == {1}

    def test_without_the_metric_the_time_counts(self, place: Path) -> None:
        (place / "train.py").write_text("print('nothing')")
        result = shoal("scale", str(place), "--workers", "1,2", "--oversubscribe")
        assert result.returncode == 0, result.stderr
        assert "runs_per_second" in result.stdout
        assert "is it worth it? " in result.stdout
        missing = shoal("scale", str(place), "--workers", "1", "--metric", "speed", "--oversubscribe")
        assert "no process logged speed" in missing.stdout

    @pytest.mark.parametrize(
        ("sizes", "message"), [("1,x", "not numbers"), ("999999", "n_workers: 999999 is out of range")]
    )
    def test_wrong_sizes_are_told(self, place: Path, sizes: str, message: str) -> None:
        result = shoal("scale", str(place), "--workers", sizes)
        assert result.returncode == 2
        assert message in result.stderr


# By a clock of its own: on a machine that has no time for one of the ranks, that one would be the slow one.
WAITS = """\
import os, time
now = time.time()
time.time = lambda: now  # before anybody looks at it
import shoal
mine = 0.06 if os.environ["SHOAL_INDEX"] == "1" else 0.005
for step in range(20):
    with shoal.step():
        now += mine
    now += 0.07 - mine
    shoal.log(loss=1.0)
"""


def test_why_names_the_rank_that_the_others_wait_for(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAITS)
    replicas = "environment: {replicas: {n_workers: 3, master: false}}"
    word = submit(tmp_path, f"framework: none\nrun: {{cmd: {sys.executable} train.py}}\n{replicas}\n")
    finished(word)
    text = shoal("why", word).stdout
    assert "worker-1 (rank 1) works" in text
    assert [line.split()[0] for line in text.splitlines() if line.endswith("slowest")] == ["worker-1"]
    found = Client().stragglers(word)
    assert (found["how"], found["slowest"]["replica"], found["step_time_from"]) == (
        "busy",
        "worker-1",
        "shoal/step_time",
    )
