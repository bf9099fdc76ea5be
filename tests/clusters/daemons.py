"""Programs that run on after whoever started them: which they are, how they end, and waiting for what they do."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 180.0
PORTS = range(10000, 20000)  # below those that systems give to outgoing connections, and that Shoal gives to replicas


class DidNotStart(Exception):
    """Everything that is needed is there, and yet it did not come up: that is a failure, not a reason to skip."""


class LeftBehind(Exception):
    """Everything was ended, and something is still there."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at any address, for who binds them later: no outgoing connection is given them."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as holder, contextlib.suppress(OSError):
            holder.bind(("", port))
            found.append(port)
    raise DidNotStart(f"only {len(found)} of {count} ports are free between {PORTS[0]} and {PORTS[-1]}")


def until(what: str, condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise DidNotStart(f"kubernetes: {what} did not come up in {PATIENCE:g} s; see the logs of the cluster")
        time.sleep(0.2)


def start_time(pid: int) -> int | None:
    """With its pid, what tells a process from all others; None when it is over."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def end(known: list[int] | None) -> None:
    """Ends a process, given as [pid, start time], and waits for it. Silent when it is gone."""
    if not known or start_time(known[0]) != known[1]:
        return
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(known[0], number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(known[0], os.WNOHANG)
            if start_time(known[0]) != known[1]:
                return
            time.sleep(0.05)
