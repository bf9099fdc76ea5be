"""How long it takes to launch replicas that do nothing and to wait for their ends; beside others, in the same run.

    bare processes     N interpreters, started and waited for
    torchrun           one node, N processes
    torchx             -s local_cwd, when it can be installed
    shoal, warm        `shoal run` with a server that lives
    shoal, cold        `shoal run` that has to start the server

Rounds are interleaved and medians taken; ratios tell more than times. Also: how long a printed line takes until
`shoal logs -f` shows it, and what an idle server costs.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shoal import __version__
from shoal.client import Client
from tests.benchmarks.pages import write_page
from tests.environments import CannotMake, environment
from tests.running import SHOAL

ROUNDS = 7

FILE = "framework: none\nrun: {cmd: '%s -c pass'}\nenvironment: {replicas: {n_workers: %d, master: false}}\n"


def page(place: Path) -> str:
    four = measure(candidates(place, 4), ROUNDS)
    of_many = candidates(place, 64)
    many = measure({name: of_many[name] for name in ("bare processes", "shoal, warm")}, 3)
    p50, p99 = latency(place)
    cpu, resident = idle()
    lines = [
        "# Launching",
        "",
        f"Written by `make bench`: shoal {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"median of {ROUNDS} interleaved rounds. Replicas run an interpreter that does nothing.",
        "",
        "Aims: 4 replicas at least 4 times faster than torchrun with the server warm, twice with it cold;",
        "64 replicas within 6 times of bare processes.",
        "",
        "| 4 replicas | time | torchrun's time is |",
        "|---|---|---|",
        *[
            f"| {name} | {took:.2f} s | {four['torchrun'] / took:.1f}× |"
            for name, took in four.items()
            if "torchrun" in four
        ],
        "",
        "| 64 replicas | time | ratio to bare processes |",
        "|---|---|---|",
        *[f"| {name} | {took:.2f} s | {took / many['bare processes']:.1f}× |" for name, took in many.items()],
        "",
        f"A printed line is shown by `shoal logs -f` after {p50 * 1000:.0f} ms (p50), {p99 * 1000:.0f} ms (p99).",
        "",
        f"An idle server uses {cpu * 100:.2f} % of one core and {resident:.0f} MiB of memory.",
    ]
    return "\n".join(lines) + "\n"


def candidates(place: Path, count: int) -> dict[str, Callable[[], None]]:
    file = place / f"{count}.yml"
    file.write_text(FILE % (sys.executable, count))
    nothing = place / "nothing.py"
    nothing.write_text("")

    def bare() -> None:
        for process in [subprocess.Popen([sys.executable, "-c", "pass"]) for _ in range(count)]:
            process.wait()

    def shoal() -> None:
        quiet(SHOAL, "run", str(file))

    def cold() -> None:
        quiet(SHOAL, "server", "stop")
        home = Path(os.environ["SHOAL_HOME"])
        while subprocess.run([SHOAL, "server", "status"], capture_output=True).returncode == 0 and home.exists():
            time.sleep(0.05)

    found: dict[str, Callable[[], None]] = {
        "bare processes": bare,
        "shoal, warm": shoal,
        "shoal, cold": Prepared(cold, shoal),
    }
    try:
        torch, torchx = environment("pytorch").parent, environment("torchx").with_name("torchx")
        found["torchrun"] = lambda: quiet(str(torch / "torchrun"), "--nproc-per-node", str(count), str(nothing))
        torchx_run = f"PATH={torch}:$PATH {torchx} run -s local_cwd dist.ddp -j 1x{count} --script {nothing.name}"
        found["torchx -s local_cwd"] = lambda: quiet("bash", "-c", f"cd {place} && {torchx_run}")
    except CannotMake as error:
        print(f"peers are not measured: {error}", file=sys.stderr)
    return found


class Prepared:
    """A candidate that needs something done before its time is taken."""

    def __init__(self, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        self.prepare = prepare
        self.run = run

    def __call__(self) -> None:
        self.run()


def measure(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            if isinstance(run, Prepared):
                run.prepare()
            started = time.perf_counter()
            run()
            if number:  # the first round warms caches
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def latency(place: Path) -> tuple[float, float]:
    """From the print in a replica to the line on the terminal of who follows."""
    printer = "import time\nfor _ in range(300):\n    print(time.time(), flush=True)\n    time.sleep(0.02)\n"
    (place / "printer.py").write_text(printer)
    (place / "latency.yml").write_text(f"run: {{cmd: '{sys.executable} printer.py'}}\n")
    word = subprocess.run(
        [SHOAL, "run", "--detach", str(place / "latency.yml")], capture_output=True, text=True, check=True
    ).stdout.strip()
    follower = subprocess.Popen([SHOAL, "logs", "-f", word], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    delays = [time.time() - float(line.rpartition(" ")[2]) for line in follower.stdout]
    follower.wait()
    steady = sorted(delays[50:])  # the follower started later than the printer
    return steady[len(steady) // 2], steady[int(len(steady) * 0.99)]


def idle() -> tuple[float, float]:
    pid = int(Client().server()["pid"])

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(5)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK") / 5
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return used, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def quiet(*command: str) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    write_page("launching.md", page)
