"""What scripts logged, through the routes: lists, charts, points in every format, records."""

from __future__ import annotations

import csv
import io
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from tests.api.speaking import Served
from tests.conftest import ROOT

SCRIPT = """
import math
import shoal

shoal.params(lr=0.1)
shoal.text("note", "hello", step=3)
rank = shoal.replica.rank
for step in range(500):
    shoal.log(loss=rank + 1 / (step + 1), acc=step / 500, step=step)
    if step % 100 == 0:
        shoal.log({"eval/f1": math.nan if step == 0 else step / 500, "strange": math.inf}, step=step)
shoal.finish()
"""
FILE = "framework: none\nrun: {{cmd: '{python} {script}'}}\nenvironment: {{replicas: {{n_workers: 2}}}}\n"


@pytest.fixture(scope="module")
def known(served: Served, tmp_path_factory: pytest.TempPathFactory) -> str:
    script = tmp_path_factory.mktemp("script") / "train.py"
    script.write_text(SCRIPT)
    python = f"PYTHONPATH={ROOT} {sys.executable}"
    word = served.run(FILE.format(python=python, script=script), oversubscribe=True)
    found = served.finished(word)
    assert found["state"] == "succeeded", found["first_failure"]
    return word


def ask(served: Served, known: str, path: str) -> Any:
    answer = served.ask("GET", f"/api/experiments/{known}/{path}")
    assert answer.status == 200, answer.body
    return answer.json()


def test_every_metric_of_every_process_is_listed(served: Served, known: str) -> None:
    found = {(entry["name"], entry["replica"]): entry for entry in ask(served, known, "metrics")}
    replicas = ["master-0", "worker-0", "worker-1"]
    assert list(found) == [(name, who) for name in ("acc", "eval/f1", "loss", "strange") for who in replicas]
    loss = found["loss", "worker-1"]
    assert {key: loss[key] for key in ("kind", "process", "rank", "attempt", "count")} == {
        "kind": "metric",
        "process": 0,
        "rank": 2,
        "attempt": 0,
        "count": 500,
    }
    assert (loss["last"], loss["min"], loss["max"]) == (2 + 1 / 500, 2 + 1 / 500, 3.0)
    assert (loss["first_step"], loss["last_step"], loss["min_step"], loss["max_step"]) == (0, 499, 0, 499)
    assert found["strange", "master-0"]["min"] == "Infinity"
    assert [entry["replica"] for entry in ask(served, known, "metrics?name=l*s&replica=worker-*")] == replicas[1:]
    assert served.client.show(known)["metrics"]["loss"]["last"] == 1 / 500


def test_a_chart_is_the_same_in_json_and_packed(served: Served, known: str) -> None:
    query = f"/api/experiments/{known}/series?name=loss&name=eval/*&buckets=10"
    shown = served.ask("GET", query).json()
    assert (shown["x"], shown["width"]) == ("step", 64.0)
    loss = next(entry for entry in shown["series"] if (entry["name"], entry["replica"]) == ("loss", "worker-0"))
    assert loss["start"] == list(range(0, 500, 64))
    assert (sum(loss["count"]), loss["max"][0], loss["max_x"][0]) == (500, 2.0, 0)
    assert (loss["x_first"][-1], loss["x_last"][-1], loss["last"][-1]) == (448, 499, 1 + 1 / 500)
    assert next(entry for entry in shown["series"] if entry["name"] == "eval/f1")["min"][0] == "NaN"
    for packed in (
        served.ask("GET", f"{query}&format=binary"),
        served.ask("GET", query, accept="application/octet-stream"),
    ):
        assert packed.headers["content-type"] == "application/octet-stream"
        (length,) = struct.unpack_from("<I", packed.body)
        about = json.loads(packed.body[4 : 4 + length])
        assert (4 + length) % 8 == 0
        numbers = np.frombuffer(packed.body, "<f8", offset=4 + length)
        for entry, same in zip(about["series"], shown["series"], strict=True):
            for key, value in entry.items():
                if isinstance(value, list):
                    start, count = value
                    assert np.array_equal(numbers[start : start + count], np.array(same[key], float), equal_nan=True)
                else:
                    assert value == same[key]


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        pytest.param("x=step&from=100&to=199", 100, 100, id="a range of steps"),
        pytest.param("x=acc&from=0.5", 0.5, 250, id="another metric, from a value on"),
        pytest.param("x=step&process=0&attempt=0", 0, 500, id="a process and an attempt"),
        pytest.param("x=step&attempt=7", None, 0, id="an attempt that there was not"),
    ],
)
def test_charts_of_a_part(served: Served, known: str, query: str, first: float | None, count: int) -> None:
    found = ask(served, known, f"series?name=loss&replica=worker-0&{query}")["series"]
    assert sum(sum(entry["count"]) for entry in found) == count
    assert [entry["x_first"][0] for entry in found] == ([] if first is None else [pytest.approx(first)])


def test_what_came_since_fits_to_an_earlier_answer(served: Served, known: str) -> None:
    whole = ask(served, known, "series?name=loss&replica=worker-0&buckets=50")
    (curve,) = whole["series"]
    since = ask(served, known, f"series?name=loss&replica=worker-0&from={curve['start'][-2]}&width={whole['width']}")
    assert since["width"] == whole["width"] > 1
    assert since["series"][0]["start"] == curve["start"][-2:]
    assert sum(curve["finite"]) == sum(curve["count"]) == 500


