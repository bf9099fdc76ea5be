"""Experiments through the real Kubeflow training operator: TFJob, PyTorchJob and MXJob in real pods.

What a script sees, and what a person sees of it, is as natively; what the operator does of its own is neither in the
way of a policy nor shown as a cause. Afterwards the namespace is empty.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from shoal.backends.kubernetes.pods import WORK
from shoal.client import Client
from tests.clusters.kubernetes.cluster import Cluster
from tests.clusters.kubernetes.conftest import Namespace, new_namespace
from tests.clusters.kubernetes.test_guide import FENCE, commands, normal, run
from tests.conftest import ROOT, clear
from tests.running import SHOAL, attempt_directory, finished, kill, lines_of, running, server_pid, shoal, submit, until

KINDS = ("tfjobs", "pytorchjobs", "mxjobs")
WAITING = "import signal\nprint('here', flush=True)\nsignal.pause()"
HEAD = "version: 1\nkind: experiment\nbackend: kubeflow\n"


def file(framework: str, replicas: str, script: str, more: str = "") -> str:
    """An experiment whose replicas all run one Python script."""
    lines = "\n".join(f"    {line}" for line in script.strip().splitlines())
    return (
        f"{HEAD}framework: {framework}\n{more}environment: {{replicas: {{{replicas}}}}}\n"
        f"run:\n  cmd: |\n    exec python3 - <<'END'\n{lines}\n    END\n"
    )


# Nobody does anything before the others are there.
MEETING = """
import json, os, signal, socket, sys, time
ME, CLUSTER = os.environ["SHOAL_REPLICA"], json.loads(os.environ["SHOAL_CLUSTER_SPEC"])

def accept(address, count):
    listener = socket.create_server(("", int(address.split(":")[1])))
    return [listener.accept()[0] for _ in range(count)]

def connect(address):
    host, port = address.split(":")
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(0.1)
"""
FAILING = f"""{MEETING}
print("here", flush=True)
if ME == "worker-1":
    lines = accept(CLUSTER["worker"][1], 2)
    print("ValueError: no data")
    sys.exit(3)
line = connect(CLUSTER["worker"][1])
signal.pause()
"""
# Everybody has two lines to worker-1. It closes one; who has lost it ends, which closes the other; then it ends.
SYMPTOM = f"""{MEETING}
if ME == "worker-1":
    lines = accept(CLUSTER["worker"][1], 4)
    kinds = [line.recv(1) for line in lines]
    for line, kind in zip(lines, kinds):
        if kind == b"A":
            line.close()
    for line, kind in zip(lines, kinds):
        if kind == b"B":
            line.recv(1)
    print("ValueError: no data")
    sys.exit(9)
first, second = connect(CLUSTER["worker"][1]), connect(CLUSTER["worker"][1])
first.send(b"A")
second.send(b"B")
first.recv(1)
print("ConnectionResetError: [Errno 104] Connection reset by peer")
sys.exit(1)
"""
RESTARTING = """
import os, sys
print("attempt", os.environ["SHOAL_ATTEMPT"])
sys.exit(7 if os.environ["SHOAL_ATTEMPT"] == "0" and os.environ["SHOAL_REPLICA"] == "worker-0" else 0)
"""
ALONE = """
import os, sys
print("try", os.environ["SHOAL_TRY"], "from", os.environ.get("SHOAL_RESUME_FROM", "the beginning"))
import shoal
shoal.log(loss=1.0, step=int(os.environ["SHOAL_TRY"]))
shoal.checkpoint(os.path.dirname(os.getcwd()), step=1)
sys.exit(9 if os.environ["SHOAL_REPLICA"] == "worker-1" and os.environ["SHOAL_TRY"] < "2" else 0)
"""
AT_ONCE = {  # run beside the others from the beginning: they take some time and nothing else
    "quota": file("pytorch", "n_workers: 1", WAITING, "timeout: {start: 60s}\n"),
    "one fails": file("pytorch", "master: false, n_workers: 3", FAILING),
    "a symptom first": file("pytorch", "n_workers: 2", SYMPTOM),
    "restarts": file("pytorch", "n_workers: 1", RESTARTING, "restart: {policy: experiment, max: 1}\n"),
    "restarts alone": file(
        "none", "master: false, n_workers: 2", ALONE, "restart: {policy: replica, max: 2, on_exit_codes: [9]}\n"
    ),
}


class Lab:
    """A home with experiments in one namespace, and another namespace that has room for one pod."""

    def __init__(self, namespace: Namespace, tight: Namespace, home: Path, place: Path) -> None:
        self.namespace = namespace
        self.tight = tight
        self.home = home
        self.place = place
        self.words: dict[str, str] = {}

    def start(self, name: str, text: str, cluster: str = "lab") -> str:
        directory = self.place / name.replace(" ", "-")
        directory.mkdir(parents=True)
        self.words[name] = submit(directory, text, "--on", cluster)
        return self.words[name]

    def nothing_left_of(self, word: str, namespace: Namespace | None = None) -> None:
        """Waits until no object in the namespace is called after the experiment."""
        place = namespace or self.namespace

        def left() -> list[str]:
            kinds = (*KINDS, "pods", "services", "secrets", "jobs", "configmaps")
            names = [entry["metadata"]["name"] for kind in kinds for entry in place.items(kind)]
            return [name for name in names if word in name]

        until(lambda: not left(), f"the end of all objects of {word}")


@pytest.fixture(scope="module")
def lab(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("kubeflow")
    home = place / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch, new_namespace(cluster, place) as namespace:
        patch.setenv("SHOAL_HOME", str(home))
        with new_namespace(cluster, place) as tight:
            quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
            cluster.ask("POST", f"/api/v1/namespaces/{tight.name}/resourcequotas", quota)
            (home / "config.toml").write_text(namespace.config() + tight.config("tight"))
            made = Lab(namespace, tight, home, place / "files")
            for name, text in AT_ONCE.items():
                made.start(name, text, "tight" if name == "quota" else "lab")
            yield made
            clear(home)


# The deciding replicas are not done when rank 0 is; an operator would end those who still work then.
STAYING = """
import os, signal, time
import shoal
role = os.environ["SHOAL_REPLICA"]
print("I am", role)
shoal.log(loss=0.5, step=1)
if role.startswith("ps"):
    signal.pause()
