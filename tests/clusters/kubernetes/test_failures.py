"""What goes wrong on a cluster, and how it is told. All experiments start at once: the tests look at one each."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests import running
from tests.clusters.kubernetes.cluster import IMAGE, Cluster
from tests.clusters.kubernetes.conftest import Namespace, new_namespace
from tests.clusters.kubernetes.hollow import Hollow, nodes
from tests.clusters.kubernetes.scale import Tape
from tests.conftest import clear
from tests.running import SHOAL, finished, lines_of, shoal, show, until

NONE = "framework: none\ngrace: {stop: 5s, finish: 1s}\n"
TWO = "environment: {replicas: {n_workers: 2, master: false}}\n"
SLEEP = "run: {cmd: 'echo here; exec sleep 600'}\n"
ONCE = """run:
  cmd:
    - echo try $SHOAL_TRY of attempt $SHOAL_ATTEMPT
    - if [ $SHOAL_ATTEMPT$SHOAL_TRY = 00 ]; then exec sleep 600; fi
"""

FILES = {
    "one fails": NONE + TWO + 'run: {cmd: "if [ $SHOAL_INDEX = 1 ]; then echo alas; exit 7; fi; exec sleep 600"}\n',
    "too much memory": NONE
    + "environment:\n  resources:\n    memory: {requests: 32, limits: 96}\n"
    + """run: {cmd: 'echo before; python3 -c "x = bytes(range(256)) * (1 << 21)"; exit 3'}\n""",
    # The kernel takes the one that offers itself: the launcher, and with it the container. None of the others is as
    # large as the limit, and as all is guaranteed, they offer nothing.
    "container out of memory": NONE
    + "environment:\n  resources:\n    cpu: {requests: 0.2, limits: 0.2}\n    memory: {requests: 96, limits: 96}\n"
    + """run:
  cmd: |
    echo 1000 > /proc/1/oom_score_adj
    for number in 1 2 3 4; do python3 -c "x = bytes(range(256)) * (1 << 17); import time; time.sleep(600)" & done
    wait
""",
    "killed": NONE + SLEEP,
    "no image": NONE + SLEEP + "build: {image: 'shoal.test/nowhere:1'}\n",
    "no node": NONE + SLEEP + "environment: {node_selector: {pool: nowhere}}\n",
    "no secret": NONE + SLEEP + "environment: {secret_refs: [nowhere]}\n",
    "deleted": NONE + TWO + SLEEP,
    "deleted, restarts alone": NONE + TWO + ONCE + "restart: {policy: replica, max: 1}\n",
    "deleted, restarts": NONE + TWO + ONCE + "restart: {policy: experiment, max: 1}\n",
    "deleted, restarts after other codes": NONE + TWO + ONCE + "restart: {policy: experiment, on_exit_codes: [7]}\n",
    "deleted, restarts after this code": NONE + ONCE + "restart: {policy: replica, max: 1, on_exit_codes: [143]}\n",
    "evicted": NONE + SLEEP,
    "preempted": NONE + SLEEP,
    "half a gang": NONE
    + SLEEP
    + "environment: {replicas: {n_workers: 2, master: false, worker: [{index: 1, node_selector: {pool: nowhere}}]}}\n"
    + "timeout: {start: 45s}\n",
    "stopped twice": "framework: none\ngrace: {stop: 1h}\n"
    + """run: {cmd: "trap 'echo asked' TERM; echo here; while :; do sleep 0.05; done"}\n""",
    "job deleted": NONE + SLEEP + "environment: {node_selector: {pool: nowhere}}\n",
}

# Kubernetes lets the pods of a node that is silent be for five minutes, unless they say otherwise.
ON_A_NODE_THAT_DIES = """framework: none
grace: {stop: 1s}
run: {cmd: train}
environment:
  tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]
