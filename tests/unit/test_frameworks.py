from __future__ import annotations

import json

import pytest

from shoal.frameworks import (
    FRAMEWORKS,
    MASTER,
    PS,
    WORKER,
    Run,
    Task,
    Topology,
    deciding,
    environment,
    setters_of_variables,
)


def cluster(workers: int, ps: int = 0, master: bool = True, trainers: int = 1) -> Topology:
    roles = [MASTER] * master + [WORKER] * workers + [PS] * ps
    counts: dict[str, int] = {}
    tasks = []
    for rank, role in enumerate(roles):
        index = counts.get(role, 0)
        counts[role] = index + 1
        tasks.append(Task(role, index, rank, f"h{rank}", 2222, trainers))
    return Topology(tuple(tasks))


def env(framework: str, topology: Topology, rank: int) -> dict[str, str]:
    return environment(framework, topology, topology.tasks[rank], Run("e1"))


def test_vessl_variables_mean_what_vessl_says() -> None:
    """NUM_NODES: number of workers; NUM_TRAINERS: GPUs per node; RANK: of the node; MASTER_*: the master node."""
    variables = env("pytorch", cluster(2, master=False, trainers=4), 1)
    assert {name: variables[name] for name in ("NUM_NODES", "NUM_TRAINERS", "RANK", "MASTER_ADDR", "MASTER_PORT")} == {
        "NUM_NODES": "2",
        "NUM_TRAINERS": "4",
        "RANK": "1",
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "2222",
    }


def test_tensorflow_without_a_master_has_no_chief() -> None:
    config = json.loads(env("tensorflow", cluster(2, ps=1, master=False), 2)["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": ["h0:2222", "h1:2222"], "ps": ["h2:2222"]},
        "task": {"type": "ps", "index": 0},
    }


def test_mxnet_alone_is_an_ordinary_process() -> None:
    assert not [name for name in env("mxnet", cluster(0), 0) if name.startswith("DMLC")]


def test_polyaxon_calls_mxnet_servers_server() -> None:
    variables = env("mxnet", cluster(1, ps=1), 2)
    assert json.loads(variables["POLYAXON_CLUSTER"]) == {
        "master": ["h0:2222"],
        "worker": ["h1:2222"],
        "server": ["h2:2222"],
    }
    assert json.loads(variables["POLYAXON_TASK_INFO"]) == {"type": "server", "index": 0}


@pytest.mark.parametrize(
    ("framework", "workers", "ps", "master", "decides"),
    [
        ("tensorflow", 2, 1, True, {"master-0"}),
        ("tensorflow", 2, 1, False, {"worker-0"}),
        ("pytorch", 2, 0, True, {"master-0", "worker-0", "worker-1"}),
        ("pytorch", 2, 0, False, {"worker-0", "worker-1"}),
        ("mxnet", 2, 1, True, {"worker-0", "worker-1"}),
        ("mxnet", 0, 0, True, {"master-0"}),
        ("jax", 1, 0, True, {"master-0", "worker-0"}),
        ("none", 2, 1, True, {"master-0"}),
        ("none", 2, 1, False, {"worker-0", "worker-1"}),
    ],
)
def test_who_decides(framework: str, workers: int, ps: int, master: bool, decides: set[str]) -> None:
    assert deciding(framework, [task.name for task in cluster(workers, ps, master).tasks]) == decides


def test_worker_1_does_not_decide_for_worker_10() -> None:
    assert deciding("tensorflow", [f"worker-{index}" for index in range(11)]) == {"worker-0"}


def test_every_variable_a_framework_sets_is_known_to_be_its_own() -> None:
    setters = setters_of_variables()
    assert setters["TF_CONFIG"] == "tensorflow"
    assert setters["PET_NNODES"] == "pytorch"
    assert setters["DMLC_SERVER_ID"] == "mxnet"
    assert setters["DMLC_WORKER_ID"] == "mxnet"
    assert setters["JAX_PROCESS_ID"] == "jax"


def test_a_framework_file_is_complete() -> None:
    for framework in FRAMEWORKS.values():
        assert MASTER in framework.ROLES
        assert framework.__doc__