if not role.startswith("master"):
    time.sleep(0.3 * 10)
    print(role, "worked on")
"""
EVERYONE = [
    pytest.param("tensorflow", "n_workers: 2, n_ps: 1", ["Chief", "PS", "Worker"], id="TFJob"),
    pytest.param("pytorch", "n_workers: 2", ["Master", "Worker"], id="PyTorchJob"),
    pytest.param("mxnet", "n_workers: 2, n_ps: 1", ["Scheduler", "Server", "Worker"], id="MXJob"),
]


@pytest.mark.parametrize(("framework", "replicas", "types"), EVERYONE)
def test_replicas_work_on_when_rank_0_is_done_and_servers_are_stopped(
    lab: Lab, tmp_path: Path, framework: str, replicas: str, types: list[str]
) -> None:
    word = submit(tmp_path, file(framework, replicas, STAYING), "--on", "lab")
    made = until(
        lambda: [job for kind in KINDS for job in lab.namespace.items(kind, f"shoal/experiment={word}")], "a job"
    )
    (job,) = made
    (specs,) = [value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs")]
    assert sorted(specs) == types
    assert {spec["restartPolicy"] for spec in specs.values()} == {"Never"}
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"
    found = finished(word)
    assert found["state"] == "succeeded", found
    ends = {entry["replica"]: (entry["state"], entry["exit_code"]) for entry in found["replicas"]}
    servers = {name: ends.pop(name) for name in list(ends) if name.startswith("ps")}
    assert set(ends.values()) == {("succeeded", 0)}, found
    assert [state for state, _ in servers.values()] == ["stopped"] * len(servers)
    assert found["metrics"]["loss"]["last"] == 0.5
    for name in ends:
        expected = [f"I am {name}", *([] if name == "master-0" else [f"{name} worked on"])]
        assert lines_of(word, name) == expected
    assert len(Client().metrics(word)) == len(found["replicas"])
    lab.nothing_left_of(word)


# Rank 0 ends when the others have been there, as that of a framework does, and they when it has ended: nobody's name
# is gone before everybody has found it.
DUMP = f"""{MEETING}
print(json.dumps(dict(os.environ)), flush=True)
first = (CLUSTER.get("master") or CLUSTER["worker"])[0]
if ME == ("master-0" if "master" in CLUSTER else "worker-0"):
    lines = accept(first, sum(map(len, CLUSTER.values())) - 1)
else:
    connect(first).recv(1)
