"""A laptop that sleeps, or a server that was killed, while replicas go on and print to their own logs (sink `stdout`).

The next server, or the same when it is awake again, has the same logs, metrics and exit codes as one that was there all
the time. What the kubelet threw away meanwhile is a gap that whoever reads the log sees. SHOAL_AWAY=180 lets it be away
for minutes; by default it is until the replicas have ended.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from shoal.client import Client, alive
from tests.clusters.kubernetes.conftest import Namespace
from tests.conftest import clear
from tests.running import finished, kill, lines_of, running, server_pid, shoal, submit, until

TRAIN = """
import os, sys, time
import shoal
index = int(os.environ["SHOAL_INDEX"])
for step in range(200):
    print("step", step, flush=True)
    shoal.log(loss=step + index / 2, step=step)
    while step == 99 and not os.path.exists("/gate/open"):
        time.sleep(0.05)
print("the end of", os.environ["SHOAL_REPLICA"], flush=True)
sys.exit(%s)
"""
FILE = """
framework: none
run: {cmd: exec python3 train.py}
environment: {replicas: {n_workers: 2, master: false}}
grace: {stop: 2s}
"""
# More than a kubelet keeps in one file, and nothing that could be packed.
MUCH = """
framework: none
run:
  cmd: |
    until [ -e /gate/begin ]; do sleep 0.1; done
    echo before
    python3 -c 'import os
    for _ in range(6000): print(os.urandom(2000).hex())'
    echo between
    until [ -e /gate/open ]; do sleep 0.1; done
    echo after
"""
AWAY = float(os.environ.get("SHOAL_AWAY", "0"))
PRINTED = [f"step {step}" for step in range(200)]


class Lab:
    def __init__(self, namespace: Namespace, home: Path, place: Path) -> None:
        self.namespace = namespace
        self.home = home
        self.place = place
        (place / "gate").mkdir()
        home.mkdir()
        mount = f'mounts = [{{host_path = "{place}/gate", at = "/gate"}}]\n'
        (home / "config.toml").write_text(namespace.config() + mount)

    def start(self, name: str, text: str, script: str = "") -> str:
        directory = self.place / name
        directory.mkdir()
        (directory / "train.py").write_text(script)
        return submit(directory, text, "--on", "lab")

    def end_server(self, number: int) -> None:
        """Or has it sleep, with SIGSTOP."""
        pid = server_pid(self.home)
        if number == signal.SIGSTOP:
            os.kill(pid, number)
            return
        kill(pid, number)
        until(lambda: alive(self.home) is None, "the end of the server")

    def exit_codes(self, word: str) -> list[int | None]:
        """As the cluster has them; None of those that run."""
        pods = self.namespace.items("pods", f"shoal/experiment={word}")
        states = [pod["status"]["containerStatuses"][0]["state"] for pod in pods]
        return [state.get("terminated", {}).get("exitCode") for state in states]


@pytest.fixture
def lab(namespace: Namespace, home: Path, tmp_path: Path) -> Lab:
    return Lab(namespace, home, tmp_path)


HOW = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL, "asleep": signal.SIGSTOP}


@pytest.mark.parametrize("number", HOW.values(), ids=HOW)
def test_what_happens_while_no_server_is_there_is_seen_by_the_next(lab: Lab, number: int) -> None:
    good = lab.start("good", FILE, TRAIN % 0)
    bad = lab.start("bad", FILE, TRAIN % "7 * index")
    for word in (good, bad):
        running(word)
        for name in ("worker-0", "worker-1"):
            until(lambda word=word, name=name: len(lines_of(word, name)) == 100, f"the first lines of {name}")
    pid = server_pid(lab.home)
    lab.end_server(number)
    (lab.place / "gate" / "open").touch()
    until(lambda: lab.exit_codes(good) == [0, 0], "the end of one")
    until(lambda: sorted(lab.exit_codes(bad), key=str) == [0, 7], "the end of the other")
    back = time.time() + AWAY
    until(lambda: time.time() >= back, "the time it is away", AWAY + 60)
    if number == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
    else:
        assert alive(lab.home) is None, "nobody was there"
    assert finished(good)["state"] == "succeeded"
    end = finished(bad)
    assert (end["state"], end["reason"]) == ("failed", "worker-1 failed: exit code 7")
    assert [(entry["state"], entry["exit_code"]) for entry in end["replicas"]] == [("succeeded", 0), ("failed", 7)]
    assert end["first_failure"]["lines"][-2:] == ["step 199", "the end of worker-1"]
    for word in (good, bad):
        for index, name in enumerate(("worker-0", "worker-1")):
            assert lines_of(word, name) == [*PRINTED, f"the end of {name}"]
            curves = [curve for curve in Client().metrics(word, "loss") if curve.replica == name]
            assert [(list(curve.steps), list(curve.values)) for curve in curves] == [
                (list(range(200)), [step + index / 2 for step in range(200)])
            ]
    lab.namespace.becomes_empty()


def test_what_the_kubelet_threw_away_meanwhile_is_a_gap_that_is_seen(lab: Lab) -> None:
    """The server is not there from the first line on, until the log has been put away."""
    word = lab.start("much", MUCH)
    running(word)
    lab.end_server(signal.SIGKILL)
    (lab.place / "gate" / "begin").touch()
    place = lab.namespace.cluster.place / "kubelet" / "logs"

    def put_away() -> bool:
        return any(place.glob(f"{lab.namespace.name}_shoal-{word}-*/shoal/0.log.*"))

    until(put_away, "a log that is full")
    (lab.place / "gate" / "open").touch()
    until(lambda: lab.exit_codes(word) == [0], "its end")
    assert finished(word)["state"] == "succeeded"
    lines = list(Client().logs(word))
    assert sum(line.get("gap", 0) for line in lines) > 1_000_000
    assert lines[-1]["text"] == "after"
    printed = shoal("logs", word).stdout
    assert "bytes are missing here (lost)" in printed
    assert printed.endswith("after\n")
    assert "\0" not in printed
    clear(lab.home)
