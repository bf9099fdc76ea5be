"""wandb, offline: records go to a process of its own, which appends them to the run's .wandb file."""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

TITLE = "wandb, offline"
WATCH = "files"
DURABLE = "in the .wandb file"
BLOCK = 32768  # the file is a log of blocks; a record that does not fit goes on in the next
WHOLE, LAST = 1, 4

run: Any = None


def start(directory: str) -> Callable[..., Any]:
    global run
    import wandb

    run = wandb.init(mode="offline", dir=directory, project="bench", settings=wandb.Settings(silent=True))
    return run.log


def finish() -> None:
    run.finish()


def files(directory: str) -> list[str]:
    return glob.glob(os.path.join(directory, "wandb", "offline-run-*", "*.wandb"))


def points(directory: str) -> Iterator[tuple[str, int, int]]:
    from wandb.proto import wandb_internal_pb2

    for path in files(directory):
        with open(path, "rb") as file:
            data = file.read()
        for record, end in records(data):
            found = wandb_internal_pb2.Record.FromString(record)
            if found.HasField("history"):
                names = [item.key or item.nested_key[0] for item in found.history.item]
                yield path, end, sum(not name.startswith("_") for name in names)


def records(data: bytes) -> Iterator[tuple[bytes, int]]:
    place, parts = 7, []
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if not kind or place + 7 + length > len(data):
            return
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (WHOLE, LAST):
            yield b"".join(parts), place
            parts = []