"""
FRAMEWORKS = [
    pytest.param(
        "tensorflow",
        "n_workers: 2, n_ps: 1",
        {"master-0": "chief-0", "worker-0": "worker-0", "worker-1": "worker-1", "ps-0": "ps-0"},
        id="TensorFlow",
    ),
    pytest.param(
        "pytorch",
        "master: false, n_workers: 3, n_trainers: 2",
        {"worker-0": "master-0", "worker-1": "worker-0", "worker-2": "worker-1"},
        id="PyTorch without a master",
    ),
    pytest.param(
        "mxnet",
        "n_workers: 1, n_ps: 1",
        {"master-0": "scheduler-0", "worker-0": "worker-0", "ps-0": "server-0"},
        id="MXNet",
    ),
    pytest.param(
        "none",
        "n_workers: 1, n_ps: 1",
        {"master-0": "chief-0", "worker-0": "worker-0", "ps-0": "ps-0"},
        id="no framework",
    ),
]
VARIABLE_OF = {"tensorflow": "TF_CONFIG", "pytorch": "PET_NODE_RANK", "mxnet": "DMLC_PS_ROOT_URI"}


@pytest.mark.parametrize(("framework", "replicas", "pods"), FRAMEWORKS)
def test_a_script_sees_what_it_sees_natively_but_for_addresses(
    lab: Lab, tmp_path: Path, framework: str, replicas: str, pods: dict[str, str]
) -> None:
    through = file(framework, replicas, DUMP)
    words = {}
    for backend in ("kubeflow", "native"):
        text = through.replace("backend: kubeflow", f"backend: {backend}")
        words[backend] = submit(tmp_path, text, "--on", "lab")
    hosts = {
        "kubeflow": {
            replica: f"shoal-{words['kubeflow']}-0-{pod}.{lab.namespace.name}.svc" for replica, pod in pods.items()
        },
        "native": {replica: f"{replica}.shoal-{words['native']}-0.{lab.namespace.name}.svc" for replica in pods},
    }
    seen: dict[str, dict[str, Any]] = {}
    for backend, word in words.items():
        assert finished(word)["state"] == "succeeded"
        seen[backend] = {
            replica: without_addresses(json.loads(lines_of(word, replica)[0]), hosts[backend], word) for replica in pods
        }
    for replica in pods:
        assert seen["kubeflow"][replica] == seen["native"][replica]
    for name, variable in VARIABLE_OF.items():
        assert {variable in variables for variables in seen["kubeflow"].values()} == {name == framework}
    lab.nothing_left_of(words["kubeflow"])


def without_addresses(variables: Mapping[str, str], hosts: Mapping[str, str], word: str) -> dict[str, str]:
    """With the names of replicas in the place of their hosts."""
    found = {}
    for name, value in variables.items():
        text = value
        for replica, host in hosts.items():
            text = text.replace(host, replica).replace(host.partition(".")[0], replica)
        text = re.sub(r"\b10\.88\.0\.\d+\b", "an address", text)
        found[name] = text.replace(word, "the experiment")
    for name in ("SHOAL_POD", "HOSTNAME", "SHOAL_REPLICA_UID"):
        found.pop(name, None)
    return found


def test_the_first_failure_is_the_one_that_failed_and_the_others_were_stopped(lab: Lab) -> None:
    word = lab.words["one fails"]
    found = finished(word)
    assert (found["state"], found["reason"]) == ("failed", "worker-1 failed: exit code 3")
    first = found["first_failure"]
    assert (first["replica"], first["exit_code"], first["lines"][-1]) == ("worker-1", 3, "ValueError: no data")
    ends = {entry["replica"]: (entry["state"], entry["reason"]) for entry in found["replicas"]}
    assert ends.pop("worker-1")[0] == "failed"
    assert set(ends.values()) == {("stopped", "worker-1 failed")}
    for name in ("worker-0", "worker-2"):
        assert lines_of(word, name) == ["here"]
    lab.nothing_left_of(word)


STOPPABLE = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(0)))
print("here", flush=True)
signal.pause()
"""


def test_a_stop_ends_all_with_their_grace(lab: Lab, tmp_path: Path) -> None:
    word = submit(tmp_path, file("tensorflow", "n_workers: 1, n_ps: 1", STOPPABLE), "--on", "lab")
    running(word)
    until(lambda: len(lines_of(word)) == 3, "the first lines")
    assert shoal("stop", word).returncode == 0
    found = finished(word)
    assert found["state"] == "stopped"
    assert {entry["state"] for entry in found["replicas"]} == {"stopped"}
    assert sorted(lines_of(word)) == ["here"] * 3 + ["saved"] * 3
    lab.nothing_left_of(word)


