"""SIGTERM in the first moments of a container, which nobody says twice.

The first process of a container does not hear a signal that it has no handler for. A launcher has one as soon as its
interpreter runs; and whoever wants it to end asks first whether it listens (`preStop` of its pod), so that a kubelet
is held back until then:

    python3 shoal.zip listening

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

WORD = "listening"
LOOK = 0.02  # seconds between two looks


def listen() -> None:
    """From now on a SIGTERM ends this program, until somebody else takes note of it."""
    signal.signal(signal.SIGTERM, _end)


def wait(status: str = "/proc/1/status") -> int:
    """Waits until the first process of this container listens. Silent also where that cannot be seen."""
    while True:
        try:
            with open(status) as file:
                caught = next((line for line in file if line.startswith("SigCgt:")), "")
        except OSError:
            return 0
        if not caught or catches(caught, signal.SIGTERM):
            return 0
        time.sleep(LOOK)


def catches(line: str, number: int) -> bool:
    """`SigCgt:	0000000000004002`: whether a signal is among those."""
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def _end(number: int, frame: Any) -> None:
    sys.exit(128 + number)
