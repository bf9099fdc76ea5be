"""What one replica uses of its machine, measured now and then, and written into a stream of kind `resource`.

    cpu             cores in use since the last sample; children that lived between two samples count too
    memory          bytes: with a control group what it holds without idle page cache, else the resident sizes added up
    memory_limit    bytes, when there is a limit
    disk_read       bytes per second from and to disks, of all processes
    disk_write
    net_in          bytes per second of the network namespace without loopback: on the local cluster that is the whole
    net_out         machine, in a pod it is the replica
    processes       how many live
    gpu<N>/…        utilization (percent), memory (bytes), power (watts), temperature (degrees)

The step of a sample is its number, its time is UTC. The last one holds only `cpu` and the network: nothing lives then.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from shoal import journal
from shoal.journalfile import JournalFile
from shoal.launcher import processes
from shoal.launcher.limits import Group
from shoal.launcher.nvml import Gpus

EARLY = 0.2  # seconds until the first sample: a replica of one second has one
OFTEN, RARELY = 1.0, 5.0  # seconds between samples, at first and then
FIRST = 20  # so many come often
TICKS = float(os.sysconf("SC_CLK_TCK"))
PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Samples the tree of processes below `root`. Not for several threads."""

    def __init__(
        self,
        directory: str,
        header: Mapping[str, object],
        root: int,
        *,
        group: Optional[Group] = None,
        memory_limit: Optional[int] = None,
        gpus: Optional[Gpus] = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stream = JournalFile(directory, {**header, "kind": "resource"})
        self.pids: Set[int] = set()  # of every process seen so far
        self.count = 0
        self._tree = Tree(root)
        self._root = root
        self._group = group
        self._limit = memory_limit
        self._gpus = gpus
        self._clock = clock
        self._before = Totals(time.monotonic(), 0.0, 0, 0, *network())

    @property
    def pause(self) -> float:
        """Seconds until the next sample is due, counted from the last."""
        return EARLY if not self.count else OFTEN if self.count < FIRST else RARELY

    def sample(self) -> Dict[str, float]:
        """Takes one sample and writes it down; what it was."""
        used = self._look()
        values = {**self._rates(used), "processes": float(used.alive)}
        if used.alive:  # else they have just ended, and nothing would look like a small need
            values["memory"] = float(self._memory(used))
        if self._limit is not None:
            values["memory_limit"] = float(self._limit)
        if self._gpus is not None:
            values.update(self._gpus.read())
        self._write(values)
        return values

    def close(self) -> None:
        """A last sample, after the command is gone, and the end of the stream."""
        used = self._look()
        rates = self._rates(used)
        self._write({name: rates[name] for name in ("cpu", "net_in", "net_out")})
        self.stream.end({"time": self._clock(), "how": "finished", "error": "", "dropped": 0})
        if self._gpus is not None:
            self._gpus.close()

    def _look(self) -> Use:
        used = self._tree.look()
        self.pids.update(self._tree.pids)
        return used

    def _rates(self, used: Use) -> Dict[str, float]:
        """What was used since the last sample, per second. What goes backwards has lost a process: then nothing."""
        counted = group_cpu(self._group) if self._group is not None else None
        cpu = used.cpu if counted is None else counted
        now = Totals(time.monotonic(), cpu, used.read, used.written, *network())
        before, self._before = self._before, now
        seconds = max(now.at - before.at, 1e-3)
        names = ("cpu", "disk_read", "disk_write", "net_in", "net_out")
        pairs = zip(names, before[1:], now[1:])  # noqa: B905  Python 3.8 knows no strict
        return {name: max(0.0, (new - old) / seconds) for name, old, new in pairs}

    def _memory(self, used: Use) -> int:
        held = group_memory(self._group) if self._group is not None else None
        return used.resident if held is None else held

    def _write(self, values: Mapping[str, float]) -> None:
        names = tuple(sorted(values))
        columns = [[values[name]] for name in names]
        self.stream.points([journal.Group(names, [self._clock()], [self.count], columns)])
        self.count += 1


class Totals(NamedTuple):
    """Counters at one moment: cores × seconds, and bytes."""

    at: float
    cpu: float
    read: int
    written: int
    received: int
    sent: int


class Use(NamedTuple):
    """What a tree of processes has used so far and holds now."""

    cpu: float  # seconds, with children that are gone
    resident: int  # bytes
    read: int
    written: int
    alive: int


class Tree:
    """The processes below one, found by their parents' lists of children, so that others cost nothing."""

    def __init__(self, root: int, proc: str = "/proc") -> None:
        self.pids: Set[int] = set()  # as of the last look
        self._root = root
        self._proc = proc
        self._listed = os.path.exists(f"{proc}/{root}/task/{root}/children")  # not every kernel writes them

    def look(self) -> Use:
        """What they use. The root's own work is not the replica's; its dead children's is."""
        cpu = _children_time(_stat(self._proc, self._root))
        resident = read = written = alive = 0
        seen: Set[int] = set()
        ahead = self._children(self._root, threads=0) if self._listed else sorted(processes.descendants(self._root))
        while ahead:
            pid = ahead.pop()
            if pid in seen:
                continue
            fields = _stat(self._proc, pid)
            if not fields:
                continue  # gone meanwhile
            seen.add(pid)
            cpu += (int(fields[11]) + int(fields[12])) / TICKS + _children_time(fields)
            alive += fields[0] != b"Z"
            resident += int(fields[21]) * PAGE
            its_read, its_written = self._io(pid)
            read, written = read + its_read, written + its_written
            if self._listed:
                ahead += self._children(pid, int(fields[17]))
        self.pids = seen
        return Use(cpu, resident, read, written, alive)

    def _children(self, pid: int, threads: int) -> List[int]:
        """Any thread may have started some; a process with one thread has one list."""
        names = [str(pid)]
        if threads != 1:
            try:
                names = os.listdir(f"{self._proc}/{pid}/task")
            except OSError:
                return []
        found: List[int] = []
        for name in names:
            found += map(int, _content(f"{self._proc}/{pid}/task/{name}/children").split())
        return found

    def _io(self, pid: int) -> Tuple[int, int]:
        """(read, written) in bytes; zeros where that is a secret."""
        words = _content(f"{self._proc}/{pid}/io").split()
        try:
            return int(words[words.index(b"read_bytes:") + 1]), int(words[words.index(b"write_bytes:") + 1])
        except (ValueError, IndexError):
            return 0, 0


def network(path: str = "/proc/self/net/dev") -> Tuple[int, int]:
    """(received, sent) in bytes, by all interfaces of our namespace but loopback."""
    received = sent = 0
    for line in _content(path).splitlines():
        name, colon, rest = line.partition(b":")
        words = rest.split()
        if colon and name.strip() != b"lo" and len(words) >= 9:
            received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def group_cpu(group: Group) -> Optional[float]:
    """Core-seconds that the processes of a control group have used, dead or alive; None when it does not count."""
    if not group.kind.cpu:
        return None
    directory = os.path.join(group.kind.cpu, group.name)
    if group.kind.version == 2:
        used = _counts(_content(f"{directory}/cpu.stat")).get(b"usage_usec")
        return used / 1e6 if used is not None else None
    text = _content(f"{directory}/cpuacct.usage").strip()
    return int(text) / 1e9 if text.isdigit() else None


def group_memory(group: Group) -> Optional[int]:
    """Bytes that a control group holds, without file pages that nobody has used for a while."""
    used = group.usage()
    if used is None:
        return None
    counts = _counts(_content(os.path.join(group.kind.memory, group.name, "memory.stat")))
    idle = counts.get(b"inactive_file" if group.kind.version == 2 else b"total_inactive_file", 0)
    return max(0, used - idle)


def _counts(text: bytes) -> Dict[bytes, int]:
    words = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _children_time(fields: List[bytes]) -> float:
    """Seconds of children that ended and were waited for."""
    return (int(fields[13]) + int(fields[14])) / TICKS if fields else 0.0


def _stat(proc: str, pid: int) -> List[bytes]:
    """The fields of /proc/PID/stat from the state on; empty when the process is gone."""
    text = _content(f"{proc}/{pid}/stat")
    fields = text[text.rfind(b")") + 1 :].split(None, 22)
    return fields if len(fields) >= 22 else []


def _content(path: str) -> bytes:
    """The file's content, empty when it cannot be read; many times a minute, so without any ceremony."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
