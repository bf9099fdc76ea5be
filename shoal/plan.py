"""Spec -> Plan: the replicas an experiment means, with ranks, resources, placement and policies. Pure; no addresses.

Rank 0 is the master; worker i has rank i+1 (rank i when there is no master); parameter servers come after the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.frameworks import FRAMEWORKS, MASTER, PS, WORKER, Run, Task, Topology, deciding, environment
from shoal.spec.overrides import shaper
from shoal.spec.rules import gpus_of
from shoal.spec.tree import dotted
from shoal.spec.types import Grace, Resources, Restart, Shape, Spec, Timeout

NO_RESOURCES = Resources.model_construct()


@dataclass(frozen=True, slots=True)
class Replica:
    """One task: who it is, what it needs and where it may be placed."""

    role: str
    index: int
    rank: int
    n_trainers: int
    decides: bool  # whether its success is needed for the experiment's
    shape: Shape
    resources_from: str  # `environment.replicas.worker[0].resources`: which lines of the file set them; "" for none

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def resources(self) -> Resources:
        return self.shape.resources or NO_RESOURCES

    def json(self) -> dict[str, Any]:
        return {
            "replica": self.name,
            "role": self.role,
            "index": self.index,
            "rank": self.rank,
            "n_trainers": self.n_trainers,
            "decides": self.decides,
            "resources": self.resources.model_dump(exclude_defaults=True),
            "resources_from": self.resources_from or None,
            "node_selector": self.shape.node_selector,
            "tolerations": self.shape.tolerations,
            "affinity": self.shape.affinity,
            "labels": self.shape.labels,
            "annotations": self.shape.annotations,
        }


@dataclass(frozen=True)
class Plan:
    """Everything a cluster needs to know to run an experiment, and nothing about the cluster."""

    framework: str
    backend: str
    command: str
    replicas: tuple[Replica, ...]
    env_vars: Mapping[str, str]
    params: Mapping[str, Any]
    secret_refs: tuple[str, ...]
    config_map_refs: tuple[str, ...]
    image: str | None
    name: str
    log_level: str
    restart: Restart
    timeout: Timeout
    grace: Grace

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name or None,
            "framework": self.framework,
            "backend": self.backend,
            "command": self.command,
            "image": self.image,
            "params": dict(self.params),
            "env_vars": dict(self.env_vars),
            "secret_refs": list(self.secret_refs),
            "config_map_refs": list(self.config_map_refs),
            "restart": self.restart.model_dump(),
            "timeout": self.timeout.model_dump(),
            "grace": self.grace.model_dump(),
            "replicas": [replica.json() for replica in self.replicas],
            "totals": totals(self.replicas),
        }


def plan(spec: Spec) -> Plan:
    """The plan of a valid spec."""
    replicas = spec.environment.replicas
    shape_of = shaper(spec)
    trainers_of = _trainers(spec)
    roles = [MASTER] * replicas.master + [WORKER] * replicas.n_workers + [PS] * replicas.n_ps
    first = {MASTER: 0, WORKER: int(replicas.master), PS: replicas.master + replicas.n_workers}
    names = [(role, rank - first[role]) for rank, role in enumerate(roles)]
    deciders = deciding(spec.framework, [f"{role}-{index}" for role, index in names])
    planned = []
    for rank, (role, index) in enumerate(names):
        shape, origin = shape_of(role, index)
        planned.append(
            Replica(
                role=role,
                index=index,
                rank=rank,
                n_trainers=trainers_of(shape),
                decides=f"{role}-{index}" in deciders,
                shape=shape,
                resources_from=dotted(origin),
            )
        )
    return Plan(
        framework=spec.framework,
        backend=spec.backend,
        command=spec.run.cmd,
        replicas=tuple(planned),
        env_vars=spec.environment.env_vars,
        params=spec.params,
        secret_refs=spec.environment.secret_refs,
        config_map_refs=spec.environment.config_map_refs,
        image=spec.build.image,
        name=spec.name or "",
        log_level=spec.logging.level,
        restart=spec.restart,
        timeout=spec.timeout,
        grace=spec.grace,
    )


def _trainers(spec: Spec) -> Callable[[Shape], int]:
    fixed = spec.environment.replicas.n_trainers
    if fixed is not None:
        return lambda shape: fixed
    if FRAMEWORKS[spec.framework].PROCESS_PER_GPU:
        return lambda shape: max(1, gpus_of(shape.resources))
    return lambda shape: 1


def totals(replicas: Iterable[Replica]) -> dict[str, dict[str, float]]:
    """What all replicas ask for together. A replica that says only its limits requests as much; none counts as 0."""
    sums = {kind: {"requests": 0.0, "limits": 0.0} for kind in ("cpu", "memory", "gpu")}
    for replica in replicas:
        for kind, total in sums.items():
            amount = getattr(replica.resources, kind)
            total["requests"] += amount.requests if amount.requests is not None else amount.limits or 0
            total["limits"] += amount.limits or 0
    return {kind: {side: _whole(value) for side, value in total.items()} for kind, total in sums.items()}


def _whole(value: float) -> float:
    rounded = round(value, 6)
    return int(rounded) if float(rounded).is_integer() else rounded


def topology(plan: Plan, address_of: Callable[[Replica], tuple[str, int | str]]) -> Topology:
    """The plan's replicas with the addresses a cluster gave them."""
    return Topology(tuple(Task(r.role, r.index, r.rank, *address_of(r), trainers=r.n_trainers) for r in plan.replicas))


def preview(plan: Plan, replica: Replica) -> dict[str, str]:
    """Every variable the replica will get, with placeholders for what is known only when it starts."""
    peers = topology(plan, lambda peer: (f"<{peer.name}>", "<port>"))
    run = Run(
        experiment="<experiment>",
        name=plan.name,
        params=plan.params,
        outputs="<outputs>",
        replica_outputs=f"<outputs>/{replica.name}",
        data="<data>",
        streams="<streams>",
        log_level=plan.log_level,
    )
    return {**plan.env_vars, **environment(plan.framework, peers, peers.tasks[replica.rank], run)}
