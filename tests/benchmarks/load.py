"""What the server and the command line feel under load. `make bench` runs it and writes docs/reference/load.md.

200 experiments in the queue; 64 replicas that print as fast as they can; how long `shoal ls` takes meanwhile, how much
memory the server has, and whether a line is lost.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

from shoal import __version__
from shoal.client import Client
from tests.benchmarks.pages import write_page
from tests.running import SHOAL, finished, submit

QUEUED = 200
REPLICAS = 64
LINES = 200_000
CORES = len(os.sched_getaffinity(0))


def page(place: Path) -> str:
    rows = []
    go = place / "go"
    wait = f"framework: none\nrun: {{cmd: 'while [ ! -e {go} ]; do sleep 0.1; done'}}\n"
    hungry = wait + f"environment: {{resources: {{cpu: {{requests: {CORES}}}}}}}\n"
    client = Client()
    rows.append(("at rest", *felt()))
    started = time.monotonic()
    for _ in range(QUEUED):
        client.create([("queued.yml", hungry)], [], str(place), dict(os.environ))
    submitted = (time.monotonic() - started) / QUEUED
    rows.append((f"{QUEUED} experiments in the queue", *felt()))
    for entry in client.experiments(limit=1000):
        client.stop(entry["id"], 0.0)
    go.touch()
    finished("1")
    text = f"framework: none\nrun: {{cmd: 'seq {LINES}'}}\n"
    word = submit(place, text + f"environment: {{replicas: {{n_workers: {REPLICAS}, master: false}}}}\n")
    rows.append((f"{REPLICAS} replicas printing {LINES:,} lines each", *felt()))
    finished(word)
    rows.append(("afterwards", *felt()))
    counted = lines_kept(place / "home", word)
    return "\n".join(
        [
            "# Under load",
            "",
            f"Written by `make bench`: shoal {__version__}, Python {platform.python_version()}, {CORES} cores.",
            "",
            "| while | `shoal ls` takes | the server has |",
            "|---|---|---|",
            *[f"| {name} | {delay * 1000:.0f} ms | {memory:.0f} MiB |" for name, delay, memory in rows],
            "",
            f"Submitting one of {QUEUED} took {submitted * 1000:.0f} ms. Of {REPLICAS * LINES:,} printed lines "
            f"{counted:,} are in the logs.",
            "",
        ]
    )


def felt() -> tuple[float, float]:
    """How long `shoal ls` takes, and the server's memory in MiB."""
    delays = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([SHOAL, "ls"], stdout=subprocess.DEVNULL, check=True)
        delays.append(time.perf_counter() - started)
    pid = int(Client().server()["pid"])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return statistics.median(delays), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def lines_kept(home: Path, word: str) -> int:
    logs = (home / "experiments" / word).glob("attempt-0/*/try-0/log/[0-9]*[0-9]")
    return sum(path.read_bytes().count(b"\n") for path in logs)


if __name__ == "__main__":
    write_page("load.md", page)
