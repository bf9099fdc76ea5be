"""The variables a script written for Polyaxon reads, so that it starts here unchanged.

    POLYAXON_CLUSTER={"master": ["10.0.0.4:2222"], "worker": ["10.0.0.5:2222"]}
    POLYAXON_TASK_INFO={"type": "worker", "index": 0}
    POLYAXON_EXPERIMENT_INFO={"experiment_name": "cifar", "experiment_uuid": "e7k2m9", "role": "worker"}
    POLYAXON_PARAMS={"lr": 0.001}
    POLYAXON_RUN_OUTPUTS_PATH=/…/outputs
    POLYAXON_LOG_LEVEL=INFO

Under MXNet, Polyaxon called parameter servers `server`; the framework's own table of role names says so.
"""

from __future__ import annotations

import json
from typing import Dict, Mapping

from shoal.frameworks.identity import params_json
from shoal.frameworks.topology import MASTER, Run, Task, Topology


def env(names: Mapping[str, str], topology: Topology, me: Task, run: Run) -> Dict[str, str]:
    polyaxon_names = {**names, MASTER: MASTER}
    role = polyaxon_names[me.role]
    info = {"experiment_name": run.name, "experiment_uuid": run.experiment, "role": role}
    return {
        "POLYAXON_CLUSTER": json.dumps(topology.addresses(polyaxon_names)),
        "POLYAXON_TASK_INFO": json.dumps({"type": role, "index": me.index}),
        "POLYAXON_EXPERIMENT_INFO": json.dumps(info),
        "POLYAXON_PARAMS": params_json(run),
        "POLYAXON_RUN_OUTPUTS_PATH": run.outputs,
        "POLYAXON_LOG_LEVEL": run.log_level,
    }
