"""Running experiments in tests: the real command in real processes, and what can be asked of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.client import Client
from shoal.home import read_server
from shoal.launcher import processes

SHOAL = str(Path(sys.executable).with_name("shoal"))
PATIENCE = 120.0


def shoal(
    *arguments: str, cwd: Path | None = None, text: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """The command, run to its end, without a terminal."""
    return subprocess.run(
        [SHOAL, *arguments],
        cwd=cwd,
        input=text,
        stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **env},
    )


def show(word: str) -> Any:
    """What `shoal show --json` prints."""
    return Client().show(word)


def submit(place: Path, text: str, *options: str) -> str:
    """Starts an experiment in the background; its id."""
    file = place / "experiment.yml"
    file.write_text(text)
    result = shoal("run", "--detach", *options, str(file))
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def until(condition: Callable[[], Any], what: str = "it", patience: float = PATIENCE) -> Any:
    """Waits for a condition; what it gave."""
    deadline = time.monotonic() + patience
    pause = 0.005
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    raise AssertionError(f"{what} did not happen within {patience:g} s")


def finished(word: str) -> Any:
    """The experiment, once it is over."""

    def over() -> Any:
        found = show(word)
        return found if found["state"] in ("succeeded", "failed", "stopped") else None

    return until(over, f"the end of {word}")


def running(word: str) -> Any:
    """The experiment, once all of its replicas run."""

    def all_run() -> Any:
        found = show(word)
        return found if all(replica["state"] == "running" for replica in found["replicas"]) else None

    return until(all_run, f"the start of {word}")


def lines_of(word: str, replica: str | None = None) -> list[str]:
    """What was printed, without who printed it."""
    return [line["text"] for line in Client().logs(word, replica=replica)]


def attempt_directory(home: Path, word: str, attempt: int = 0) -> Path:
    return home / "experiments" / word / f"attempt-{attempt}"


def shepherd_of(home: Path, word: str, attempt: int = 0) -> Any:
    """{pid, twin, …}, once the shepherd has written them."""
    file = attempt_directory(home, word, attempt) / "shepherd.json"
    return until(lambda: json.loads(file.read_text()) if file.exists() else None, "a shepherd")


def launchers_of(home: Path, word: str, attempt: int = 0) -> dict[str, int]:
    """replica -> pid of its launcher, once all have started."""
    directory = attempt_directory(home, word, attempt)
    request = json.loads((directory / "request.json").read_text())

    def all_there() -> dict[str, int] | None:
        file = directory / "states.jsonl"
        text = file.read_text() if file.exists() else ""
        entries = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        found = {entry["replica"]: entry["launcher"] for entry in entries if "launcher" in entry}
        return found if len(found) == len(request["replicas"]) else None

    found: dict[str, int] = until(all_there, "the launchers")
    return found


def command_of(home: Path, word: str, replica: str, attempt: int = 0) -> int:
    """The pid of the command itself: the launcher's first child. (Not the least number: numbers begin anew.)"""
    launcher = launchers_of(home, word, attempt)[replica]

    def first() -> int:
        children = [process for process in processes.table().values() if process.parent == launcher and process.alive]
        return min(children, key=lambda process: process.started).pid if children else 0

    return int(until(first, f"the command of {replica}"))


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def server_pid(home: Path) -> int:
    written = read_server(home)
    assert written is not None
    return int(written["pid"])


def left_running(home: Path) -> dict[int, str]:
    """Processes of experiments of this home that still live."""
    uids = [
        replica["uid"]
        for request in home.glob("experiments/*/attempt-*/request.json")
        for replica in json.loads(request.read_text())["replicas"]
    ]
    return {pid: uid for pid, uid in processes.marked_all().items() if uid in uids}


def living_shepherds(home: Path) -> list[tuple[int, int]]:
    """(shepherd, twin) of every attempt whose shepherd lives."""
    found = []
    for file in home.glob("experiments/*/attempt-*/shepherd.json"):
        written = json.loads(file.read_text())
        if processes.alive(written["pid"], written["start_time"]):
            found.append((written["pid"], written["twin"]))
    return found


def nothing_left(home: Path) -> None:
    """No process of an experiment lives, no shepherd, no twin."""
    until(lambda: not left_running(home), "the end of all processes")
    for file in home.glob("experiments/*/attempt-*/shepherd.json"):
        written = json.loads(file.read_text())
        for pid, start in ((written["pid"], "start_time"), (written["twin"], "twin_start_time")):
            until(lambda pid=pid, at=written[start]: not processes.alive(pid, at), f"the end of {file}")
