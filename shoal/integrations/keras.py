"""Records what Keras tells its callbacks, on every rank.

    from shoal.integrations.keras import ShoalCallback
    model.fit(x, y, epochs=3, callbacks=[ShoalCallback()])

    train/loss, train/…    every `log_every` batches: Keras' own running values of the epoch
    epoch/loss, epoch/…    at the end of an epoch
    val/loss, val/…        at the end of an epoch with validation data
    test/loss, test/…      at the end of an `evaluate` outside of `fit`

The step of all of them is the number of batches that were trained so far.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import shoal
from shoal.integrations import needed

__all__ = ["ShoalCallback"]

_Callback: Any = needed("keras", "keras", "shoal.integrations.keras").callbacks.Callback


class ShoalCallback(_Callback):  # type: ignore[misc]
    """A callback for `fit` and `evaluate`. `log_every=0` leaves out the batches, `params=False` the parameters."""

    def __init__(self, log_every: int = 1, params: bool = True) -> None:
        super().__init__()
        if log_every < 0:
            raise ValueError(f"log_every is {log_every}, and counts batches: 1 is each, 0 is none")
        self.log_every = log_every
        self.seen = 0
        self._tell_params = params
        self._fitting = False

    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._fitting = True
        if self._tell_params:
            shoal.params(_params(self.model, self.params or {}))

    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self.seen += 1
        if self.log_every and self.seen % self.log_every == 0 and logs:
            shoal.log(_named("train/", logs), step=self.seen)

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        values: Dict[str, Any] = {"epoch": epoch + 1}
        for name, value in (logs or {}).items():
            values["val/" + name[4:] if name.startswith("val_") else "epoch/" + name] = value
        shoal.log(values, step=self.seen)
        epochs = (self.params or {}).get("epochs")
        if epochs:
            shoal.progress(min(1.0, (epoch + 1) / epochs))

    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._fitting = False

    def on_test_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        if not self._fitting and logs:  # inside of fit they come again, as val_…, with the epoch
            shoal.log(_named("test/", logs), step=self.seen)


def _named(prefix: str, logs: Mapping[str, Any]) -> Dict[str, Any]:
    return {prefix + name: value for name, value in logs.items()}


def _params(model: Any, told: Mapping[str, Any]) -> Dict[str, Any]:
    """What Keras knows of the run. A model that cannot say something leaves it out."""
    found: Dict[str, Any] = {"epochs": told.get("epochs"), "steps_per_epoch": told.get("steps")}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        found["optimizer"] = type(optimizer).__name__  # its own name is counted: sgd, sgd_1, …
        try:
            found["learning_rate"] = float(optimizer.learning_rate)
        except (AttributeError, TypeError, ValueError):
            pass  # a schedule has no single value
    try:
        found["model_parameters"] = int(model.count_params())
    except (AttributeError, ValueError):
        pass  # not built yet
    return {name: value for name, value in found.items() if value is not None}
