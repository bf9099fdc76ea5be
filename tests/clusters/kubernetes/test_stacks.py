"""`shoal stacks` of ranks in pods: it names the one that is elsewhere, where the account may run something there."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.client import Client
from tests.clusters.kubernetes.conftest import Namespace
from tests.running import lines_of, shoal, submit, until

TRAIN = """
import os, threading, shoal
def next_batch():
    print("ready", flush=True)
    threading.Event().wait()
def evaluate():
    print("ready", flush=True)
    threading.Event().wait()
shoal.replica
evaluate() if os.environ["SHOAL_REPLICA"] == "worker-1" else next_batch()
"""
FILE = """
framework: pytorch
backend: {backend}
run: {{cmd: python3 train.py}}
environment: {{replicas: {{n_workers: 2}}}}
grace: {{stop: 0s}}
"""


@pytest.mark.parametrize("backend", ["native", "kubeflow"])
def test_the_rank_that_is_elsewhere_is_named(namespace: Namespace, home: Path, tmp_path: Path, backend: str) -> None:
    home.mkdir()
    (home / "config.toml").write_text(namespace.config())
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    word = submit(code, FILE.format(backend=backend), "--on", "lab")
    until(lambda: lines_of(word).count("ready") == 3, "the wait")

    refused = shoal("stacks", word)
    assert "no process of it can be asked where it is" in refused.stdout
    assert refused.stderr.count("create pods/exec in the Role lets it") == 1, "said once, not for every pod"

    namespace.may_run_inside()
    found = until(lambda: f if (f := Client().stacks(word))["odd"] == ["worker-1"] else None, "the stacks")
    assert [(rank["name"], rank["how"], rank["rank"]) for rank in found["ranks"]] == [
        ("master-0", "sdk", 0), ("worker-0", "sdk", 1), ("worker-1", "sdk", 2),
    ]  # fmt: skip
    assert "2 ranks are in" in found["verdict"]
    assert "evaluate" in found["verdict"]
    assert {replica["state"] for replica in Client().show(word)["replicas"]} == {"running"}, "nobody is disturbed"
    Client().stop(word, 0.0)
