"""The SDK: what a training script calls. Standard library only, Python 3.8.

    shoal.log ──▶ buffer ──▶ writer thread ──▶ $SHOAL_STREAMS/<stream>.000000      one stream per process

calls.py has the functions, session.py the buffer and its writer, points.py makes columns, identity.py and place.py tell
who this process is and where it records, ending.py sees that nothing is lost when it ends, stacks.py tells where it is
when somebody asks.
"""

from __future__ import annotations

import os as _os

from shoal.sdk import ending as ending
from shoal.sdk import stacks as _stacks
from shoal.sdk.calls import (
    artifact,
    checkpoint,
    finish,
    histogram,
    image,
    log,
    model,
    params,
    progress,
    step,
    table,
    tag,
    text,
)
from shoal.sdk.replicas import Replica, replica
from shoal.sdk.running import Run, init
from shoal.sdk.session import state as _state

if _state.disabled:
    from shoal.sdk.disabled import log, step  # type: ignore[assignment]
elif _os.environ.get("SHOAL_STREAMS"):
    _stacks.register(_os.path.dirname(_os.environ["SHOAL_STREAMS"]))

__all__ = [
    "Replica",
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
