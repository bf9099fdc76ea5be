"""MXNet: a scheduler everyone reports to, servers that hold the weights, workers that train.

    DMLC_ROLE=worker                 DMLC_NUM_WORKER=3      DMLC_NODE_HOST=10.0.0.5
    DMLC_PS_ROOT_URI=10.0.0.4        DMLC_NUM_SERVER=1      DMLC_WORKER_ID=0    (DMLC_SERVER_ID=0 in a server)
    DMLC_PS_ROOT_PORT=9091

ZeroMQ connects to names but binds to numbers only: in its own variables a replica has its number.

The master is the scheduler and trains nothing; scheduler and servers run the user's command too, where `import mxnet`
turns them into daemons. A master without workers is an ordinary single process and gets none of these: told to be a
scheduler it would wait for ever.
"""

from __future__ import annotations

from typing import Dict, Tuple

from shoal.frameworks.topology import MASTER, PS, WORKER, Task, Topology

ROLES = {MASTER: "scheduler", WORKER: "worker", PS: "server"}
DECIDES: Tuple[Tuple[str, ...], ...] = ((WORKER,), (MASTER,))
NEEDS_MASTER = True
RESTARTS_ONE = False  # the scheduler counts its members once
PROCESS_PER_GPU = False


def env(topology: Topology, me: Task) -> Dict[str, str]:
    workers = topology.of(WORKER)
    if not workers:
        return {}
    scheduler = topology.first
    variables = {
        "DMLC_ROLE": ROLES[me.role],
        "DMLC_PS_ROOT_URI": scheduler.ip or scheduler.host,
        "DMLC_PS_ROOT_PORT": str(scheduler.port),
        "DMLC_NUM_WORKER": str(len(workers)),
        "DMLC_NUM_SERVER": str(len(topology.of(PS))),
        "DMLC_NODE_HOST": me.ip or me.host,
    }
    if me.role == WORKER:
        variables["DMLC_WORKER_ID"] = str(me.index)
    if me.role == PS:
        variables["DMLC_SERVER_ID"] = str(me.index)
    return variables
