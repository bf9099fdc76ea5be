"""Trains a small convolutional network on CIFAR-10 with DistributedDataParallel, one process per trainer.

The data set is looked for in --data, then $CIFAR10, then $SHOAL_DATA/cifar10.
"""

import argparse
import json
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before a process group is made: its functions keep the one that they find
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shoal


def main():
    args = arguments()
    data = find_data(args.data)
    use_gpu = torch.cuda.is_available()
    device = torch.device("cuda", args.local_rank) if use_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if use_gpu else "gloo")
    rank = dist.get_rank()
    losses = train(args, data, device, rank)
    dist.barrier()  # rank 0 holds the store the others leave by
    # Nobody holds the group any more, so its threads end here. At the end of the interpreter they could abort it.
    dist.destroy_process_group()
    fell = losses[-1] < losses[0]
    if rank == 0:
        say(f"loss fell from {losses[0]:.4f} to {losses[-1]:.4f}" if fell else "loss did not fall")
    return 0 if fell else 1


def train(args, data, device, rank):
    """The mean loss of all ranks at each step."""
    images = load(data, [f"data_batch_{number}" for number in range(1, 6)])
    say(f"rank {rank} of {dist.get_world_size()}, local rank {args.local_rank}, on {device}: {len(images)} images")
    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    sampler = DistributedSampler(images)  # every rank sees its own part of each epoch
    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start, batches = time.monotonic(), DataLoader(images, args.batch, sampler=sampler)
        for step, (batch, labels) in enumerate(batches):
            loss = nn.functional.cross_entropy(model(pixels(batch, device)), labels.to(device))
            losses.append(mean_of_all(loss))
            shoal.log(loss=loss.item())
            if step % max(1, len(batches) // 2) == 0:
                say(f"rank {rank}  epoch {epoch}  step {step:3}  loss {loss.item():.4f}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            say(f"epoch {epoch}  loss {losses[-1]:.4f}  {len(images) / (time.monotonic() - start):.0f} images/s")

    if rank == 0:
        say(f"accuracy {accuracy(model.module, load(data, ['test_batch']), device):.1%}")
        save(model.module)
    return losses


def say(line):
    """Prints in one piece: trainers share their node's output, and `print` would write the line's end apart."""
    sys.stdout.write(f"{line}\n")


def arguments():
    # The start command has no place for options of this script, so params of the experiment are their defaults.
    params = json.loads(os.environ.get("SHOAL_PARAMS", "{}"))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="directory that holds cifar-10-batches-py")
    parser.add_argument("--epochs", type=int, default=params.get("epochs", 3))
    parser.add_argument("--batch", type=int, default=params.get("batch", 50))
    parser.add_argument("--lr", type=float, default=params.get("lr", 2e-3))
    # torch.distributed.launch passes it, with a dash since PyTorch 2.0; torchrun only sets the variable
    parser.add_argument("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    return parser.parse_args()


def find_data(given):
    shoal_data = os.environ.get("SHOAL_DATA")
    places = [given, os.environ.get("CIFAR10"), shoal_data and os.path.join(shoal_data, "cifar10")]
    for place in filter(None, places):
        for directory in (Path(place) / "cifar-10-batches-py", Path(place)):
            if (directory / "batches.meta").exists():
                return directory
    looked = ", ".join(filter(None, places)) or "nowhere: --data, CIFAR10 and SHOAL_DATA are not set"
    sys.exit(f"error: no CIFAR-10 batches found; looked in {looked}\n\nhint: python make_data.py DIR, then CIFAR10=DIR")


def load(directory, names):
    batches = [pickle.loads((directory / name).read_bytes(), encoding="bytes") for name in names]
    images = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([batch[b"labels"] for batch in batches])
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def pixels(images, device):
    return images.to(device, torch.float32) / 127.5 - 1


def mean_of_all(value):
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


@torch.no_grad()
def accuracy(model, test, device):
    right = 0
    for images, labels in DataLoader(test, 200):
        right += (model(pixels(images, device)).argmax(1).cpu() == labels).sum().item()
    return right / len(test)


def save(model):
    if "SHOAL_OUTPUTS" in os.environ:
        path = Path(os.environ["SHOAL_OUTPUTS"], "model.pt")
        torch.save(model.state_dict(), path)
        say(f"saved {path}")


if __name__ == "__main__":
    sys.exit(main())
