"""JAX: the three arguments of `jax.distributed.initialize`.

    JAX_COORDINATOR_ADDRESS=10.0.0.4:2222    JAX_NUM_PROCESSES=4    JAX_PROCESS_ID=2

A bare `initialize()` reads only the first of them; pass all three.
"""

from __future__ import annotations

from typing import Dict, Tuple

from shoal.frameworks.topology import MASTER, WORKER, Task, Topology

ROLES = {MASTER: "master", WORKER: "worker"}
DECIDES: Tuple[Tuple[str, ...], ...] = ((MASTER, WORKER),)
NEEDS_MASTER = False
RESTARTS_ONE = False  # the coordinator ends the job when a process is lost
PROCESS_PER_GPU = False


def env(topology: Topology, me: Task) -> Dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": topology.first.address,
        "JAX_NUM_PROCESSES": str(len(topology.nodes)),
        "JAX_PROCESS_ID": str(me.rank),
    }
