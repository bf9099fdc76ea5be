"""Callbacks of Keras, Lightning and transformers on two ranks, and scripts of wandb: with the real libraries.

What was recorded is read from the streams of every replica, with nothing of Shoal in between but its format. A server
takes them in and removes them when an experiment is over, so each replica keeps a copy in its outputs.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal import journal
from tests.conftest import ROOT
from tests.examples.test_examples import PATIENCE, Done, lines_of, python_of, run

HERE = Path(__file__).parent
SCRIPTS = HERE / "wandb_scripts"
CALLBACKS = HERE / "callbacks"


@dataclass
class Stream:
    """What one process has said."""

    header: dict[str, Any] = field(default_factory=dict)
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    files: Path = Path()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def params(self) -> dict[str, Any]:
        return {name: value for event in self.of("params") for name, value in event["values"].items()}

    def values(self, name: str) -> list[float]:
        return [value for _, value in self.points[name]]

    def steps(self, name: str) -> list[int]:
        return [step for step, _ in self.points[name]]


def test_keras_records_the_fit_of_every_rank(home: Path) -> None:
    streams, done = trained(home, "tensorflow", "tensorflow", "keras_fit.py", TF_CPP_MIN_LOG_LEVEL="2")
    for rank, replica in enumerate(("worker-0", "worker-1")):
        (stream,) = streams[replica]
        told = next(line for line in lines_of(done.id, replica) if line.startswith("history "))
        history = ast.literal_eval(told.removeprefix("history "))
        assert stream.steps("train/loss") == [2, 4, 6, 8, 10, 12]
        assert stream.steps("epoch/loss") == stream.steps("val/loss") == [4, 8, 12]
        recorded = {"loss": "epoch/loss", "mae": "epoch/mae", "val_loss": "val/loss", "val_mae": "val/mae"}
        assert {name: [round(value, 6) for value in stream.values(ours)] for name, ours in recorded.items()} == history
        assert stream.steps("test/mae") == [12]
        assert stream.values("epoch") == [1, 2, 3]
        params = stream.params()
        assert (params["epochs"], params["steps_per_epoch"], params["optimizer"]) == (3, 4, "SGD")
        assert params["learning_rate"] == pytest.approx(0.05)
        assert params["model_parameters"] == 5
        assert stream.of("progress")[-1]["fraction"] == 1.0
        assert stream.header["index"] == rank
    assert streams["worker-0"][0].values("epoch/loss") != streams["worker-1"][0].values("epoch/loss")


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_records_every_rank(home: Path, package: str) -> None:
    streams, done = trained(home, "integrations", "pytorch", "lightning_fit.py", PACKAGE=package)
    first, second = (streams[replica][0] for replica in ("worker-0", "worker-1"))
    for rank, stream in enumerate((first, second)):
        assert stream.steps("loss") == list(range(8))
        assert set(stream.values("rank")) == {float(rank)}
        assert len(stream.points["val_loss"]) == 2
        assert {name: stream.params()[name] for name in ("lr", "width")} == {"lr": 0.1, "width": 4}
        assert stream.header["rank"] == rank
    assert first.values("loss") != second.values("loss"), "each rank has its own part of the data"
    assert first.values("mean_loss") == second.values("mean_loss")
    halves = zip(first.values("loss"), second.values("loss"), strict=True)
    assert first.values("mean_loss") == pytest.approx([(one + other) / 2 for one, other in halves], rel=1e-5)
    marks = first.of("checkpoint")
    assert [mark["step"] for mark in marks] == [4, 8]
    assert second.of("checkpoint") == []
    outputs = home / "experiments" / done.id / "outputs"
    assert Path(marks[-1]["path"]).parent == outputs / "checkpoints"
    assert Path(marks[-1]["path"]).is_file()


def test_the_trainer_of_transformers_records_every_rank(home: Path) -> None:
    streams, done = trained(home, "integrations", "pytorch", "trainer_fit.py")
    first, second = (streams[replica][0] for replica in ("worker-0", "worker-1"))
    for rank, stream in enumerate((first, second)):
        assert stream.steps("train/loss") == [3, 6, 9, 12]
        assert stream.steps("eval/loss") == stream.steps("eval/close") == [6, 12]
        assert "train/train_runtime" in stream.points
        assert stream.values("train/loss")[-1] < stream.values("train/loss")[0]
        assert stream.params()["learning_rate"] == 0.1
        assert stream.params()["model"]["width"] == 4
        assert stream.of("progress")[-1]["fraction"] == 1.0
        assert stream.header["rank"] == rank
    assert first.values("train/loss") == second.values("train/loss"), "the Trainer tells the mean over the ranks"
    trained_to = home / "experiments" / done.id / "outputs" / "trained"
    marks = [(mark["path"], mark["step"]) for mark in first.of("checkpoint")]
    assert marks == [(str(trained_to / f"checkpoint-{step}"), step) for step in (6, 12)]
    assert second.of("checkpoint") == []


@pytest.mark.parametrize(
    ("module", "package"), [("keras", "keras"), ("lightning", "lightning"), ("transformers", "transformers")]
)
def test_a_library_that_is_missing_is_named_with_its_package(tmp_path: Path, module: str, package: str) -> None:
    code = f"import shoal.integrations.{module}"
    done = script(python_of("jax"), "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 1
    *_, error, hint = done.stderr.splitlines()
    assert f"shoal.integrations.{module} needs " in error
    assert hint == f"hint: pip install {package}"


@pytest.mark.parametrize("name", ["plain", "media", "steps", "bare"])
def test_a_script_of_wandb_records_the_same_under_both(home: Path, tmp_path: Path, name: str) -> None:
    python = python_of("integrations")
    text = (SCRIPTS / f"{name}.py").read_text()
    assert text.count("import wandb\n") == 1
    theirs, ours = tmp_path / "wandb", tmp_path / "shoal"
    for place, words in ((theirs, text), (ours, text.replace("import wandb\n", "import shoal as wandb\n"))):
        place.mkdir()
        (place / f"{name}.py").write_text(words)
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(tmp_path)}
    ran = script(python, f"{name}.py", cwd=theirs, **offline)
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout
    read = script(python, str(HERE / "read_wandb.py"), str(theirs), cwd=tmp_path)
    assert read.returncode == 0, read.stderr
    wandb = json.loads(read.stdout)

    ran = script(python, f"{name}.py", cwd=ours, PYTHONPATH=str(ROOT))
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", printed)
    (stream,) = read_streams(home / "outside")["master-0"]

    assert stream.params() == {key: value for key, value in wandb["config"].items() if key != "_wandb"}
    assert history_of(stream) == {key: numbers(values) for key, values in wandb["history"].items()}
    assert summary_of(stream) == {key: number(value) for key, value in summary_without_media(wandb).items()}
    assert [tag for event in stream.of("tag") for tag in event["tags"] if ":" not in tag] == wandb["tags"]
    defined = {event["name"]: {"x": event["x"], "min": event["summary"] == "min"} for event in stream.of("define")}
    assert defined == wandb["defined"]
    assert in_order(media_of(stream, python)) == in_order(told(entry) for entry in wandb["media"])
    assert stream.end is not None
    assert stream.end["how"] == "finished"


def trained(
    home: Path, environment: str, framework: str, name: str, **variables: str
) -> tuple[dict[str, list[Stream]], Done]:
    """The streams of two workers that ran a script, one for each process that recorded something."""
    file = home.parent / "experiment.yml"
    variables = {"OMP_NUM_THREADS": "1", **variables}
    told = "\n".join(f"    {key}: '{value}'" for key, value in variables.items())
    file.write_text(
        f"version: 1\nkind: experiment\nname: {name.removesuffix('.py').replace('_', '-')}\nframework: {framework}\n"
        f"run:\n  cmd: python {CALLBACKS / name} && cp -r $SHOAL_STREAMS $SHOAL_REPLICA_OUTPUTS\n"
        f"environment:\n  env_vars:\n{told}\n  replicas:\n    master: false\n    n_workers: 2\n"
    )
    done = run(str(file), framework=environment, cwd=home.parent)
    assert done.code == 0, done.err + done.out
    assert done.experiment()["state"] == "succeeded"
    streams = read_streams(home / "experiments" / done.id / "outputs")
    ends = {replica: [stream.end and stream.end["how"] for stream in found] for replica, found in streams.items()}
    assert ends == {"worker-0": ["exited"], "worker-1": ["exited"]}
    return streams, done


def read_streams(place: Path) -> dict[str, list[Stream]]:
    """replica -> what its processes have recorded with the SDK."""
    found: dict[str, list[Stream]] = {}
    for directory in sorted(place.rglob("streams")):
        for name, numbers in journal.segments(os.listdir(directory)).items():
            stream = Stream(files=directory.parent / "files")
            for segment in numbers:
                read_segment(directory / journal.segment_name(name, segment), stream)
            if stream.header["kind"] == "metric":
                found.setdefault(stream.header["replica"], []).append(stream)
    return found


def read_segment(path: Path, stream: Stream) -> None:
    for frame in journal.scan(path.read_bytes())[0]:  # the launcher's own streams may be in the middle of a frame
        assert isinstance(frame, journal.Frame), f"damage in {path}"
        if frame.kind == journal.HEADER:
            stream.header = journal.unpack_json(frame.body)
        elif frame.kind == journal.EVENT:
            stream.events.append(journal.unpack_json(frame.body))
        elif frame.kind == journal.END:
            stream.end = journal.unpack_json(frame.body)
        else:
            for group in journal.unpack_points(frame.body):
                for name, column in zip(group.names, group.values, strict=True):
                    stream.points.setdefault(name, []).extend(zip(group.steps, column, strict=True))


def history_of(stream: Stream) -> dict[str, dict[int, Any]]:
    """name -> step -> the last value there: numbers, and texts among them."""
    found = {name: {step: number(value) for step, value in points} for name, points in stream.points.items()}
    for event in stream.of("text"):
        if event["name"] != "notes":
            found.setdefault(event["name"], {})[event["step"]] = event["text"]
    return found


def summary_of(stream: Stream) -> dict[str, Any]:
    """What stands for each name at the end, as wandb would put it."""
    found: dict[str, Any] = {name: list(values.values())[-1] for name, values in history_of(stream).items()}
    for event in stream.of("define"):
        if event["summary"] == "min":
            found[event["name"] + "/min"] = min(stream.values(event["name"]))
            del found[event["name"]]
    for event in stream.of("summary"):
        found.update({name: number(value) for name, value in flat(event["values"])})
    return found


def summary_without_media(wandb: Mapping[str, Any]) -> dict[str, Any]:
    pictures = {entry["name"] for entry in wandb["media"]}
    kept = {name: value for name, value in wandb["summary"].items() if name not in pictures and name[0] != "_"}
    return dict(flat(kept))


def media_of(stream: Stream, python: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for event in stream.events:
        where = (event.get("name"), event.get("step"))
        if event["kind"] == "table":
            found.append((*where, event["columns"], event["rows"]))
        elif event["kind"] == "histogram":
            found.append((*where, event["edges"], event["counts"]))
        elif event["kind"] == "image":
            file = stream.files / event["file"]["staged"]
            assert event["file"]["size"] == file.stat().st_size
            shown = script(python, str(HERE / "read_wandb.py"), "--pixels", str(file), cwd=stream.files)
            (pixels,) = json.loads(shown.stdout)
            assert pixels[:2] == [event["width"], event["height"]]
            found.append((*where, event["caption"], pixels))
    return found


def told(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """A picture, table or histogram of wandb, in the words of `media_of`."""
    where = (entry["name"], entry["step"])
    if entry["_type"] == "table-file":
        return (*where, entry["content"]["columns"], entry["content"]["data"])
    if entry["_type"] == "histogram":
        return (*where, entry["bins"], entry["values"])
    return (*where, entry["caption"], entry["pixels"])


def in_order(media: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(media, key=lambda entry: (entry[1], entry[0]))


def numbers(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(step): number(value) for step, value in values.items()}


def number(value: Any) -> Any:
    """Numbers and truths as floats; NaN as a text, because it is not equal to itself."""
    if isinstance(value, bool | int | float):
        return "NaN" if value != value else float(value)
    return value


def flat(tree: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}/")
        else:
            yield before + name, value


def script(python: Path, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
