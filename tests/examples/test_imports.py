"""Runs of MLflow and TensorBoard, made by the real libraries, as experiments; and tables of pandas and polars."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.conftest import ROOT
from tests.environments import environment
from tests.running import shoal

MLFLOW = """\
import math, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("digits")
for number in range(2):
    with mlflow.start_run(run_name=f"run {number}"):
        mlflow.log_params({"lr": 0.1 / (number + 1), "optimizer": "adam", "amp": True, "layers": 3})
        mlflow.set_tag("team", "blue")
        for step in range(5):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
            mlflow.log_metric("val/acc", step / 10, step=10 * step)
        mlflow.log_metric("odd", math.nan, step=0)
        mlflow.log_metric("odd", -math.inf, step=1)
        if number == 0:
            mlflow.log_text("hello", "notes/a.txt")
try:
    with mlflow.start_run(run_name="fails"):
        raise RuntimeError
except RuntimeError:
    pass
mlflow.start_run(run_name="goes on")
mlflow.log_metric("loss", 1.0, step=0)
import os; os._exit(0)
"""
MORE = """\
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
run = mlflow.search_runs(experiment_names=["digits"], filter_string="run_name = 'run 1'").run_id[0]
mlflow.MlflowClient().log_metric(run, "loss", 0.125, step=5)
"""
TENSORBOARD = """\
import sys
from tensorboardX import SummaryWriter
for name, scale in (("train", 1.0), ("validation", 2.0)):
    with SummaryWriter(f"{sys.argv[1]}/{name}") as writer:
        for step in range(int(sys.argv[2]), int(sys.argv[3])):
            writer.add_scalar("loss", scale / (step + 1), step)
        writer.add_text("note", "hello")
        writer.add_histogram("weights", list(range(100)), 3)
