"""Follows TensorBoard event files that a replica's processes write below its outputs. Streams of kind `tensorboard`.

    outputs/worker-1/train/events.out.tfevents.1700000000.node7.4711.0    tag loss    ->    train/loss of worker-1

A replica reads what lies in its own directory. In the directory that all share, it reads the files that its processes
wrote: their names tell host and pid, or they have it open. A file that no replica knows to be its own is read by the
one of rank 0, after a while. Whoever reads a shared file claims it, in a directory beside the outputs, so that no other
does.

What was there before a later attempt or try started belongs to an earlier one and is not read again. The first ones
read everything: others of the same attempt may have written before this one began to look.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from shoal import journal
from shoal.journalfile import JournalFile
from shoal.launcher import processes, tfevents

MARK = "tfevents"
OFTEN = 2.0  # seconds between looks
COST = 100  # looking for new files takes a hundredth of a core at most: where it takes long, it is done less often
SETTLED = 2.0  # seconds after which a directory's time of change can be trusted to tell the next change
UNKNOWN = 10.0  # seconds until rank 0 takes a file of nobody
PIECE = 1 << 20
MOST_DIRECTORIES = 5000

_NAME = re.compile(r"events\.out\.tfevents\.\d+\.(?P<host>.+?)\.(?P<pid>\d+)\.\d+(?:\..*)?")


@dataclass
class File:
    """One event file, and how far it is read."""

    path: str
    name: str  # of its directory, as a prefix of metric names
    shared: bool
    seen: float
    offset: int = 0
    mine: Optional[bool] = None  # not known yet
    plugins: Dict[str, str] = field(default_factory=dict)
    stream: Optional[JournalFile] = None


class Place(NamedTuple):
    """A directory to look into."""

    root: str
    shared: bool


class Follower:
    """Reads event files as they grow. Not for several threads."""

    def __init__(
        self,
        streams: str,
        header: Mapping[str, Any],
        *,
        own: str,
        shared: str,
        others: Collection[str] = (),
        uid: str = "",
        pids: Callable[[], Collection[int]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`own` and `shared` are directories, `others` the names of all replicas: their directories are in `shared`.

        A process is the replica's when its pid is among `pids`, or when it lives and is marked with `uid`.
        """
        self._streams = streams
        self._header = header
        self._first = header.get("rank") == 0
        self._replica = str(header.get("replica", ""))
        self._pids = pids
        self._uid = uid
        self._clock = clock
        self._host = socket.gethostname()
        self._claims = os.path.join(os.path.dirname(os.path.abspath(shared)), "tensorboard") if shared else ""
        self._listing = Listing(own, shared, {*others, self._replica})
        self._files: Dict[str, File] = {}
        self._written: Dict[Tuple[str, int, int], JournalFile] = {}
        self._due = 0.0
        now = clock()
        first = not header.get("attempt") and not header.get("try")
        for path, place in self._listing.look(now):
            known = self._add(path, place, now)
            known.offset = 0 if first else _size(path)

    def look(self, *, last: bool = False) -> int:
        """Reads what is new; how many values that was."""
        now = self._clock()
        if last or now >= self._due:
            began = time.monotonic()
            for path, place in self._listing.look(now, everything=last):
                if path not in self._files:
                    self._add(path, place, now)
            self._due = now + COST * (time.monotonic() - began)
        return sum(self._read(file) for file in list(self._files.values()) if self._is_mine(file, now, last))

    def close(self) -> None:
        """Reads the rest; the streams are over."""
        try:
            self.look(last=True)
        finally:
            for stream in self._written.values():
                stream.end({"time": self._clock(), "how": "finished", "error": "", "dropped": 0})
            self._written.clear()

    def _add(self, path: str, place: Place, now: float) -> File:
        below = os.path.relpath(os.path.dirname(path), place.root)
        known = File(path, "" if below == "." else below.replace(os.sep, "/") + "/", place.shared, now)
        known.mine = None if place.shared else True
        self._files[path] = known
        return known

    def _is_mine(self, file: File, now: float, last: bool) -> bool:
        """Whether to read it. What is decided stays so."""
        if file.mine is not None:
            return file.mine
        if _size(file.path) == file.offset:
            return False  # nothing new: nobody needs to claim it
        match = _NAME.fullmatch(os.path.basename(file.path))
        wrote = int(match.group("pid")) if match is not None and match.group("host") == self._host else 0
        mark = processes.mark_in(_environment(wrote)) if wrote else None
        pids = self._pids()
        ours = (wrote in pids or mark == self._uid) if wrote else _is_open(file.path, pids)
        waited = last or not 0 <= now - file.seen < UNKNOWN
        if ours or (self._first and mark is None and waited):
            file.mine = self._claim(file)
        return bool(file.mine)

    def _claim(self, file: File) -> bool:
        """A link is made whole or not at all, and only one replica can make it; it says whose the file is."""
        import hashlib

        shared = os.path.relpath(file.path, os.path.dirname(self._claims))
        link = os.path.join(self._claims, hashlib.sha256(shared.encode("utf-8", "surrogateescape")).hexdigest()[:32])
        try:
            os.makedirs(self._claims, exist_ok=True)
            os.symlink(self._replica, link)
            return True
        except FileExistsError:
            return os.readlink(link) == self._replica
        except OSError:
            return self._first  # where nothing can be claimed, one replica reads what is shared

    def _read(self, file: File) -> int:
        count = 0
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            size = os.fstat(descriptor).st_size
            if size < file.offset:
                file.offset = 0  # written anew
            while file.offset < size:
                found, more = self._piece(file, descriptor, size)
                count += found
                if not more:
                    break
        finally:
            os.close(descriptor)
        return count

    def _piece(self, file: File, descriptor: int, size: int) -> Tuple[int, bool]:
        """(values that were kept, whether there may be more)"""
        data = os.pread(descriptor, PIECE, file.offset)
        whole = tfevents.records(data)
        if not whole.done and not whole.skip and len(data) == PIECE:
            data = os.pread(descriptor, tfevents.LARGEST + PIECE, file.offset)  # a record that is larger than a piece
            whole = tfevents.records(data)
        items: List[tfevents.Item] = []
        for record in whole.data:
            try:
                items += tfevents.items(record, file.plugins)
            except (ValueError, ArithmeticError):
                continue  # its checksum is right: written by something else
        if items:
            self._keep(file, items)
        reached = file.offset + whole.done + (whole.skip if file.offset + whole.done + whole.skip <= size else 0)
        more = reached > file.offset
        file.offset = reached
        return len(items), more

    def _keep(self, file: File, items: Iterable[tfevents.Item]) -> None:
        if file.stream is None:
            file.stream = self._stream(file)
        columns: Dict[str, Tuple[List[float], List[int], List[float]]] = {}
        for item in items:
            name = file.name + item.tag
            if isinstance(item, tfevents.Scalar):
                times, steps, values = columns.setdefault(name, ([], [], []))
                times.append(item.time)
                steps.append(item.step)
                values.append(item.value)
            elif isinstance(item, tfevents.Text):
                name = name[: -len("/text_summary")] if name.endswith("/text_summary") else name
                file.stream.event(
                    {"kind": "text", "time": item.time, "name": name, "step": item.step, "text": item.text}
                )
            else:
                shape = {"edges": item.edges, "counts": item.counts}
                file.stream.event({"kind": "histogram", "time": item.time, "name": name, "step": item.step, **shape})
        if columns:
            file.stream.points(
                journal.Group((name,), times, steps, [values]) for name, (times, steps, values) in columns.items()
            )

    def _stream(self, file: File) -> JournalFile:
        """One for each directory and each process that writes there, as far as processes can be told apart."""
        rank, process = self._writer(file)
        key = (os.path.dirname(file.path), rank, process)
        if key not in self._written:
            about = {"kind": "tensorboard", "rank": rank, "process": process, "directory": key[0]}
            self._written[key] = JournalFile(self._streams, {**self._header, **about, "started": self._clock()})
        return self._written[key]

    def _writer(self, file: File) -> Tuple[int, int]:
        """(rank, local rank) of the process that writes the file, as its own variables tell; else the replica's."""
        otherwise = int(self._header.get("rank", 0)), 0
        match = _NAME.fullmatch(os.path.basename(file.path))
        if match is None or match.group("host") != self._host or int(match.group("pid")) not in self._pids():
            return otherwise
        found = _variables(int(match.group("pid")))
        rank, process = found.get("RANK", ""), found.get("LOCAL_RANK", "")
        return (int(rank), int(process)) if rank.isdigit() and process.isdigit() else otherwise


