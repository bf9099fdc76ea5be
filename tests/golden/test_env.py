from __future__ import annotations

import pytest

from shoal.frameworks import Run, environment
from shoal.plan import plan, topology
from shoal.spec import load
from tests import golden
from tests.fixtures import HERE

CASES = [
    "tensorflow-large-newest",
    "tensorflow-no-master",
    "pytorch-one",
    "pytorch-four-nodes",
    "pytorch-two-nodes-eight-trainers",
    "mxnet-small",
    "jax-three",
    "none-all-roles",
    "single",
]


@pytest.mark.parametrize("case", CASES)
def test_every_variable_of_every_replica(case: str) -> None:
    planned = plan(load([str(HERE / "experiments" / f"{case}.yml")]).spec)
    peers = topology(planned, lambda replica: (f"10.0.0.{replica.rank}", 2000 + replica.rank))
    run = Run(
        "e7k2m9", planned.name, 1, 2, {"lr": 0.1, "limit": float("inf")}, "/outputs", "/outputs/mine", "/data", "/s"
    )
    dump = {task.name: environment(planned.framework, peers, task, run) for task in peers.tasks}
    golden.check(f"env/{case}.json", dump)
