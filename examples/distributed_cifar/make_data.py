"""Writes a small data set in the layout of the CIFAR-10 archive, so that the example runs without a download.

    python make_data.py DIR [--size 400]        makes DIR/cifar-10-batches-py/{data_batch_1..5,test_batch,batches.meta}

Each class is a faint colour pattern under heavy noise: learnt in seconds, though not from a single pixel.
"""

import argparse
import pickle
from pathlib import Path

import numpy as np

LABELS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", type=int, default=400, help="images in each of the six batches; 10000 in the archive")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    # 4 × 4 squares of colour, blown up to 32 × 32
    patterns = rng.normal(0, 6, (len(LABELS), 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3).reshape(len(LABELS), 3072)
    home = args.directory / "cifar-10-batches-py"
    home.mkdir(parents=True, exist_ok=True)
    for number in range(1, 6):
        write(home / f"data_batch_{number}", batch(rng, patterns, args.size, f"training batch {number} of 5"))
    write(home / "test_batch", batch(rng, patterns, args.size, "testing batch 1 of 1"))
    names = [label.encode() for label in LABELS]
    write(home / "batches.meta", {b"num_cases_per_batch": args.size, b"label_names": names, b"num_vis": 3072})
    print(f"{home}: 6 batches of {args.size} images")


def batch(rng, patterns, size, title):
    labels = rng.integers(len(LABELS), size=size)
    noisy = 128 + patterns[labels] + rng.normal(0, 60, (size, 3072))
    return {
        b"batch_label": title.encode(),
        b"labels": labels.tolist(),
        b"data": noisy.clip(0, 255).astype(np.uint8),  # a row is 1024 red, 1024 green, 1024 blue values
        b"filenames": [f"{LABELS[label]}_s_{n:06}.png".encode() for n, label in enumerate(labels)],
    }


def write(path, value):
    path.write_bytes(pickle.dumps(value, protocol=2))  # the archive's own protocol


if __name__ == "__main__":
    main()
