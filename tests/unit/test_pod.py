"""The launcher in a pod: which names it waits for before the command starts; and which pod is asked for stacks."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from shoal.backends.kubernetes import asking
from shoal.backends.kubernetes.attempts import load
from shoal.backends.kubernetes.watching import Seen
from shoal.frameworks import Task, Topology
from shoal.launcher import pod
from shoal.states import STOPPED, Policy, Status

PAIR = Topology((Task("master", 0, 0, "master-0.x.lab.svc", 2222), Task("ps", 0, 1, "ps-0.x.lab.svc", 2222)))
ALONE = Topology((Task("master", 0, 0, "master-0.x.lab.svc", 2222),))


@pytest.mark.parametrize(
    ("run", "topology", "asked"),
    [
        pytest.param({"framework": "none"}, PAIR, ["ps-0"], id="its own, to listen there"),
        pytest.param({"framework": "none", "operator": {}}, PAIR, ["ps-0"], id="also beside an operator"),
        pytest.param({"framework": "pytorch"}, PAIR, ["ps-0", "master-0"], id="rank 0, which its framework is told"),
        pytest.param({"framework": "none"}, ALONE, [], id="nobody asks for one that is alone"),
        pytest.param({"framework": "pytorch"}, ALONE, ["master-0"], id="unless its framework is told"),
    ],
)
def test_a_replica_waits_for_the_names_it_needs(run: dict[str, Any], topology: Topology, asked: list[str]) -> None:
    looked: list[str] = []
    slept: list[float] = []

    def look_up(host: str) -> None:
        """A name is known at the second look."""
        looked.append(host.partition(".")[0])
        if looked.count(looked[-1]) == 1:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert pod.wait_for_names(run, topology, topology.tasks[-1], look_up=look_up, sleep=slept.append) == ""
    assert looked == [name for name in asked for _ in range(2)]
    assert len(slept) == len(asked)


def test_the_rules_see_why_a_replica_was_stopped_and_not_what_was_lost_of_it(tmp_path: Path) -> None:
    request = {"uid": "u", "attempt": 0, "began": 0.0, "replicas": ["worker-0", "worker-1"]}
    attempt = load(str(tmp_path), {**request, "policy": Policy(frozenset({"worker-0"})).json()})
    attempt.ask_to_end("worker-0", "TimedOut: ran longer than 1 s")
    attempt.record(Status("worker-0", state=STOPPED, reason="TimedOut: ran longer than 1 s; its log is not whole"))
    attempt.record(Status("worker-1", state=STOPPED, reason="by a stranger"))
    assert [status.reason for status in attempt.causes().values()] == ["TimedOut: ran longer than 1 s", "by a stranger"]


def test_of_two_pods_of_a_replica_the_newer_is_asked(tmp_path: Path) -> None:
    """One that is about to go may still run."""
    request = {"uid": "u", "attempt": 0, "began": 0.0, "replicas": ["worker-0"], "pods": {}}
    attempt = load(str(tmp_path), {**request, "policy": Policy(frozenset({"worker-0"})).json()})

    def seen(name: str, created: str) -> Seen:
        metadata = {"name": name, "creationTimestamp": created, "labels": {"shoal/replica": "worker-0"}}
        told = {"name": "shoal", "state": {"running": {}}}
        spec = {"containers": [{"name": "shoal"}]}
        return Seen({"metadata": metadata, "spec": spec, "status": {"containerStatuses": [told]}})

    pods = [seen("new", "2026-11-15T23:00:01Z"), seen("old", "2026-11-15T23:00:00Z")]
    for order in (pods, pods[::-1]):
        assert asking.running(attempt, order)["worker-0"]["metadata"]["name"] == "new"
