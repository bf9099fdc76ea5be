"""What every cluster kind can do. Five verbs; what they exchange are values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shoal.plan import Plan
from shoal.states import Outcome, Policy, Status

Handle = str


@dataclass(frozen=True)
class Site:
    """What a cluster has: for admission, and for what a person is told when something does not fit."""

    cpu: float
    memory: float  # MiB
    gpus: tuple[int, ...]
    node: str


@dataclass(frozen=True)
class Launch:
    """One attempt of one experiment, with everything the engine has decided about it."""

    experiment: str
    uid: str
    attempt: int
    plan: Plan
    policy: Policy
    cwd: str
    oversubscribe: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    limits_from: Mapping[str, str] = field(default_factory=dict)  # replica -> file:line that set its resources
    resume_from: str = ""


class Request(Protocol):
    """What would be applied, as a value; `str(request)` is what a person reads, with secrets left out."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Observation:
    """What a cluster says of one attempt.

    `missing`: the cluster does not know it, it has to be submitted (again). `outcome`: it is over.
    """

    statuses: tuple[Status, ...] = ()
    outcome: Outcome | None = None
    missing: bool = False
    unreachable: str = ""
    stop_grace: float | None = None  # of the wish to stop that the cluster has taken note of


class Backend(Protocol):
    def probe(self) -> Site:
        """What this cluster has."""

    def render(self, launch: Launch, site: Site) -> Request:
        """What would be applied. Pure."""

    def submit(self, request: Any) -> Handle:
        """Starts it. Submitting twice is one run: names derive from experiment and attempt."""

    def observe(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """One question to the cluster for all of them."""

    def stop(self, handle: Handle, reason: str, grace: float) -> None:
        """Silent when already gone."""
