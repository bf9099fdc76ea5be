"""Whether an experiment fits on the local cluster, and what it waits for, in numbers. Pure.

All or nothing: an experiment is admitted with everything it asks for, or it waits. First in, first out: nothing
overtakes, so nothing starves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.backends.backend import Site
from shoal.plan import Plan, totals


@dataclass(frozen=True)
class Needs:
    """What an experiment asks for in all; requests, not limits."""

    cpu: float = 0.0
    memory: float = 0.0
    gpu: int = 0

    def __add__(self, other: Needs) -> Needs:
        return Needs(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)


def needs_of(plan: Plan) -> Needs:
    sums = totals(plan.replicas)
    return Needs(sums["cpu"]["requests"], sums["memory"]["requests"], int(sums["gpu"]["requests"]))


def shortage(needs: Needs, used: Needs, site: Site) -> str:
    """What is missing for it to start now: `2 cpu (1 of 4 free)`; empty when it fits."""
    parts = [
        f"{_number(asked)} {unit} ({_number(max(0.0, total - taken))} of {_number(total)} free)"
        for asked, taken, total, unit in _compared(needs, used, site)
        if asked > 0 and taken + asked > total + 1e-9
    ]
    return ", ".join(parts)


def never_fits(needs: Needs, site: Site) -> str:
    """Why it cannot run here however long it waits: `7 gpu, and this machine has 0`; empty when it can."""
    parts = [
        f"{_number(asked)} {unit}, and this machine has {_number(total)}"
        for asked, _, total, unit in _compared(needs, Needs(), site)
        if asked > total + 1e-9
    ]
    return "; ".join(parts)


def _number(value: float) -> str:
    """`1048576`, `0.3`: a terabyte in MiB needs more than the six digits of `:g`."""
    return f"{value:.12g}"


def _compared(needs: Needs, used: Needs, site: Site) -> Sequence[tuple[float, float, float, str]]:
    return (
        (needs.cpu, used.cpu, site.cpu, "cpu"),
        (needs.memory, used.memory, round(site.memory), "MiB of memory"),
        (needs.gpu, used.gpu, len(site.gpus), "gpu"),
    )


def assign(plan: Plan, free_gpus: Sequence[int], *, oversubscribe: bool) -> dict[str, tuple[int, ...]] | None:
    """Devices for each replica; None when there are too few. Oversubscribed, absent devices stay absent."""
    left = list(free_gpus)
    devices: dict[str, tuple[int, ...]] = {}
    for replica in plan.replicas:
        gpu = replica.resources.gpu
        count = gpu.requests or gpu.limits or 0
        if count > len(left) and not oversubscribe:
            return None
        devices[replica.name], left = tuple(left[:count]), left[count:]
    return devices
