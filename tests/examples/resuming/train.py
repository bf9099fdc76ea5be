"""DDP that marks a checkpoint after each epoch. CRASH=3: rank 1 dies in epoch 3 of the first attempt."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before a process group is made: its functions keep the one that they find
from torch.nn.parallel import DistributedDataParallel

import shoal

EPOCHS = 6


def main() -> None:
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()  # nobody holds it any more: its threads end here, and cannot abort the interpreter


def train(rank: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    first = 0
    if shoal.replica.resume_from:
        kept = torch.load(shoal.replica.resume_from)
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["epoch"] + 1
    print(f"rank {rank} begins with epoch {first}", flush=True)
    for epoch in range(first, EPOCHS):
        torch.manual_seed(1000 * rank + epoch)
        features = torch.randn(64, 8)
        loss = ((model(features) - features.sum(1, keepdim=True)) ** 2).mean()
        if rank == 1 and shoal.replica.attempt == 0 and str(epoch) == os.environ.get("CRASH"):
            raise SystemExit(1)  # before the gradients meet: rank 0 cannot finish the epoch either
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            save(epoch, model, optimizer)
        dist.barrier()
    weights = model.module.weight.detach().flatten().tolist()
    print("weights", " ".join(f"{weight:.9f}" for weight in weights), flush=True)


def save(epoch: int, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: a crash while it is written leaves the checkpoint before it as the newest."""
    path = shoal.replica.outputs / f"epoch-{epoch}.pt"
    state = {"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, f"{path}.new")
    os.replace(f"{path}.new", path)
    shoal.checkpoint(path, step=epoch)


if __name__ == "__main__":
    main()
