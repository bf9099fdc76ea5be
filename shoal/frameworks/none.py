"""No framework: a script finds its peers in SHOAL_CLUSTER_SPEC and speaks to them as it likes."""

from __future__ import annotations

from typing import Dict, Tuple

from shoal.frameworks.topology import MASTER, PS, WORKER, Task, Topology

ROLES = {MASTER: "master", WORKER: "worker", PS: "ps"}
DECIDES: Tuple[Tuple[str, ...], ...] = ((MASTER,), (WORKER,))
NEEDS_MASTER = False
RESTARTS_ONE = True  # nothing is known of the script, so its author decides
PROCESS_PER_GPU = False


def env(topology: Topology, me: Task) -> Dict[str, str]:
    return {}
