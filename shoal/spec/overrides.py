"""The override rule: what one replica needs, resolved property by property and never merged.

    worker-2's resources  =  those of the `worker` entry with index 2, else those of `default_worker`, else none

Workers and parameter servers never inherit the master's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from shoal.frameworks import MASTER, PS, WORKER
from shoal.spec.tree import Path
from shoal.spec.types import Shape, Spec

REPLICAS: Path = ("environment", "replicas")

ShapeAndOrigin: TypeAlias = tuple[Shape, Path]


def shaper(spec: Spec) -> Callable[[str, int], ShapeAndOrigin]:
    """A function (role, index) -> the replica's shape and the path of the `resources` it was given."""
    environment, replicas = spec.environment, spec.environment.replicas
    shared: dict[str, ShapeAndOrigin] = {
        MASTER: _resolve((("environment",), environment)),
        WORKER: _resolve(((*REPLICAS, "default_worker"), replicas.default_worker)),
        PS: _resolve(((*REPLICAS, "default_ps"), replicas.default_ps)),
    }
    own: dict[tuple[str, int], ShapeAndOrigin] = {}
    for role, entries, default in (
        (WORKER, replicas.worker, replicas.default_worker),
        (PS, replicas.ps, replicas.default_ps),
    ):
        for number, entry in enumerate(entries):
            own[role, entry.index] = _resolve(
                ((*REPLICAS, role, number), entry), ((*REPLICAS, f"default_{role}"), default)
            )
    return lambda role, index: own.get((role, index), shared[role])


def _resolve(*sources: tuple[Path, Shape]) -> ShapeAndOrigin:
    """Each property from the first source that has it."""
    properties = {}
    origin: Path = ()
    for prop in Shape.model_fields:
        for path, shape in sources:
            value = getattr(shape, prop)
            if value is not None:
                properties[prop] = value
                origin = (*path, prop) if prop == "resources" else origin
                break
    return Shape.model_construct(**properties), origin
