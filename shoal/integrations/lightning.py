"""A logger for Lightning 2 that records every rank, not only the first.

    from shoal.integrations.lightning import ShoalLogger
    Trainer(logger=ShoalLogger(), …)

What `self.log` is given is recorded under its own name, by each rank: with `sync_dist=True` the ranks agree, without it
each rank has its own curve. Hyperparameters become params, checkpoints that Lightning has written are marked so that a
restart is given the newest. Works with both packages, `lightning` and `pytorch_lightning`.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from typing import Any, Dict, Mapping, Optional, Union

import shoal
from shoal.integrations import needed

__all__ = ["ShoalLogger"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _library() -> Any:
    """The package that the script uses already; `lightning` brings the other one along, so both may be installed."""
    for name in _PACKAGES:
        if name in sys.modules:
            return sys.modules[name]
    try:
        return needed("lightning.pytorch", "lightning", "shoal.integrations.lightning")
    except ModuleNotFoundError:
        return needed("pytorch_lightning", "lightning", "shoal.integrations.lightning")


_Logger: Any = _library().loggers.Logger


class ShoalLogger(_Logger):  # type: ignore[misc]
    """A logger for Lightning's Trainer; `prefix` comes before the name of each metric."""

    def __init__(self, prefix: str = "", params: bool = True, checkpoints: bool = True) -> None:
        super().__init__()
        self._prefix = prefix
        self._tell_params = params
        self._mark_checkpoints = checkpoints
        self._marked: Dict[str, float] = {}
        for package in _PACKAGES:  # whichever of the two trains, this is a logger of it
            if package in sys.modules:
                sys.modules[package].loggers.Logger.register(ShoalLogger)

    @property
    def name(self) -> str:
        """Empty, as is the version: so checkpoints lie in `checkpoints` right below `save_dir`."""
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> Optional[str]:
        """Where Lightning puts checkpoints when it is not told: the outputs that all replicas share."""
        return os.environ.get("SHOAL_OUTPUTS")

    @property
    def experiment(self) -> Any:
        """The module `shoal`, on every rank: `self.logger.experiment.image("sample", picture)`."""
        return shoal

    def log_metrics(self, metrics: Mapping[str, Any], step: Optional[int] = None) -> None:
        values = {self._prefix + name: value for name, value in metrics.items()}
        shoal.log(values) if step is None else shoal.log(values, step=step)

    def log_hyperparams(self, params: Union[Mapping[str, Any], Namespace, None], *args: Any, **kwargs: Any) -> None:
        if self._tell_params and params is not None:
            shoal.params(dict(vars(params) if isinstance(params, Namespace) else params))

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Nothing: Shoal does not draw models."""

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Lightning calls this on rank 0 only, after all ranks have saved their part."""
        if not self._mark_checkpoints:
            return
        for path in (checkpoint_callback.best_model_path, checkpoint_callback.last_model_path):
            if not path or not os.path.exists(path):
                continue
            written = os.stat(path).st_mtime
            if self._marked.get(path) != written:
                self._marked[path] = written
                shoal.checkpoint(path, step=_step(checkpoint_callback, path))

    def finalize(self, status: str) -> None:
        """Lightning calls this when `fit` ends, and others of its loops may follow: the stream stays open."""


def _step(callback: Any, path: str) -> int:
    """The step a checkpoint was written at."""
    written = re.search(r"step=(\d+)", os.path.basename(path))
    if written is not None:
        return int(written.group(1))
    return int(getattr(callback, "_last_global_step_saved", 0) or 0)
