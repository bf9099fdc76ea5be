"""Finding and ending every process of a replica.

Signalling a process group is not enough: torchrun gives each trainer a session of its own, daemons leave their
parents, and a process may wipe its environment. So a replica's processes are found in every way they can be told:

    descendants   children of its processes, and theirs
    led           members of the sessions and groups its processes lead, wherever their parents have gone
    marked        SHOAL_REPLICA_UID=<uid> in the environment they were started with

A number is reused when its process is gone, so a process is known by (pid, start time), and by the boot too where that
is kept for longer than the machine runs. Zombies are not alive: they run nothing, and only a parent can remove them.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Union,
)

MARK = "SHOAL_REPLICA_UID"

Identity = Tuple[int, int]
"""(pid, start time): what a process is called while the machine is up."""

GONE = -1
"""The start time of a root that was gone before it was seen: no living process has it."""

# Python 3.9 and newer; a sandbox may refuse the calls all the same.
_pidfd_open: Any = getattr(os, "pidfd_open", None)
_pidfd_send: Any = getattr(signal, "pidfd_send_signal", None)


class Process(NamedTuple):
    """One process, as /proc/PID/stat tells it."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    started: int  # clock ticks since boot

    @property
    def alive(self) -> bool:
        """Whether any thread runs: when only the first one has ended, the process looks like a zombie and is none."""
        return self.threads > 1 or self.state not in ("Z", "X", "x")

    @property
    def identity(self) -> Identity:
        return self.pid, self.started


def start_time(pid: int) -> Optional[int]:
    """When the process started, in clock ticks since boot; None when there is no such process."""
    process = _read(pid)
    return process.started if process else None


def alive(pid: int, start_time: int) -> bool:
    """Whether this very process still runs: not a zombie, and not another one with its number."""
    process = _read(pid)
    return process is not None and process.started == start_time and process.alive


