"""Chaos: seeded random kills of everybody over many experiments. `make chaos` runs 200; `make test` a short form.

    python -m tests.crash.chaos --experiments 200 --seed 7

Afterwards no process of an experiment lives, every experiment has a final state with a reason, and every line and exit
code that a replica noted in its own record, outside the home, is in Shoal's. There is one exception: where launcher,
shepherd and twin were killed before any of them could act, nobody is left who holds the replica's pipe, and its last
lines may be gone with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from shoal.client import Client
from shoal.errors import ShoalError
from shoal.home import read_server
from shoal.launcher import processes
from tests import running
from tests.conftest import clear

REPLICA = Path(__file__).with_name("chaos_replica.py")
AT_ONCE = 6
FINAL = ("succeeded", "failed", "stopped")


class Chaos:
    def __init__(self, place: Path, seed: int) -> None:
        self.home = place / "home"
        self.records = place / "records"
        self.records.mkdir(parents=True)
        self.work = place
        self.rng = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.dead: set[int] = set()
        self.gone = 0  # lines that nobody could have kept
        self.watching: list[subprocess.Popen[bytes]] = []

    def run(self, experiments: int) -> None:
        submitted = 0
        os.environ["SHOAL_HOME"] = str(self.home)
        while True:
            unfinished = self.unfinished()
            if submitted >= experiments and not unfinished:
                break
            while submitted < experiments and len(unfinished) < AT_ONCE:
                self.submit()
                submitted += 1
                unfinished = [*unfinished, submitted]
            # Towards the end nobody is killed any more: every experiment has to come to its end by itself.
            for _ in range(3 if submitted < experiments else 0):
                time.sleep(self.rng.random() * 0.1)
                self.kill_somebody()
        for process in self.watching:
            process.wait()

    def unfinished(self) -> list[Any]:
        while True:
            try:
                return [e for e in Client(self.home).experiments(limit=1000) if e["state"] not in FINAL]
            except ShoalError:
                continue  # killed while it answered

    def submit(self) -> None:
        rng = self.rng
        code = rng.choice([0, 0, 0, 5])
        policy = rng.choice(["never", "never", "experiment", "replica"])
        command = f"exec {sys.executable} {REPLICA} {self.records} {rng.randint(1, 150)} {code}"
        text = (
            f"framework: none\nrun: {{cmd: '{command}'}}\n"
            f"environment: {{replicas: {{n_workers: {rng.randint(1, 3)}, master: false}}}}\n"
            f"restart: {{policy: {policy}, max: 2}}\ngrace: {{stop: 3s}}\n"
        )
        file = self.work / f"{rng.random()}.yml"
        file.write_text(text)
        options = ["--detach"] if rng.random() < 0.7 else []
        process = subprocess.Popen(
            [running.SHOAL, "run", *options, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if options:
            process.wait()
        else:
            self.watching.append(process)

    def kill_somebody(self) -> None:
        kind = self.rng.choice(
            ["server", "shepherd", "twin", "both", "launcher", "launcher", "replica", "replica", "command line"]
        )
        for pid in self.victims(kind):
            try:
                os.kill(pid, signal.SIGKILL)
                self.killed[kind] += 1
                self.dead.add(pid)
            except ProcessLookupError:
                continue

    def victims(self, kind: str) -> list[int]:
        if kind == "server":
            written = read_server(self.home)
            return [written["pid"]] if written and is_ours(written["pid"], self.home) else []
        if kind == "command line":
            alive = [process.pid for process in self.watching if process.poll() is None]
            return [self.rng.choice(alive)] if alive else []
        if kind == "replica":
            marked = sorted(running.left_running(self.home))
            return [self.rng.choice(marked)] if marked else []
        shepherds = sorted(running.living_shepherds(self.home))
        if not shepherds:
            return []
        pid, twin = self.rng.choice(shepherds)
        if kind == "launcher":
            children = sorted(
                child for child in processes.descendants(pid) if child != twin and parent_of(child) == pid
            )
            return [self.rng.choice(children)] if children else []
        return {"shepherd": [pid], "twin": [twin], "both": [twin, pid]}[kind]

    def check(self) -> dict[str, int]:
        """Everything that has to hold afterwards; raises AssertionError where it does not."""
        running.nothing_left(self.home)
        client = Client(self.home)
        states: Counter[str] = Counter()
        lines = 0
        for summary in client.experiments(limit=1000):
            shown = client.show(summary["id"])
            states[shown["state"]] += 1
            assert shown["state"] in FINAL, shown
            assert shown["state"] == "succeeded" or shown["reason"], shown
            logged: dict[str, Counter[str]] = {}
            for line in client.logs(shown["id"]):
                key = f"{shown['id']}-{line['attempt']}-{line['replica']}-{line['try']}"
                logged.setdefault(key, Counter())[line["text"]] += 1
            ends = {
                f"{shown['id']}-{r['attempt']}-{r['replica']}-{r['try']}": r
                for r in [*shown["replicas"], *shown["history"]]
            }
            for record in self.records.glob(f"{shown['id']}-*"):
                lines += self.check_record(record, logged.get(record.name, Counter()), ends.get(record.name))
        return {**states, "lines": lines, "gone with all who held their pipe": self.gone}

    def check_record(self, record: Path, logged: Counter[str], end: Any) -> int:
        noted = record.read_text().splitlines()
        printed = [line for line in noted if line.startswith("line ")]
        lost = [line for line in printed if logged[line] != 1]
        excused = printed[len(printed) - len(lost) :] if self.nobody_held_the_pipe(record.name) else []
        assert lost == excused, f"{record.name}: printed and not logged once: {lost[:3]}"
        self.gone += len(lost)
        assert end is not None, f"{record.name} ran, and nobody knows of it"
        codes = [int(line.split()[1]) for line in noted if line.startswith("exit ")]
        if codes and end["exit_code"] not in (137, 143):  # it may have been killed between its note and its exit
            assert end["exit_code"] == codes[0], f"{record.name}: exit code {end['exit_code']}, and it noted {codes[0]}"
        return len(printed)

    def nobody_held_the_pipe(self, record: str) -> bool:
        """Whether launcher, shepherd and twin of a try were all killed: no one else could read its last lines."""
        experiment, attempt, replica, try_ = self.parts(record)
        directory = running.attempt_directory(self.home, experiment, attempt)
        shepherd = json.loads((directory / "shepherd.json").read_text())
        entries = [json.loads(line) for line in (directory / "states.jsonl").read_text().splitlines()]
        launchers = {e["launcher"] for e in entries if (e["replica"], e["try_"]) == (replica, try_) and "launcher" in e}
        return {shepherd["pid"], shepherd["twin"], *launchers} <= self.dead

    @staticmethod
    def parts(record: str) -> tuple[str, int, str, int]:
        """`e5fzn3-0-worker-0-1` -> experiment, attempt, replica, try."""
        experiment, attempt, rest = record.split("-", 2)
        replica, _, try_ = rest.rpartition("-")
        return experiment, int(attempt), replica, int(try_)


def is_ours(pid: int, home: Path) -> bool:
    try:
        return str(home) in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def parent_of(pid: int) -> int:
    process = processes.table().get(pid)
    return process.parent if process is not None else 0


def chaos(place: Path, experiments: int, seed: int) -> str:
    run = Chaos(place, seed)
    try:
        run.run(experiments)
        found = run.check()
    finally:
        clear(run.home)
    return f"seed {seed}, {experiments} experiments: {found}, killed {dict(run.killed)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-chaos-") as place:
        print(chaos(Path(place), options.experiments, options.seed))


if __name__ == "__main__":
    main()