def test_a_kill_is_not_undone_by_the_operator(lab: Lab, tmp_path: Path) -> None:
    """It makes a new pod for one that is gone, unless it has been told that all is over."""
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('here', flush=True)\nsignal.pause()"
    word = submit(tmp_path, file("mxnet", "n_workers: 1", script), "--on", "lab")
    running(word)
    until(lambda: len(lines_of(word)) == 2, "the first lines")
    assert shoal("stop", "--now", word).returncode == 0
    found = finished(word)
    assert {entry["state"] for entry in found["replicas"]} == {"stopped"}
    lab.nothing_left_of(word)
    assert lines_of(word) == ["here"] * 2


def test_a_cause_that_ends_after_its_symptom_is_told_first(lab: Lab) -> None:
    """An operator ends all at the first failure that it sees; so a symptom does not show itself at once."""
    word = lab.words["a symptom first"]
    found = finished(word)
    assert (found["state"], found["reason"]) == ("failed", "worker-1 failed: exit code 9")
    ends = {entry["replica"]: (entry["state"], entry["exit_code"]) for entry in found["replicas"]}
    assert ends == {"master-0": ("failed", 1), "worker-0": ("failed", 1), "worker-1": ("failed", 9)}
    lab.nothing_left_of(word)


def test_the_next_server_goes_on_where_one_was_killed(lab: Lab, tmp_path: Path) -> None:
    word = submit(tmp_path, file("tensorflow", "n_workers: 1, n_ps: 1", STAYING), "--on", "lab")
    until(lambda: lines_of(word, "worker-0"), "the first line")
    kill(server_pid(lab.home))
    assert shoal("show", word).returncode == 0  # starts another
    found = finished(word)
    ends = {entry["replica"]: (entry["state"], entry["exit_code"]) for entry in found["replicas"]}
    assert ends.pop("ps-0")[0] == "stopped"
    assert (found["state"], set(ends.values())) == ("succeeded", {("succeeded", 0)})
    assert lines_of(word, "worker-0") == ["I am worker-0", "worker-0 worked on"]
    lab.nothing_left_of(word)


def test_what_keeps_the_operator_from_making_pods_is_shown_and_half_a_gang_is_freed(lab: Lab) -> None:
    word = lab.words["quota"]
    found = finished(word)
    assert (found["state"], found["reason"].partition(":")[0]) == ("failed", "TimedOut")
    changes = (attempt_directory(lab.home, word) / "states.jsonl").read_text()
    assert "FailedCreatePod: " in changes
    assert "exceeded quota: few" in changes
    assert {entry["state"] for entry in found["replicas"]} == {"stopped"}
    lab.nothing_left_of(word, lab.tight)


def test_an_experiment_that_restarts_is_a_new_job(lab: Lab) -> None:
    word = lab.words["restarts"]
    found = finished(word)
    assert (found["state"], found["attempt"]) == ("succeeded", 1), found
    assert {entry["state"] for entry in found["replicas"]} == {"succeeded"}
    assert "attempt 1" in lines_of(word, "master-0")
    lab.nothing_left_of(word)


def test_a_replica_that_restarts_alone_does_so_in_its_pod_and_the_operator_does_not_learn_of_it(lab: Lab) -> None:
    word = lab.words["restarts alone"]
    found = finished(word)
    assert (found["state"], found["attempt"]) == ("succeeded", 0), found
    ends = [(entry["replica"], entry["try"], entry["state"], entry["exit_code"]) for entry in found["replicas"]]
    assert ends == [("worker-0", 0, "succeeded", 0), ("worker-1", 2, "succeeded", 0)]
    entries = (attempt_directory(lab.home, word) / "states.jsonl").read_text().splitlines()
    ended = [(entry["replica"], entry["try_"], entry["exit_code"]) for entry in map(json.loads, entries)]
    assert {entry for entry in ended if entry[0] == "worker-1" and entry[2] is not None} == {
        ("worker-1", 0, 9), ("worker-1", 1, 9), ("worker-1", 2, 0)
    }  # fmt: skip
    assert lines_of(word, "worker-1") == [
        "try 0 from the beginning", f"try 1 from {WORK}", f"try 2 from {WORK}"
    ]  # fmt: skip
    (curve,) = [curve for curve in Client().metrics(word) if curve.replica == "worker-1"]
    assert list(curve.steps) == [0, 1, 2]
    lab.nothing_left_of(word)


DELETED = [  # policy -> how the attempt and the experiment are called that follows
    pytest.param("pytorch", "never", "failed", id="nobody restarts"),
    pytest.param("none", "replica", "failed", id="one restarts alone, which takes its pod"),
    pytest.param("pytorch", "experiment", "succeeded", id="all restart"),
]


