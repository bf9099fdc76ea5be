"""A small network learns a spiral with DistributedDataParallel, on CPUs over gloo."""

import argparse
import math
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before a process group is made: its functions keep the one that they find
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}, in {os.environ.get('SHOAL_REPLICA', 'no replica')}")

    losses = train(args.lr, args.steps, rank)
    fell = losses[-1] < losses[0] / 2
    if rank == 0:
        print(f"loss fell from {losses[0]:.4f} to {losses[-1]:.4f}" if fell else "loss did not fall by half")
    # Nobody holds the group any more, so its threads end here. At the end of the interpreter they could abort it.
    dist.destroy_process_group()
    return 0 if fell else 1


def train(lr, steps, rank):
    """The loss of all ranks at each step."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    points, classes = spirals(300, seed=rank)
    losses = []
    for step in range(steps + 1):
        loss = nn.functional.cross_entropy(model(points), classes)
        losses.append(mean_of_all(loss))
        shoal.log(loss=loss.item(), step=step)
        if step % 20 == 0:
            print(f"rank {rank}  step {step:3}  loss {loss.item():.4f}, of all ranks {losses[-1]:.4f}")
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over the ranks here
        optimizer.step()
    return losses


def spirals(count, seed):
    """Points on two interleaved spirals, and which of the two each is on."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(2, (count,), generator=generator)
    way = torch.rand(count, generator=generator)
    angle = math.pi * (1.5 * way + classes)
    points = torch.stack([way * angle.cos(), way * angle.sin()], dim=1) * 3
    return points + 0.05 * torch.randn(points.shape, generator=generator), classes


def mean_of_all(value):
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


if __name__ == "__main__":
    sys.exit(main())
