"""tensorboardX: one event for each scalar, through a queue to a thread that appends to the event file."""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

TITLE = "tensorboardX"
WATCH = "files"
DURABLE = "in the event file, with `flush()` called again and again"

writer: Any = None


def start(directory: str) -> Callable[..., Any]:
    global writer
    import tensorboardX

    writer = tensorboardX.SummaryWriter(directory)
    add = writer.add_scalar

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            add(name, value, step)

    return log


def flush() -> None:
    """It says that everything is written, and is not: what is in the queue follows. So it is called again and again."""
    writer.flush()


def finish() -> None:
    writer.close()


def files(directory: str) -> list[str]:
    return glob.glob(os.path.join(directory, "*tfevents*"))


def points(directory: str) -> Iterator[tuple[str, int, int]]:
    """A record is its length, a checksum, one event, a checksum. The first event is the version of the file."""
    for path in files(directory):
        with open(path, "rb") as file:
            data = file.read()
        place, number = 0, 0
        while place + 12 <= len(data):
            place += 16 + struct.unpack_from("<Q", data, place)[0]
            if place > len(data):
                break
            if number:
                yield path, place, 1
            number += 1