@pytest.mark.parametrize(("framework", "policy", "state"), DELETED)
def test_a_pod_that_somebody_deletes_ends_the_attempt_and_its_successor_is_not_taken_for_it(
    lab: Lab, tmp_path: Path, framework: str, policy: str, state: str
) -> None:
    script = """
import os, signal
print("on", os.uname().nodename, flush=True)
if os.environ["SHOAL_ATTEMPT"] == "0":
    signal.pause()
"""
    rules = f"grace: {{stop: 2s}}\nrestart: {{policy: {policy}, max: 1}}\n"
    word = submit(tmp_path, file(framework, "n_workers: 1", script, rules), "--on", "lab")
    running(word)
    until(lambda: len(lines_of(word)) == 2, "the first lines")
    lab.namespace.cluster.ask("DELETE", f"/api/v1/namespaces/{lab.namespace.name}/pods/shoal-{word}-0-worker-0")
    found = finished(word)
    assert (found["state"], found["attempt"]) == (state, 1 if policy == "experiment" else 0)
    ends = [json.loads(line) for line in (attempt_directory(lab.home, word) / "states.jsonl").read_text().splitlines()]
    failures = [(entry["replica"], entry["reason"]) for entry in ends if entry["state"] == "failed"]
    assert failures == [("worker-0", "Deleted: its pod was deleted")]
    assert lines_of(word, "worker-0") == [
        f"on shoal-{word}-{attempt}-worker-0" for attempt in range(found["attempt"] + 1)
    ]
    lab.nothing_left_of(word)


def test_a_plan_is_what_the_api_server_and_the_webhook_take(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "experiment.yml"
    for framework, replicas, _ in [parameters.values for parameters in EVERYONE]:
        path.write_text(file(str(framework), str(replicas), "print()"))
        planned = shoal("plan", str(path), "--on", "lab")
        assert planned.returncode == 0, planned.stderr
        for obj in YAML(typ="safe").load_all(planned.stdout):
            group = "api/v1" if obj["kind"] == "ConfigMap" else f"apis/{obj['apiVersion']}"
            place = f"/{group}/namespaces/{lab.namespace.name}/{obj['kind'].lower()}s"
            made = lab.namespace.cluster.ask("POST", f"{place}?dryRun=All&fieldValidation=Strict", obj)
            assert made["metadata"]["uid"]
        job = obj  # the last one
    job["spec"]["mxReplicaSpecs"]["Server"]["template"]["spec"]["nonsense"] = True
    with pytest.raises(urllib.error.HTTPError, match="400"):
        lab.namespace.cluster.ask("POST", f"{place}?dryRun=All&fieldValidation=Strict", job)


def test_the_commands_of_the_guide_print_what_it_shows(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "work").mkdir()
    variables = {**os.environ, "PATH": f"{Path(SHOAL).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    for language, text in FENCE.findall((ROOT / "docs" / "guides" / "kubeflow.md").read_text()):
        if language == "toml":
            (home / "config.toml").write_text(namespace.config())
        elif language == "yaml":
            (tmp_path / "work" / "experiment.yml").write_text(text)
        else:
            for command, shown in commands(text):
                assert normal(run(command, tmp_path / "work", variables)) == normal(shown), command
    until(lambda: not any(namespace.items(kind) for kind in (*KINDS, "pods", "services")), "an empty namespace")


REFUSED = [
    pytest.param("jax", "n_workers: 1", "is not run through", "backend: native", id="a framework without a kind"),
    pytest.param(
        "tensorflow",
        "n_workers: 2, worker: [{index: 1, resources: {memory: {limits: 64}}}]",
        "worker-1 differs from worker-0",
        "backend: native",
        id="a replica of its own shape",
    ),
    pytest.param(
        "mxnet",
        "master: false, n_workers: 1",
        "cannot do without its scheduler",
        "remove master",
        id="MXNet without its scheduler",
    ),
]


@pytest.mark.parametrize(("framework", "replicas", "why", "way_out"), REFUSED)
def test_what_the_operator_cannot_do_is_said_before_anything_starts(
    lab: Lab, tmp_path: Path, framework: str, replicas: str, why: str, way_out: str
) -> None:
    path = tmp_path / "experiment.yml"
    path.write_text(file(framework, replicas, "print()"))
    before = [entry["id"] for entry in Client().experiments()]
    for verb in ("plan", "run"):
        done = shoal(verb, str(path), "--on", "lab")
        assert done.returncode == 2
        assert why in done.stderr
        assert way_out in done.stderr.partition("hint: ")[2]
    assert [entry["id"] for entry in Client().experiments()] == before
