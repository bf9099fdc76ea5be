"""The server is killed between any two calls of a real API server; the end is the same, and nothing stays there.

Many lives at once, each in a home of its own. Every start of a replica leaves a line in the claim: a count that is
not ours. tests/crash does the same for all steps of the engine.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal import home as homes
from shoal.client import Client
from shoal.errors import ShoalError
from tests.clusters.kubernetes.cluster import Cluster
from tests.clusters.kubernetes.conftest import Namespace, new_namespace
from tests.clusters.kubernetes.test_outputs import claim
from tests.conftest import ROOT, clear
from tests.running import until

AT_ONCE = 6
PATIENCE = 400.0  # seconds for a life among others
NOWHERE = "-"

KUBEFLOW, OPERATOR = "backend: kubeflow", "by an operator, "
# Each kind of life with what it has that the ones before it have not.
RESTARTS = """
framework: none
run:
  cmd: |
    echo "$SHOAL_REPLICA attempt $SHOAL_ATTEMPT" >> $SHOAL_OUTPUTS/witness
    echo "hello from attempt $SHOAL_ATTEMPT"
    [ $SHOAL_ATTEMPT != 0 ] || exit 3
restart: {policy: experiment, max: 2}
"""
# The worker runs when the master has succeeded, and has to be stopped.
TWO = """
framework: none
run:
  cmd: |
    echo "$SHOAL_REPLICA" >> $SHOAL_OUTPUTS/witness
    echo "hello from $SHOAL_REPLICA"
    [ $SHOAL_ROLE = master ] || { touch $SHOAL_OUTPUTS/runs; exec sleep 600; }
    until [ -e $SHOAL_OUTPUTS/runs ]; do sleep 0.1; done
environment: {replicas: {n_workers: 1}}
grace: {stop: 5s, finish: 0s}
"""
ALONE = """
framework: none
run:
  cmd: |
    echo "$SHOAL_REPLICA try $SHOAL_TRY" >> $SHOAL_OUTPUTS/witness
    echo "hello from try $SHOAL_TRY"
    [ $SHOAL_TRY != 0 ] || exit 9
restart: {policy: replica, max: 2}
"""
STOPPED = """
framework: none
run:
  cmd: |
    echo "$SHOAL_REPLICA" >> $SHOAL_OUTPUTS/witness
    echo "hello"
    exec sleep 600
grace: {stop: 5s}
"""
# The file of a life, and the points at which a server dies: those before which something has changed, in the cluster or
# beside it.
KINDS = {
    "restarts": (
        RESTARTS,
        r"submitted|Restart|Finish|before (DELETE|POST configmaps \S+-\d$)|after (?!POST \S+ \S+-1-code)",
    ),
    "two": (TWO, r"after POST jobs|(before|after) PATCH"),
    "restarts alone": (ALONE, r"(before|after) POST jobs \S+-0-1$"),
    "is stopped": (STOPPED, r"AskToStop|(before|after) (PATCH|DELETE)"),
    OPERATOR + "restarts": (
        KUBEFLOW + RESTARTS,
        r"Restart|after POST tfjobs|before DELETE configmaps \S+-0$|after DELETE configmaps \S+-1$",
    ),
    OPERATOR + "two": (KUBEFLOW + TWO, r"(before|after) PATCH"),
}
LIVES = {
    "restarts": 16, "two": 4, "restarts alone": 2, "is stopped": 5,
    OPERATOR + "restarts": 5, OPERATOR + "two": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Life:
    """One experiment with a server that dies once; what there is to see of it afterwards."""

    place: Path
    namespace: Namespace
    disk: Path
    text: str
    die_at: str = NOWHERE
    stop: bool = False

    def live(self) -> tuple[dict[str, Any], list[str]]:
        """What it came to, and the points that were passed before the server died."""
        home, code = self.place / "home", self.place / "code"
        code.mkdir(parents=True)
        (code / "train.py").touch()
        homes.prepare(home)
        config = self.namespace.config(outputs_claim="outputs", outputs_path=str(self.disk))
        (home / "config.toml").write_text(config)
        self.start_server(home)
        try:
            shown = self.lived(home, code)
            seen = self.seen(home, shown)
            self.nothing_left(home, shown["id"])
        finally:
            clear(home)
        return seen, (self.place / "record").read_text().splitlines()

    def start_server(self, home: Path) -> None:
        command = [sys.executable, "-m", "tests.clusters.kubernetes.dying_server"]
        with open(home / "server.log", "ab") as log:
            subprocess.Popen(
                [*command, self.die_at, str(self.place / "record"), "--home", str(home)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
            )  # fmt: skip
        until(lambda: (home / homes.SERVER_FILE).exists(), "the server")

    def lived(self, home: Path, code: Path) -> Any:
        someone = Someone(home)
        # It may die while it answers: the experiment is there all the same.
        someone.ask(lambda client: client.create([("life.yml", self.text)], [], str(code), {}, cluster="lab"))
        if self.stop:
            until(lambda: someone.ask(lambda client: list(client.logs("1"))), "its first line", PATIENCE)
            until(lambda: someone.ask(lambda client: client.stop("1")), "somebody who takes a wish", PATIENCE)

        def over() -> Any:
            found = someone.ask(lambda client: client.show("1"))
            return found if found and found["state"] in ("succeeded", "failed", "stopped") else None

        return until(over, f"the end of a life whose server died at {self.die_at}", PATIENCE)

    def seen(self, home: Path, shown: Any) -> dict[str, Any]:
        someone = Someone(home)  # the server may die after the end, while it answers
        lines, experiments = until(
            lambda: someone.ask(lambda client: (list(client.logs("1")), client.experiments())), "an answer", PATIENCE
        )
        keys = ("attempt", "replica", "try", "state", "exit_code", "reason")
        witness = self.disk / shown["id"] / "witness"
        return {
            "state": shown["state"],
            "reason": shown["reason"],
            "replicas": [[entry[key] for key in keys] for entry in [*shown["history"], *shown["replicas"]]],
            "logs": sorted(f"{line['replica']} {line['attempt']}: {line['text']}" for line in lines),
            "starts": sorted(witness.read_text().splitlines()),
            "experiments": len(experiments),
        }

    def nothing_left(self, home: Path, word: str) -> None:
        kinds = ("pods", "jobs", "tfjobs", "configmaps", "services", "secrets")
        mine = f"shoal/experiment={word}"
        someone = Someone(home)  # the server may have died after the end: what it was to remove is left to the next one

        def gone(kind: str) -> bool:
            return someone.ask(lambda client: client.server()) and not self.namespace.items(kind, mine)

        for kind in kinds:
            until(lambda kind=kind: gone(kind), f"the end of the {kind} of {word}", PATIENCE)
        until(lambda: gone("pods") and not list(home.glob("clusters/*/*.json")), "nothing to remove", PATIENCE)


class Someone:
    """Asks the server of a home, whichever there is: the first question after a death starts the next one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._client: Client | None = None

    def ask(self, question: Callable[[Client], Any]) -> Any:
        """None when the server died over it."""
        try:
            self._client = self._client or Client(self.home)
            return question(self._client)
        except ShoalError:
            self._client = None
            return None


