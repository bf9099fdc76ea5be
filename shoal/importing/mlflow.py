"""MLflow's own stores: the directory `mlruns`, and its database in SQLite. Read as files; MLflow need not be installed.

    mlruns/<experiment>/meta.yaml
    mlruns/<experiment>/<run>/meta.yaml, params/<name>, tags/<name>, metrics/<name>: `time value step` lines, artifacts/

Deleted experiments and runs are left out.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from shoal.errors import UsageError
from shoal.importing.writing import Run, Series, key_of

STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
UNFINISHED = ("RUNNING", "SCHEDULED")
ERRORS = {
    "FAILED": "failed, as MLflow tells",
    "KILLED": "was killed, as MLflow tells",
    "RUNNING": "was still running when it was imported",
    "SCHEDULED": "had not begun when it was imported",
}
LARGEST = 1.79e308  # MLflow keeps infinities as the largest number
MOST_ARTIFACTS = 10_000
OWN = "mlflow."  # tags that MLflow sets itself


def runs(where: str) -> Iterator[tuple[str, Run]]:
    """(status, run) of all that is there, the oldest first. UsageError when it is no store of MLflow."""
    path = Path(where.removeprefix("sqlite:///") if where.startswith("sqlite:///") else _local(where))
    if path.is_dir():
        yield from _in_directory(path)
    elif path.is_file():
        yield from _in_database(path)
    else:
        raise UsageError(f"{where}: there is no such store", hint="name mlruns, or sqlite:///mlflow.db")


def _local(where: str) -> str:
    """A path, or the path in `file:///…`."""
    parts = urlsplit(where)
    return unquote(parts.path) if parts.scheme == "file" else where


def _in_directory(root: Path) -> Iterator[tuple[str, Run]]:
    single = root / "meta.yaml"
    experiments = [root] if single.exists() else [entry for entry in sorted(root.iterdir()) if entry.is_dir()]
    found = []
    for directory in experiments:
        about = _yaml(directory / "meta.yaml")
        if about is None or directory.name.startswith(".") or about.get("lifecycle_stage") == "deleted":
            continue
        for entry in sorted(directory.iterdir()):
            meta = _yaml(entry / "meta.yaml") if entry.is_dir() else None
            if meta is not None and "run_id" in meta and meta.get("lifecycle_stage") != "deleted":
                found.append((meta.get("start_time") or 0, str(about.get("name", "")), entry, meta))
    if not found and not any((directory / "meta.yaml").exists() for directory in experiments):
        raise UsageError(f"{root}: no store of MLflow", hint="name the directory mlruns, or sqlite:///mlflow.db")
    for _, experiment, entry, meta in sorted(found, key=lambda item: (item[0], item[2])):
        yield _run(
            str(entry.absolute()),
            experiment,
            {**meta, "run_name": meta.get("run_name") or meta.get("name")},
            STATUSES.get(meta.get("status") or 0, str(meta.get("status"))),
            {name: file.read_text(errors="replace") for name, file in _named(entry / "params")},
            {name: file.read_text(errors="replace") for name, file in _named(entry / "tags")},
            {name: _lines(file) for name, file in _named(entry / "metrics")},
        )


def _named(directory: Path) -> Iterator[tuple[str, Path]]:
    """Names may have slashes, and are then directories."""
    for here, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            file = Path(here) / name
            yield str(file.relative_to(directory)), file


def _lines(file: Path) -> Series:
    series = Series()
    for line in file.read_text(errors="replace").splitlines():
        words = line.split()
        try:
            series.add(int(words[0]) / 1000, int(words[2]) if len(words) > 2 else len(series.steps), float(words[1]))
        except (IndexError, ValueError):
            continue  # torn, or written by something else
    return series


def _in_database(path: Path) -> Iterator[tuple[str, Run]]:
    try:
        connection = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise UsageError(f"{path}: {error}", hint="is it a database of MLflow?") from None
    connection.row_factory = sqlite3.Row
    try:
        found = connection.execute(
            "SELECT runs.*, experiments.name AS experiment FROM runs"
            " JOIN experiments ON experiments.experiment_id = runs.experiment_id"
            " WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'"
            " ORDER BY runs.start_time, runs.run_uuid"
        ).fetchall()
        for row in found:
            meta: dict[str, Any] = dict(row)
            run = meta["run_uuid"]
            params, tags = (
                dict(connection.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (run,)).fetchall())
                for table in ("params", "tags")
            )
            meta |= {"run_id": run, "run_name": meta["name"]}
            metrics = _points(connection, run)
            yield _run(str(path.absolute()), meta["experiment"], meta, meta["status"], params, tags, metrics)
    except sqlite3.Error as error:
        raise UsageError(f"{path}: no store of MLflow: {error}", hint="name mlruns, or sqlite:///mlflow.db") from None
    finally:
        connection.close()


def _points(connection: sqlite3.Connection, run: str) -> dict[str, Series]:
    metrics: dict[str, Series] = {}
    query = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"
    for key, value, timestamp, step, is_nan in connection.execute(query, (run,)):
        if is_nan:
            value = math.nan
        elif abs(value) > LARGEST:
            value = math.copysign(math.inf, value)
        metrics.setdefault(key, Series()).add(timestamp / 1000, step, value)
    return metrics


def _run(
    source: str,
    experiment: str,
    meta: Mapping[str, Any],
    status: str,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    metrics: Mapping[str, Series],
) -> tuple[str, Run]:
    first = min((series.times[0] for series in metrics.values() if series.times), default=0.0)
    last = max((series.times[-1] for series in metrics.values() if series.times), default=None)
    started = (meta.get("start_time") or 0) / 1000 or first or 1.0
    name = str(meta.get("run_name") or tags.get(f"{OWN}runName") or meta["run_id"])
    finished = meta["end_time"] / 1000 if meta.get("end_time") else last or started
    about = {
        "run": meta["run_id"],
        "experiment": experiment,
        "artifacts": str(meta.get("artifact_uri") or ""),
        **{key.removeprefix(OWN): value for key, value in tags.items() if key.startswith(f"{OWN}source.")},
    }
    listed = _artifacts(str(meta.get("artifact_uri") or ""))
    table = {"kind": "table", "name": "mlflow/artifacts", "step": 0, "time": finished, "columns": ["path", "bytes"]}
    return status, Run(
        source=source,
        key=key_of("mlflow", name, meta["run_id"]),
        name=name,
        started=started,
        finished=finished,
        error=ERRORS.get(status, ""),
        params={name: _value(text) for name, text in params.items()},
        tags=[experiment, *(f"{key}={value}" for key, value in tags.items() if not key.startswith(OWN))],
        metrics=metrics,
        events=[{**table, "rows": listed}] if listed else [],
        user=str(meta.get("user_id") or tags.get(f"{OWN}user") or ""),
        about={"mlflow": about},
    )


def _artifacts(uri: str) -> list[list[Any]]:
    """[path, bytes] of files that lie on this machine."""
    directory = Path(_local(uri)) if uri else None
    if directory is None or not directory.is_dir():
        return []
    found = ((str(file.relative_to(directory)), file) for _, file in _named(directory))
    return [[path, file.stat().st_size] for (path, file), _ in zip(found, range(MOST_ARTIFACTS), strict=False)]


def _value(text: str) -> Any:
    """MLflow keeps params as text: what reads as a number is one, so that queries can compare it."""
    if text in ("True", "False"):
        return text == "True"
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number) or "_" in text:
        return text
    return int(text) if text.lstrip("+-").isdigit() else number


def _yaml(file: Path) -> dict[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe").load(file.read_text(errors="replace"))
    except (OSError, YAMLError):
        return None
    return value if isinstance(value, dict) else None
