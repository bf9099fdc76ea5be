"""DistributedDataParallel, until worker-1 raises an exception where the others wait for its gradients."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(2, 1))
for step in range(10):
    loss = model(torch.ones(4, 2)).mean()
    if step == 3 and os.environ["SHOAL_REPLICA"] == "worker-1":
        raise ValueError("worker-1 has had enough")
    loss.backward()  # the all-reduce
    print(f"rank {rank}  step {step}", flush=True)
    dist.barrier()  # nobody is stopped before it has said so
dist.destroy_process_group()
