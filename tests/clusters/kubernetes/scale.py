"""One experiment of many replicas on hollow nodes, from submit to stop: what it asks of the API server.

    python -m tests.clusters.kubernetes.scale         measures, and writes docs/reference/kubernetes-scale.md

`make bench-clusters` runs it. It needs what the tests on a cluster need.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.backends.backend import Launch, Observation
from shoal.backends.kubernetes.backend import KubernetesBackend
from shoal.backends.kubernetes.settings import settings
from shoal.backends.kubernetes.turns import MOST
from shoal.engine.submission import policy_of
from shoal.launcher.archive import archive
from shoal.launcher.logfile import LogWriter
from shoal.launcher.shipping import Mirror
from shoal.launcher.sinks import StdoutSink
from shoal.plan import plan
from shoal.sources import Source
from shoal.spec import interpret
from shoal.store import logs
from tests.benchmarks.pages import write_page
from tests.clusters.kubernetes.binaries import KUBERNETES, KWOK
from tests.clusters.kubernetes.cluster import running
from tests.clusters.kubernetes.conftest import Namespace, new_namespace
from tests.clusters.kubernetes.hollow import Hollow, nodes
from tests.environments import CannotMake

FEW, MANY, NODES = 25, 500, 10
OBSERVATIONS = 100
PATIENCE = 400.0


@dataclass
class Part:
    """What one part of the experiment's life took."""

    seconds: float
    calls: Counter[str]

    @property
    def made(self) -> dict[str, int]:
        return {what: count for what, count in self.calls.items() if what.startswith("POST ")}


@dataclass
class Figures:
    replicas: int
    parts: dict[str, Part] = field(default_factory=dict)
    milliseconds: float = 0.0  # of one observation


def measure(namespace: Namespace, hollow: Hollow, place: Path, replicas: int) -> Figures:
    """Submits an experiment, sees it run, reads a line of each replica, stops it, and waits until nothing is left."""
    hollow.log.write_text("")
    tape = Tape(hollow, place / f"tape-{replicas}")
    tape.write(b"hello\n")
    experiment = Experiment(namespace, hollow, place, replicas)
    found = Figures(replicas)
    seen: Counter[str] = Counter()
    start = time.monotonic()

    def part(name: str) -> None:
        nonlocal seen, start
        calls, now = Counter(experiment.backend.api.calls), time.monotonic()
        found.parts[name] = Part(now - start, calls - seen)
        seen, start = calls, now

    try:
        experiment.submit()
        experiment.until("are created", lambda: experiment.created)
        part("submit")
        experiment.until("run", lambda: experiment.states() == {"running": replicas})
        part("start")
        for _ in range(OBSERVATIONS):
            experiment.observe()
        found.milliseconds = (time.monotonic() - start) / OBSERVATIONS * 1000
        part("observe")
        tape.write(b"and on\n")
        experiment.until("have printed", lambda: experiment.printed() == {(b"hello", b"and on"): replicas})
        part("print")
        tape.end()
        experiment.stop()
        experiment.until("have stopped", lambda: experiment.observe().outcome is not None)
        part("stop")
        assert experiment.states() == {"stopped": replicas}
        experiment.until("are gone", lambda: not namespace.items("pods") and not namespace.items("jobs"))
        part("clean up")
    finally:
        experiment.backend.close()
    return found