def test_time_and_relative_time(served: Served, known: str) -> None:
    times = ask(served, known, "series?name=loss&x=time")["series"]
    since = ask(served, known, "series?name=loss&x=relative")["series"]
    assert all(sum(entry["count"]) == 500 for entry in times + since)
    assert all(entry["x_first"][0] > 1.7e9 for entry in times)
    assert all(0 <= entry["x_first"][0] < 60 for entry in since)


def test_ranks_are_aggregated(served: Served, known: str) -> None:
    (found,) = ask(served, known, "series?name=loss&agg=all&buckets=2")["series"]
    assert [member["replica"] for member in found["members"]] == ["master-0", "worker-0", "worker-1"]
    assert (found["min_of"], found["max_of"], found["curves"]) == ([0, 0], [2, 2], [3, 3])
    assert (found["min"][-1], found["max"][0], sum(found["count"])) == (1 / 500, 3.0, 1500)
    (one,) = ask(served, known, "series?name=loss&agg=p95&buckets=2")["series"]
    assert one["p95"] == found["p95"]
    assert "mean" not in one


def test_points_come_in_every_format(served: Served, known: str, tmp_path: Path) -> None:
    path = f"/api/experiments/{known}/points?name=eval/f1&name=strange&replica=worker-0"
    entries = served.ask("GET", path).json()
    assert [(entry["name"], entry["replica"], entry["process"], entry["attempt"]) for entry in entries] == [
        ("eval/f1", "worker-0", 0, 0),
        ("strange", "worker-0", 0, 0),
    ]
    assert [(point[0], point[2]) for point in entries[0]["points"]] == [
        (0, "NaN"),
        (100, 0.2),
        (200, 0.4),
        (300, 0.6),
        (400, 0.8),
    ]
    assert {point[2] for point in entries[1]["points"]} == {"Infinity"}
    expected = [
        (entry["name"], step, time, str(float(value))) for entry in entries for step, time, value in entry["points"]
    ]
    lines = [json.loads(line) for line in served.ask("GET", f"{path}&format=ndjson").body.splitlines()]
    assert [(line["name"], line["step"], line["time"], str(float(line["value"]))) for line in lines] == expected
    rows = list(csv.DictReader(io.StringIO(served.ask("GET", f"{path}&format=csv").body.decode())))
    assert [(r["name"], int(r["step"]), float(r["time"]), str(float(r["value"]))) for r in rows] == expected
    file = tmp_path / "points.parquet"
    file.write_bytes(served.ask("GET", f"{path}&format=parquet").body)
    table = pyarrow.parquet.read_table(file).to_pylist()
    assert [(row["name"], row["step"], row["time"], str(row["value"])) for row in table] == expected
    with_x = served.ask("GET", f"{path}&x=acc").json()
    assert [point[3] for point in with_x[0]["points"]] == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_nothing_is_an_empty_answer_in_every_format(served: Served, known: str, tmp_path: Path) -> None:
    path = f"/api/experiments/{known}/points?name=nothing&format="
    assert served.ask("GET", f"{path}json").json() == []
    assert served.ask("GET", f"{path}ndjson").body == b""
    assert served.ask("GET", f"{path}csv").body == b"name,replica,process,attempt,step,time,value\r\n"
    file = tmp_path / "points.parquet"
    file.write_bytes(served.ask("GET", f"{path}parquet").body)
    assert pyarrow.parquet.read_table(file).num_rows == 0
    assert ask(served, known, "series?name=nothing")["series"] == []


def test_records_are_read_by_kind_and_name(served: Served, known: str) -> None:
    notes = ask(served, known, "records?kind=text&name=note")
    assert {note["replica"] for note in notes} == {"master-0", "worker-0", "worker-1"}
    assert [(note["step"], note["data"]["text"]) for note in notes] == [(3, "hello")] * 3
    assert {record["kind"] for record in ask(served, known, "records")} >= {"params", "text"}
    assert ask(served, known, "records?kind=nothing") == []


@pytest.mark.parametrize(
    ("path", "status", "what"),
    [
        ("series?x=nothing", 422, "x: no process that has these metrics has 'nothing'"),
        ("points?x=nothing", 422, "x: no process that has these metrics has 'nothing'"),
        ("series?buckets=1", 422, "query.buckets: "),
        ("series?from=nan", 422, "query.from: "),
        ("series?agg=median", 422, "query.agg: "),
        ("points?format=xml", 422, "query.format: "),
        ("metrics?kind=x", 422, "query.kind: "),
    ],
)
def test_wrong_questions_are_answered(served: Served, known: str, path: str, status: int, what: str) -> None:
    answer = served.ask("GET", f"/api/experiments/{known}/{path}")
    assert answer.status == status
    assert answer.json()["what"].startswith(what)
    assert answer.json()["hint"]


@pytest.mark.parametrize("path", ["metrics", "series", "points", "records"])
def test_an_experiment_that_there_is_not(served: Served, path: str) -> None:
    assert served.ask("GET", f"/api/experiments/nobody/{path}").status == 404
