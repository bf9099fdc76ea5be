"""TensorFlow: one JSON value tells each task the whole cluster and its own place in it.

    TF_CONFIG={"cluster": {"chief": ["10.0.0.4:2222"], "worker": ["10.0.0.5:2222"], "ps": ["10.0.0.6:2222"]},
               "task": {"type": "worker", "index": 0}}

TensorFlow 2 calls the master `chief`; without a master the key is absent and worker 0 leads.
"""

from __future__ import annotations

import json
from typing import Dict, Tuple

from shoal.frameworks.topology import MASTER, PS, WORKER, Task, Topology

ROLES = {MASTER: "chief", WORKER: "worker", PS: "ps"}
DECIDES: Tuple[Tuple[str, ...], ...] = ((MASTER,), ("worker-0",))
NEEDS_MASTER = False
RESTARTS_ONE = True  # a worker may rejoin: the coordinator of ParameterServerStrategy waits for it
PROCESS_PER_GPU = False


def env(topology: Topology, me: Task) -> Dict[str, str]:
    task = {"type": ROLES[me.role], "index": me.index}
    return {"TF_CONFIG": json.dumps({"cluster": topology.addresses(ROLES), "task": task})}