def boot_id() -> str:
    """Names this boot of this machine: start times of different boots cannot be compared. Empty when unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def table() -> Dict[int, Process]:
    """Every process that can be seen, read once. Not a snapshot: processes come and go meanwhile."""
    processes = (_read(pid) for pid in _pids())
    return {process.pid: process for process in processes if process}


def descendants(root: int) -> Set[int]:
    """The living processes below `root`, without it."""
    processes = table()
    return {pid for pid in below(processes, root) if processes[pid].alive}


def marked(uid: str) -> Set[int]:
    """The living processes of this user that were started with SHOAL_REPLICA_UID=`uid`, without the caller."""
    return {pid for pid, found in marked_all(uid).items() if found == uid}


def marked_all(prefix: str = "") -> Dict[int, str]:
    """pid -> uid of every living marked process of this user, without the caller; only uids that begin with `prefix`.

    A fork that has called no exec carries the environment of the program it comes from, changed variables or not.
    """
    me, user = os.getpid(), os.getuid()
    found = {}
    for pid in _pids():
        uid = mark_in(_environment(pid)) if pid != me else None
        if uid is not None and uid.startswith(prefix) and _user(pid) == user:
            found[pid] = uid
    return found


def end(
    roots: Collection[int],
    uid: Union[str, Collection[str]],
    grace: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    more: Callable[[], Iterable[int]] = tuple,
    give_up: float = 10.0,
    left: Optional[Callable[[List[int]], None]] = None,
) -> List[int]:
    """Ends the roots, all below them and all marked with `uid` (one, or several at once): SIGTERM, grace, SIGKILL.

    Returns when none lives, with the pids that had to be killed. What is started within the grace, by a handler of
    SIGTERM say, may finish within it. The caller and its ancestors are spared, also when named; what is below them is
    not. `more` lists processes known in another way, such as the members of a control group. A root that is gone still
    names its session; its number must not have been given to another process.

    A process that does not die of SIGKILL (it waits for a disk that is gone) is waited for `give_up` seconds; `left` is
    then called with those that remain. They are in the returned list too.
    """
    uids = frozenset([uid] if isinstance(uid, str) else uid)
    processes = table()
    spared = _self_and_ancestors(processes)
    named = {pid for pid in roots if pid > 1 or pid == os.getpid()}
    known = {processes[pid].identity if pid in processes else (pid, GONE) for pid in named}

    def look() -> List[Process]:
        found = find(known, uids, more, spared)
        known.update(process.identity for process in found)
        return found

    def search() -> List[Process]:
        # A process is missed when it is forked behind the reader's back, or read in the middle of an exec, when it
        # has no environment. So the absence of processes must be seen twice.
        return look() or look()

    found = search()
    for process in found:
        send(process, signal.SIGTERM)
        if process.state == "T":
            send(process, signal.SIGCONT)  # a stopped process would hear nothing
    deadline = clock() + grace
    while found and clock() < deadline:
        wait(found, deadline - clock(), clock=clock, sleep=sleep)
        found = search()

    killed: Set[int] = set()
    deadline = clock() + give_up
    while True:
        # A process that forks and exits, again and again, is never found where it was listed. But it cannot outrun a
        # signal to its whole group. So this comes even when nobody was found.
        if not (_kill_groups(known, spared) or found):
            break
        for process in found:
            send(process, signal.SIGKILL)
        killed.update(process.pid for process in found)
        wait(found, min(0.25, deadline - clock()), clock=clock, sleep=sleep)
        found = search()
        if not found or clock() >= deadline:
            break
    if found and left:
        left(sorted(process.pid for process in found))
    return sorted(killed)


def wait(
    processes: Iterable[Process],
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    pidfd_open: Optional[Callable[[int], int]] = _pidfd_open,
) -> bool:
    """Whether all of them ended within `seconds`; returns as soon as they have."""
    deadline = clock() + seconds
    waiting = [process for process in processes if alive(*process.identity)]
    fds = _open_all(waiting, pidfd_open) if pidfd_open else None
    if fds is not None:
        _poll_until(fds, deadline, clock)
    else:
        pause = 0.001
        while waiting and clock() < deadline:
            sleep(max(0.0, min(pause, deadline - clock())))
            pause = min(0.05, pause * 2)
            waiting = [process for process in waiting if alive(*process.identity)]
    return not any(alive(*process.identity) for process in waiting)


def find(
    known: Collection[Identity],
    uids: Collection[str] = (),
    more: Callable[[], Iterable[int]] = tuple,
    spared: Collection[int] = (),
) -> List[Process]:
    """The living processes that are known, marked with one of `uids` or listed by `more`, with their families."""
    processes = table()
    wanted = {pid for pid, uid in marked_all().items() if uid in uids} | set(more())
    for pid in wanted - set(processes):  # started since the table was read
        process = _read(pid)
        if process:
            processes[pid] = process
    seeds = {processes[pid].identity for pid in wanted if pid in processes}
    return [processes[pid] for pid in sorted(family(processes, {*known, *seeds}, spared)) if pid > 1]


def send(process: Process, number: int) -> None:
    """Silent when the process is gone, when its number means another one by now, and when it may not be signalled."""
    fds = _open_all([process], _pidfd_open) if _pidfd_open and _pidfd_send else None
    try:
        # With a descriptor, what is checked is what is signalled, whatever happens to the number in between.
        if start_time(process.pid) != process.started:
            return
        if fds is None:
            os.kill(process.pid, number)
        for fd in fds or ():
            _pidfd_send(fd, number)
    except OSError:
        pass
    finally:
        for fd in fds or ():
            os.close(fd)


def parse_stat(text: str) -> Optional[Process]:
    """A line of /proc/PID/stat: `4711 (py (x) y) S 4700 4711 4700 0 …`. The name may hold blanks and parentheses."""
    before, opened, rest = text.partition(" (")
    fields = rest[rest.rfind(")") + 1 :].split(None, 20)
    if not opened or len(fields) < 20:
        return None
    state, parent, group, session = fields[0], int(fields[1]), int(fields[2]), int(fields[3])
    return Process(int(before), state, parent, group, session, int(fields[17]), int(fields[19]))


def mark_in(environment: bytes) -> Optional[str]:
    """The uid in the text of /proc/PID/environ (`A=1\\0SHOAL_REPLICA_UID=u1\\0`), None when it carries none."""
    start = (MARK + "=").encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(start):
            return variable[len(start) :].decode("utf-8", "surrogateescape")
    return None


def below(processes: Mapping[int, Process], root: int) -> Set[int]:
    """The pids below `root`, without it."""
    return _reach([root], _by(processes, "parent")) - {root}


def family(processes: Mapping[int, Process], known: Collection[Identity], spared: Collection[int] = ()) -> Set[int]:
    """The living pids that belong to known processes: these, those below, and members of sessions and groups they lead.

    A known process that is gone still tells: nobody gets its number while a session or group bears it. One whose
    number another process has by now tells nothing. The spared ones are not in the answer.
    """
    ours = {pid for pid, started in known if pid not in processes or processes[pid].started == started}
    links = [_by(processes, field) for field in ("parent", "session", "group")]
    strangers = set(spared) - ours
    reached = _reach(ours, *links, without=strangers)
    return {pid for pid in reached if pid in processes and processes[pid].alive and pid not in spared}


def led_groups(processes: Mapping[int, Process], known: Collection[Identity], spared: Collection[int]) -> Set[int]:
    """The process groups that known processes led, if they led any, and that hold no spared process.

    Safe to signal as a whole: while a group lives, no other process gets its number.
    """
    ours = {pid for pid, started in known if pid not in processes or processes[pid].started == started}
    return ours - {processes[pid].group for pid in spared if pid in processes} - {0, 1}


def _kill_groups(known: Collection[Identity], spared: Collection[int]) -> bool:
    """Whether there were any, be it of zombies."""
    struck = False
    for group in led_groups(table(), known, spared) if known else ():
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
            struck = True
    return struck


def _open_all(processes: Iterable[Process], pidfd_open: Callable[[int], int]) -> Optional[List[int]]:
    """A descriptor for each that still lives; None when they cannot be had (a sandbox, too many open files)."""
    fds: List[int] = []
    for process in processes:
        try:
            fds.append(pidfd_open(process.pid))
        except ProcessLookupError:
            continue
        except OSError:
            for fd in fds:
                os.close(fd)
            return None
    return fds


def _poll_until(fds: List[int], deadline: float, clock: Callable[[], float]) -> None:
    """Returns when each descriptor's process has ended, at the latest at the deadline. Closes the descriptors."""
    poller = select.poll()
    waiting = set(fds)
    try:
        for fd in fds:
            poller.register(fd, select.POLLIN)
        while waiting and clock() < deadline:
            for fd, _ in poller.poll(math.ceil(max(0.0, deadline - clock()) * 1000)):
                poller.unregister(fd)
                waiting.discard(fd)
    finally:
        for fd in fds:
            os.close(fd)


