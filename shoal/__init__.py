"""Shoal runs distributed training experiments and tracks every rank of them.

    import shoal

    shoal.log(loss=0.25)          in a training script: every process of every replica is recorded
    shoal.Client()                in a notebook: asks the server

The functions are loaded when they are first used; the import itself loads nothing. A training script gets the standard
library only.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shoal.client import Client as Client
    from shoal.sdk import (
        Run,
        artifact,
        checkpoint,
        finish,
        histogram,
        image,
        init,
        log,
        model,
        params,
        progress,
        replica,
        step,
        table,
        tag,
        text,
    )
    from shoal.sdk.wandb import Histogram as Histogram
    from shoal.sdk.wandb import Html as Html
    from shoal.sdk.wandb import Image as Image
    from shoal.sdk.wandb import Table as Table
    from shoal.sdk.wandb import alert as alert
    from shoal.sdk.wandb import config as config
    from shoal.sdk.wandb import define_metric as define_metric
    from shoal.sdk.wandb import login as login
    from shoal.sdk.wandb import run as run
    from shoal.sdk.wandb import summary as summary
    from shoal.sdk.wandb import unwatch as unwatch
    from shoal.sdk.wandb import watch as watch

__all__ = [
    "Run",
    "artifact",
    "checkpoint",
    "finish",
    "histogram",
    "image",
    "init",
    "log",
    "model",
    "params",
    "progress",
    "replica",
    "step",
    "table",
    "tag",
    "text",
]

# For `import shoal as wandb`.
_WANDB = (
    "Histogram",
    "Html",
    "Image",
    "Table",
    "alert",
    "config",
    "define_metric",
    "login",
    "run",
    "summary",
    "unwatch",
    "watch",
)


def __getattr__(name: str) -> object:
    import importlib

    if name in __all__:
        module = importlib.import_module("shoal.sdk")
        for function in __all__:
            globals()[function] = getattr(module, function)
        return globals()[name]
    if name in _WANDB:
        # Not kept: `run`, `config` and `summary` are others after the next `init`.
        return getattr(importlib.import_module("shoal.sdk.wandb"), name)
    if name == "Client":
        try:
            found = importlib.import_module("shoal.client").Client
        except ImportError as missing:
            raise AttributeError(f"shoal.Client needs the full install, which lacks {missing.name} here") from None
        globals()[name] = found
        return found
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted([*globals(), *__all__, *_WANDB, "Client"])
