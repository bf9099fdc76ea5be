"""What tracking costs, beside the peers in the same run. `make bench` runs it and writes the page.

    python -m tests.benchmarks.tracking

Every product runs in the same interpreter, with its own defaults, and is given the same work. Rounds of all of them are
interleaved, so that a slow moment of the machine hits each alike. What is durable is shown by killing every process of
the product and counting what a new one finds.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import tracking_store
from tests.benchmarks.pages import write_page
from tests.benchmarks.peers.running import NAMES, Watch, Worker, adapter, ask, size, versions
from tests.environments import CannotMake, environment

ROUNDS = 5
CALLS, CALL_SECONDS, WARM = 4000, 0.6, 200
STEPS, STEP_SECONDS = 800, 0.8
# Calls of ten scalars for the throughput: a few seconds each.
DURABLE = {"shoal": 200_000, "tensorboardx": 4_000, "aim": 2_000, "wandb": 10_000, "trackio": 40_000, "mlflow": 200}
PATIENCE = 60.0
QUIET = 1.0  # seconds without a new byte, after which it is counted whether nearly all is there
MOST = 0.99  # of all points: what is left then waits for the next call or for a timer
SERIES, LENGTH = 10, 10_000


def page(place: Path) -> str:
    load = [os.getloadavg()[0]]
    costs, slow = of_the_caller(place / "calls")
    durable = all_durable(place / "durable")
    with ThreadPoolExecutor(2) as pool:  # no time is taken here
        sizes = dict(zip(NAMES, pool.map(lambda name: bytes_per_point(name, place / "bytes"), NAMES), strict=True))
    load.append(os.getloadavg()[0])
    reads = tracking_store.reads(place / "reads")
    return "\n".join(
        [
            "# Tracking, beside others",
            "",
            f"Written by `make bench`: {versions()}; Python {python_version()}, {os.cpu_count()} cores, "
            f"{platform.machine()}. All in the same run, each product with its own defaults, medians of {ROUNDS} "
            f"interleaved rounds. The load of the machine was {load[0]:.1f} before and {load[1]:.1f} in its midst; "
            f"where it is more than {os.cpu_count()}, others worked there too, and times on the clock tell little.",
            "",
            *call_table(costs),
            *slow_table(slow),
            *durable_table(durable),
            *size_table(sizes),
            *reads,
        ]
    )


# What the caller feels


class Cost(NamedTuple):
    p50: float  # seconds
    p99: float


class Slower(NamedTuple):
    """Of each round: how much longer a step takes that logs, and what logging takes by itself as a part of a step."""

    clock: list[float]
    alone: list[float]


def of_the_caller(place: Path) -> tuple[dict[str, dict[int, Cost]], dict[str, Slower]]:
    """Per product: {scalars: cost of one call}, and how much slower a step of a millisecond is."""
    names = ("nothing", *NAMES)
    workers = {name: Worker(name, place) for name in names}
    calls: dict[str, dict[int, list[int]]] = {name: {1: [], 10: []} for name in names}
    slower = {name: Slower([], []) for name in names}
    try:
        turns = workers["nothing"].ask("calibrate")
        for number in range(ROUNDS + 1):
            for name, worker in workers.items():
                for scalars, times in calls[name].items():
                    most = CALLS if number else WARM  # the first round warms everything
                    found = worker.ask("calls", scalars, most, CALL_SECONDS)
                    times += found if number else []
                without, logging, alone = worker.ask("steps", turns, STEPS if number else 10, STEP_SECONDS)
                if number:
                    slower[name].clock.append(logging / without - 1)
                    slower[name].alone.append(alone / without)
        for worker in workers.values():
            worker.end()
    finally:
        for worker in workers.values():
            worker.kill()
    costs = {name: {scalars: cost(times) for scalars, times in mine.items()} for name, mine in calls.items()}
    return costs, slower


def cost(times: list[int]) -> Cost:
    ordered = sorted(times)
    return Cost(ordered[len(ordered) // 2] / 1e9, ordered[int(len(ordered) * 0.99)] / 1e9)


def call_table(costs: dict[str, dict[int, Cost]]) -> list[str]:
    peers = [name for name in NAMES if name != "shoal"]
    p50, p99 = (
        [min(costs[name][n][place] for name in peers) / costs["shoal"][n][place] for n in (1, 10)] for place in (0, 1)
    )
    return [
        "## One call of `log`, on the thread that calls",
        "",
        "With a tenth of a millisecond of other work between two calls.",
        "",
        "| | 1 scalar, p50 | p99 | 10 scalars, p50 | p99 |",
        "|---|---|---|---|---|",
        *[
            f"| {title(name)} | " + " | ".join(f"{micro(c.p50)} | {micro(c.p99)}" for c in mine.values()) + " |"
            for name, mine in costs.items()
        ],
        "",
        f"The best peer takes {p50[0]:.1f}× as long for one scalar and {p50[1]:.1f}× for ten (p99: {p99[0]:.1f}× and "
        f"{p99[1]:.1f}×); the goal is 5×.",
        "",
    ]


def slow_table(slow: dict[str, Slower]) -> list[str]:
    return [
        "## A training step of 1 ms that logs 10 scalars",
        "",
        "The step is arithmetic in Python, which leaves no moment in which another thread could work for free.",
        "",
        "On the clock: a step with logging against one without, in turns; a machine that does other things too moves",
        "it by more than logging does. By itself: the time in the calls and what other threads of the process use of a",
        "core for them, as a part of the step; other processes of a product are not in it.",
        "",
        "| | by itself | in the rounds | on the clock | in the rounds |",
        "|---|---|---|---|---|",
        *[f"| {title(name)} | {spread(found.alone)} | {spread(found.clock)} |" for name, found in slow.items()],
        "",
        "The goal is less than 2 %. The first row is the noise.",
        "",
    ]


# Points per second


class Durable(NamedTuple):
    points: int
    survived: int
    rate: float  # points per second until nearly all of them were safe; 0 when that was never so
    late: float | None  # seconds from the last call to the last point; None when it was not waited for


def all_durable(place: Path) -> dict[str, Durable]:
    """Each product once; Shoal and the best peer twice more in turns, and the median of these."""
    found = {name: [until_durable(name, place)] for name in NAMES}
    best = max((name for name in NAMES if name != "shoal"), key=lambda name: found[name][0].rate)
    for _ in range(2):
        for name in ("shoal", best):
            found[name].append(until_durable(name, place))
    return {name: sorted(mine, key=lambda entry: entry.rate)[len(mine) // 2] for name, mine in found.items()}


def until_durable(name: str, place: Path) -> Durable:
    """Logs, watches the store from outside, kills everybody, and counts."""
    worker = Worker(name, place)
    watch = Watch(name, worker.directory)
    try:
        worker.tell("points", DURABLE[name])
        started, returned = wait(worker, watch)
        deadline = time.time() + PATIENCE
        while time.time() < deadline and not nearly_all(name, worker, watch):
            time.sleep(0.002)
    finally:
        worker.kill()
    left = ask(name, worker.directory, "recovered")
    total = DURABLE[name] * 10
    if watch.adapter.WATCH == "return":
        return Durable(total, left, left / (returned - started), 0.0)
    if watch.adapter.WATCH == "rows":
        appeared, survived = watch.rows(10), left
    else:
        appeared, survived = watch.files(left), sum(points for _, _, points in left)
    rate, whole = 0.0, 0
    for when, points in appeared:
        whole += points
        if whole >= MOST * total:
            rate = whole / (when - started)
            break
    late = max(0.0, appeared[-1][0] - returned) if survived == total else None
    return Durable(total, survived, rate, late)


def nearly_all(name: str, worker: Worker, watch: Watch) -> bool:
    """Whether the store has (nearly) all points, and no more come for a while."""
    watch.look()
    if watch.adapter.WATCH == "return":
        return True
    if watch.adapter.WATCH == "rows":
        return bool(watch.seen and watch.seen[-1][1] >= DURABLE[name])
    if time.time() - watch.last() < QUIET:
        return False
    found = sum(points for _, _, points in ask(name, worker.directory, "recovered"))
    return found >= MOST * DURABLE[name] * 10


def wait(worker: Worker, watch: Watch) -> tuple[float, float]:
    """When the first call was made and the last returned; the store is watched meanwhile."""
    import select

    assert worker.process.stdout is not None
    while not select.select([worker.process.stdout], [], [], 0.002)[0]:
        watch.look()
    started, returned = worker.answer()
    return started, returned


def durable_table(found: dict[str, Durable]) -> list[str]:
    best = max(entry.rate for name, entry in found.items() if name != "shoal")
    return [
        "## Points per second until they are safe",
        "",
        "Calls of ten scalars without a pause. Safe is what a new process finds after every process of the product was",
        f"killed with SIGKILL. The rate counts until {MOST * 100:.0f} % of the points are safe. Shoal and the best",
        "peer ran three times in turns; the median is shown.",
        "",
        "| | safe is | points per second | found after the kill | the last point was safe |",
        "|---|---|---|---|---|",
        *[
            f"| {title(name)} | {adapter(name).DURABLE} | {entry.rate:,.0f} | {entry.survived:,} of {entry.points:,} | "
            f"{'later than was waited for' if entry.late is None else f'{entry.late:.2f} s after its call'} |"
            for name, entry in found.items()
        ],
        "",
        f"Shoal's rate is {found['shoal'].rate / best:.1f}× the best peer's; the goal is 10×.",
        "",
    ]


# Bytes


def bytes_per_point(name: str, place: Path) -> float:
    worker = Worker(name, place)
    try:
        worker.ask("fill", LENGTH)
        worker.end()
    finally:
        worker.kill()
    if name == "shoal":
        return tracking_store.compacted(worker.directory) / (SERIES * LENGTH)
    ask(name, worker.directory, "compact")
    return size(worker.directory) / (SERIES * LENGTH)


def size_table(sizes: dict[str, float]) -> list[str]:
    return [
        f"## Bytes per point, {SERIES} series of {LENGTH:,} steps",
        "",
        "All files after the end: for Shoal the whole database of a new home and what is left of the run's directory.",
        "",
        "| | bytes per point |",
        "|---|---|",
        *[f"| {title(name)} | {found:.1f} |" for name, found in sizes.items()],
        "",
        "The goal is at most 16.",
        "",
    ]


def title(name: str) -> str:
    return str(getattr(adapter(name), "TITLE", "nothing, the measuring itself"))


def spread(shares: list[float]) -> str:
    """The median, and from the least to the most."""
    return f"{statistics.median(shares) * 100:.1f} % | {min(shares) * 100:.1f} … {max(shares) * 100:.1f} %"


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-5 else f"{seconds * 1e6:,.0f} µs"


def python_version() -> str:
    import subprocess

    code = "import platform; print(platform.python_version())"
    return subprocess.run([environment("peers"), "-c", code], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    try:
        environment("peers")
    except CannotMake as error:
        sys.exit(f"peers cannot be measured: {error}")
    write_page("tracking-benchmarks.md", page)