def _self_and_ancestors(processes: Mapping[int, Process]) -> Set[int]:
    pid, found = os.getpid(), set()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = processes[pid].parent if pid in processes else 0
    return found


def _by(processes: Mapping[int, Process], field: str) -> Dict[int, List[int]]:
    """parent, session or group -> the pids that name it."""
    found: Dict[int, List[int]] = {}
    for process in processes.values():
        found.setdefault(getattr(process, field), []).append(process.pid)
    return found


def _reach(start: Iterable[int], *links: Mapping[int, List[int]], without: Collection[int] = ()) -> Set[int]:
    """Everything that can be reached from `start`, and it."""
    found: Set[int] = set()
    ahead = list(start)
    while ahead:
        pid = ahead.pop()
        if pid in found or pid in without:
            continue
        found.add(pid)
        for link in links:
            ahead.extend(link.get(pid, ()))
    return found


def _pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int) -> Optional[Process]:
    return parse_stat(_bytes(f"/proc/{pid}/stat").decode("utf-8", "replace"))


def _environment(pid: int) -> bytes:
    """Empty for zombies, threads of the kernel and processes of others."""
    return _bytes(f"/proc/{pid}/environ")


def _bytes(path: str) -> bytes:
    """The file's content, empty when it cannot be read; for every process of the machine, so without any ceremony."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = [os.read(fd, 1 << 16)]
        while parts[-1]:
            parts.append(os.read(fd, 1 << 16))
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _user(pid: int) -> Optional[int]:
    """The real user. (The owner of /proc/PID is root for a process that may not be dumped.)"""
    for line in _bytes(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None