"""


class Lab:
    """A home with its experiments on one cluster, by the names above."""

    def __init__(self, namespace: Namespace, home: Path, place: Path) -> None:
        self.namespace = namespace
        self.home = home
        self.place = place
        self.words: dict[str, str] = {}

    def start(self, name: str, text: str, cluster: str = "lab") -> str:
        directory = self.place / name.replace(" ", "-")
        directory.mkdir(parents=True)
        (directory / "code.txt").write_text(name)
        file = str(directory / "experiment.yml")
        made = Client(self.home).create([(file, text)], [], str(directory), {}, cluster=cluster)
        self.words[name] = made["experiment"]["id"]
        return self.words[name]

    def pods(self, name: str, replica: str = "") -> list[dict[str, Any]]:
        selector = f"shoal/experiment={self.words[name]}" + (f",shoal/replica={replica}" if replica else "")
        return self.namespace.items("pods", selector)

    def pod(self, name: str, replica: str, try_: int = 0) -> dict[str, Any]:
        def there() -> Any:
            found = [pod for pod in self.pods(name, replica) if pod["metadata"]["labels"]["shoal/try"] == str(try_)]
            return found[0] if found else None

        found: dict[str, Any] = until(there, f"a pod of {replica}")
        return found

    def runs(self, name: str) -> None:
        """Waits until all of its replicas have printed something."""
        word = self.words[name]
        count = len(running.running(word)["replicas"])
        until(lambda: len(lines_of(word)) >= count, f"a line of every replica of {name}")

    def reason(self, name: str, part: str) -> str:
        found: str = until(lambda: part in (told := show(self.words[name])["reason"]) and told, f"{part} for {name}")
        return found

    def delete_pod(self, name: str, replica: str) -> None:
        pod = self.pod(name, replica)["metadata"]["name"]
        self.namespace.cluster.ask("DELETE", f"/api/v1/namespaces/{self.namespace.name}/pods/{pod}")


@pytest.fixture(scope="module")
def lab(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("failures")
    home = place / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch, new_namespace(cluster, place) as namespace:
        patch.setenv("SHOAL_HOME", str(home))
        with (
            new_namespace(cluster, place) as tight,
            new_namespace(cluster, place, rights=False) as closed,
            new_namespace(cluster, place) as lonely,
            nodes(cluster, place, 1) as hollow,
        ):
            quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
            cluster.ask("POST", f"/api/v1/namespaces/{tight.name}/resourcequotas", quota)
            namespace.may_run_inside()
            sections = [namespace.config(), tight.config("tight"), closed.config("closed")]
            sections.append(lonely.config("lonely") + hollow.config())
            (home / "config.toml").write_text("\n".join(sections))
            made = Lab(namespace, home, place / "files")
            for name, text in FILES.items():
                made.start(name, text)
            made.start("quota", NONE + TWO + SLEEP, "tight")
            made.start("no rights", NONE + SLEEP, "closed")
            made.start("node lost", ON_A_NODE_THAT_DIES, "lonely")
            lose(made, hollow)
            yield made
            clear(home)
            for pod in lonely.items("pods"):  # nobody is there to say that it has ended
                path = f"/api/v1/namespaces/{lonely.name}/pods/{pod['metadata']['name']}"
                cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})


def lose(lab: Lab, hollow: Hollow) -> None:
    """The node of `node lost` dies when a line has come from there; the cluster takes a minute to believe it."""
    tape = Tape(hollow, lab.place / "tape")
    tape.write(b"here\n")
    lab.runs("node lost")
    hollow.die()


def test_the_first_failure_is_told_with_its_last_lines_and_the_others_are_stopped(lab: Lab) -> None:
    end = finished(lab.words["one fails"])
    assert (end["state"], end["reason"]) == ("failed", "worker-1 failed: exit code 7")
    first = end["first_failure"]
    assert (first["replica"], first["exit_code"], first["lines"]) == ("worker-1", 7, ["alas"])
    assert [(r["replica"], r["state"], r["reason"]) for r in end["replicas"]] == [
        ("worker-0", "stopped", "worker-1 failed"),
        ("worker-1", "failed", ""),
    ]


def test_a_process_that_the_kernel_killed_for_its_memory_is_told_with_peak_limit_and_line(lab: Lab) -> None:
    """The shell turns it into an exit code of its own: the kernel's count decides."""
    end = finished(lab.words["too much memory"])
    assert end["state"] == "failed"
    reason = end["replicas"][0]["reason"]
    assert reason.startswith("OOMKilled: reached 96 MiB of 96 MiB, set in ")
    assert reason.endswith("experiment.yml:5:36")
    assert end["reason"] == f"master-0 failed: {reason}"
    assert lines_of(lab.words["too much memory"])[0] == "before"


def test_a_container_that_the_kernel_killed_for_its_memory_is_told_with_limit_and_line(lab: Lab) -> None:
    """The launcher is gone with it, and can tell nothing."""
    end = finished(lab.words["container out of memory"])
    replica = end["replicas"][0]
    assert replica["reason"].startswith("OOMKilled: its container reached its memory limit of 96 MiB, set in ")
    assert replica["reason"].endswith("experiment.yml:6:36")
    assert (replica["state"], replica["exit_code"], replica["signal"]) == ("failed", 137, "SIGKILL")
    assert (end["state"], end["reason"]) == ("failed", f"master-0 failed: {replica['reason']}")


