"""One process that tracks with one product, and does what the benchmark tells it, line by line.

    python -m tests.benchmarks.peers.worker NAME DIRECTORY

Each line of its input is a JSON list, a command with its arguments; each answer is a line of JSON. It runs in the
interpreter of the peers for every product, Shoal included.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.peers.curves import NAMES, curves, work

PAUSE = 100_000  # nanoseconds of work between two calls that are timed
SETTLE = 0.6  # seconds: what other threads have left to do is done by then


def main() -> None:
    name, directory = sys.argv[1:3]
    peer = importlib.import_module(f"tests.benchmarks.peers.{name}")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a product prints is no answer
    if len(sys.argv) > 3:  # one question to a store that nobody writes to
        question, *arguments = sys.argv[3:]
        questions = {"recovered": recovered, "compact": compact, "listing": listing, "chart": chart}
        print(json.dumps(questions[question](peer, directory, *map(int, arguments))), file=answers)
        return
    log = peer.start(directory)
    commands: dict[str, Callable[..., Any]] = {
        "calls": Calls(log),
        "steps": Steps(log),
        "points": lambda calls: until_durable(peer, log, calls),
        "fill": lambda steps: fill(peer, log, steps),
        "finish": peer.finish,
        "calibrate": calibrate,
    }
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(commands[command](*arguments)), file=answers)


def calibrate() -> int:
    """How many turns of work take a millisecond when nothing else runs."""
    times = []
    for _ in range(200):
        before = time.perf_counter()
        work(10_000)
        times.append(time.perf_counter() - before)
    return int(10_000 * 0.001 / min(times))


class Calls:
    """Nanoseconds of single calls, with a little work between them: nobody logs in an empty loop."""

    def __init__(self, log: Callable[..., Any]) -> None:
        self.log = log
        self.step = 0

    def __call__(self, names: int, calls: int, seconds: float) -> list[int]:
        log, clock = self.log, time.perf_counter_ns
        given = [{name: 0.1 * number + step for number, name in enumerate(NAMES[:names])} for step in range(calls)]
        times = []
        deadline = time.monotonic() + seconds
        for values in given:
            step = self.step = self.step + 1
            before = clock()
            log(values, step=step)
            after = clock()
            times.append(after - before)
            until = after + PAUSE
            while clock() < until:
                pass
            if time.monotonic() > deadline:
                break
        return times


class Steps:
    """Seconds of one training step without and with logging, one after the other in the same process; and what logging
    takes by itself: the time in the calls, and what other threads of the process use of a core, to the end of it."""

    def __init__(self, log: Callable[..., Any]) -> None:
        self.log = log
        self.step = 10_000_000

    def __call__(self, turns: int, steps: int, seconds: float) -> tuple[float, float, float]:
        without, _ = self.block(turns, steps, seconds, lambda values, step: None)
        others = used_by_others()
        logging, calls = self.block(turns, steps, seconds, self.log)
        time.sleep(SETTLE)
        return without, logging, calls + (used_by_others() - others) / self.done

    def block(self, turns: int, steps: int, seconds: float, log: Callable[..., Any]) -> tuple[float, float]:
        clock = time.perf_counter
        start, calls, self.done = clock(), 0.0, 0
        for number in range(steps):
            work(turns)
            self.step += 1
            values = dict.fromkeys(NAMES, number * 0.5)
            before = clock()
            log(values, step=self.step)
            after = clock()
            calls += after - before
            self.done += 1
            if after - start > seconds:
                break
        return (clock() - start) / self.done, calls / self.done


def used_by_others() -> float:
    """Seconds of a core that all threads but this one have used."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != threading.get_native_id():
            try:
                with open(f"/proc/self/task/{thread}/schedstat") as file:
                    total += int(file.read().split()[0])
            except OSError:  # it has ended
                continue
    return total / 1e9


def until_durable(peer: Any, log: Callable[..., Any], calls: int) -> list[float]:
    """When the first call was made and when the last returned. Afterwards it is asked to flush, if it can."""
    given = [{name: 0.1 * number + step for number, name in enumerate(NAMES)} for step in range(calls)]
    started = time.time()
    for step, values in enumerate(given):
        log(values, step=step)
    returned = time.time()
    if hasattr(peer, "flush"):
        threading.Thread(target=flush_again_and_again, args=[peer.flush], daemon=True).start()
    return [started, returned]


def flush_again_and_again(flush: Callable[[], None]) -> None:
    while True:
        flush()
        time.sleep(0.01)


def fill(peer: Any, log: Callable[..., Any], steps: int) -> None:
    """The curves, all steps of them."""
    data = curves(steps)
    if hasattr(peer, "fill"):
        peer.fill(data)
        return
    columns = list(data.values())
    for step, values in enumerate(zip(*columns, strict=True)):
        log(dict(zip(data, values, strict=True)), step=step)


def recovered(peer: Any, directory: str) -> Any:
    """What is left on disk: points, or [file, end, points] for each record of a file that is only appended to."""
    return peer.count(directory) if hasattr(peer, "count") else list(peer.points(directory))


def compact(peer: Any, directory: str) -> None:
    """Whatever makes the store of the product smaller, where it has such a thing."""
    if hasattr(peer, "compact"):
        peer.compact(directory)


def listing(peer: Any, directory: str, runs: int) -> float:
    """Seconds that the list of so many runs with their last metrics takes, in the product's own process."""
    ask = peer.listing(directory, runs)
    return median(ask, 3)


def chart(peer: Any, directory: str, points: int) -> float:
    """Seconds that a chart of one metric with so many points takes."""
    ask = peer.chart(directory, points)
    return median(ask, 3)


def median(ask: Callable[[], Any], times: int) -> float:
    taken = []
    for _ in range(times):
        before = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - before)
    return sorted(taken)[times // 2]


if __name__ == "__main__":
    main()
