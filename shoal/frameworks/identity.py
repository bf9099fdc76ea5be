"""The variables every replica gets, whatever its framework.

    SHOAL_EXPERIMENT=e7k2m9      SHOAL_CLUSTER_SPEC={"master": ["10.0.0.4:2222"], "worker": ["10.0.0.5:2222"]}
    SHOAL_REPLICA=worker-0       SHOAL_PARAMS={"lr": 0.001}
    SHOAL_ROLE=worker            SHOAL_OUTPUTS=/…/outputs            shared by all replicas, lives through attempts
    SHOAL_INDEX=0                SHOAL_REPLICA_OUTPUTS=/…/worker-0   its own
    SHOAL_ATTEMPT=0              SHOAL_DATA=/…/data
    SHOAL_TRY=0                  SHOAL_STREAMS=/…/streams            where the SDK writes

NaN and infinities, which JSON cannot say, are strings in SHOAL_PARAMS. After a restart there is one more, when earlier
starts marked checkpoints with `shoal.checkpoint(path, step)`:

    SHOAL_RESUME_FROM=/…/step-400.pt                                 the newest one that is complete
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict

from shoal.frameworks.topology import MASTER, PS, WORKER, Run, Task, Topology

NAMES = {MASTER: MASTER, WORKER: WORKER, PS: PS}


def env(topology: Topology, me: Task, run: Run) -> Dict[str, str]:
    resume = {"SHOAL_RESUME_FROM": run.resume_from} if run.resume_from else {}
    return {
        "SHOAL_EXPERIMENT": run.experiment,
        "SHOAL_REPLICA": me.name,
        "SHOAL_ROLE": me.role,
        "SHOAL_INDEX": str(me.index),
        "SHOAL_ATTEMPT": str(run.attempt),
        "SHOAL_TRY": str(run.try_),
        "SHOAL_CLUSTER_SPEC": json.dumps(topology.addresses(NAMES)),
        "SHOAL_PARAMS": params_json(run),
        "SHOAL_OUTPUTS": run.outputs,
        "SHOAL_REPLICA_OUTPUTS": run.replica_outputs,
        "SHOAL_DATA": run.data,
        "SHOAL_STREAMS": run.streams,
        **resume,
    }


def params_json(run: Run) -> str:
    """The params as strict JSON: NaN and infinities, which JSON cannot say, as strings."""
    return json.dumps(_finite(run.params), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
