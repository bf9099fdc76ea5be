from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import FileProblems
from shoal.plan import plan, preview, totals
from tests.fixtures import BASE, read


def resources(text: str) -> Any:
    spec = read(BASE + f"environment: {{resources: {{{text}}}}}\n").spec
    assert spec.environment.resources is not None
    return spec.environment.resources


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("cpu: {requests: 0.5}", "cpu", 0.5),
        ("cpu: {requests: 2}", "cpu", 2),
        ("memory: {requests: 256}", "memory", 256),
        ("memory: {requests: 2Gi}", "memory", 2048),
        ("memory: {requests: 512Mi}", "memory", 512),
        ("memory: {requests: 1.5Gi}", "memory", 1536),
        ("memory: {requests: 512Ki}", "memory", 0.5),
        ("gpu: {requests: 2}", "gpu", 2),
        ("gpu: {requests: 2.0}", "gpu", 2),
    ],
)
def test_amounts(text: str, kind: str, expected: float) -> None:
    assert getattr(resources(text), kind).requests == expected


@pytest.mark.parametrize("kind", ["cpu", "memory", "gpu"])
@pytest.mark.parametrize("value", ["0", "-1", ".nan", ".inf", "1e300", "true", "[1]", "{}", "'3'", "x"])
def test_amounts_that_make_no_sense(kind: str, value: str) -> None:
    with pytest.raises(FileProblems) as raised:
        resources(f"{kind}: {{requests: {value}}}")
    assert [problem.path for problem in raised.value.problems] == [f"environment.resources.{kind}.requests"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("45", 45), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert read(BASE + f"grace: {{stop: {text}}}\n").spec.grace.stop == seconds


@pytest.mark.parametrize("text", ["''", "5 minutes", "1m2h", "-3s", ".nan", "x", "1e12"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(FileProblems):
        read(BASE + f"grace: {{stop: {text}}}\n")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("cmd: python train.py", "python train.py"),
        ("cmd: [a, b c]", "a && b c"),
        ("cmd: |\n    python train.py \\\n      --x 1 \\\n\n", "python train.py \\\n  --x 1"),
    ],
)
def test_commands(text: str, command: str) -> None:
    assert read(f"run:\n  {text}\n").spec.run.cmd == command


@pytest.mark.parametrize("text", ["''", "'  '", "[]", "[a, '']", "7", "[1]", "{a: b}", '"\\\\"'])
def test_commands_that_are_none(text: str) -> None:
    with pytest.raises(FileProblems) as raised:
        read(f"run: {{cmd: {text}}}\n")
    assert raised.value.problems[0].path.startswith("run.cmd")


def test_variables_are_kept_as_they_were_typed() -> None:
    spec = read(BASE + "environment: {env_vars: {A: 08, B: true, C: 1e-3, D: no, E: 'x y'}}\n").spec
    assert spec.environment.env_vars == {"A": "08", "B": "true", "C": "1e-3", "D": "no", "E": "x y"}


@pytest.mark.parametrize("text", ['run: {cmd: "a\\0b"}', 'run: {cmd: x}\nenvironment: {env_vars: {A: "a\\0b"}}'])
def test_nul_is_refused_where_a_process_would_be_given_it(text: str) -> None:
    with pytest.raises(FileProblems, match="NUL"):
        read(text + "\n")


def test_one_value_for_timeout_limits_the_run() -> None:
    assert read(BASE + "timeout: 12h\n").spec.timeout.run == 43200


class TestOverrideRule:
    """Per property, not merged; workers never inherit the master's."""

    TEXT = """
framework: tensorflow
environment:
  resources: {cpu: {requests: 9}}
  labels: {who: master}
  replicas:
    n_workers: 3
    default_worker: {resources: {cpu: {requests: 1}, memory: {requests: 64}}, node_selector: {pool: a}}
    worker: [{index: 1, resources: {memory: {requests: 128}}}]
    n_ps: 1
"""

    def test_a_worker_with_its_own_resources_loses_the_defaults_but_keeps_other_properties(self) -> None:
        replicas = {replica.name: replica for replica in plan(read(BASE + self.TEXT).spec).replicas}
        assert replicas["worker-0"].resources.cpu.requests == 1
        assert replicas["worker-1"].resources.cpu.requests is None
        assert replicas["worker-1"].resources.memory.requests == 128
        assert replicas["worker-1"].shape.node_selector == {"pool": "a"}
        assert replicas["worker-1"].resources_from == "environment.replicas.worker[0].resources"
        assert replicas["worker-2"].resources_from == "environment.replicas.default_worker.resources"

    def test_nothing_is_inherited_from_the_master(self) -> None:
        replicas = {replica.name: replica for replica in plan(read(BASE + self.TEXT).spec).replicas}
        assert replicas["master-0"].shape.labels == {"who": "master"}
        assert replicas["worker-0"].shape.labels is None
        assert replicas["ps-0"].shape.resources is None
        assert replicas["ps-0"].resources_from == ""

    def test_totals(self) -> None:
        assert totals(plan(read(BASE + self.TEXT).spec).replicas) == {
            "cpu": {"requests": 11, "limits": 0},
            "memory": {"requests": 256, "limits": 0},
            "gpu": {"requests": 0, "limits": 0},
        }


def test_the_totals_of_polyaxons_own_example() -> None:
    """Master 1/2 cpu; 5 workers 3/3 cpu, 256/256 MiB, #3 300 MiB; 10 ps 2/4 cpu, #9 512/1024 MiB."""
    text = """
framework: tensorflow
environment:
  resources: {cpu: {requests: 1, limits: 2}}
  replicas:
    n_workers: 5
    n_ps: 10
    default_worker: {resources: {cpu: {requests: 3, limits: 3}, memory: {requests: 256, limits: 256}}}
    worker: [{index: 3, resources: {memory: {requests: 300, limits: 300}}}]
    default_ps: {resources: {cpu: {requests: 2, limits: 4}}}
    ps: [{index: 9, resources: {memory: {requests: 512, limits: 1024}}}]
"""
    assert totals(plan(read(BASE + text).spec).replicas) == {
        "cpu": {"requests": 1 + 3 * 4 + 2 * 9, "limits": 2 + 3 * 4 + 4 * 9},
        "memory": {"requests": 300 + 256 * 4 + 512, "limits": 300 + 256 * 4 + 1024},
        "gpu": {"requests": 0, "limits": 0},
    }


def test_trainers_follow_gpus_with_pytorch_only() -> None:
    gpus = "environment: {resources: {gpu: {requests: 4}}}\n"
    torch = read("framework: pytorch\nrun: {cmd: torchrun x}\n" + gpus).spec
    assert plan(torch).replicas[0].n_trainers == 4
    assert plan(read("framework: tensorflow\nrun: {cmd: x}\n" + gpus).spec).replicas[0].n_trainers == 1


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        ("python train.py", True),
        ("torchrun train.py", False),
        ("python -m torch.distributed.run x", False),
        ("accelerate launch x", False),
        ("./train.sh", False),
        ("python x --n $NUM_TRAINERS", False),
    ],
)
def test_trainers_that_nobody_starts_are_a_warning(command: str, warned: bool) -> None:
    document = read(f"framework: pytorch\nrun: {{cmd: '{command}'}}\nenvironment: {{replicas: {{n_trainers: 2}}}}\n")
    assert bool(document.warnings) == warned


def test_the_preview_has_placeholders_and_the_users_variables() -> None:
    planned = plan(read(BASE + "framework: jax\nenvironment: {env_vars: {A: b}, replicas: {n_workers: 1}}\n").spec)
    variables = preview(planned, planned.replicas[1])
    assert variables["A"] == "b"
    assert variables["JAX_COORDINATOR_ADDRESS"] == "<master-0>:<port>"
    assert variables["SHOAL_REPLICA"] == "worker-0"
