"""Scripts that use the SDK, run in real interpreters, and what their streams then hold."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal import journal
from tests.conftest import ROOT

Point = tuple[int, float]  # step, value

# What a developer's own shell or this test's own replica must not tell a script.
FOREIGN = ("SHOAL_", "SLURM_", "TORCHELASTIC_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "GROUP_")


@dataclass
class Stream:
    """What one stream holds, all segments together."""

    header: dict[str, Any]
    points: dict[str, list[Point]] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    damage: int = 0
    seqs: list[int] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]


def environment_for(place: Path, **more: str) -> dict[str, str]:
    """The variables of a script outside Shoal whose home is `place`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "SHOAL_HOME": str(place), "PYTHONPATH": str(ROOT), **more}


def start(script: str, place: Path, *, python: str = sys.executable, **more: str) -> subprocess.Popen[str]:
    """Starts the script; its output can be read from pipes."""
    return subprocess.Popen(
        [python, "-c", textwrap.dedent(script)],
        env=environment_for(place, **more),
        cwd=place.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def record(script: str, place: Path, *, code: int = 0, python: str = sys.executable, **more: str) -> str:
    """Runs the script to its end; what it said on stderr."""
    process = start(script, place, python=python, **more)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code, output + errors
    return errors


def streams_below(place: Path) -> list[Stream]:
    """All streams below a directory, in the order of their processes."""
    found = [read_streams(directory) for directory in sorted(place.glob("**/streams"))]
    return sorted((stream for some in found for stream in some), key=lambda stream: stream.header.get("rank", -1))


def stream_below(place: Path) -> Stream:
    """The only stream below a directory."""
    (stream,) = streams_below(place)
    return stream


def read_streams(directory: Path) -> Iterable[Stream]:
    for name, numbers in journal.segments(os.listdir(directory)).items():
        yield read_stream(directory, name, numbers)


def read_stream(directory: Path, name: str, numbers: Iterable[int]) -> Stream:
    stream = Stream({})
    for number in numbers:
        found, _ = journal.scan((directory / journal.segment_name(name, number)).read_bytes(), over=True)
        for frame in found:
            if isinstance(frame, journal.Damage):
                stream.damage += 1
                continue
            stream.seqs.append(frame.seq)
            if frame.kind == journal.HEADER:
                stream.header = stream.header or journal.unpack_json(frame.body)
            elif frame.kind == journal.EVENT:
                stream.events.append(journal.unpack_json(frame.body))
            elif frame.kind == journal.END:
                stream.end = journal.unpack_json(frame.body)
            else:
                add_points(stream, frame.body)
    return stream


def add_points(stream: Stream, body: bytes) -> None:
    for group in journal.unpack_points(body):
        for metric, values in zip(group.names, group.values, strict=True):
            stream.points.setdefault(metric, []).extend(zip(group.steps, values, strict=True))
            stream.times.setdefault(metric, []).extend(group.times)
