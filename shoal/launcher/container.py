"""The control group of the container that a launcher is the program of.

Its limits were set by whoever made the container, and it cannot be written; but it counts what its processes use, and
whether the kernel has killed one of them. On version 1 that kills one process and not the container, so the launcher
is left to tell of it.

    version 1    /sys/fs/cgroup/memory/memory.oom_control    oom_kill 1
    version 2    /sys/fs/cgroup/memory.events                oom_kill 1

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from shoal.launcher.limits import MOUNTED_AT, Group, Kind, locate, parse_groups, parse_mounts

UNLIMITED = 1 << 60  # bytes: version 1 writes a number where there is no limit


class Container(Group):
    """Read only. What was counted before it was made does not count."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind, "container")
        self.name = ""  # the directories are its own
        self._memory = kind.memory
        self._directories = ()
        self._before = 0
        self._before = self.oom_kills()

    def add(self, pid: int = 0) -> None:
        """Nothing: every process of the container is in it."""

    def oom_kills(self) -> int:
        return super().oom_kills() - self._before

    def limit(self) -> Optional[int]:
        """Bytes; None where there is no limit."""
        file = "memory.max" if self.kind.version == 2 else "memory.limit_in_bytes"
        text = _text(os.path.join(self._memory, file)).strip()
        return int(text) if text.isdigit() and int(text) < UNLIMITED else None

    def remove(self, **_: Any) -> bool:
        """Remembers what it has counted; it goes with the container."""
        self.peak()
        self.oom_kills()
        return True


def find(proc_root: str = "/proc", cgroup_root: str = MOUNTED_AT) -> Optional[Container]:
    """The group of this process, if it counts memory. Never fails."""
    mounts = parse_mounts(_text(f"{proc_root}/self/mountinfo"))
    groups = parse_groups(_text(f"{proc_root}/self/cgroup"))
    places: Dict[str, str] = {}
    for mount in mounts:
        for controller in ("memory", "cpuacct") if mount.version == 1 else ("",):
            if controller in (*mount.options, ""):
                places.setdefault(controller, locate(mount, groups.get(controller, ""), cgroup_root) or "")
    first, second = places.get("memory", ""), places.get("", "")
    if os.path.exists(os.path.join(first, "memory.oom_control")) and first:
        return Container(Kind(1, first, places.get("cpuacct", "")))
    if os.path.exists(os.path.join(second, "memory.events")) and second:
        return Container(Kind(2, second, second))
    return None


def _text(path: str) -> str:
    """The file's text; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
