"""What every cluster kind can do: verbs that exchange values, two questions, and the start and end of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shoal.launcher.stacks import Answer
from shoal.plan import Plan
from shoal.states import Outcome, Policy, Status

Handle = str


LOCAL = "local"  # the cluster that every home has


@dataclass(frozen=True)
class Site:
    """What a cluster has: for admission, and for what a person is told when something does not fit."""

    cpu: float
    memory: float  # MiB
    gpus: tuple[int, ...]
    node: str


@dataclass(frozen=True)
class Mounted:
    """A data set that every replica is to find below SHOAL_DATA. It lies ready where the server is."""

    at: str
    label: str  # as a person knows it: `cifar10@v1`
    size: int
    file: str | None  # its name, where it is one file and no directory


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
    data: Sequence[Mounted] = ()


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
    unreachable: str = ""  # why nobody can say how it is
    unknown: bool = False  # nor ever will: no cluster of that name is configured any more
    stop_grace: float | None = None  # of the wish to stop that the cluster has taken note of


class Backend(Protocol):
    """One cluster. A call may raise Unavailable, and is then tried again."""

    def probe(self) -> Site:
        """What this cluster has."""

    def render(self, launch: Launch, site: Site) -> Request:
        """What would be applied. Starts nothing; may ask the cluster what it serves, and read the user's files."""

    def assumed(self) -> str:
        """What the last request took for granted, since nobody answered; empty when nothing."""

    def submit(self, request: Any) -> Handle:
        """Starts it. Submitting twice is one run: names derive from experiment and attempt."""

    def start(self, launch: Launch, site: Site) -> Handle:
        """Has it rendered and submitted, and waits for no cluster: why that could not be is seen by `observe`."""

    def lacks(self, path: str, experiment: str) -> str:
        """Why replicas that start now do not find this file of an experiment that ran there; empty when they do."""

    def observe(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """One question to the cluster for all of them."""

    def stop(self, handle: Handle, reason: str, grace: float) -> None:
        """Silent when already gone."""

    def stacks(self, handle: Handle) -> tuple[list[Answer], list[str]]:
        """Where the processes of an attempt are, as they say themselves; and why some cannot be asked."""

    def sweep(self) -> None:
        """A server has started: what earlier ones left behind is removed, soon. Waits for no cluster."""

    def close(self) -> None:
        """The server ends. What runs goes on."""
