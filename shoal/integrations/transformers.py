"""A callback for the Trainer of Hugging Face transformers that records every rank.

    from shoal.integrations.transformers import ShoalCallback
    Trainer(…, callbacks=[ShoalCallback()])

    loss → train/loss      eval_accuracy → eval/accuracy      test_loss → test/loss

The Trainer tells all ranks what it logs, and its own trackers listen on the first alone; this one does not. The
training loss it tells is already the mean over the ranks. The arguments of the training and the model's configuration
become params; a checkpoint is marked once the Trainer has written it, so that a restart is given the newest.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional

import shoal
from shoal.integrations import needed

__all__ = ["ShoalCallback"]

_TrainerCallback: Any = needed("transformers", "transformers", "shoal.integrations.transformers").TrainerCallback
_FIRST_WORDS = ("eval", "test")


class ShoalCallback(_TrainerCallback):  # type: ignore[misc]
    """A `TrainerCallback`. `params=False` leaves out the arguments, `checkpoints=False` does not mark checkpoints."""

    def __init__(self, params: bool = True, checkpoints: bool = True) -> None:
        super().__init__()
        self._tell_params = params
        self._mark_checkpoints = checkpoints

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self._tell_params:
            values: Dict[str, Any] = dict(args.to_sanitized_dict())
            config: Any = getattr(model, "config", None)
            if hasattr(config, "to_dict"):
                values["model"] = config.to_dict()
            shoal.params(values)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Optional[Mapping[str, Any]] = None, **kwargs: Any
    ) -> None:
        values = {_name(name): value for name, value in (logs or {}).items() if hasattr(value, "__float__")}
        if values:
            shoal.log(values, step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.max_steps > 0 and (state.global_step % 10 == 0 or state.global_step == state.max_steps):
            shoal.progress(min(1.0, state.global_step / state.max_steps))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if self._mark_checkpoints and state.is_world_process_zero and os.path.isdir(path):
            shoal.checkpoint(os.path.abspath(path), step=state.global_step)


def _name(name: str) -> str:
    """`eval_loss` is `eval/loss`; what does not say where it belongs is of the training."""
    first, bar, rest = name.partition("_")
    return f"{first}/{rest}" if bar and first in _FIRST_WORDS else f"train/{name}"
