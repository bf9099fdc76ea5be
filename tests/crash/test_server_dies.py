"""The server is killed between any two steps of a whole life; the end is the same as without the kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from shoal import home as homes
from shoal.client import Client
from shoal.errors import ShoalError
from tests import running
from tests.conftest import ROOT, clear

# Fails in its first attempt, succeeds in the second. Every start leaves a line outside the home: an independent count.
# The master ends when the worker has begun: else that one would sometimes be stopped before it says a word.
LIFE = """
framework: none
run:
  cmd: |
    echo "hello from $SHOAL_REPLICA"
    echo "$SHOAL_REPLICA attempt $SHOAL_ATTEMPT" >> {witness}
    [ "$SHOAL_REPLICA" = master-0 ] || exec sleep 600
    until grep -q "worker-0 attempt $SHOAL_ATTEMPT" {witness}; do sleep 0.02; done
    [ "$SHOAL_ATTEMPT" != 0 ] || exit 3
environment: {{replicas: {{n_workers: 1}}}}
restart: {{policy: experiment, max: 2}}
grace: {{stop: 5s, finish: 0s}}
"""


def live(place: Path, die_at: int) -> tuple[Any, list[str]]:
    """A whole life with a server that dies at a point; what there is to see afterwards, and the points it passed."""
    home, witness, record = place / "home", place / "witness", place / "record"
    homes.prepare(home)
    start_dying_server(home, die_at, record)
    try:
        created = Client(home).create(
            [("life.yml", LIFE.format(witness=witness))], [], str(place), {"PATH": "/usr/bin:/bin"}
        )
        word = created["experiment"]["id"]
    except ShoalError:
        word = "1"  # it died while it answered: the experiment is there all the same
    shown = running.until(lambda: over(home, word), "the end of its life")
    client = Client(home)
    kept = home / "experiments" / shown["id"] / "environment.json"
    running.until(lambda: not kept.exists(), "the removal of its variables")  # the last step, after the end is known
    logs = {f"{line['replica']} {line['attempt']}: {line['text']}" for line in client.logs(word)}
    running.nothing_left(home)
    seen = {
        "state": shown["state"],
        "reason": shown["reason"],
        "attempt": shown["attempt"],
        "replicas": [outcome(replica) for replica in [*shown["history"], *shown["replicas"]]],
        "logs": sorted(logs),
        "starts": sorted(witness.read_text().splitlines()),
        "cluster": client.clusters()[0]["used_cpu"],
    }
    clear(home)
    return seen, record.read_text().splitlines()


def start_dying_server(home: Path, die_at: int, record: Path) -> None:
    script = str(ROOT / "tests" / "crash" / "server_that_dies.py")
    with open(home / "server.log", "ab") as log:
        subprocess.Popen(
            [sys.executable, script, str(die_at), str(record), "--home", str(home)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
        )  # fmt: skip
    running.until(lambda: (home / homes.SERVER_FILE).exists(), "the server")


def over(home: Path, word: str) -> Any:
    """Asking starts the next server when the last one has died."""
    try:
        found = Client(home).show(word)
    except ShoalError:
        return None
    return found if found["state"] in ("succeeded", "failed", "stopped") else None


def outcome(replica: Any) -> str:
    return json.dumps([replica[key] for key in ("attempt", "replica", "try", "state", "exit_code")])


def test_the_end_is_the_same_wherever_the_server_dies(tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    expected, points = live(tmp_path / "undisturbed", die_at=-1)
    assert expected["state"] == "succeeded"
    assert expected["attempt"] == 1
    assert expected["starts"] == [
        "master-0 attempt 0", "master-0 attempt 1", "worker-0 attempt 0", "worker-0 attempt 1",
    ]  # fmt: skip
    assert len(points) >= 8
    for die_at, point in enumerate(points):
        place = tmp_path / f"dies-at-{die_at}"
        place.mkdir()
        seen, passed = live(place, die_at)
        assert seen == expected, f"the server died at point {die_at}: {passed[-1] if passed else point}"
