"""What a cluster says of a pod, and how that is told of the replica: also what no test cluster can be made to say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.backends.kubernetes import observing
from shoal.states import Status, describe_failure

WHEN = "2026-11-15T23:00:00Z"
RAN = Status("worker-1", state="running", node="n1", started=1000.0)


def pod(state: dict[str, Any] | None = None, *, phase: str = "Running", deleted: bool = False, **status: Any) -> Any:
    """A pod whose launcher's container is in a state; other words of its status as they are."""
    told = {"containerStatuses": [{"name": "shoal", "state": state}]} if state is not None else {}
    return {
        "metadata": {"name": "p", "uid": "u", **({"deletionTimestamp": WHEN} if deleted else {})},
        "spec": {"nodeName": "n1", "containers": [{"name": "shoal"}, {"name": "sidecar"}]},
        "status": {"phase": phase, **told, **status},
    }


def terminated(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": WHEN, "finishedAt": WHEN, **more}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def disrupted(reason: str, message: str) -> list[dict[str, Any]]:
    return [
        {"type": "Ready", "status": "False"},
        {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message},
    ]


PREEMPTING = disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
TAINTED = disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
DRAINED = disrupted("EvictionByEvictionAPI", "Eviction API: evicting")
ASKED = {"exit_code": 143, "signal": "SIGTERM", "stopped": True, "started": 1000.0, "finished": 1010.0}

FAILURES = [
    pytest.param(
        pod(terminated(143), phase="Failed", deleted=True, conditions=PREEMPTING),
        ASKED,
        "Preempted: default-scheduler: preempting to accommodate a higher priority pod",
        143,
        id="preempted by the scheduler",
    ),
    pytest.param(
        pod(terminated(137), phase="Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
        None,
        "Preempted: Preempted in order to admit critical pod",
        137,
        id="preempted by the kubelet for a critical pod",
    ),
    pytest.param(
        pod({"running": {"startedAt": WHEN}}, deleted=True, conditions=TAINTED),
        None,
        "NodeLost: Taint manager: deleting due to NoExecute taint",
        None,
        id="its node does not answer any more",
    ),
    pytest.param(
        pod(phase="Failed", reason="NodeLost", message="Node n1 which was running pod p is unresponsive"),
        None,
        "NodeLost: Node n1 which was running pod p is unresponsive",
        None,
        id="its node is lost, as older clusters tell it",
    ),
    pytest.param(
        pod(phase="Failed", conditions=disrupted("DeletionByPodGC", "PodGC: node no longer exists")),
        None,
        "NodeLost: PodGC: node no longer exists",
        None,
        id="its node was removed from the cluster",
    ),
    pytest.param(
        pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
        None,
        "Evicted: The node was low on resource: memory.",
        None,
        id="evicted by a kubelet that is short of memory",
    ),
    pytest.param(
        pod(terminated(143), phase="Failed", deleted=True, conditions=DRAINED),
        ASKED,
        "Evicted: Eviction API: evicting",
        143,
        id="evicted by somebody who drains the node",
    ),
    pytest.param(
        pod(phase="Failed", reason="Terminated", message="Pod was terminated in response to imminent node shutdown."),
        None,
        "Evicted: Pod was terminated in response to imminent node shutdown.",
        None,
        id="its node is shut down",
    ),
    pytest.param(
        pod(terminated(137, "OOMKilled"), phase="Failed"),
        None,
        "OOMKilled: its container reached its memory limit of 96 MiB, set in f.yml:3:4",
        137,
        id="the kernel killed the whole container for its memory",
    ),
    pytest.param(
        pod(terminated(137, "OOMKilled"), phase="Failed"),
        {**ASKED, "exit_code": 137, "signal": "SIGKILL", "stopped": False, "reason": "OOMKilled: reached 96 of 96 MiB"},
        "OOMKilled: reached 96 of 96 MiB",
        137,
        id="the kernel killed the command for its memory, and its launcher tells",
    ),
    pytest.param(
        pod(terminated(143), phase="Failed", deleted=True), ASKED, "Deleted: its pod was deleted", 143,
        id="somebody deleted the pod",
    ),
    pytest.param(None, None, "Deleted: its pod is gone", None, id="it went while nobody looked"),
    pytest.param(
        pod(terminated(128, "StartError", message="exec: python3: not found"), phase="Failed"),
        None,
        "cannot start: exec: python3: not found",
        128,
        id="the image has no Python",
    ),
    pytest.param(
        pod(
            phase="Failed",
            initContainerStatuses=[{"name": "init", "state": terminated(1, message="no such host\n")}],
        ),
        None,
        "its init container init failed with exit code 1: no such host",
        None,
        id="its init container failed",
    ),
    pytest.param(
        pod(phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed: no GPUs"),
        None,
        "UnexpectedAdmissionError: Allocate failed: no GPUs",
        None,
        id="the kubelet did not take it",
    ),
    pytest.param(
        pod(terminated(143), phase="Failed"), ASKED, "its launcher got SIGTERM, and not from Shoal", 143,
        id="somebody ended its launcher",
    ),
    pytest.param(pod(terminated(7), phase="Failed"), {**ASKED, "exit_code": 7, "signal": "", "stopped": False}, "", 7,
                 id="its command failed by itself"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "ending", "reason", "code"), FAILURES)
def test_an_end_that_nobody_asked_for_is_a_failure_with_its_reason(
    found: Any, ending: Any, reason: str, code: int | None
) -> None:
    gone = found is not None and bool(found["metadata"].get("deletionTimestamp"))
    told = observing.status_of(RAN, found, gone=gone, ending=ending, limit="96 MiB, set in f.yml:3:4")
    assert (told.state, told.reason, told.exit_code) == ("failed", reason, code)
    if reason.startswith(("Preempted", "NodeLost", "Evicted", "OOMKilled", "Deleted")):
        assert describe_failure(told) == f"worker-1 failed: {reason}"


ENDED = [
    pytest.param(pod(terminated(0, "Completed"), phase="Succeeded"), {**ASKED, "exit_code": 0, "stopped": False}, "",
                 ("succeeded", ""), id="succeeded"),
    pytest.param(pod(terminated(0, "Completed"), phase="Succeeded"), None, "", ("succeeded", ""),
                 id="succeeded, and its last file was lost"),
    pytest.param(pod(terminated(143), phase="Failed", reason="DeadlineExceeded"), ASKED, "enough",
                 ("stopped", "enough"), id="stopped by us"),
    pytest.param(pod(terminated(137), phase="Failed", reason="DeadlineExceeded"), None, "enough", ("stopped", "enough"),
                 id="stopped by us, and killed after its grace"),
    pytest.param(pod(terminated(0, "Completed"), phase="Succeeded"), {**ASKED, "exit_code": 0, "stopped": False},
                 "enough", ("succeeded", ""), id="succeeded before it could be stopped"),
    pytest.param(pod(terminated(3), phase="Failed"), {**ASKED, "exit_code": 3, "signal": "", "stopped": False},
                 "worker-0 failed", ("failed", ""), id="failed by itself before it could be stopped"),
    pytest.param(pod(terminated(143), phase="Failed", deleted=True, conditions=PREEMPTING), ASKED, "enough",
                 ("stopped", "enough"), id="stopped by us, and preempted at the same time"),
    pytest.param(pod(terminated(137, "OOMKilled"), phase="Failed"), None, "enough",
                 ("failed", "OOMKilled: its container reached its memory limit"), id="out of memory while it stopped"),
    pytest.param(pod(terminated(0, "OOMKilled"), phase="Succeeded"), {**ASKED, "exit_code": 0, "stopped": False}, "",
                 ("succeeded", ""), id="succeeded without a process that was out of memory"),
    pytest.param(pod(terminated(0, "Completed"), phase="Succeeded", conditions=DRAINED),
                 {**ASKED, "exit_code": 0, "stopped": False}, "", ("succeeded", ""),
                 id="succeeded although the cluster wanted it gone"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "ending", "stopping", "expected"), ENDED)
def test_an_end_is_what_the_command_made_of_it(
    found: Any, ending: Any, stopping: str, expected: tuple[str, str]
) -> None:
    told = observing.status_of(RAN, found, ending=ending, stopping=stopping)
    assert (told.state, told.reason) == expected
    assert told.started == 1000.0


def test_nothing_is_over_before_all_that_was_printed_has_been_read() -> None:
    found = pod(terminated(3), phase="Failed")
    assert observing.status_of(RAN, found, drained=False).state == "running"
    assert observing.status_of(RAN, found, drained=True).state == "failed"


def test_what_is_over_stays_as_it_is() -> None:
    over = replace(RAN, state="succeeded", exit_code=0)
    assert observing.status_of(over, pod(terminated(137), phase="Failed"), gone=True) == over


PENDING = [
    pytest.param(pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                                   "message": "0/3 nodes are available: 3 Insufficient cpu."}]),
                 "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.", id="no node has room"),
    pytest.param(pod(waiting("ImagePullBackOff", 'Back-off pulling image "x"'), phase="Pending"),
                 'ImagePullBackOff: Back-off pulling image "x"', id="an image that does not come"),
    pytest.param(pod(waiting("CreateContainerConfigError", 'secret "x" not found'), phase="Pending"),
                 'CreateContainerConfigError: secret "x" not found', id="a secret that is not there"),
    pytest.param(pod(waiting("ContainerCreating"), phase="Pending"), "", id="nothing but time"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "reason"), PENDING)