"""


def run(python: Path, code: str, place: Path, *arguments: str) -> None:
    env = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    env.pop("PYTHONPATH", None)
    result = subprocess.run([python, "-c", code, *arguments], cwd=place, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def brought(*arguments: str) -> list[dict[str, Any]]:
    result = shoal("import", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("store", ["mlruns", "mlflow.db"], ids=["a directory", "a database"])
def test_runs_of_mlflow_become_experiments(home: Path, tmp_path: Path, store: str) -> None:
    python = environment("peers")
    where = tmp_path / store
    uri = f"sqlite:///{where}" if store.endswith(".db") else f"file://{where}"
    run(python, MLFLOW, tmp_path, uri)
    given = uri if store.endswith(".db") else str(where)

    found = brought("mlflow", given)
    assert [(entry["name"], entry["state"], entry["points"]) for entry in found] == [
        ("run 0", "succeeded", 12),
        ("run 1", "succeeded", 12),
        ("fails", "failed", 0),
    ]
    client = Client()
    first = client.show(found[0]["id"])
    assert first["params"] == {"lr": 0.1, "optimizer": "adam", "amp": True, "layers": 3}
    assert (first["origin"], first["tags"]) == ("import", ["digits", "team=blue"])
    assert first["finished"] >= first["started"] > 1.6e9
    acc = client.metrics(first["id"], "val/acc")[0]
    assert (list(acc.steps), list(acc.values)) == ([0, 10, 20, 30, 40], [0.0, 0.1, 0.2, 0.3, 0.4])
    assert all(first["started"] - 1 <= time <= first["finished"] + 1 for time in acc.times)
    odd = client.metrics(first["id"], "odd")[0].values
    assert math.isnan(odd[0])
    assert odd[1] == -math.inf
    (listed,) = client.records(first["id"], "table")
    assert listed["data"]["rows"] == [["notes/a.txt", 5]]
    assert [entry["name"] for entry in client.experiments("params.lr:<0.06, metrics.loss:<1")] == ["run 1"]

    run(python, MORE, tmp_path, uri)
    again = brought("mlflow", given)
    assert [(entry["id"], entry["points"]) for entry in again] == [
        (entry["id"], points) for entry, points in zip(found, (0, 1, 0), strict=True)
    ]
    loss = client.metrics(found[1]["id"], "loss")[0]
    assert list(loss.values) == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 0.125]
    assert [client.show(entry["id"])["state"] for entry in found] == ["succeeded", "succeeded", "failed"]

    (*_, last) = brought("mlflow", given, "--unfinished")
    assert (last["name"], last["state"]) == ("goes on", "failed")
    assert "was still running" in client.show(last["id"])["reason"]


def test_event_files_of_tensorboard_become_an_experiment(home: Path, tmp_path: Path) -> None:
    python = environment("peers")
    logs = tmp_path / "logs"
    run(python, TENSORBOARD, tmp_path, str(logs), "0", "8")
    (found,) = brought("tensorboard", str(logs), "--name", "digits")
    assert (found["name"], found["state"], found["points"]) == ("digits", "succeeded", 16)
    client = Client()
    curves = client.metrics(found["id"])
    assert [curve.name for curve in curves] == ["train/loss", "validation/loss"]
    assert [round(float(value), 6) for value in curves[1].values] == [round(2 / (step + 1), 6) for step in range(8)]
    assert [record["data"]["text"] for record in client.records(found["id"], "text")] == ["hello", "hello"]
    assert len(client.records(found["id"], "histogram")) == 2

    run(python, TENSORBOARD, tmp_path, str(logs), "8", "10")
    (again,) = brought("tensorboard", str(logs), "--name", "digits")
    assert (again["id"], again["points"]) == (found["id"], 4)
    assert [list(curve.steps) for curve in client.metrics(found["id"])] == [list(range(10))] * 2

    each = brought("tensorboard", str(logs), "--each")
    assert [(entry["name"], entry["points"]) for entry in each] == [("train", 10), ("validation", 10)]
    assert [curve.name for curve in client.metrics(each[0]["id"])] == ["loss"]


def test_a_killed_import_doubles_nothing(home: Path, tmp_path: Path) -> None:
    """It is cut off at its two delicate places: before the new points are counted, and after."""
    from shoal.importing import writing

    series = writing.Series([1.0, 2.0], [0, 1], [0.5, 0.25])
    new = writing.Run("here", "key-1", "mine", 1.7e9, metrics={"loss": series})
    written = writing.write(new, tmp_path)
    streams = written.directory / "attempt-0" / "master-0" / "try-0" / "streams"
    (segment,) = streams.iterdir()
    staging = written.directory / "staging"

    staging.mkdir()  # counted, and not yet in place
    segment.rename(staging / segment.name)
    assert writing.write(new, tmp_path).points == 0
    assert [entry.name for entry in streams.iterdir()] == [segment.name]

    staging.mkdir()  # not yet counted
    (staging / f"{'0' * 32}.000000").write_bytes(b"half")
    series.add(3.0, 2, 0.125)
    assert writing.write(new, tmp_path).points == 1
    assert len(list(streams.iterdir())) == 2
    assert not staging.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tensorboard", "nowhere"), "nowhere: there is no such directory"),
        (("tensorboard", "."), ".: no event file lies there"),
        (("mlflow", "nowhere"), "nowhere: there is no such store"),
        (("mlflow", "."), ".: no store of MLflow"),
        (("mlflow", "text"), "text: no store of MLflow"),
    ],
)
def test_what_is_no_store_is_told(home: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "text").write_text("not a database, and longer than a page of one would have to be" * 100)
    result = shoal("import", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")


FRAMES = """\
from shoal.points import Curves, curve
points = [[0, 1.7e9, 0.5], [1, 1700000000.25, "NaN"]]
entry = {"name": "loss", "process": 0, "attempt": 0, "kind": "metric", "points": points}
found = Curves(curve({**entry, "replica": f"worker-{rank}", "rank": rank}) for rank in range(2))
pandas, polars = found.to_pandas(), found.to_polars()
for frame in (pandas, polars):
    assert list(frame.columns) == ["name", "replica", "process", "rank", "attempt", "step", "time", "value"], frame
    assert frame.shape == (4, 8)
    assert str(frame["time"][1]).startswith("2023-11-14 22:13:20.25"), frame["time"][1]
    assert list(frame["replica"]) == ["worker-0"] * 2 + ["worker-1"] * 2
    assert frame["value"][0] == 0.5 and frame["value"][1] != frame["value"][1]
assert Curves([]).to_pandas().shape == Curves([]).to_polars().shape == (0, 8)
"""


def test_points_become_tables_of_pandas_and_polars() -> None:
    python = environment("frames")
    result = subprocess.run(
        [python, "-c", FRAMES], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
