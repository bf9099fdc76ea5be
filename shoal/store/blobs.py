"""Content by its hash: `blobs/ab/ab12…` holds the bytes whose SHA-256 is `ab12…`. Equal content is kept once.

A blob comes whole or not at all: it is written beside its place, brought to the disk, and renamed. Nothing changes one
afterwards. Who names a blob stands in the database (`manifest` of artifacts, models and data sets; images), and what
nobody names is garbage.

Between `put` and the transaction that names it, a blob is held, so that the collector leaves it alone:

    with blobs.holding() as hold:
        blob = hold.put(file)
        with database.write() as connection:
            …                                   # names blob.hash

Only the server writes here, so holds live in its memory; what a killed one left is garbage for the next.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, select

from shoal.errors import ShoalError, Unavailable
from shoal.store.tables import artifacts, datasets, models, records

CHUNK = 1 << 20
HASH = re.compile(r"[0-9a-f]{64}")
UNFINISHED = "new-"  # how the names of files that are being written begin
NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES, errno.ENOSYS)


@dataclass(frozen=True)
class Blob:
    hash: str
    size: int


@dataclass
class _Holds:
    """What one process is putting into one directory right now."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    hashes: Counter[str] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)  # names of files that are being written
    seen: set[str] | None = None  # while somebody collects: all that was held since it began


_HOLDS: dict[str, _Holds] = {}
_HOLDS_LOCK = threading.Lock()


class Blobs:
    """The blobs of one home. Any number of these may be made, by any thread: they know of each other."""

    def __init__(self, home: Path) -> None:
        self.root = home / "blobs"
        with _HOLDS_LOCK:
            self._holds = _HOLDS.setdefault(str(self.root.absolute()), _Holds())

    def path(self, hash_: str) -> Path:
        """Where the blob lies, or would lie. ValueError for what is no hash."""
        if not HASH.fullmatch(hash_):
            raise ValueError(f"{hash_[:80]!r} is no SHA-256 in hexadecimal digits")
        return self.root / hash_[:2] / hash_

    def exists(self, hash_: str) -> bool:
        return self.path(hash_).is_file()

    def size(self, hash_: str) -> int:
        return self.path(hash_).stat().st_size

    def open(self, hash_: str) -> BinaryIO:
        """For reading; FileNotFoundError when there is none."""
        return self.path(hash_).open("rb")

    def remove(self, hash_: str) -> None:
        """Silent when it is gone. Does not ask whether anybody names it: `collect` does."""
        self.path(hash_).unlink(missing_ok=True)

    def put(self, source: Path | BinaryIO, *, move: bool = False) -> Blob:
        """Keeps the content of a file and holds it until `release`. See `Hold.put`."""
        blob = self._linked(source) if move and isinstance(source, Path) else None
        return blob or self._copied(source)

    def release(self, hashes: Iterable[str]) -> None:
        """They are named in the database now, or are not needed after all."""
        with self._holds.lock:
            for hash_ in hashes:
                self._holds.hashes[hash_] -= 1
                if self._holds.hashes[hash_] <= 0:
                    del self._holds.hashes[hash_]

    @contextmanager
    def holding(self) -> Iterator[Hold]:
        """What is put in here is held until the end of the block."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self.release(hold.hashes)

    def _linked(self, source: Path) -> Blob | None:
        """The file itself becomes the blob under a second name; None when it has to be copied."""
        with source.open("rb") as file:
            before = os.fstat(file.fileno())
            # A second name may be the user's own file, which is written to again one day.
            if before.st_nlink != 1 or before.st_uid != os.getuid() or not stat.S_ISREG(before.st_mode):
                return None
            hash_ = hash_of(file)
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                return None
            os.fsync(file.fileno())
        target = self._hold(hash_)
        try:
            if not _same_size(target, after.st_size):
                _make_directory(target.parent)
                os.link(source, target)
                os.chmod(target, 0o400)
                _sync_directory(target.parent)
        except OSError as error:
            if _same_size(target, after.st_size):  # somebody was faster
                return Blob(hash_, after.st_size)
            self.release([hash_])
            if error.errno in NO_LINKS or isinstance(error, FileExistsError):  # damaged: a copy replaces it
                return None
            raise _trouble(target, error) from None
        return Blob(hash_, after.st_size)

    def _copied(self, source: Path | BinaryIO) -> Blob:
        name = f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(8)}"
        temporary = self.root / name
        with self._holds.lock:
            self._holds.files.add(name)
        held = ""
        try:
            _make_directory(self.root)
            if isinstance(source, Path):
                with source.open("rb") as file:
                    hash_, size = _copy(file, temporary)
            else:
                hash_, size = _copy(source, temporary)
            target = self._hold(hash_)
            held = hash_
            if not _same_size(target, size):
                _make_directory(target.parent)
                os.replace(temporary, target)
                _sync_directory(target.parent)
            held = ""
            return Blob(hash_, size)
        except OSError as error:
            raise _trouble(self.root, error) from None
        finally:
            if held:
                self.release([held])
            with suppress(OSError):
                temporary.unlink()
            with self._holds.lock:
                self._holds.files.discard(name)

    def _hold(self, hash_: str) -> Path:
        """From now on no collector removes it; before anybody looks whether it is there."""
        with self._holds.lock:
            self._holds.hashes[hash_] += 1
            if self._holds.seen is not None:
                self._holds.seen.add(hash_)
        return self.path(hash_)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """To be entered before the database is asked: what is put from then on is no garbage, whatever it says."""
        with self._holds.lock:
            self._holds.seen = set(self._holds.hashes)
        try:
            yield
        finally:
            with self._holds.lock:
                self._holds.seen = None

    def sweep(self, named: set[str]) -> tuple[int, int]:
        """Within `collecting`: removes what is neither named nor was held since; how many, and how many bytes."""
        count = freed = 0
        for file in list(_files(self.root)):
            garbage = file.name not in named and HASH.fullmatch(file.name) is not None
            with self._holds.lock:
                if file.name.startswith(UNFINISHED):
                    garbage = file.name not in self._holds.files
                elif self._holds.seen is None or file.name in self._holds.seen:
                    garbage = False
                if not garbage:
                    continue
                try:
                    size = file.stat().st_size
                    file.unlink()
                except FileNotFoundError:
                    continue
            count, freed = count + 1, freed + size
        return count, freed


class Hold:
    """What was put within one `holding` block."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.hashes: list[str] = []

    def put(self, source: Path | BinaryIO, *, move: bool = False) -> Blob:
        """Keeps the content of a file; what is there already is not kept twice. Whole or not at all.

        With `move` the file is the caller's to give away: where that is possible it becomes the blob itself, under a
        second name. The caller removes the first one, when its transaction is done: until then both are there.
        """
        blob = self._blobs.put(source, move=move)
        self.hashes.append(blob.hash)
        return blob

    def keep(self, hash_: str) -> bool:
        """Holds what is there already; whether it is."""
        there = self._blobs._hold(hash_).is_file()
        self.hashes.append(hash_)
        return there


