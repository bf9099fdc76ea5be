"""Warnings of the SDK: one line on stderr for each kind of trouble, then silence. Training goes on."""

from __future__ import annotations

import sys
from typing import Set

_said: Set[str] = set()


def warn(kind: str, text: str) -> None:
    """Says it once per process and kind; never raises, whatever has become of stderr."""
    if kind in _said:
        return
    _said.add(kind)
    try:
        print(f"shoal: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass
