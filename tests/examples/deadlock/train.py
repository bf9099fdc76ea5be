"""Ranks add up a number again and again; one of them waits for a batch that never comes, so the others wait for it."""

import os
import sys
import threading

import torch
import torch.distributed as dist

if os.environ["USES_SDK"] == "1":
    import shoal


def next_batch(rank):
    if rank == int(os.environ["STUCK"]):
        print("stuck", flush=True)
        threading.Event().wait()
    return torch.ones(1)


def train(rank):
    for step in range(1_000_000):
        batch = next_batch(rank) if step == 3 else torch.ones(1)
        if step == 3:
            print("reached", flush=True)
        dist.all_reduce(batch)
        if "shoal" in sys.modules:
            shoal.log(sum=batch.item())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
