"""PyTorch: where rank 0 listens, and which node this is.

    MASTER_ADDR=10.0.0.4    NUM_NODES=4       nodes: master and workers
    MASTER_PORT=29500       NUM_TRAINERS=8    processes to start on this node
    NODE_RANK=2             RANK=2            the rank of the *node*
    WORLD_SIZE=4            LOCAL_RANK=0      LOCAL_WORLD_SIZE=1
    PET_NNODES=4 PET_NPROC_PER_NODE=8 PET_NODE_RANK=2 PET_MASTER_ADDR=10.0.0.4 PET_MASTER_PORT=29500

With one process per node these are the process's own values, so a bare `python train.py` joins the group.
torchrun and `torch.distributed.launch` start NUM_TRAINERS processes per node and give each its own RANK, LOCAL_RANK,
WORLD_SIZE and LOCAL_WORLD_SIZE; torchrun reads the PET_ names, so a bare `torchrun train.py` works too.
"""

from __future__ import annotations

from typing import Dict, Tuple

from shoal.frameworks.topology import MASTER, WORKER, Task, Topology

ROLES = {MASTER: "master", WORKER: "worker"}
DECIDES: Tuple[Tuple[str, ...], ...] = ((MASTER, WORKER),)
NEEDS_MASTER = False
RESTARTS_ONE = False  # a process group cannot take a lost rank back
PROCESS_PER_GPU = True


def env(topology: Topology, me: Task) -> Dict[str, str]:
    nodes = str(len(topology.nodes))
    rank = str(me.rank)
    host, port = topology.first.host, str(topology.first.port)
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "NUM_NODES": nodes,
        "NUM_TRAINERS": str(me.trainers),
        "NODE_RANK": rank,
        "RANK": rank,
        "WORLD_SIZE": nodes,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": str(me.trainers),
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": port,
    }
