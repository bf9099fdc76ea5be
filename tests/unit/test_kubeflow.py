"""What a Kubeflow operator can be given: who is refused and why, what the others become, and how long rank 0 stays."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from shoal.backends.backend import Launch
from shoal.backends.kubernetes import kubeflow, operating
from shoal.backends.kubernetes.pods import Parts
from shoal.backends.kubernetes.settings import Settings
from shoal.backends.kubernetes.watching import Seen
from shoal.engine.submission import policy_of
from shoal.errors import UsageError
from shoal.frameworks import Task, Topology
from shoal.journalfile import JournalFile
from shoal.launcher import pod
from shoal.plan import Plan, plan
from shoal.states import FAILED, RUNNING, STOPPED, SUCCEEDED, Policy, Status
from tests.fixtures import BASE, read

EVERYTHING = ["tfjobs", "pytorchjobs", "mxjobs", "mpijobs", "xgboostjobs", "paddlejobs"]
NEWER = ["tfjobs", "pytorchjobs", "jaxjobs", "mpijobs"]
SETTINGS = Settings("lab", namespace="team-a", image="train:1")

REFUSED = [
    pytest.param(
        "framework: jax\nenvironment: {replicas: {n_workers: 2}}",
        NEWER,
        "framework jax is not run through Kubeflow (only tensorflow, pytorch, mxnet, none are)",
        "use backend: native",
        id="JAX has no kind that we render",
    ),
    pytest.param(
        "",
        ["pytorchjobs", "mxjobs"],
        "this cluster does not serve TFJob (it serves mxjobs, pytorchjobs)",
        "use backend: native",
        id="a file without a framework where there is no TFJob",
    ),
    pytest.param(
        "framework: mxnet\nenvironment: {replicas: {n_workers: 1}}",
        NEWER,
        "this cluster does not serve MXJob (it serves jaxjobs, mpijobs, pytorchjobs, tfjobs)",
        "use backend: native",
        id="MXNet where the operator is too new for it",
    ),
    pytest.param(
        "framework: pytorch",
        [],
        "this cluster does not serve PyTorchJob (it serves none of its kinds)",
        "use backend: native",
        id="a cluster without an operator",
    ),
    pytest.param(
        "framework: tensorflow\n"
        "environment: {replicas: {n_workers: 3, worker: [{index: 2, resources: {memory: {limits: 512}}}]}}",
        EVERYTHING,
        "worker-2 differs from worker-0, and a TFJob has one template for all of Worker",
        "remove the entries for single replicas, or use backend: native",
        id="one worker with more memory",
    ),
    pytest.param(
        "framework: mxnet\nenvironment: {replicas: {n_workers: 1, n_ps: 2, ps: [{index: 0, node_selector: {a: b}}]}}",
        EVERYTHING,
        "ps-1 differs from ps-0, and a MXJob has one template for all of Server",
        "remove the entries for single replicas, or use backend: native",
        id="one server that is placed elsewhere",
    ),
    pytest.param(
        "framework: pytorch\nenvironment: {labels: {training.kubeflow.org/job-name: mine}}",
        EVERYTHING,
        "master-0: the operator sets label training.kubeflow.org/job-name itself",
        "remove it",
        id="a label that is the operator's",
    ),
]

TAKEN = [
    pytest.param("framework: tensorflow", {"Chief": 1}, id="TensorFlow alone"),
    pytest.param(
        "framework: tensorflow\nenvironment: {replicas: {n_workers: 2, n_ps: 1}}",
        {"Chief": 1, "Worker": 2, "PS": 1},
        id="TensorFlow with parameter servers",
    ),
    pytest.param(
        "framework: tensorflow\nenvironment: {replicas: {master: false, n_workers: 2}}",
        {"Worker": 2},
        id="TensorFlow without a master",
    ),
    pytest.param(
        "framework: pytorch\nenvironment: {replicas: {n_workers: 2}}", {"Master": 1, "Worker": 2}, id="PyTorch"
    ),
    pytest.param(
        "framework: pytorch\nenvironment: {replicas: {master: false, n_workers: 3}}",
        {"Master": 1, "Worker": 2},
        id="PyTorch without a master: worker 0 becomes it",
    ),
    pytest.param(
        "framework: pytorch\nenvironment: {replicas: {master: false, n_workers: 1}}",
        {"Master": 1},
        id="PyTorch with one worker and nobody else",
    ),
    pytest.param(
        "framework: pytorch\n"
        "environment: {replicas: {master: false, n_workers: 3, worker: [{index: 0, node_selector: {a: b}}]}}",
        {"Master": 1, "Worker": 2},
        id="PyTorch without a master, and an entry for worker 0, which has a template of its own",
    ),
    pytest.param(
        "framework: mxnet\nenvironment: {replicas: {n_workers: 2, n_ps: 1}}",
        {"Scheduler": 1, "Worker": 2, "Server": 1},
        id="MXNet",
    ),
    pytest.param(
        "framework: none\nenvironment: {replicas: {n_workers: 2, n_ps: 1}}",
        {"Chief": 1, "Worker": 2, "PS": 1},
        id="no framework: the kind that has all roles",
    ),
    pytest.param(
        "framework: none\nenvironment: {replicas: {master: false, n_workers: 2}}",
        {"Worker": 2},
        id="no framework and no master",
    ),
]


def planned(text: str) -> Plan:
    return plan(read(f"{BASE}backend: kubeflow\n{text}\n").spec)


def launch(found: Plan, attempt: int = 0) -> Launch:
    return Launch("e7k2m9", "uid", attempt, found, policy_of(found), "/work")


@pytest.mark.parametrize(("text", "served", "why", "hint"), REFUSED)
def test_what_the_operator_cannot_do_is_refused_with_a_way_out(
    text: str, served: list[str], why: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        kubeflow.check(planned(text), served)
    (problem,) = raised.value.problems
    assert why in problem.message
    assert problem.message.startswith("backend: kubeflow: ")
    assert problem.hint == hint


@pytest.mark.parametrize(("text", "types"), TAKEN)
def test_replicas_become_the_types_of_the_operator(text: str, types: dict[str, int]) -> None:
    found = planned(text)
    kubeflow.check(found, EVERYTHING)
    kind = kubeflow.KINDS[found.framework]
    job = kubeflow.custom_object(launch(found), SETTINGS, Parts())
    specs = job["spec"][kind.replicas]
    assert {type_: spec["replicas"] for type_, spec in specs.items()} == types
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "Running"}
    assert ("jobMode" in job["spec"]) == (found.framework == "mxnet")
    for spec in specs.values():
        assert spec["restartPolicy"] == "Never"
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == kind.container
        assert [port["name"] for port in container["ports"]] == [kind.port]
        assert "restartPolicy" not in spec["template"]["spec"]


def test_rank_0_is_the_replica_whose_end_the_operator_takes_for_the_end_of_all() -> None:
    for parameters in TAKEN:
        found = planned(str(parameters.values[0]))
        first_type = next(iter(kubeflow.types_of(found)))
        assert kubeflow.types_of(found)[first_type][0] == found.replicas[0]
        assert first_type in ("Chief", "Master", "Scheduler") or first_type == "Worker"


def test_names_stay_within_63_characters_and_are_told_apart() -> None:
    found = planned("framework: mxnet\nenvironment: {replicas: {n_workers: 300, n_ps: 20}}")
    hosts = kubeflow.hosts(launch(found, attempt=999), SETTINGS)
    names = [host.partition(".")[0] for host in hosts.values()]
    assert len(set(names)) == 321
    assert max(map(len, names)) <= 63
    assert names[0] == "shoal-e7k2m9-999-scheduler-0"
    assert hosts["ps-7"] == "shoal-e7k2m9-999-server-7.team-a.svc"


W0, W1, PS = "worker-0", "worker-1", "ps-0"
ALL = {W0, W1, PS}


@pytest.mark.parametrize(
    ("deciders", "looks", "stays"),
    [
        pytest.param([W0, W1], [ALL, ALL, {W1, PS}, {PS}], 3, id="until the last who decides is over"),
        pytest.param([W0, W1], [{W0}, {W0, W1}, set()], 2, id="also for one who has not begun"),
        pytest.param([], [ALL, ALL, ALL, {PS}], 3, id="for the others, but not for servers"),
        pytest.param([], [ALL], 5, id="for the others no longer than their grace"),
        pytest.param([W0, W1], [set()], 150, id="for one who never comes, as long as names may take to be known"),
    ],
)
def test_rank_0_stays(deciders: list[str], looks: list[set[str]], stays: int) -> None:
    """`looks`: who is there at each look, and from the last one on. Pauses alone make time pass."""
    tasks = [Task("master", 0, 0, "", 1), Task("worker", 0, 1, "", 1), Task("worker", 1, 2, "", 1)]
    topology = Topology((*tasks, Task("ps", 0, 3, "", 1)))
    slept: list[float] = []
    pod.stay(
        {"deciders": ["master-0", *deciders], "servers": [PS], "grace_finish": 5 * pod.LOOK},
        topology,
        lambda task: task.name in looks[min(len(slept), len(looks) - 1)],
        lambda: sum(slept),
        slept.append,
    )
    assert len(slept) == stays


def test_rank_0_does_not_stay_for_nobody() -> None:
    rule = {"deciders": ["master-0"], "servers": [], "grace_finish": 300.0}
    slept: list[float] = []
    pod.stay(rule, Topology((Task("master", 0, 0, "", 1),)), lambda task: True, lambda: 0.0, slept.append)
    assert slept == []


KNOWN, UNKNOWN, EMPTY = 0, socket.EAI_NONAME, socket.EAI_NODATA
MAYBE, BROKEN = socket.EAI_AGAIN, socket.EAI_FAIL


@pytest.mark.parametrize(
    ("peer", "mine", "there"),
    [
        pytest.param([KNOWN], [KNOWN], True, id="who has a name is there"),
        pytest.param([UNKNOWN], [KNOWN], False, id="who has none is gone"),
        pytest.param([EMPTY], [KNOWN], False, id="a name without an address is none"),
        pytest.param([MAYBE], [KNOWN], False, id="gone, where the world is not asked"),
        pytest.param([MAYBE, KNOWN], [KNOWN], True, id="an answer that was late"),
        pytest.param([MAYBE, MAYBE, UNKNOWN], [KNOWN], False, id="told in the end"),
        pytest.param([MAYBE], [MAYBE], True, id="nobody answers at all"),
        pytest.param([MAYBE], [KNOWN, MAYBE], True, id="nobody answers any more"),
        pytest.param([BROKEN], [KNOWN], True, id="another trouble tells nothing"),
    ],
)  # fmt: skip
def test_a_peer_is_there_as_long_as_it_has_a_name(peer: list[int], mine: list[int], there: bool) -> None:
    """What is said of the name of either, one time after the other, and from the last one on."""
    told = {"peer.lab.svc": peer, "me.lab.svc": mine}
    asked: Counter[str] = Counter()

    def look_up(host: str) -> None:
        said = told[host][min(asked[host], len(told[host]) - 1)]
        asked[host] += 1
        if said != KNOWN:
            raise socket.gaierror(said, "")

    tasks = [Task("worker", 0, 1, "peer.lab.svc", 1), Task("master", 0, 0, "me.lab.svc", 1)]
    slept: list[float] = []
    assert pod.has_name(*tasks, look_up, slept.append) == there
    assert sum(slept) < 1.0, "the others are looked at, too"


def test_the_next_try_in_a_pod_is_a_new_program_that_knows_where_to_go_on(tmp_path: Path) -> None:
    """It begins where it was, with a code that nobody has changed, and a stop that comes in between is not lost."""
    work, archive, seen = tmp_path / "work", tmp_path / "shoal.zip", tmp_path / "seen"
    (work / "code").mkdir(parents=True)
    (work / "code" / "train.py").touch()
    streams = work / "try-4" / "streams"
    streams.mkdir(parents=True)
    stream = JournalFile(str(streams), {"process": 0, "rank": 1})
    for step in (1, 2):
        stream.event({"kind": "checkpoint", "time": 1.0, "path": str(tmp_path / f"step-{step}"), "step": step})
    stream.close()
    (tmp_path / "step-1").touch()  # the other one was never finished
    archive.write_text(NEXT_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(work), str(archive), str(seen)],
        env={**os.environ, "SHOAL_POD_LABEL_TRY": "4"},
        cwd=work / "code",
        timeout=60,
    )
    assert done.returncode == 0
    told = json.loads(seen.read_text())
    assert told == {
        "same process": True,
        "directory": "/",
        "code": False,
        "try": 5,
        "from": str(tmp_path / "step-1"),
        "asked to stop": True,
    }


ENDS = """
import os, sys
from shoal.frameworks import Task
from shoal.launcher import pod
work, archive, seen = sys.argv[1:]
os.environ.update(TEST_PID=str(os.getpid()), TEST_WORK=work, TEST_SEEN=seen)
pod.begin_again({"work": work, "attempt": 0}, Task("worker", 0, 1, "", 1), archive)
"""
NEXT_PROGRAM = """
import json, os, signal
from shoal.launcher import pod
os.kill(os.getpid(), signal.SIGTERM)
told = {
    "same process": os.environ["TEST_PID"] == str(os.getpid()),
    "directory": os.getcwd(),
    "code": os.path.exists(os.environ["TEST_WORK"] + "/code"),
    "try": pod.number_of_try(),
    "from": os.environ["SHOAL_RESUME_FROM"],
    "asked to stop": signal.SIGTERM in signal.sigpending(),
}
with open(os.environ["TEST_SEEN"], "w") as file:
    json.dump(told, file)
