"""What the types cannot say: keys that must agree with each other.

A rule yields `(path, message, hint)`; whoever knows the file turns the path into a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from shoal.frameworks import FRAMEWORKS, MASTER, PS, WORKER
from shoal.spec.overrides import REPLICAS, shaper
from shoal.spec.tree import Path
from shoal.spec.types import External, Resources, Shape, Spec

Finding: TypeAlias = tuple[Path, str, str]

LAUNCHERS = (
    "torchrun",
    "torch.distributed",
    "accelerate",
    "deepspeed",
    "mpirun",
    "mpiexec",
    "horovodrun",
    "srun",
    "NUM_TRAINERS",
)
SCRIPTS = (".sh", "make ", "bash ", "sh ")


def errors(spec: Spec) -> Iterator[Finding]:
    yield from _framework_is_named(spec)
    yield from _roles_exist(spec)
    yield from _indices(spec)
    yield from _requests_within_limits(spec)
    yield from _equal_trainers(spec)
    yield from _restart_can_work(spec)
    yield from _data_places(spec)


def warnings(spec: Spec) -> Iterator[Finding]:
    yield from _trainers_are_started(spec)
    yield from _overrides_unused(spec)


def gpus_of(resources: Resources | None) -> int:
    if resources is None:
        return 0
    return resources.gpu.requests or resources.gpu.limits or 0


def _framework_is_named(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    if "framework" not in spec.model_fields_set and (replicas.n_workers or replicas.n_ps or not replicas.master):
        choices = ", ".join(FRAMEWORKS)
        yield REPLICAS, "replicas need a framework, so that they find each other", f"add framework: one of {choices}"


def _roles_exist(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    framework = FRAMEWORKS[spec.framework]
    if PS not in framework.ROLES:
        for key in ("n_ps", "default_ps", "ps"):
            if key in replicas.model_fields_set:
                title = {"pytorch": "PyTorch", "jax": "JAX"}.get(spec.framework, spec.framework)
                yield (
                    (*REPLICAS, key),
                    f"{title} has no parameter servers",
                    f"remove {key}, or set framework: tensorflow",
                )
    if not replicas.master and framework.NEEDS_MASTER:
        yield (
            (*REPLICAS, "master"),
            "MXNet cannot do without its scheduler, which is the master",
            "remove master: false",
        )
    elif not replicas.master and replicas.n_workers == 0:
        yield (*REPLICAS, "master"), "without a master there must be workers", "set n_workers to 1 or more"
    elif spec.framework == "mxnet" and replicas.n_ps and not replicas.n_workers:
        yield (*REPLICAS, "n_ps"), "MXNet's servers need workers", "set n_workers to 1 or more"
    if not replicas.master:
        for prop in Shape.model_fields:
            if prop in spec.environment.model_fields_set:
                yield (
                    ("environment", prop),
                    "this is the master's, and there is none",
                    f"move it to environment.replicas.default_worker.{prop}",
                )


def _indices(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    for role, entries, count in ((WORKER, replicas.worker, replicas.n_workers), (PS, replicas.ps, replicas.n_ps)):
        seen: dict[int, int] = {}
        for number, entry in enumerate(entries):
            path = (*REPLICAS, role, number, "index")
            key = "n_workers" if role == WORKER else "n_ps"
            if entry.index in seen:
                yield path, f"index {entry.index} is listed twice", "put all of its keys into one entry"
            elif entry.index >= count:
                valid = f"the indices are 0 to {count - 1}" if count else f"{key} is 0"
                yield path, f"there is no {role}-{entry.index}: {valid}", f"raise {key}, or change the index"
            seen[entry.index] = number


def _requests_within_limits(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    shapes: list[tuple[Path, Shape]] = [
        (("environment",), spec.environment),
        ((*REPLICAS, "default_worker"), replicas.default_worker),
        ((*REPLICAS, "default_ps"), replicas.default_ps),
        *[((*REPLICAS, "worker", n), entry) for n, entry in enumerate(replicas.worker)],
        *[((*REPLICAS, "ps", n), entry) for n, entry in enumerate(replicas.ps)],
    ]
    for path, shape in shapes:
        if shape.resources is None:
            continue
        for kind in ("cpu", "memory", "gpu"):
            amount = getattr(shape.resources, kind)
            if amount.requests is not None and amount.limits is not None and amount.requests > amount.limits:
                yield (
                    (*path, "resources", kind, "requests"),
                    f"requests {amount.requests:g} is more than limits {amount.limits:g}",
                    "lower requests, or raise limits",
                )


def _equal_trainers(spec: Spec) -> Iterator[Finding]:
    """torchrun multiplies nodes by processes, so the nodes of a process group must be alike."""
    replicas = spec.environment.replicas
    if not FRAMEWORKS[spec.framework].PROCESS_PER_GPU or replicas.n_trainers is not None:
        return
    counts: dict[int, str] = {}
    for name, gpus in _gpus_of_distinct_nodes(spec):
        counts.setdefault(max(1, gpus), name)
    if len(counts) > 1:
        told = ", ".join(f"{name} would start {count}" for count, name in sorted(counts.items()))
        yield (
            REPLICAS,
            f"replicas would start different numbers of processes: {told}",
            "give master and workers the same number of GPUs, or set environment.replicas.n_trainers",
        )


def _gpus_of_distinct_nodes(spec: Spec) -> Iterator[tuple[str, int]]:
    replicas = spec.environment.replicas
    indices = {entry.index for entry in replicas.worker if entry.index < replicas.n_workers}
    plain = next((index for index in range(replicas.n_workers) if index not in indices), None)
    names = [(MASTER, 0)] if replicas.master else []
    names += [(WORKER, index) for index in sorted(indices if plain is None else indices | {plain})]
    shape_of = shaper(spec)
    for role, index in names:
        yield f"{role}-{index}", gpus_of(shape_of(role, index)[0].resources)


def _restart_can_work(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    alone = replicas.n_workers + replicas.n_ps + replicas.master == 1
    if spec.restart.policy == "replica" and not alone and not FRAMEWORKS[spec.framework].RESTARTS_ONE:
        yield (
            ("restart", "policy"),
            f"{spec.framework} cannot go on while one replica starts again",
            "set policy: experiment, which starts all of them again",
        )


def _data_places(spec: Spec) -> Iterator[Finding]:
    seen: set[str] = set()
    for number, entry in enumerate(spec.data):
        name = entry.uri if isinstance(entry, External) else entry.dataset
        at = entry.at or name.rstrip("/").rpartition("/")[2].partition("@")[0]
        if at in seen:
            yield ("data", number), f"two data sets at {at!r}", "give each its own `at`"
        seen.add(at)


def _trainers_are_started(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    trainers = replicas.n_trainers or 1
    if replicas.n_trainers is None and FRAMEWORKS[spec.framework].PROCESS_PER_GPU:
        trainers = max((gpus for _, gpus in _gpus_of_distinct_nodes(spec)), default=1)
    command = spec.run.cmd
    if trainers > 1 and not any(word in command for word in (*LAUNCHERS, *SCRIPTS)):
        yield (
            ("run", "cmd"),
            f"each replica has {trainers} trainers, but the command starts one process",
            "start it with torchrun, or set environment.replicas.n_trainers: 1",
        )


def _overrides_unused(spec: Spec) -> Iterator[Finding]:
    replicas = spec.environment.replicas
    for role, count in ((WORKER, replicas.n_workers), (PS, replicas.n_ps)):
        key = f"default_{role}"
        if key in replicas.model_fields_set and count == 0 and role in FRAMEWORKS[spec.framework].ROLES:
            n_key = "n_workers" if role == WORKER else "n_ps"
            yield (*REPLICAS, key), f"there are none: {n_key} is 0", f"set {n_key}, or remove {key}"
