"""No tracking at all: what the measuring itself costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def start(directory: str) -> Callable[..., Any]:
    def log(values: dict[str, float], step: int) -> None:
        pass

    return log


def finish() -> None:
    pass