class Experiment:
    """Many workers and nothing to do."""

    def __init__(self, namespace: Namespace, hollow: Hollow, place: Path, replicas: int) -> None:
        config = tomllib.loads(namespace.config() + hollow.config())
        self.replicas = replicas
        self.home = place / f"home-{replicas}"
        self.home.mkdir()
        self.backend = KubernetesBackend(
            self.home,
            settings("lab", config["clusters"]["lab"], place / "config.toml"),
            archive=archive(str(self.home / "launcher")),
        )
        text = (
            "framework: none\nrun: {cmd: train}\n"
            f"environment: {{replicas: {{master: false, n_workers: {replicas}}}}}\n"
        )
        planned = plan(interpret([Source("scale.yml", text)]).spec)
        self.launch = Launch(f"e{replicas:05}", f"{replicas:032x}", 0, planned, policy_of(planned), "")
        self.handle = ""

    def submit(self) -> None:
        self.handle = self.backend.submit(self.backend.render(self.launch, self.backend.probe()))

    @property
    def created(self) -> bool:
        return (self.backend.directory(self.handle) / "created.json").exists()

    def observe(self) -> Observation:
        return self.backend.observe([self.handle])[self.handle]

    def states(self) -> dict[str, int]:
        return dict(Counter(status.state for status in self.observe().statuses))

    def printed(self) -> dict[tuple[bytes, ...], int]:
        """Lines -> how many replicas have printed them."""
        directory = self.backend.directory(self.handle)
        places = [directory / f"worker-{number}" / "try-0" / "log" for number in range(self.replicas)]
        return dict(Counter(tuple(line.text for line in logs.lines(place)) for place in places if place.exists()))

    def stop(self) -> None:
        self.backend.stop(self.handle, "enough", 30.0)

    def until(self, what: str, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not all {what}: {self.states()}, {self.observe().unreachable}"
            time.sleep(0.1)


class Tape:
    """What a real launcher would print: its log and its end, for all pods at once."""

    def __init__(self, hollow: Hollow, place: Path) -> None:
        place.mkdir()
        self.hollow = hollow
        self.place = place
        self.log = LogWriter(str(place / "log"))
        self._descriptor = os.open(place / "printed", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self._mirror = Mirror(str(place), StdoutSink(self._descriptor))
        self._told = 0

    def write(self, data: bytes) -> None:
        self.log.write(1, data, time.time())
        self.log.flush(time.time())
        self._tell()

    def end(self) -> None:
        now = time.time()
        self.log.close(now)
        ending = {"exit_code": 143, "signal": "SIGTERM", "reason": "", "stopped": True, "started": now, "finished": now}
        (self.place / "exit.json").write_text(json.dumps(ending))
        self._mirror.carry()
        self._mirror.close()
        self._tell()
        os.close(self._descriptor)

    def _tell(self) -> None:
        self._mirror.carry()
        data = os.pread(self._descriptor, 1 << 20, self._told)
        self._told += len(data)
        self.hollow.prints(data.decode().splitlines())


SAID = {
    "submit": "until all objects are made",
    "start": "until all replicas are seen to run",
    "observe": f"{OBSERVATIONS} observations",
    "print": "until a new line of each replica is here",
    "stop": "until all have ended and are recorded",
    "clean up": "until nothing is left in the namespace",
}


def page(place: Path) -> str:
    """What was measured, as a page."""
    with running() as cluster, new_namespace(cluster, place) as namespace, nodes(cluster, place, NODES) as hollow:
        few, many = (measure(namespace, hollow, place, replicas) for replicas in (FEW, MANY))
    rows = [
        f"| {name}: {said} | {_calls(few.parts[name])} | {_calls(many.parts[name])} "
        f"| {few.parts[name].seconds:.1f} s | {many.parts[name].seconds:.1f} s |"
        for name, said in SAID.items()
    ]
    lines = [
        "# What many replicas ask of the API server",
        "",
        f"Written by `make bench-clusters`: shoal {__version__}, Kubernetes {KUBERNETES}. One experiment of {FEW}",
        f"replicas and one of {MANY}, natively, with the `stdout` sink. API server, etcd, scheduler, Job controller",
        f"and garbage collector are real and share {os.cpu_count()} cores with Shoal: most of the time is theirs.",
        f"The {NODES} nodes are hollow: kwok {KWOK} plays their kubelets.",
        "",
        f"| what | calls, {FEW} replicas | calls, {MANY} replicas | time, {FEW} | time, {MANY} |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"One observation of {MANY} replicas takes {many.milliseconds:.2f} ms and asks nothing: what the watch told is",
        "kept. To submit and to stop take one call for each replica. The rest does not grow with them: one list, one",
        "watch, one delete of the anchor that owns everything. Logs are read by one connection each; where there are",
        f"more replicas than connections ({MOST}), they take turns, and each turn is a call. A test holds it to that.",
        "",
    ]
    return "\n".join(lines)


def _calls(part: Part) -> str:
    named = [(re.sub(r"/api/v1/namespaces/\S+", "namespace", what), count) for what, count in part.calls.most_common()]
    return ", ".join(f"{count} {what}" for what, count in named) or "none"


if __name__ == "__main__":
    try:
        write_page("kubernetes-scale.md", page)
    except CannotMake as error:
        sys.exit(f"error: {error}")
