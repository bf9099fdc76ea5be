"""Writes an imported run as a run outside Shoal: streams and an outside.json. Importing twice adds only what is new.

What has been written is counted in imported.json beside it, per metric: the points of a run are only ever appended to.
New points are staged, counted, and only then put where the server reads, so that a killed import doubles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal import journal
from shoal.journalfile import JournalFile

ABOUT, STATE, STAGING = "outside.json", "imported.json", "staging"
AT_ONCE = 16_384  # points of one frame
REPLICA = "master-0"


@dataclass
class Series:
    """Points of one metric, in the order they were logged: times in UTC seconds, steps, values."""

    times: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time_: float, step: int, value: float) -> None:
        self.times.append(time_)
        self.steps.append(step)
        self.values.append(value)


@dataclass
class Run:
    """One run of another tracker."""

    source: str  # where it comes from, as the provenance tells it
    key: str  # the same for the same run, whenever it is imported
    name: str
    started: float
    finished: float | None = None
    error: str = ""  # why it did not end well
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    metrics: Mapping[str, Series] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()  # text, histograms, tables: appended to as well
    user: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)  # for the provenance


def key_of(kind: str, name: str, identity: str) -> str:
    """`mlflow-my-run-3f9a1c0d2b4e`: readable, and different for different identities."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60]
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return "-".join(part for part in (kind, word, digest) if part)


@dataclass(frozen=True)
class Written:
    directory: Path
    about: Mapping[str, Any]  # what its outside.json says
    points: int  # that are new
    changed: bool  # whether anything is
    experiment: str  # its id, when it was brought in before


def write(run: Run, outside: Path) -> Written:
    """Writes what was not written before; the server does not know of it yet."""
    directory = outside / run.key
    streams = directory / "attempt-0" / REPLICA / "try-0" / "streams"
    streams.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = _read(directory / STATE)
    _finish(directory, streams, state)
    counts: dict[str, int] = state.get("counts", {})
    fresh = {name: _after(series, counts.get(name, 0)) for name, series in run.metrics.items()}
    fresh = {name: series for name, series in fresh.items() if series.steps}
    told = _digest([run.params, run.tags, run.about, run.finished, run.error])
    events = run.events[state.get("events", 0) :]
    changed = bool(fresh or events) or told != state.get("told")
    if changed:
        staging = directory / STAGING
        staging.mkdir(mode=0o700)
        stream = _stage(run, fresh, events, staging)
        now = {name: len(series.steps) for name, series in run.metrics.items()}
        _write(
            directory / STATE,
            {**state, "counts": {**counts, **now}, "events": len(run.events), "told": told, "stream": stream},
        )
        _finish(directory, streams, {"stream": stream})
    about = _about(run)
    if not (directory / ABOUT).exists():
        _write(directory / ABOUT, about)
    points = sum(len(series.steps) for series in fresh.values())
    return Written(directory, about, points, changed, state.get("experiment", ""))


def brought(directory: Path, experiment: str) -> None:
    """Remembers as which experiment it was brought in."""
    _write(directory / STATE, {**_read(directory / STATE), "experiment": experiment})


def _after(series: Series, count: int) -> Series:
    return Series(series.times[count:], series.steps[count:], series.values[count:])


def _finish(directory: Path, streams: Path, state: Mapping[str, Any]) -> None:
    """Puts staged segments in place when they have been counted; else they are of a killed import, and go."""
    staging = directory / STAGING
    if not staging.exists():
        return
    for name in sorted(os.listdir(staging)):
        if name.partition(".")[0] == state.get("stream"):
            os.replace(staging / name, streams / name)
    shutil.rmtree(staging)


def _stage(run: Run, metrics: Mapping[str, Series], events: Sequence[Mapping[str, Any]], staging: Path) -> str:
    header = {
        "experiment": "",
        "key": run.key,
        "replica": REPLICA,
        "role": "master",
        "index": 0,
        "attempt": 0,
        "try": 0,
        "rank": 0,
        "process": 0,
        "world": None,
        "restart": 0,
        "host": socket.gethostname(),
        "boot": "",
        "pid": os.getpid(),
        "pid_start": None,
        "started": run.started,
        "kind": "import",
        "parent": None,
        "program": [],
    }
    file = JournalFile(str(staging), header)
    if run.params:
        file.event({"kind": "params", "time": run.started, "values": dict(run.params)})
    if run.tags:
        file.event({"kind": "tag", "time": run.started, "tags": list(run.tags)})
    if run.about:
        file.event({"kind": "host", "time": run.started, **run.about})
    for event in events:
        file.event(event)
    for groups in _frames(metrics):
        file.points(groups)
    how = "exception" if run.error else "finished"
    end = run.finished if run.finished is not None else time.time()
    file.sync()
    file.end({"time": end, "how": how, "error": run.error, "dropped": 0})
    return file.stream


def _frames(metrics: Mapping[str, Series]) -> Iterable[list[journal.Group]]:
    groups: list[journal.Group] = []
    size = 0
    for name, series in metrics.items():
        name = name.encode("utf-8", "replace")[: journal.MOST_NAME_BYTES].decode("utf-8", "ignore").replace("\0", "")
        for start in range(0, len(series.steps), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            groups.append(journal.Group((name,), series.times[part], series.steps[part], [series.values[part]]))
            size += len(groups[-1].times)
            if size >= AT_ONCE:
                yield groups
                groups, size = [], 0
    if groups:
        yield groups


def _about(run: Run) -> dict[str, Any]:
    return {
        "key": run.key,
        "name": run.name,
        "origin": "import",
        "started": run.started,
        "command": [],
        "cwd": "",
        "host": "",
        "user": run.user,
        "python": "",
        "source": run.source,
        "params": dict(run.params),
        "tags": list(run.tags),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
        return found
    except FileNotFoundError:
        return {}


def _write(file: Path, value: Mapping[str, Any]) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}.new")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, file)
