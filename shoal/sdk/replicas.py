"""`shoal.replica`: what a script may ask about itself. Outside Shoal there are answers too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

from shoal.sdk import identity, session


class Replica:
    """The replica and the process that a script runs in.

    >>> import shoal
    >>> shoal.replica.name, shoal.replica.rank
    ('master-0', 0)
    >>> if shoal.replica.resume_from:
    ...     print("load", shoal.replica.resume_from)
    """

    @property
    def experiment(self) -> str:
        """The id of the experiment; the key of the run outside Shoal, once something is recorded."""
        settled = session.state.session.settled if session.state.session is not None else None
        return identity.identify(os.environ).experiment or (settled.key if settled is not None else "")

    @property
    def name(self) -> str:
        """`worker-0`."""
        return identity.myself().replica

    @property
    def role(self) -> str:
        """`master`, `worker` or `ps`."""
        return identity.myself().role

    @property
    def index(self) -> int:
        """Its number among the replicas of the same role."""
        return identity.myself().index

    @property
    def rank(self) -> int:
        """Of this process among all processes."""
        return identity.myself().rank

    @property
    def world(self) -> int:
        """How many processes there are."""
        return identity.myself().world or 1

    @property
    def local_rank(self) -> int:
        """Of this process among those of its replica."""
        return identity.myself().process

    @property
    def attempt(self) -> int:
        """How often the experiment was restarted before."""
        return identity.myself().attempt

    @property
    def try_(self) -> int:
        """How often this replica alone was restarted before."""
        return identity.myself().try_

    @property
    def params(self) -> Dict[str, Any]:
        """The params of the experiment file."""
        try:
            value = json.loads(os.environ.get("SHOAL_PARAMS") or "{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def outputs(self) -> Path:
        """The directory of this replica alone; it exists."""
        given = os.environ.get("SHOAL_REPLICA_OUTPUTS")
        return _made(Path(given) if given else self.shared_outputs / self.name)

    @property
    def shared_outputs(self) -> Path:
        """The directory that all replicas share and that lives through restarts; it exists."""
        given = os.environ.get("SHOAL_OUTPUTS")
        if given:
            return _made(Path(given))
        if session.state.disabled:
            return _made(Path("outputs").absolute())
        return _made(Path(session.current().place().run) / "outputs")

    @property
    def data(self) -> Optional[Path]:
        """Where the data sets of the file lie; None when there are none."""
        return _path("SHOAL_DATA")

    @property
    def resume_from(self) -> Optional[Path]:
        """The newest complete checkpoint of an earlier attempt; None in the first one."""
        return _path("SHOAL_RESUME_FROM")

    def __repr__(self) -> str:
        return f"<shoal.replica {self.name}, rank {self.rank} of {self.world}, attempt {self.attempt}>"


replica = Replica()


def _path(variable: str) -> Optional[Path]:
    given = os.environ.get(variable)
    return Path(given) if given else None


def _made(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        pass  # whoever writes there sees the reason
    return path
