"""Runs an experiment file with nothing but subprocesses: proves the examples apart from the launcher.

    python tests/by_hand.py examples/pytorch/experiment.yml --python PATH

Addresses are on loopback. Exit code 0: every replica that decides has succeeded.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from shoal.frameworks import PS, Run, environment
from shoal.plan import plan, topology
from shoal.spec import load


def run(
    file: str, python: Path, home: Path, data: str = "", stagger: float = 0, patience: float = 300
) -> dict[str, int]:
    """The exit code of each replica; negative for the signal that ended it."""
    document = load([file])
    planned = plan(document.spec)
    code = (document.directory or Path()) / str(document.spec.code)
    ports = free_ports(len(planned.replicas))
    peers = topology(planned, lambda replica: ("127.0.0.1", ports[replica.rank]))
    processes: dict[str, subprocess.Popen[str]] = {}
    printers = []
    # In any order: a script must not count on the others being there before it.
    for replica in random.sample(planned.replicas, len(planned.replicas)):
        own = home / replica.name
        own.mkdir(parents=True)
        about = Run(
            "e00000", planned.name, 0, 0, planned.params, str(home), str(own), data, str(own), planned.log_level
        )
        variables = {
            **os.environ,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            **planned.env_vars,
            **environment(planned.framework, peers, peers.tasks[replica.rank], about),
        }
        process = subprocess.Popen(
            ["bash", "-c", planned.command],
            cwd=code,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        processes[replica.name] = process
        printers.append(threading.Thread(target=show, args=(replica.name, process)))
        printers[-1].start()
        time.sleep(stagger)
    try:
        wait(processes, {r.name for r in planned.replicas if r.decides}, time.monotonic() + patience)
        wait(processes, {r.name for r in planned.replicas if r.role != PS}, time.monotonic() + planned.grace.finish)
    finally:
        stop(processes)
    for printer in printers:
        printer.join()
    return {replica.name: processes[replica.name].returncode for replica in planned.replicas}


def free_ports(count: int) -> list[int]:
    """Below the range the kernel takes outgoing ports from, where nobody else's connection can sit on one."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


def show(name: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(f"{name} | {line.rstrip()}\n")  # in one piece: print would write the end apart


def wait(processes: dict[str, subprocess.Popen[str]], names: set[str], deadline: float) -> None:
    """Returns when the named have ended, one of all has failed, or time is up."""
    while time.monotonic() < deadline:
        codes = {name: process.poll() for name, process in processes.items()}
        if any(codes.values()) or all(codes[name] is not None for name in names):
            return
        time.sleep(0.05)


def stop(processes: dict[str, subprocess.Popen[str]]) -> None:
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        living = [process for process in processes.values() if process.poll() is None]
        for process in living:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + seconds
        for process in living:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="whose bin comes first in PATH")
    parser.add_argument("--data", default="", help="SHOAL_DATA")
    parser.add_argument("--stagger", type=float, default=0, help="seconds between two starts")
    chosen = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        codes = run(chosen.file, chosen.python, Path(home), chosen.data, chosen.stagger)
        outputs = sorted(str(p.relative_to(home)) for p in Path(home).rglob("*") if p.is_file())
    print(f"{time.monotonic() - start:.1f}s  {codes}  outputs: {outputs}")
    deciders = {replica.name for replica in plan(load([chosen.file]).spec).replicas if replica.decides}
    return 0 if all(codes[name] == 0 for name in deciders) else 1


if __name__ == "__main__":
    sys.exit(main())