def test_everything_in_a_container_killed_at_once_is_a_signal(lab: Lab) -> None:
    lab.runs("killed")
    uid = lab.pod("killed", "master-0")["metadata"]["uid"]
    pids = inside(uid)
    assert len(pids) >= 2
    for pid in pids:
        with suppress(ProcessLookupError):  # the first of them takes the others along
            os.kill(pid, signal.SIGKILL)
    end = finished(lab.words["killed"])
    assert (end["state"], end["reason"]) == ("failed", "master-0 failed: SIGKILL (137)")
    assert end["first_failure"]["lines"] == ["here"]


def inside(uid: str) -> list[int]:
    """The processes of a pod, but for the one that holds its network."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            mine = entry.name.isdigit() and uid in (entry / "cgroup").read_text()
            if mine and b"sleep\x002147483647" not in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("name", "part"),
    [
        pytest.param("no image", "shoal.test/nowhere:1", id="an image that is not there"),
        pytest.param("no node", "nodes are available", id="a node that nobody has"),
        pytest.param("no secret", 'secret "nowhere" not found', id="a secret that is not there"),
        pytest.param("quota", "exceeded quota: few", id="a quota that is used up"),
    ],
)
def test_what_a_replica_waits_for_is_told_in_the_words_of_the_cluster_and_stop_works(
    lab: Lab, name: str, part: str
) -> None:
    reason = lab.reason(name, part)
    assert reason.startswith(("master-0: ", "worker-"))
    assert show(lab.words[name])["state"] == "starting"
    assert shoal("stop", lab.words[name]).returncode == 0
    end = finished(lab.words[name])
    assert end["state"] == "stopped"
    assert {replica["state"] for replica in end["replicas"]} == {"stopped"}


def test_a_namespace_without_rights_is_told_at_once(lab: Lab) -> None:
    end = finished(lab.words["no rights"])
    assert end["state"] == "failed"
    assert end["reason"].startswith("cannot be submitted: configmaps is forbidden: ")


def test_a_deleted_pod_is_a_failure_that_says_so(lab: Lab) -> None:
    lab.runs("deleted")
    lab.delete_pod("deleted", "worker-1")
    end = finished(lab.words["deleted"])
    assert (end["state"], end["reason"]) == ("failed", "worker-1 failed: Deleted: its pod was deleted")
    found = {replica["replica"]: replica for replica in end["replicas"]}
    assert (found["worker-1"]["state"], found["worker-1"]["exit_code"]) == ("failed", 143)
    assert (found["worker-0"]["state"], found["worker-0"]["reason"]) == ("stopped", "worker-1 failed")


def test_a_deleted_pod_comes_back_alone_where_replicas_restart(lab: Lab) -> None:
    name = "deleted, restarts alone"
    lab.runs(name)
    lab.delete_pod(name, "worker-1")
    until(lambda: "try 1 of attempt 0" in lines_of(lab.words[name], "worker-1"), "its next try")
    lab.delete_pod(name, "worker-0")
    end = finished(lab.words[name])
    assert end["state"] == "succeeded"
    assert [(r["replica"], r["try"], r["state"]) for r in end["history"]] == [
        ("worker-0", 0, "failed"), ("worker-1", 0, "failed"),
    ]  # fmt: skip
    assert [(r["replica"], r["try"], r["exit_code"]) for r in end["replicas"]] == [
        ("worker-0", 1, 0), ("worker-1", 1, 0),
    ]  # fmt: skip


def test_a_deleted_pod_begins_the_next_attempt_where_experiments_restart(lab: Lab) -> None:
    name = "deleted, restarts"
    lab.runs(name)
    lab.delete_pod(name, "worker-1")
    end = finished(lab.words[name])
    assert (end["state"], end["attempt"]) == ("succeeded", 1)
    assert sorted(lines_of(lab.words[name])) == ["try 0 of attempt 0"] * 2 + ["try 0 of attempt 1"] * 2


def test_a_deleted_pod_restarts_nothing_where_its_exit_code_is_not_listed(lab: Lab) -> None:
    name = "deleted, restarts after other codes"
    lab.runs(name)
    lab.delete_pod(name, "worker-1")
    end = finished(lab.words[name])
    assert (end["state"], end["attempt"]) == ("failed", 0)
    assert end["reason"] == "worker-1 failed: Deleted: its pod was deleted"


def test_a_deleted_pod_comes_back_where_its_exit_code_is_listed(lab: Lab) -> None:
    name = "deleted, restarts after this code"
    lab.runs(name)
    lab.delete_pod(name, "master-0")
    end = finished(lab.words[name])
    assert (end["state"], end["attempt"], end["replicas"][0]["try"]) == ("succeeded", 0, 1)
    assert lines_of(lab.words[name]) == ["try 0 of attempt 0", "try 1 of attempt 0"]


def test_a_preemption_is_told_as_such(lab: Lab) -> None:
    """A pod that is worth more will not be on the same node."""
    lab.runs("preempted")
    ask, name = lab.namespace.cluster.ask, lab.namespace.name
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    ask("POST", classes, {"metadata": {"name": name}, "value": 1000})
    try:
        chosen = {"matchLabels": {"shoal/experiment": lab.words["preempted"]}}
        apart = [{"labelSelector": chosen, "topologyKey": "kubernetes.io/hostname"}]
        spec = {
            "priorityClassName": name,
            "nodeSelector": {"kubernetes.io/hostname": lab.pod("preempted", "master-0")["spec"]["nodeName"]},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
            "containers": [{"name": "it", "image": IMAGE, "imagePullPolicy": "Never", "command": ["true"]}],
            "restartPolicy": "Never",
        }
        ask("POST", f"/api/v1/namespaces/{name}/pods", {"metadata": {"name": "worth-more"}, "spec": spec})
        end = finished(lab.words["preempted"])
        ask("DELETE", f"/api/v1/namespaces/{name}/pods/worth-more", {"gracePeriodSeconds": 0})
    finally:
        ask("DELETE", f"{classes}/{name}")
    assert end["state"] == "failed"
    assert end["reason"].startswith("master-0 failed: Preempted: ")
    assert end["replicas"][0]["exit_code"] == 143


def test_an_eviction_is_told_as_such(lab: Lab) -> None:
    lab.runs("evicted")
    pod = lab.pod("evicted", "master-0")["metadata"]["name"]
    path = f"/api/v1/namespaces/{lab.namespace.name}/pods/{pod}"
    wish = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": lab.namespace.name}}
    lab.namespace.cluster.ask("POST", f"{path}/eviction", wish)
    end = finished(lab.words["evicted"])
    assert end["reason"].startswith("master-0 failed: Evicted: ")


def test_half_a_gang_is_freed_in_time_with_the_reason(lab: Lab) -> None:
    end = finished(lab.words["half a gang"])
    assert end["state"] == "failed"
    told, _, why = end["reason"].partition(" not started after 45 s: ")
    assert told in ("TimedOut: worker-1", "TimedOut: worker-0, worker-1")  # on a busy machine
    assert why.startswith("Unschedulable: ")
    assert {replica["state"] for replica in end["replicas"]} == {"stopped"}
    until(lambda: not lab.pods("half a gang"), "the end of its pods")


def test_a_replica_whose_job_is_deleted_before_it_starts_does_not_wait_for_ever(lab: Lab) -> None:
    lab.reason("job deleted", "nodes are available")
    (job,) = lab.namespace.items("jobs", f"shoal/experiment={lab.words['job deleted']}")
    path = f"/apis/batch/v1/namespaces/{lab.namespace.name}/jobs/{job['metadata']['name']}"
    lab.namespace.cluster.ask("DELETE", path, {"propagationPolicy": "Background"})
    end = finished(lab.words["job deleted"])
    assert end["reason"] == "master-0 failed: Deleted: its pod was deleted before it started"


def test_a_stop_that_takes_too_long_can_be_hurried(lab: Lab) -> None:
    name = "stopped twice"
    lab.runs(name)
    word = lab.words[name]
    assert shoal("stop", word).returncode == 0
    until(lambda: "asked" in lines_of(word), "the command to be asked")
    assert show(word)["state"] == "running"
    assert shoal("stop", word, "--now").returncode == 0
    end = finished(word)
    assert end["state"] == "stopped"
    assert end["replicas"][0]["state"] == "stopped"
    assert lines_of(word)[0] == "here"


def test_ctrl_c_of_run_stops_the_experiment(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yml"
    file.write_text(NONE + SLEEP)
    process = subprocess.Popen(
        [SHOAL, "run", "--on", "lab", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip().endswith("here")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert shoal("ls", "--json").stdout.count('"stopped"') >= 1


def test_a_node_that_is_lost_is_told_as_such(lab: Lab) -> None:
    """Nobody there says that the pod has ended, and nobody ever will."""
    end = finished(lab.words["node lost"])
    assert end["state"] == "failed"
    assert end["reason"].startswith("master-0 failed: NodeLost: ")
    replica = end["replicas"][0]
    assert (replica["state"], replica["exit_code"]) == ("failed", None)
    assert lines_of(lab.words["node lost"]) == ["here"]


def test_nothing_stays_in_the_namespace(lab: Lab) -> None:
    for word in lab.words.values():
        finished(word)
    lab.namespace.becomes_empty()
    until(lambda: not list(lab.home.glob("clusters/*/*.json")), "nothing to remove")
