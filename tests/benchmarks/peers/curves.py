"""The work that every product is given: the same curves, and the same step of training."""

from __future__ import annotations

import math
import random
import struct

NAMES = [f"train/metric_{number}" for number in range(10)]


def curve(number: int, steps: int) -> list[float]:
    """A loss that falls with noise, as a 32-bit float of a GPU that Python has made a 64-bit one."""
    noise = random.Random(number)
    scale = 0.5 + number
    values = [scale * math.exp(-step / 3000) + 0.05 * scale * noise.gauss(0, 1) for step in range(steps)]
    return list(struct.unpack(f"{steps}f", struct.pack(f"{steps}f", *values)))


def curves(steps: int) -> dict[str, list[float]]:
    return {name: curve(number, steps) for number, name in enumerate(NAMES)}


def work(turns: int) -> float:
    """A training step: arithmetic that keeps one core busy and the interpreter's lock."""
    total = 0.0
    for number in range(turns):
        total += number * 0.5
    return total
