"""Launchers for tests: one replica in a process of its own, without server and shepherd. And what streams hold."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal import journal

PROGRAM = """
import ctypes, json, os, sys
from shoal.launcher.replica import Task, run
ctypes.CDLL(None).prctl(36, 1)  # a child subreaper, as the shepherd makes it
run(Task(**json.loads(sys.argv[1]), pipes=(os.pipe(), os.pipe())))
"""


def environment(place: Path, **more: str) -> dict[str, str]:
    """What a replica gets: worker-0 of two, with outputs below `place`."""
    outputs = place / "outputs"
    # Of every place its own: launchers end all that is marked with their uid, and several tests run at once.
    uid = hashlib.md5(str(place).encode(), usedforsecurity=False).hexdigest()
    replica = more.get("SHOAL_REPLICA", "worker-0")
    (outputs / replica).mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "SHOAL_EXPERIMENT": "e23456",
        "SHOAL_REPLICA": replica,
        "SHOAL_ROLE": replica.partition("-")[0],
        "SHOAL_INDEX": replica.partition("-")[2],
        "SHOAL_ATTEMPT": "0",
        "SHOAL_TRY": "0",
        "SHOAL_CLUSTER_SPEC": json.dumps({"worker": ["127.0.0.1:1", "127.0.0.1:2"]}),
        "SHOAL_OUTPUTS": str(outputs),
        "SHOAL_REPLICA_OUTPUTS": str(outputs / replica),
        "SHOAL_REPLICA_UID": f"{uid}-0-{replica}",
        "CUDA_VISIBLE_DEVICES": "",
        **more,
    }


def try_directory(place: Path, replica: str = "worker-0") -> Path:
    return place / "attempt-0" / replica / "try-0"


def start(place: Path, command: str, task: Mapping[str, Any] | None = None, **env: str) -> subprocess.Popen[bytes]:
    """A launcher of one replica; its try is `try_directory(place, …)`."""
    variables = environment(place, **env)
    directory = try_directory(place, variables["SHOAL_REPLICA"])
    directory.mkdir(parents=True)
    about = {
        "uid": variables["SHOAL_REPLICA_UID"],
        "directory": str(directory),
        "command": command,
        "cwd": str(place),
        "env": {**variables, "SHOAL_STREAMS": str(directory / "streams")},
        "grace": 1.0,
        **(task or {}),
    }
    return subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(about)], stdout=subprocess.PIPE)


def until_recorded(name: str) -> str:
    """A command that ends when one of its streams holds a metric of this name."""
    return f'until grep -aqs {name} "$SHOAL_STREAMS"/*; do sleep 0.02; done'


def ran(place: Path, command: str, task: Mapping[str, Any] | None = None, **env: str) -> Path:
    """Runs one replica to its end; the directory of its try."""
    launcher = start(place, command, task, **env)
    launcher.communicate(timeout=120)
    assert launcher.returncode == 0
    return try_directory(place, env.get("SHOAL_REPLICA", "worker-0"))


def frames(directory: Path) -> list[tuple[dict[str, Any], list[journal.Frame]]]:
    """(header, frames) of every stream in a directory, in the order of their starts."""
    found = []
    for stream, numbers in journal.segments(os.listdir(directory)).items():
        items: list[journal.Frame] = []
        for number in numbers:
            scanned, _ = journal.scan((directory / journal.segment_name(stream, number)).read_bytes())
            assert not [item for item in scanned if isinstance(item, journal.Damage)]
            items += [item for item in scanned if isinstance(item, journal.Frame)]
        if not items:
            continue  # just begun
        assert [item.seq for item in items] == list(range(len(items)))
        found.append((journal.unpack_json(items[0].body), items))
    return sorted(found, key=lambda entry: entry[0]["started"])


def points(directory: Path, kind: str) -> dict[str, list[tuple[int, float, float]]]:
    """name -> (step, time, value) of all streams of a kind."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for header, items in frames(directory):
        if header["kind"] != kind:
            continue
        for item in items:
            for group in journal.unpack_points(item.body) if item.kind == journal.POINTS else ():
                for name, column in zip(group.names, group.values, strict=True):
                    found.setdefault(name, []).extend(zip(group.steps, group.times, column, strict=True))
    return found


def events(directory: Path, kind: str) -> list[dict[str, Any]]:
    """The events of all streams of a kind."""
    return [
        journal.unpack_json(item.body)
        for header, items in frames(directory)
        for item in items
        if header["kind"] == kind and item.kind == journal.EVENT
    ]
