"""The frameworks Shoal knows. One file each, one line here; a file knows no cluster.

A framework file says:

    ROLES            our role -> what the framework calls it; a role that is missing does not exist there
    DECIDES          who decides success: the first group with a replica in it; `worker` is all workers, `worker-0` one
    NEEDS_MASTER     whether `master: false` cannot work
    RESTARTS_ONE     whether one replica may be restarted while the others go on
    PROCESS_PER_GPU  whether one process drives one GPU, so that a launcher must start several
    env              (topology, me) -> the variables it sets; pure
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, Mapping, Protocol, Tuple

from shoal.frameworks import identity, jax, mxnet, none, polyaxon, pytorch, tensorflow
from shoal.frameworks.topology import MASTER, PS, ROLES, WORKER, Run, Task, Topology

__all__ = [
    "FRAMEWORKS",
    "MASTER",
    "PS",
    "ROLES",
    "WORKER",
    "Framework",
    "Run",
    "Task",
    "Topology",
    "deciding",
    "environment",
    "setters_of_variables",
]


class Framework(Protocol):
    """What a framework file holds: the module itself is the value."""

    ROLES: Dict[str, str]
    DECIDES: Tuple[Tuple[str, ...], ...]
    NEEDS_MASTER: bool
    RESTARTS_ONE: bool
    PROCESS_PER_GPU: bool

    def env(self, topology: Topology, me: Task) -> Dict[str, str]: ...


FRAMEWORKS: Mapping[str, Framework] = {
    "tensorflow": tensorflow,
    "pytorch": pytorch,
    "mxnet": mxnet,
    "jax": jax,
    "none": none,
}


def environment(framework: str, topology: Topology, me: Task, run: Run) -> Dict[str, str]:
    """Every variable Shoal sets for one replica, the same on every cluster."""
    chosen = FRAMEWORKS[framework]
    return {
        **identity.env(topology, me, run),
        **chosen.env(topology, me),
        **polyaxon.env(chosen.ROLES, topology, me, run),
    }


def deciding(framework: str, names: Iterable[str]) -> FrozenSet[str]:
    """Which of the replicas (`master-0`, `worker-0`, …) decide that the experiment has succeeded."""
    present = list(names)
    for group in FRAMEWORKS[framework].DECIDES:
        found = frozenset(name for name in present if name in group or name.rpartition("-")[0] in group)
        if found:
            return found
    return frozenset(present)


def setters_of_variables() -> Dict[str, str]:
    """Each variable a framework sets -> the framework, found by asking them about a cluster that has every role."""
    found: Dict[str, str] = {}
    for name, framework in FRAMEWORKS.items():
        tasks = tuple(Task(role, 0, rank, "host", 1) for rank, role in enumerate(ROLES) if role in framework.ROLES)
        for task in tasks:
            for variable in framework.env(Topology(tasks), task):
                found.setdefault(variable, name)
    return found
