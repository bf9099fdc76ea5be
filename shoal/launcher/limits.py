"""Limits of one replica: memory and cores.

Where this process may make control groups, the kernel enforces them, and tells afterwards whether it was the one who
killed. Elsewhere a watch over the memory of the replica's processes stands in, and cores are not limited.

    version 1    <memory>/<own group>/shoal-<uid>/memory.limit_in_bytes    536870912
                                                  memory.memsw.limit_in_bytes   (memory and swap together)
                 <cpu>/<own group>/shoal-<uid>/cpu.cfs_quota_us            150000     1.5 cores
    version 2    <own group>/shoal-<uid>/memory.max                        536870912
                                         memory.swap.max                   0
                                         memory.oom.group                  1          all processes go, not only one
                                         cpu.max                           150000 100000

Groups are made below our own and never beside it: whatever limits us (a container, a Slurm step) limits them too.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

PREFIX = "shoal-"
LEAF = "shoal-leaf"
"""Version 2: the group into which we move ourselves, for a group that holds processes cannot limit its children."""

PERIOD = 100_000  # microseconds: the kernel's own choice
SMALLEST_QUOTA = 1_000  # microseconds: the kernel takes no less
MOUNTED_AT = "/sys/fs/cgroup"
LONGEST_PAUSE = 10.0  # seconds between two looks of a watch


@dataclass(frozen=True)
class Kind:
    """Which limits control groups can enforce here, and in which directories; true when there are any."""

    version: int = 0  # 1 or 2; 0 where no group can be made
    memory: str = ""  # the directory for groups with a memory limit; empty where that is not possible
    cpu: str = ""  # the same for cores
    why: str = ""  # why something is missing, for a person

    def __bool__(self) -> bool:
        return bool(self.version)

    @property
    def directories(self) -> Tuple[str, ...]:
        """Where a group has to be made, the one that stands for the whole first."""
        return tuple(dict.fromkeys(directory for directory in (self.memory, self.cpu) if directory))


def detect(proc_root: str = "/proc", cgroup_root: str = MOUNTED_AT) -> Kind:
    """Which limits this process can set. Never fails: what cannot be read cannot be written either.

    Tries it: makes an empty group and removes it. On version 2, when this process is the only one of its group, it
    moves itself into a group below, which is what the kernel asks for before children can be limited.
    """
    mounts = parse_mounts(_text(f"{proc_root}/self/mountinfo"))
    groups = parse_groups(_text(f"{proc_root}/self/cgroup"))
    first = {name: _own_v1(name, mounts, groups, cgroup_root) for name in ("memory", "cpu")}
    found = {name: directory for name, (directory, _) in first.items() if directory}
    why = "; ".join(f"{name}: {reason}" for name, (_, reason) in first.items() if reason)
    if found or any(_controls(mount, name) for mount in mounts for name in ("memory", "cpu")):
        return Kind(1 if found else 0, found.get("memory", ""), found.get("cpu", ""), why)
    return _detect_v2(mounts, groups, cgroup_root)


class Group:
    """The control group of one replica. It lives until `remove`, or until `clean_leftovers` after its maker's death."""

    def __init__(self, kind: Kind, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ValueError(f"{name!r} cannot name a control group: use letters, digits, '.', '_' and '-'")
        self.kind = kind
        self.name = name
        self._memory = os.path.join(kind.memory, name) if kind.memory else ""
        self._directories = tuple(os.path.join(directory, name) for directory in kind.directories)
        self._lock = -1
        self._peak: Optional[int] = None
        self._oom_kills = 0

    @classmethod
    def create(
        cls,
        kind: Kind,
        name: str,
        memory_bytes: Optional[int],
        cpu_cores: Optional[float],
        oversubscribe: bool = False,
    ) -> Group:
        """Makes the group and sets its limits; with `oversubscribe` it only measures. OSError when that fails.

        A limit whose controller the kind lacks is not set: look at `kind.memory`, and watch instead. With a kind that
        has none, the group is one that does nothing.
        """
        group = cls(kind, name)
        try:
            group._make()
            for setting in settings(kind.version, memory_bytes, cpu_cores, oversubscribe):
                group._set(setting)
        except OSError:
            group.remove(within=0)
            raise
        return group

    def add(self, pid: int = 0) -> None:
        """Moves a process in; 0 is the caller. What it holds already is not counted: add it before it runs anything."""
        for directory in self._directories:
            _write(os.path.join(directory, "cgroup.procs"), str(pid))

    def pids(self) -> Set[int]:
        """The processes within, wherever their parents have gone and whatever they did to their environment."""
        return {int(pid) for directory in self._directories[:1] for pid in _text(f"{directory}/cgroup.procs").split()}

    def usage(self) -> Optional[int]:
        """Bytes in use, counted as the limit is: with the page cache. None when memory is not counted."""
        now = _number(self._memory, "memory.current" if self.kind.version == 2 else "memory.usage_in_bytes")
        self._peak = _larger(self._peak, now)
        return now

    def peak(self) -> Optional[int]:
        """The most bytes ever in use; before Linux 5.19 on version 2, the most that `usage` saw. None when unknown."""
        known = _number(self._memory, "memory.peak" if self.kind.version == 2 else "memory.max_usage_in_bytes")
        if known is None:
            self.usage()
        self._peak = _larger(self._peak, known)
        return self._peak

    def oom_kills(self) -> int:
        """How many processes of the group the kernel has killed for want of memory. Answers after `remove`, too.

        Linux before 4.13 does not count them on version 1; there, 1 when the limit was ever hit.
        """
        file = "memory.events" if self.kind.version == 2 else "memory.oom_control"
        counts = parse_counts(_text(os.path.join(self._memory, file)) if self._memory else "")
        counted = counts.get("oom_kill")
        if counts and counted is None:
            counted = min(1, _number(self._memory, "memory.failcnt") or 0)
        self._oom_kills = max(self._oom_kills, counted or 0)
        return self._oom_kills

    def remove(
        self,
        *,
        within: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Whether the group is gone; silent when it was before. Waits for processes that are leaving, kills none."""
        self.peak()
        self.oom_kills()
        deadline = clock() + within
        pause = 0.001
        while not _remove(self._directories) and clock() < deadline:
            sleep(pause)
            pause = min(0.05, pause * 2)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        return not any(os.path.isdir(directory) for directory in self._directories)

    def _make(self) -> None:
        """The lock on the first directory says that somebody lives who will use it, though no process is in it yet."""
        for directory in self._directories[:1]:
            self._lock = _make_locked(directory)
        for directory in self._directories[1:]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory)

    def _set(self, setting: Setting) -> None:
        directory = self.kind.memory if setting.controller == "memory" else self.kind.cpu
        if not directory:
            return
        try:
            _write(os.path.join(directory, self.name, setting.file), setting.value)
        except OSError as error:
            # On version 1 more cores than the group above has are refused; then that one is the limit.
            looser = setting.controller == "cpu" and error.errno == errno.EINVAL
            if setting.required and not looser:
                raise


class Exceeded(NamedTuple):
    """A replica went beyond its memory limit. Both in bytes."""

    peak: int
    limit: int


class MemoryWatch:
    """Watches the memory of a replica's processes where no control group can.

    `check` is cheap to call often: it looks at most every `every` seconds, and less often when looking takes long. A
    page that processes share is counted once, as far as the kernel tells (smaps_rollup); else resident sizes are added
    up, which counts it for each of them. `limit` None only keeps the peak.
    """

    def __init__(
        self,
        limit: Optional[int],
        pids: Callable[[], Iterable[int]],
        *,
        every: float = 0.5,
        proc_root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.peak = 0
        self.due = float("-inf")  # when `check` looks again
        self._pids = pids
        self._every = every
        self._proc = proc_root
        self._clock = clock
        self._listed: List[int] = []
        self._list_due = float("-inf")

    def check(self, now: float) -> Optional[Exceeded]:
        """What is exceeded at `now`, a time of any clock; None when nothing is, or when it is too early to look."""
        if _early(now, self.due):
            return None
        if not _early(now, self._list_due):
            self._list(now)
        began = self._clock()
        used = self._used()
        if self.limit is not None and used > self.limit:
            self._list(now)  # the list may be old, and numbers are reused
            used = self._used()
        self.peak = max(self.peak, used)
        self.due = now + _pause(self._every, self._clock() - began)
        return Exceeded(self.peak, self.limit) if self.limit is not None and used > self.limit else None

    def _list(self, now: float) -> None:
        """Finding the processes means reading about all of this machine: done a quarter as often as looking at ours."""
        began = self._clock()
        self._listed = list(self._pids())
        self._list_due = now + _pause(4 * self._every, self._clock() - began)

    def _used(self) -> int:
        """Resident sizes are quick to read and never less than the true share, which is read when they tell news."""
        resident = {pid: _resident(self._proc, pid) for pid in self._listed}
        total = sum(resident.values())
        if total <= self.peak and (self.limit is None or total <= self.limit):
            return total
        return sum(_share(self._proc, pid, size) for pid, size in resident.items())


def clean_leftovers(kind: Kind, prefix: str = PREFIX) -> List[str]:
    """Removes groups that hold no process and whose maker is dead; the names of those. Silent about all others."""
    names: Set[str] = set()
    for directory in kind.directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            names.update(entry.name for entry in entries if entry.name.startswith(prefix) and entry.is_dir())
    return sorted(name for name in names if _clean(kind, name))


class Setting(NamedTuple):
    """One line to write into a group."""

    controller: str
    file: str
    value: str
    required: bool = True  # false: not every kernel has the file


def settings(
    version: int, memory_bytes: Optional[int], cpu_cores: Optional[float], oversubscribe: bool = False
) -> List[Setting]:
    """What to write into a new group, in this order. Pure."""
    if oversubscribe or not version:
        return []
    found = []
    if memory_bytes is not None:
        limit = str(memory_bytes)
        found += {
            1: [
                Setting("memory", "memory.limit_in_bytes", limit),
                Setting("memory", "memory.memsw.limit_in_bytes", limit, required=False),
            ],
            2: [
                Setting("memory", "memory.max", limit),
                Setting("memory", "memory.swap.max", "0", required=False),
                Setting("memory", "memory.oom.group", "1", required=False),
            ],
        }[version]
    if cpu_cores is not None:
        quota = max(SMALLEST_QUOTA, round(cpu_cores * PERIOD))
        found += {
            1: [Setting("cpu", "cpu.cfs_period_us", str(PERIOD)), Setting("cpu", "cpu.cfs_quota_us", str(quota))],
            2: [Setting("cpu", "cpu.max", f"{quota} {PERIOD}")],
        }[version]
    return found


class Mount(NamedTuple):
    """A mounted hierarchy of control groups: which part of it (`root`) is seen where (`point`)."""

    root: str
    point: str
    version: int
    options: Tuple[str, ...]


def parse_mounts(mountinfo: str) -> List[Mount]:
    """`35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory`, and other file systems."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) >= 5 and len(after) >= 3 and after[0] in ("cgroup", "cgroup2"):
            version = 2 if after[0] == "cgroup2" else 1
            found.append(Mount(_unescaped(before[3]), _unescaped(before[4]), version, tuple(after[2].split(","))))
    return found


def parse_groups(text: str) -> Dict[str, str]:
    """`4:cpu,cpuacct:/job_7` and `0::/user.slice` -> {"cpu": "/job_7", "cpuacct": "/job_7", "": "/user.slice"}"""
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found


def parse_counts(text: str) -> Dict[str, int]:
    """`oom 1\\noom_kill 1\\n` -> {"oom": 1, "oom_kill": 1}"""
    words = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def locate(mount: Mount, group: str, cgroup_root: str = MOUNTED_AT) -> Optional[str]:
    """The directory of a group; None when the mount does not show it, as in a container that sees another part."""
    if mount.point != MOUNTED_AT and not mount.point.startswith(MOUNTED_AT + "/"):
        return None
    root = mount.root.rstrip("/")
    if ".." in group.split("/") or not (group + "/").startswith(root + "/"):
        return None
    return (cgroup_root + mount.point[len(MOUNTED_AT) :] + group[len(root) :]).rstrip("/")


def _own_v1(controller: str, mounts: List[Mount], groups: Dict[str, str], cgroup_root: str) -> Tuple[str, str]:
    """(the directory of our own group, "") when groups can be made in it, else ("", why not)."""
    reason = "no hierarchy is mounted"
    for mount in mounts:
        if not _controls(mount, controller):
            continue
        directory = locate(mount, groups.get(controller, ""), cgroup_root)
        if directory is None or not os.path.isdir(directory):
            reason = f"our own group cannot be seen in {mount.point}"
            continue
        reason = _refusal(directory)
        if not reason:
            return directory, ""
    return "", reason


def _controls(mount: Mount, controller: str) -> bool:
    return mount.version == 1 and controller in mount.options


def _detect_v2(mounts: List[Mount], groups: Dict[str, str], cgroup_root: str) -> Kind:
    located = [locate(mount, groups.get("", ""), cgroup_root) for mount in mounts if mount.version == 2]
    own = next((directory for directory in located if directory and os.path.isdir(directory)), None)
    if own is None:
        return Kind(why="no control groups are mounted, or our own cannot be seen")
    if os.path.basename(own) == LEAF:
        own = os.path.dirname(own)
    offered = {"memory", "cpu"} & set(_text(f"{own}/cgroup.controllers").split())
    if not offered:
        return Kind(why=f"{own} is given neither memory nor cpu")
    reason = _refusal(own) or _immovable(own) or _enable(own, offered)
    if reason:
        return Kind(why=reason)
    why = "; ".join(f"{name}: {own} is not given it" for name in ("memory", "cpu") if name not in offered)
    return Kind(2, own if "memory" in offered else "", own if "cpu" in offered else "", why)


def _refusal(directory: str) -> str:
    """Why no group can be made in a directory; empty when it can. The modes of the files do not tell: it is tried."""
    probe = os.path.join(directory, f"{PREFIX}probe-{os.urandom(4).hex()}")
    try:
        os.mkdir(probe)
    except OSError as error:
        return f"{directory} cannot be written: {error.strerror}"
    with contextlib.suppress(OSError):  # somebody else's cleaning came first
        os.rmdir(probe)
    return ""


def _immovable(own: str) -> str:
    """Why processes cannot be moved from our own group to its children (version 2); empty when they can."""
    file = os.path.join(own, "cgroup.procs")
    return "" if os.access(file, os.W_OK) else f"{file} cannot be written, so processes cannot be moved"


def _enable(own: str, controllers: Set[str]) -> str:
    """Why the children of our own group (version 2) cannot have the controllers; empty when they have them now.

    A group that holds processes cannot limit its children; only the root of the whole machine, which has no
    `cgroup.type`, may do both: https://docs.kernel.org/admin-guide/cgroup-v2.html#no-internal-process-constraint
    """
    missing = controllers - set(_text(f"{own}/cgroup.subtree_control").split())
    if not missing:
        return ""
    inside = {int(pid) for pid in _text(f"{own}/cgroup.procs").split()}
    others = inside - {os.getpid()}
    leaf = os.path.join(own, LEAF)
    is_root = not os.path.exists(f"{own}/cgroup.type")
    if others and not is_root:
        return f"{own} holds {len(others)} other processes, and a group that holds processes cannot limit its children"
    try:
        if inside and not is_root:
            with contextlib.suppress(FileExistsError):
                os.mkdir(leaf)
            _write(f"{leaf}/cgroup.procs", str(os.getpid()))
        _write(f"{own}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))
    except OSError as error:
        with contextlib.suppress(OSError):
            _write(f"{own}/cgroup.procs", str(os.getpid()))
        with contextlib.suppress(OSError):
            os.rmdir(leaf)
        return f"{own} cannot limit its children: {error.strerror}"
    return ""


def _make_locked(directory: str) -> int:
    """Makes a directory and holds a shared lock on it. Whoever cleans takes an exclusive one before removing it."""
    for _ in range(100):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)
        try:
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # cleaned away before it was locked
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.stat(directory).st_ino == os.fstat(lock).st_ino:
                return lock
        except FileNotFoundError:
            pass
        except OSError:
            os.close(lock)
            raise
        os.close(lock)
    raise OSError(errno.EBUSY, "removed again and again by somebody else", directory)


def _clean(kind: Kind, name: str) -> bool:
    directories = tuple(os.path.join(directory, name) for directory in kind.directories)
    lock = -1
    try:
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(directories[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _remove(directories)
    except OSError:
        return False
    finally:
        if lock >= 0:
            os.close(lock)


def _remove(directories: Iterable[str]) -> bool:
    """Whether all are gone. The first goes last, for it bears the lock; groups that a replica made inside go before."""
    gone = True
    for directory in reversed(tuple(directories)):
        for below, _, _ in os.walk(directory, topdown=False):
            try:
                os.rmdir(below)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
    return gone


def _pause(least: float, cost: float) -> float:
    """Looking takes at most one part in two hundred of a core, and comes at least every ten seconds."""
    return max(least, min(LONGEST_PAUSE, 200 * cost))


def _early(now: float, due: float) -> bool:
    """A time that is due too far ahead was set before the clock was turned back."""
    return now < due <= now + 4 * LONGEST_PAUSE


def _resident(proc_root: str, pid: int) -> int:
    """Resident bytes; 0 when the process is gone."""
    words = _text(f"{proc_root}/{pid}/statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def _share(proc_root: str, pid: int, resident: int) -> int:
    """Bytes with each shared page divided among its users (`Pss: 1204 kB`); the resident ones where it is not told."""
    found = re.search(r"^Pss:\s+(\d+) kB$", _text(f"{proc_root}/{pid}/smaps_rollup"), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else resident


def _larger(left: Optional[int], right: Optional[int]) -> Optional[int]:
    known = [value for value in (left, right) if value is not None]
    return max(known) if known else None


def _number(directory: str, file: str) -> Optional[int]:
    text = _text(os.path.join(directory, file)).strip() if directory else ""
    return int(text) if text.isdigit() else None


def _text(path: str) -> str:
    """The file's text; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, value: str) -> None:
    """Writes a file of the kernel in one piece. It never makes one: a missing file is an error."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _unescaped(path: str) -> str:
    r"""mountinfo writes a blank as \040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), path)
