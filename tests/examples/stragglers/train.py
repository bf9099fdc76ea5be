"""Real DDP on three ranks. One of them is slow before the gradients are exchanged; all steps take the same time."""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed.nn  # before a process group is made: its functions keep the one that they find
from torch.nn.parallel import DistributedDataParallel

import shoal

STEPS, DELAY = 30, 0.15


def train(rank):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).pow(2).mean()
        if rank == int(os.environ["SLOW"]):
            time.sleep(DELAY)  # a slow disk, a busy neighbour, a hot GPU
        if os.environ["MARKS"] == "1":
            shoal.step()
        loss.backward()  # gradients are averaged over all ranks here
        optimizer.step()
        shoal.log(loss=loss.item(), step=step)


dist.init_process_group("gloo")
train(dist.get_rank())
dist.destroy_process_group()  # nobody holds it any more: its threads end here, and cannot abort the interpreter