"""


ALONE = Policy(frozenset({W0}), restart="replica", restart_max=2, on_exit_codes=frozenset({9, 137}))


@pytest.mark.parametrize(
    ("try_", "ending", "policy", "again"),
    [
        pytest.param(0, {"exit_code": 9}, ALONE, True, id="with a code to start again after"),
        pytest.param(1, {"exit_code": 137}, ALONE, True, id="the last time"),
        pytest.param(2, {"exit_code": 9}, ALONE, False, id="too often"),
        pytest.param(0, {"exit_code": 1}, ALONE, False, id="with another code"),
        pytest.param(0, {"exit_code": 0}, ALONE, False, id="with success"),
        pytest.param(0, {"exit_code": 137, "stopped": True}, ALONE, False, id="because it was stopped"),
        pytest.param(0, None, ALONE, False, id="nobody knows how"),
        pytest.param(0, {"exit_code": 9}, Policy(frozenset({W0})), False, id="where nobody starts again"),
    ],
)
def test_a_launcher_that_starts_again_is_known_by_how_its_command_ended(
    try_: int, ending: dict[str, object] | None, policy: Policy, again: bool
) -> None:
    assert operating.starts_again(Status(W1, try_), ending, policy) is again


def pod_in(phase: str, *, gone: bool = False, doomed: float | None = None) -> Seen:
    return Seen({"metadata": {"name": "x"}, "status": {"phase": phase}}, gone, doomed)


@pytest.mark.parametrize(
    ("pods", "restart"),
    [
        pytest.param({W1: pod_in("Running")}, "replica", id="who failed in a pod that lives starts again"),
        pytest.param({W1: pod_in("Succeeded")}, "replica", id="also if the next try is over before anybody looked"),
        pytest.param({W1: pod_in("Failed")}, "never", id="a pod that failed has ended the others"),
        pytest.param({W1: pod_in("Running", gone=True)}, "never", id="so has one that is gone"),
        pytest.param({}, "never", id="or that nobody knows"),
    ],
)
def test_nobody_starts_again_once_the_operator_has_seen_a_failure(pods: dict[str, Seen], restart: str) -> None:
    statuses = {W0: Status(W0, state=RUNNING), W1: Status(W1, state=FAILED, exit_code=9)}
    assert operating.policy_now(statuses, pods, ALONE).restart == restart
    assert operating.policy_now({**statuses, W1: Status(W1, state=RUNNING)}, {}, ALONE) is ALONE


DELETED = Status(W1, state=FAILED, reason="Deleted: its pod was deleted")


@pytest.mark.parametrize(
    ("others", "pods", "told"),
    [
        pytest.param(
            Status(W0, state=FAILED), {}, (STOPPED, f"{W0} failed"), id="another failed: the operator ended this one"
        ),
        pytest.param(
            Status(W0, state=SUCCEEDED), {}, (STOPPED, "the experiment has succeeded"), id="who decides is done"
        ),
        pytest.param(
            Status(W0, state=RUNNING), {W0: pod_in("Failed")}, (RUNNING, ""), id="another's last lines are being read"
        ),
        pytest.param(
            Status(W0, state=RUNNING), {W0: pod_in("Running", doomed=5)}, (RUNNING, ""), id="another was deleted before"
        ),
        pytest.param(
            Status(W0, state=RUNNING), {W0: pod_in("Running", doomed=7)}, (FAILED, DELETED.reason), id="it was before"
        ),
        pytest.param(
            Status(W0, state=RUNNING), {W0: pod_in("Running")}, (FAILED, DELETED.reason), id="somebody deleted it"
        ),
    ],
)
def test_what_an_operator_deletes_is_told_as_what_it_is(
    others: Status, pods: dict[str, Seen], told: tuple[str, str]
) -> None:
    before = Status(W1, state=RUNNING)
    statuses = {W0: others, W1: before}
    seen = {**pods, W1: pod_in("Failed", doomed=6)}
    found = operating.as_the_operator_ended_it(before, DELETED, statuses, seen, Policy(frozenset({W0})))
    assert (found.state, found.reason) == told


def test_of_two_that_somebody_deletes_at_once_one_is_told() -> None:
    before = {name: Status(name, state=RUNNING) for name in (W0, W1)}
    pods = {name: pod_in("Failed", doomed=5) for name in before}
    failed = {name: Status(name, state=FAILED, reason="Deleted: …") for name in before}
    policy = Policy(frozenset({W0}))
    told = [operating.as_the_operator_ended_it(before[n], failed[n], before, pods, policy).state for n in before]
    assert told == [FAILED, RUNNING]
