"""The workers, from the side of the benchmark: started, asked, killed, and what is left on disk counted."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.launcher import processes
from tests.conftest import ROOT
from tests.environments import environment

PATIENCE = 30.0
NAMES = ("shoal", "tensorboardx", "aim", "wandb", "trackio", "mlflow")


def adapter(name: str) -> Any:
    """The file that knows how to track with one product. It loads the product only when it starts."""
    return importlib.import_module(f"tests.benchmarks.peers.{name}")


class Worker:
    """A process that tracks with one product; see worker.py."""

    def __init__(self, name: str, place: Path) -> None:
        self.name = name
        self.directory = place / name
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.process = start(name, self.directory, subprocess.PIPE)
        self.answer()

    def ask(self, *command: Any) -> Any:
        self.tell(*command)
        return self.answer()

    def tell(self, *command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: {printed(self.name, self.directory)[-2000:]}")
        return json.loads(line)

    def kill(self) -> None:
        """Every process of the product at once; none can finish what it has begun. Once is enough."""
        if self.process.poll() is not None:
            return
        for pid in [self.process.pid, *processes.descendants(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def end(self) -> None:
        """As a script ends: with a word to the product, and then by itself, so that the product can tidy up."""
        self.ask("finish")
        mine = [(pid, processes.start_time(pid)) for pid in processes.descendants(self.process.pid)]
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        for pid, started in mine:
            if started is not None and processes.alive(pid, started):
                os.kill(pid, signal.SIGKILL)


def start(name: str, directory: Path, stdin: Any, *more: str) -> subprocess.Popen[str]:
    elsewhere = directory.parent / f"{name}-elsewhere"  # products write into the working directory, too
    elsewhere.mkdir(exist_ok=True)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SHOAL_", "WANDB_", "MLFLOW_"))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env |= {"PYTHONPATH": str(ROOT), "HOME": str(elsewhere)}
    with open(directory.parent / f"{name}.log", "w") as log:
        return subprocess.Popen(
            [str(environment("peers")), "-P", "-m", "tests.benchmarks.peers.worker", name, str(directory), *more],
            stdin=stdin, stdout=subprocess.PIPE, stderr=log, text=True, cwd=elsewhere, env=env, start_new_session=True,
        )  # fmt: skip


def printed(name: str, directory: Path) -> str:
    return (directory.parent / f"{name}.log").read_text()


def ask(name: str, directory: Path, *question: str) -> Any:
    """What a new process answers about the store in a directory: `recovered`, `listing RUNS`, `chart POINTS`."""
    directory.mkdir(parents=True, exist_ok=True)
    output, _ = start(name, directory, subprocess.DEVNULL, *question).communicate()
    if not output:
        raise RuntimeError(f"{name}: {printed(name, directory)[-2000:]}")
    return json.loads(output)


class Watch:
    """When bytes or rows of a store appeared, seen from outside and without touching the writer."""

    def __init__(self, name: str, directory: Path) -> None:
        self.adapter = adapter(name)
        self.directory = str(directory)
        self.seen: list[tuple[float, Any]] = []

    def look(self) -> None:
        now = time.time()
        if self.adapter.WATCH == "files":
            found: Any = {path: os.stat(path).st_size for path in self.adapter.files(self.directory)}
        else:
            found = self.adapter.rows(self.directory) if self.adapter.WATCH == "rows" else None
        if found and (not self.seen or self.seen[-1][1] != found):
            self.seen.append((now, found))

    def last(self) -> float:
        """When something appeared last."""
        return self.seen[-1][0] if self.seen else 0.0

    def files(self, records: Iterable[tuple[str, int, int]]) -> list[tuple[float, int]]:
        """(time, points) of each record of the files: when the file had grown to its end."""
        found, place = [], 0
        for path, end, points in records:  # in the order in which they were written
            while place + 1 < len(self.seen) and self.seen[place][1].get(path, 0) < end:
                place += 1
            found.append((self.seen[place][0], points))
        return found

    def rows(self, points: int) -> list[tuple[float, int]]:
        """(time, points) of each look that found more rows, of so many points each."""
        found, before = [], 0
        for when, rows in self.seen:
            found.append((when, (rows - before) * points))
            before = rows
        return found


def size(directory: Path) -> int:
    """Bytes of all files, links not followed."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def versions() -> str:
    """Of all products, as they are installed."""
    listed = (environment("peers").parent.parent / "complete").read_text().splitlines()
    pins = dict(line.split("==") for line in listed if "==" in line)
    found = [f"{name} {version}" for name, version in pins.items() if name.lower() in NAMES]
    return ", ".join([f"shoal {__version__}", *found])
