"""The outputs of an experiment as they lie on disk: what is there now, and its bytes. Nothing of it is in the database.

    outputs/            shared by all replicas
    outputs/worker-0/   the replica's own

Links are listed with where they point. One that leads out of the outputs is never followed.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shoal.store.blobs import hash_of

REMEMBERED = 10_000


@dataclass(frozen=True)
class Output:
    path: str  # relative to the outputs, with `/`
    replica: str | None  # None: in the shared part
    size: int
    modified: float
    link: str | None = None  # where it points, when it is a link
    outside: bool = False  # a link that leads out of the outputs, or nowhere


def listing(root: Path, replicas: Collection[str], under: str = "") -> Iterator[Output]:
    """Every file in the order of paths; `under` is a directory or a file. What vanishes meanwhile is left out."""
    under = under.strip("/")
    if ".." in under.split("/"):
        return
    if under and (os.path.islink(root / under) or not os.path.isdir(root / under)):
        yield from _one(root, under, replicas)
        return
    yield from _below(root, f"{under}/" if under else "", replicas)


def _below(root: Path, prefix: str, replicas: Collection[str]) -> Iterator[Output]:
    try:
        entries = list(os.scandir(root / prefix))
    except OSError:
        return
    named = sorted((f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name, e.name) for e in entries)
    for shown, name in named:
        if shown.endswith("/"):
            yield from _below(root, prefix + shown, replicas)
        else:
            yield from _one(root, prefix + name, replicas)


def _one(root: Path, path: str, replicas: Collection[str]) -> Iterator[Output]:
    place = root / path
    first = path.split("/", 1)[0]
    replica = first if first in replicas and path != first else None
    try:
        found = place.lstat()
        if stat.S_ISREG(found.st_mode):
            yield Output(path, replica, found.st_size, found.st_mtime)
        elif stat.S_ISLNK(found.st_mode):
            target, real = os.readlink(place), place.resolve()
            within = real.is_relative_to(root.resolve()) and real.exists()
            size = real.stat().st_size if within else found.st_size
            yield Output(path, replica, size, found.st_mtime, target, not within)
    except (OSError, RuntimeError, ValueError):  # gone, a link that leads to itself, no name that a file can have
        return


def open_output(root: Path, path: str) -> BinaryIO:
    """The file for reading; FileNotFoundError when there is none inside the outputs, whatever the path or a link says.

    What was opened is asked where it lies, so that nobody can change a link between a check and the opening.
    """
    if "\0" in path or ".." in path.split("/"):
        raise FileNotFoundError(path)
    try:
        descriptor = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:  # a directory in between that is a file, a socket, too long a name, no permission
        raise FileNotFoundError(f"{path}: {error.strerror}") from None
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if not regular or not Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(root.resolve()):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return open(descriptor, "rb")


class Hashes:
    """Hashes of files, remembered as long as a file does not change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, root: Path, path: str) -> str | None:
        """SHA-256; None when it cannot be read, or changes while it is."""
        try:
            with open_output(root, path) as file:
                key = _version(file)
                with self._lock:
                    if key in self._known:
                        self._known.move_to_end(key)
                        return self._known[key]
                found = hash_of(file)
                if _version(file) != key:
                    return None
        except OSError:
            return None
        with self._lock:
            self._known[key] = found
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found


def _version(file: BinaryIO) -> tuple[int, int, int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
