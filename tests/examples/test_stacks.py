"""A real deadlock of gloo: the rank that never entered the collective is named, and nothing is disturbed by asking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.conftest import ROOT
from tests.environments import environment
from tests.running import lines_of, shoal, submit, until

FILE = """\
framework: pytorch
run: {{cmd: '{python} {script}'}}
environment:
  env_vars: {{STUCK: '{stuck}', USES_SDK: '{sdk}', OMP_NUM_THREADS: '1', PYTHONPATH: '{root}'}}
  replicas: {{n_workers: 3, master: false}}
grace: {{stop: 1s}}
"""


def stuck(tmp_path: Path, rank: int, sdk: bool = True) -> str:
    """An experiment of three ranks of which this one keeps the others waiting."""
    script = ROOT / "tests" / "examples" / "deadlock" / "train.py"
    known = {"python": environment("pytorch"), "script": script, "root": ROOT, "stuck": rank, "sdk": int(sdk)}
    word = submit(tmp_path, FILE.format(**known), "--oversubscribe")
    until(lambda: sorted(lines_of(word)) == ["reached", "reached", "stuck"], "the deadlock")
    return word


def waits(found: Any, rank: int) -> bool:
    """Whether the others have come to their collective: they print just before."""
    return bool(found["odd"] == [f"worker-{rank}"])


@pytest.mark.parametrize("rank", [0, 2])
def test_the_rank_that_never_entered_the_collective_is_named(home: Path, tmp_path: Path, rank: int) -> None:
    word = stuck(tmp_path, rank)
    client = Client()
    found = until(lambda: f if waits(f := client.stacks(word), rank) else None, "that the others wait")
    assert found["verdict"].startswith(f"worker-{rank} has not entered all_reduce, where 2 other ranks wait: ")
    assert "next_batch (train.py:" in found["verdict"]
    assert [entry["how"] for entry in found["ranks"]] == ["sdk"] * 3
    assert [entry["rank"] for entry in found["ranks"]] == [0, 1, 2]
    (root,) = found["tree"]
    assert sorted(root["ranks"]) == ["worker-0", "worker-1", "worker-2"]
    assert root["function"] == "<module>"
    assert found["groups"][0]["where"].startswith("all_reduce, called by train (train.py:")
    printed = shoal("stacks", word).stdout
    assert printed.startswith(found["verdict"])
    assert "all 3 ranks" in printed
    assert json.loads(shoal("stacks", word, "--json").stdout)["odd"] == [f"worker-{rank}"]
    assert client.show(word)["state"] == "running", "to ask does no harm"
    client.stop(word, 0.0)
    over = until(lambda: s if (s := client.show(word))["state"] == "stopped" else None, "the end")
    refused = shoal("stacks", over["id"])
    assert refused.returncode == 2
    assert "is stopped: nothing of it runs" in refused.stderr


def is_told(found: Any) -> bool:
    """Whether everybody's stack is there, or why none can be: on a busy machine py-spy may not answer in its time."""
    return all(entry["frames"] for entry in found["ranks"]) or "refuses ptrace" in " ".join(found["notes"])


def test_without_the_sdk_py_spy_is_asked(home: Path, tmp_path: Path) -> None:
    word = stuck(tmp_path, 1, sdk=False)
    client = Client()
    found = until(lambda: f if is_told(f := client.stacks(word)) else None, "what py-spy says")
    assert [entry["how"] for entry in found["ranks"]] == ["py-spy"] * 3
    if all(entry["frames"] for entry in found["ranks"]):
        found = until(lambda: f if waits(f := client.stacks(word), 1) else None, "that the others wait")
        assert "worker-1 has not entered all_reduce" in found["verdict"]
    else:
        assert "refuses ptrace" in found["notes"][0]
    assert client.show(word)["state"] == "running"
    client.stop(word, 0.0)
