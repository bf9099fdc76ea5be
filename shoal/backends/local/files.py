"""What lies in the directory of an attempt, and who writes it. Standard library only: the shepherd loads it.

request.json     the engine: what to run. 0600: it holds the variables of the experiment file
shepherd.json    the shepherd: its pid, its start time, the machine's boot id
states.jsonl     the shepherd: every change of a replica, one JSON object a line
stop.json        the engine: a wish to stop, and how long to wait
result.json      the shepherd, or whoever cleans up after it: how the attempt ended
<replica>/try-K/ the launcher: log, streams, exit.json
"""

from __future__ import annotations

import json
import os
from typing import Any

REQUEST, SHEPHERD, STATES, STOP, RESULT = "request.json", "shepherd.json", "states.jsonl", "stop.json", "result.json"
RESUME = "resume.json"  # beside the attempts: the checkpoint of another experiment that this one goes on from
WAKE = "wake.sock"  # in the home: a datagram tells the server to look
WAITING = "waiting"  # in the home: exists while experiments wait in the queue
SERVER_LOCK = "server.lock"  # in the home: locked while a server lives


def try_directory(attempt: str, replica: str, try_: int) -> str:
    return os.path.join(attempt, replica, f"try-{try_}")


def read_states(attempt: str) -> list[dict[str, Any]]:
    """Every whole line of states.jsonl; a torn last line is not there yet."""
    try:
        with open(os.path.join(attempt, STATES), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def experiment_environment(attempt: str) -> str:
    """The caller's environment: kept beside the attempts, 0600, while the experiment is not over."""
    return os.path.join(os.path.dirname(attempt), "environment.json")


def server_lives(home: str) -> bool:
    """Whether a server holds the home's lock."""
    import fcntl

    try:
        descriptor: int | None = os.open(os.path.join(home, SERVER_LOCK), os.O_RDWR)
    except FileNotFoundError:
        return False
    assert descriptor is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
