"""Who takes part in an experiment and where each can be reached: what a framework needs to know.

A `Topology` has no cluster in it: addresses are given by whoever starts the replicas, or are placeholders.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Tuple, Union

MASTER, WORKER, PS = "master", "worker", "ps"
ROLES = (MASTER, WORKER, PS)


@dataclass(frozen=True)
class Task:
    """One replica as its peers see it."""

    role: str
    index: int
    rank: int
    host: str
    port: Union[int, str]  # a word only in a preview, before ports are assigned
    trainers: int = 1
    ip: str = ""  # its own number where `host` is a name; known in the replica itself, for what binds to no name

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Topology:
    """All replicas of an experiment in the order of their ranks."""

    tasks: Tuple[Task, ...]

    def of(self, role: str) -> List[Task]:
        return [task for task in self.tasks if task.role == role]

    @property
    def nodes(self) -> List[Task]:
        """The replicas that train: master and workers, without parameter servers."""
        return [task for task in self.tasks if task.role != PS]

    @property
    def first(self) -> Task:
        """Rank 0: the master, or worker 0 where there is none."""
        return self.tasks[0]

    def addresses(self, names: Mapping[str, str]) -> Dict[str, List[str]]:
        """`{"chief": ["10.0.0.4:2222"], "worker": [...]}` with the roles called as in `names`; no empty roles."""
        found = {names[role]: [task.address for task in self.of(role)] for role in ROLES if role in names}
        return {name: addresses for name, addresses in found.items() if addresses}


@dataclass(frozen=True)
class Run:
    """What one start of one replica knows about its experiment beside the topology."""

    experiment: str
    name: str = ""
    attempt: int = 0
    try_: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    outputs: str = ""
    replica_outputs: str = ""
    data: str = ""
    streams: str = ""
    log_level: str = "INFO"
    resume_from: str = ""
