"""Shoal: a script outside of an experiment; a thread appends to its stream file, which the home's server takes in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import shoal
from shoal import journal

TITLE = "Shoal"
WATCH = "files"
DURABLE = "in the stream file, which any later server takes in"


def start(directory: str) -> Callable[..., Any]:
    os.environ["SHOAL_HOME"] = directory
    shoal.init()
    return shoal.log


def finish() -> None:
    shoal.finish()


def files(directory: str) -> list[str]:
    return [
        os.path.join(place, name)
        for place, _, names in os.walk(directory)
        if os.path.basename(place) == "streams"
        for name in sorted(names)
    ]


def points(directory: str) -> Iterator[tuple[str, int, int]]:
    """(file, where a frame ends, how many points it holds) for each whole frame of points."""
    for path in files(directory):
        with open(path, "rb") as file:
            frames, _ = journal.scan(file.read(), over=True)
        for frame in frames:
            if isinstance(frame, journal.Frame) and frame.kind == journal.POINTS:
                groups = journal.unpack_points(frame.body)
                yield path, frame.end, sum(len(group.steps) * len(group.names) for group in groups)