_COLLECTING = threading.Lock()


def collect(blobs: Blobs, read: Callable[[], AbstractContextManager[Connection]]) -> tuple[int, int]:
    """Removes blobs that nobody names; how many, and how many bytes. `read` is `Database.read`.

    Safe while others put: what is held when it begins, or put while it goes on, stays.
    """
    with _COLLECTING, blobs.collecting():
        with read() as connection:
            used = named(connection)
        return blobs.sweep(used)


def named(connection: Connection) -> set[str]:
    """Every hash that something in the database names."""
    found: set[str] = set()
    managed = select(datasets.c.manifest).where(datasets.c.kind == "managed")  # others hash what lies elsewhere
    for query in (select(artifacts.c.manifest), select(models.c.manifest), managed):
        for (manifest,) in connection.execute(query):
            found.update(entry["hash"] for entry in manifest if isinstance(entry.get("hash"), str))
    for (data,) in connection.execute(select(records.c.data).where(records.c.kind == "image")):
        file = data.get("file")
        if isinstance(file, dict) and isinstance(file.get("hash"), str):
            found.add(file["hash"])
    return found


def hash_of(file: BinaryIO) -> str:
    """SHA-256 of what can be read from it."""
    digest = hashlib.sha256()
    while data := file.read(CHUNK):
        digest.update(data)
    return digest.hexdigest()


def _copy(source: BinaryIO, temporary: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with open(descriptor, "wb", buffering=0) as target:
        while data := source.read(CHUNK):
            digest.update(data)
            written = 0
            while written < len(data):
                written += target.write(data[written:])
            size += len(data)
        os.fsync(descriptor)
    return digest.hexdigest(), size


def _same_size(path: Path, size: int) -> bool:
    """A machine that lost its power may have left an empty file under the name."""
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network filesystems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(root: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(root))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from (Path(inner.path) for inner in os.scandir(entry.path))
        else:
            yield Path(entry.path)


def _trouble(place: Path, error: OSError) -> ShoalError | OSError:
    """A full disk is a clear error; anything else about the source stays what it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
        return Unavailable(
            f"{place}: content cannot be kept: {error.strerror}",
            hint="free some space: shoal rm removes experiments with their files",
        )
    return error