class Listing:
    """Finds event files below two directories; only directories that changed are read again."""

    def __init__(self, own: str, shared: str, others: Collection[str]) -> None:
        self._places = [Place(root, shared_) for root, shared_ in ((own, False), (shared, True)) if root]
        self._hidden = {os.path.join(shared, name) for name in others} if shared else set()
        self._known: Dict[str, Tuple[Place, int]] = {}  # directory -> when it changed, or 0 when that is too fresh

    def look(self, now: float, *, everything: bool = False) -> List[Tuple[str, Place]]:
        """Files in directories that are new or have changed."""
        found: List[Tuple[str, Place]] = []
        for place in self._places:
            self._known.setdefault(place.root, (place, 0))
        ahead = [(directory, place) for directory, (place, _) in self._known.items()]
        while ahead:
            directory, place = ahead.pop()
            try:
                changed = os.stat(directory).st_mtime_ns
                if changed == self._known[directory][1] and not everything:
                    continue
                with os.scandir(directory) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            if self._wanted(entry.path, place):
                                self._known[entry.path] = (place, 0)
                                ahead.append((entry.path, place))
                        elif MARK in entry.name:
                            found.append((entry.path, place))
            except OSError:
                self._known.pop(directory, None)
                continue
            # Times of change are coarse: a file that comes just after this look may not move it.
            self._known[directory] = (place, changed if abs(now - changed / 1e9) > SETTLED else 0)
        return found

    def _wanted(self, path: str, place: Place) -> bool:
        """Directories of replicas lie in the shared one and are theirs."""
        if path in self._known or len(self._known) >= MOST_DIRECTORIES:
            return False
        return not (place.shared and path in self._hidden)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _variables(pid: int) -> Dict[str, str]:
    text = _environment(pid).decode("utf-8", "replace")
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs}


def _is_open(path: str, pids: Iterable[int]) -> bool:
    """Whether one of these processes has the file open: tensorboardX tells no pid in its names."""
    path = os.path.realpath(path)
    for pid in pids:
        place = f"/proc/{pid}/fd"
        try:
            if any(os.readlink(os.path.join(place, name)) == path for name in os.listdir(place)):
                return True
        except OSError:
            continue
    return False


def _environment(pid: int) -> bytes:
    """The variables of a living process; empty when it is gone or somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