def test_what_a_pod_waits_for_is_told_in_the_words_of_the_cluster(found: Any, reason: str) -> None:
    told = observing.status_of(Status("worker-1"), found)
    assert (told.state, told.reason) == ("created", reason)


def test_a_pod_that_should_be_gone_is_lost_with_its_node_after_a_while() -> None:
    due = observing.moment(WHEN)
    assert due is not None
    tainted = pod({"running": {"startedAt": WHEN}}, deleted=True, conditions=TAINTED)
    assert not observing.lost_with_its_node(tainted, due + observing.LATE - 1)
    assert observing.lost_with_its_node(tainted, due + observing.LATE + 1)
    assert not observing.lost_with_its_node(tainted, due + observing.LATE - 301, carry=300.0)
    assert observing.lost_with_its_node(tainted, due + observing.LATE - 299, carry=300.0), "nobody there carries files"
    deleted = pod({"running": {"startedAt": WHEN}}, deleted=True)
    assert not observing.lost_with_its_node(deleted, due + 10 * observing.LATE), "its grace may be long"


def test_a_grace_that_was_given_is_known_to_the_next_server() -> None:
    found = pod({"running": {"startedAt": WHEN}})
    assert observing.asked(found) == float("inf")
    found["metadata"]["annotations"] = {"shoal/asked": "30"}
    assert observing.asked(found) == 30.0
    found["metadata"] |= {"deletionTimestamp": WHEN, "deletionGracePeriodSeconds": 1}
    assert observing.asked(found) == 1.0
