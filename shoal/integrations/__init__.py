"""Callbacks for libraries that have a training loop of their own. They travel, and record every rank."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["needed"]


def needed(module: str, package: str, who: str) -> Any:
    """The module of a library that a callback extends; the error says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if module.split(".")[0] != (missing.name or "").split(".")[0]:
            raise  # the library is there, and something that it needs is not
        text = f"{who} needs {module.split('.')[0]}, which is not installed here\nhint: pip install {package}"
        raise ModuleNotFoundError(text, name=missing.name) from None
