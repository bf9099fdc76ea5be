"""`shoal metrics`: small charts, aggregates and exports of what real processes logged."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from shoal.cli.metrics import BLOCKS, PLAIN, sparkline
from tests.conftest import ROOT, clear
from tests.running import finished, shoal, submit

SCRIPT = """
import math
import os
import pathlib
import time

import shoal

for step in range(200):
    shoal.log(loss=shoal.replica.rank - step / 100, step=step)
    if step % 50 == 0:
        shoal.log({"eval/f1": math.nan if step == 0 else step / 200, "endless": math.inf}, step=step)

streams = pathlib.Path(os.environ["SHOAL_STREAMS"])
while not any(b"memory" in path.read_bytes() for path in streams.iterdir()):
    time.sleep(0.01)  # until what it uses has been sampled once
"""


@pytest.fixture(scope="module")
def word(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("metrics")
    script = place / "train.py"
    script.write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", str(place / "home"))
        command = f"PYTHONPATH={ROOT} {sys.executable} {script}"
        text = f"run: {{cmd: '{command}'}}\nframework: none\nenvironment: {{replicas: {{n_workers: 1}}}}\n"
        found = submit(place, text, "--oversubscribe")
        assert finished(found)["state"] == "succeeded"
        yield found
    clear(place / "home")


def test_every_series_is_a_row(word: str) -> None:
    result = shoal("metrics", word, PYTHONIOENCODING="utf-8")
    assert (result.returncode, result.stderr) == (0, "")
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["metric", "replica", "last", "min", "max", "steps", "points"]
    assert [row.split()[:2] for row in rows] == [
        [name, who] for name in ("endless", "eval/f1", "loss") for who in ("master-0", "worker-0")
    ]
    loss = rows[4].split()
    assert (loss[2][0], loss[2][-1]) == ("█", "▁")
    assert loss[3:] == ["-1.99", "-1.99", "0", "0..199", "200"]
    assert rows[2].split()[-5:] == ["0.75", "0.25", "0.75", "0..150", "4"]
    assert rows[0].split()[-5:] == ["Inf", "Inf", "Inf", "0..150", "4"]


def test_a_plain_terminal_gets_plain_characters(word: str) -> None:
    result = shoal("metrics", word, "loss", "-r", "worker-0", PYTHONIOENCODING="ascii")
    assert result.stdout.splitlines()[1].split()[2].startswith("#")
    assert result.stdout.isascii()


@pytest.mark.parametrize(
    ("options", "header", "row"),
    [
        pytest.param(
            ["--agg", "all"],
            ["metric", "ranks", "min", "mean", "p50", "p95", "max", "min", "is", "max", "is", "steps"],
            ["master-0", "worker-0", "0..199"],
            id="everything over ranks",
        ),
        pytest.param(
            ["--agg", "max"],
            ["metric", "ranks", "max", "last", "which", "lowest", "highest", "steps"],
            ["worker-0", "-0.92", "1", "0..199"],
            id="the maximum, and whose it is",
        ),
        pytest.param(
            ["--agg", "p50", "--x", "relative"],
            ["metric", "ranks", "p50", "last", "which", "lowest", "highest", "relative"],
            [],
            id="the median over time",
        ),
    ],
)
def test_ranks_are_aggregated(word: str, options: list[str], header: list[str], row: list[str]) -> None:
    result = shoal("metrics", word, "loss", *options, PYTHONIOENCODING="utf-8")
    first, only = result.stdout.splitlines()
    assert first.split() == header
    assert only.split()[:2] == ["loss", "2"]
    assert only.split()[-len(row) :] == row or not row


def test_points_are_exported(word: str, tmp_path: Path) -> None:
    choice = ("metrics", word, "eval/*", "--replica", "worker-*")
    (entry,) = json.loads(shoal(*choice, "--json").stdout)
    assert {key: entry[key] for key in ("name", "replica", "process", "attempt")} == {
        "name": "eval/f1",
        "replica": "worker-0",
        "process": 0,
        "attempt": 0,
    }
    assert [(step, value) for step, _, value in entry["points"]] == [(0, "NaN"), (50, 0.25), (100, 0.5), (150, 0.75)]
    rows = list(csv.DictReader(io.StringIO(shoal(*choice, "--csv").stdout)))
    assert [(int(row["step"]), float(row["time"])) for row in rows] == [(s, t) for s, t, _ in entry["points"]]
    file = tmp_path / "points.parquet"
    assert shoal(*choice, "--parquet", str(file)).returncode == 0
    assert pyarrow.parquet.read_table(file)["step"].to_pylist() == [0, 50, 100, 150]
    assert list(tmp_path.iterdir()) == [file]
    (aggregated,) = json.loads(shoal("metrics", word, "loss", "--agg", "mean", "--json").stdout)
    assert aggregated["mean"][:2] == pytest.approx([0.5, 0.49])


@pytest.mark.parametrize(
    ("agg", "columns", "last"),
    [
        pytest.param("mean", ["mean"], [-1.49], id="one statistic"),
        pytest.param("max", ["max", "max is"], [-0.99, "worker-0"], id="the largest, and whose it is"),
        pytest.param(
            "all",
            ["min", "mean", "p50", "p95", "max", "min is", "max is"],
            [-1.99, -1.49, -1.49, pytest.approx(-1.04), -0.99, "master-0", "worker-0"],
            id="all of them",
        ),
    ],
)
def test_statistics_over_ranks_are_a_parquet_file(
    word: str, tmp_path: Path, agg: str, columns: list[str], last: list[object]
) -> None:
    file = tmp_path / "statistics.parquet"
    choice = ("metrics", word, "loss", "--agg", agg)
    result = shoal(*choice, "--parquet", str(file))
    assert (result.returncode, result.stdout, list(tmp_path.iterdir())) == (0, "", [file]), result.stderr
    table = pyarrow.parquet.read_table(file)
    assert table.column_names == ["name", "step", *columns, "points", "ranks"]
    rows = table.to_pylist()
    assert [row["step"] for row in rows] == list(range(200))
    assert {(row["name"], row["points"], row["ranks"]) for row in rows} == {("loss", 2, 2)}
    assert [rows[-1][column] for column in columns] == [pytest.approx(e) if isinstance(e, float) else e for e in last]
    written = list(csv.DictReader(io.StringIO(shoal(*choice, "--csv").stdout)))
    assert list(written[0]) == table.column_names
    for line, row in zip(written, rows, strict=True):
        assert {k: v if isinstance(row[k], str) else float(v) for k, v in line.items()} == row


def test_what_is_no_number_is_none_in_statistics_too(word: str, tmp_path: Path) -> None:
    file = tmp_path / "statistics.parquet"
    choice = ("metrics", word, "endless", "eval/f1", "--agg", "min", "--parquet", str(file))
    assert shoal(*choice).returncode == 0
    rows = pyarrow.parquet.read_table(file).to_pylist()
    least = {(row["name"], row["step"]): (row["min"], row["min is"]) for row in rows}
    assert least["endless", 0] == (math.inf, "master-0")
    assert math.isnan(least["eval/f1", 0][0])
    assert least["eval/f1", 50] == (0.25, "master-0")


def test_resources_are_read_the_same_way(word: str) -> None:
    found = json.loads(shoal("metrics", word, "--resources", "--json").stdout)
    assert {entry["kind"] for entry in found} == {"resource"}
    assert {"cpu", "memory"} <= {entry["name"] for entry in found}


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        (["nothing"], "has no metric like that", "there are endless, eval/f1, loss"),
        (["--x", "nothing"], "x: no process that has these metrics has 'nothing'", "step, time, relative"),
        (["--json", "--csv"], "are three formats", "choose one of them"),
        (["--replaced"], "--replaced is about points", "--json"),
        (["--json", "--parquet", "x"], "are three formats", "choose one of them"),
    ],
)
def test_wrong_use_is_explained(word: str, options: list[str], what: str, hint: str) -> None:
    result = shoal("metrics", word, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert what in result.stderr
    assert hint in result.stderr


def test_a_place_that_cannot_be_written_is_said(word: str, tmp_path: Path) -> None:
    for more in ((), ("--agg", "mean")):
        result = shoal("metrics", word, *more, "--parquet", str(tmp_path / "nowhere" / "x"))
        assert result.returncode == 3
        assert "No such file or directory" in result.stderr


def test_an_experiment_without_metrics_says_so(word: str, tmp_path: Path) -> None:
    silent = submit(tmp_path, "run: {cmd: 'true'}")
    finished(silent)
    result = shoal("metrics", silent)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", f"{silent} has no metrics\n")
    assert shoal("metrics", silent, "--json").stdout == "[]"


@pytest.mark.parametrize(
    ("values", "glyphs", "expected"),
    [
        pytest.param([0, 1, 2, 3, 4, 5, 6, 7], BLOCKS, "▁▂▃▄▅▆▇█", id="rises"),
        pytest.param([1, 1, 1], BLOCKS, "▅▅▅", id="stays"),
        pytest.param([0, "NaN", 1, "Infinity"], BLOCKS, "▁x█x", id="has what is no number"),
        pytest.param(["NaN"], PLAIN, "x", id="is no number at all"),
        pytest.param([0, None, 1], PLAIN, "_ #", id="has a gap"),
        pytest.param([-1.7e308, 1.7e308], PLAIN, "_#", id="goes as far as numbers go"),
        pytest.param([], BLOCKS, "", id="is empty"),
    ],
)
def test_sparklines(values: list[object], glyphs: str, expected: str) -> None:
    known = [(start, value) for start, value in enumerate(values, 5) if value is not None]
    starts, there = [start for start, _ in known], [value for _, value in known]
    assert sparkline(starts, there, 5.0, 1.0, glyphs) == expected