@pytest.fixture(scope="module")
def room(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespace, Path]]:
    place = tmp_path_factory.mktemp("crashes")
    with new_namespace(cluster, place) as namespace:
        claim(namespace, place / "disk")
        try:
            yield namespace, place / "disk"
        finally:
            cluster.ask("DELETE", f"/api/v1/persistentvolumes/{namespace.name}")


def test_the_end_is_the_same_wherever_the_server_dies(room: tuple[Namespace, Path], tmp_path: Path) -> None:
    namespace, disk = room
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def begin(kind: str, number: int, die_at: str) -> Any:
            place = tmp_path / f"{kind.replace(' ', '-')}-{number}"
            life = Life(place, namespace, disk, KINDS[kind][0], die_at, stop=kind == "is stopped")
            return pool.submit(life.live)

        undisturbed = {kind: begin(kind, 0, NOWHERE).result for kind in KINDS}
        expected = {kind: result()[0] for kind, result in undisturbed.items()}
        check_undisturbed(expected)
        lives = [
            (kind, point, begin(kind, number, point))
            for kind, (_, wanted) in KINDS.items()
            for number, point in enumerate(dict.fromkeys(undisturbed[kind]()[1]), start=1)
            if re.match(wanted, point)
        ]
        counted = Counter(kind for kind, *_ in lives)
        assert counted == LIVES, {kind: undisturbed[kind]()[1] for kind in KINDS}
        wrong = []
        for kind, point, life in lives:
            if life.exception() is not None:
                wrong.append(f"{kind}: died at {point}: {life.exception()!r}")
                continue
            seen, passed = life.result()
            if point not in passed:
                wrong.append(f"{kind}: never came to {point}")
            if kept(kind, seen) != kept(kind, expected[kind]):
                wrong.append(f"{kind}: died at {point}:\n{json.dumps(seen)}\n{json.dumps(expected[kind])}")
    assert not wrong, "\n".join(wrong)
    for kind in ("pods", "jobs", "tfjobs", "services", "secrets"):
        assert namespace.items(kind) == []


def kept(kind: str, seen: dict[str, Any]) -> dict[str, Any]:
    """What a server can tell that was not always there.

    An operator deletes those that still run when rank 0 is over, and their logs with them: if nobody was there to read,
    their last lines and their exit codes are gone, and their reason says so.
    """
    if not kind.startswith(OPERATOR):
        return seen
    replicas = [
        [*entry[:4], None, entry[5].partition(";")[0]] if entry[3] == "stopped" else entry for entry in seen["replicas"]
    ]
    stopped = tuple(entry[1] for entry in replicas if entry[3] == "stopped")
    return {
        **seen,
        "replicas": replicas,
        "logs": [line for line in seen["logs"] if not line.startswith(stopped)],
    }


def check_undisturbed(expected: dict[str, dict[str, Any]]) -> None:
    """It ends the same by an operator, too."""
    found = {kind: (seen["state"], seen["starts"]) for kind, seen in expected.items()}
    restarts = ("succeeded", ["master-0 attempt 0", "master-0 attempt 1"])
    two = ("succeeded", ["master-0", "worker-0"])
    assert found == {
        "restarts": restarts,
        "two": two,
        "restarts alone": ("succeeded", ["master-0 try 0", "master-0 try 1"]),
        "is stopped": ("stopped", ["master-0"]),
        OPERATOR + "restarts": restarts,
        OPERATOR + "two": two,
    }
    for kind, code in (("two", 143), (OPERATOR + "two", None)):
        ends = [entry[1:5] for entry in kept(kind, expected[kind])["replicas"]]
        assert ends == [["master-0", 0, "succeeded", 0], ["worker-0", 0, "stopped", code]]
    assert {seen["experiments"] for seen in expected.values()} == {1}
