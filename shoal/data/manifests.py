"""Manifests: every file of a data set with its size and what tells its content from another.

    {"path": "train/a.bin", "size": 1048576, "hash": "9f86d0…", "mtime": 1731715274000000000}    a file here
    {"path": "train/a.bin", "size": 1048576, "etag": "\\"5d41402a…\\""}                           an object in a bucket

A file that was hashed once is hashed again only when its size or its time differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import UsageError

Entry = Mapping[str, Any]

READ = 1 << 20
SETTLED = 2_000_000_000  # ns: a file younger than this may change again without a change of its time
SHOWN = 3


@dataclass(frozen=True)
class Manifest:
    """The files, sorted by path. `single`: not a directory of files but one file itself."""

    entries: tuple[Entry, ...]
    single: bool = False

    @property
    def size(self) -> int:
        return sum(entry["size"] for entry in self.entries)

    def digest(self, origin: str = "") -> str:
        """Names the content. Hashes name it everywhere; an etag only says something at its `origin`."""
        identity = [[entry["path"], entry["size"], entry.get("hash") or entry.get("etag")] for entry in self.entries]
        text = json.dumps([origin, self.single, identity], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Differences:
    """How a directory differs from what was written down of it."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.new)

    def __str__(self) -> str:
        """`2 files changed (a.bin, b.bin), 1 is missing (c.bin)`"""
        said = []
        for paths, one, several in (
            (self.changed, "1 file changed", "{} files changed"),
            (self.missing, "1 file is missing", "{} files are missing"),
            (self.new, "1 file is new", "{} files are new"),
        ):
            if paths:
                names = ", ".join(paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
                said.append(f"{one if len(paths) == 1 else several.format(len(paths))} ({names})")
        return ", ".join(said)


def of_path(place: Path, known: Iterable[Entry] = ()) -> Manifest:
    """Everything below a directory, or one file. Raises UsageError for what cannot be a data set."""
    before = {entry["path"]: entry for entry in known}
    found, single = files_of(place)
    now = time.time_ns()

    def entry(item: tuple[str, str, os.stat_result]) -> Entry:
        path, file, status = item
        old = before.get(path)
        if old is not None and _same_file(old, status):
            return old
        return {
            "path": path,
            "size": status.st_size,
            "hash": hash_of(file),
            "mtime": status.st_mtime_ns if status.st_mtime_ns < now - SETTLED else 0,
        }

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        entries = tuple(pool.map(entry, found))
    for (_, file, status), hashed in zip(found, entries, strict=True):
        if os.stat(file).st_size != hashed["size"] or os.stat(file).st_mtime_ns != status.st_mtime_ns:
            raise UsageError(f"{file}: it changes while it is read", hint="wait until nobody writes there")
    return Manifest(entries, single)


def listing_of(place: Path) -> Manifest:
    """As `of_path`, without reading the files: their sizes and times stand for their content."""
    found, single = files_of(place)
    entries = ({"path": path, "size": s.st_size, "etag": str(s.st_mtime_ns)} for path, _, s in found)
    return Manifest(tuple(entries), single)


def differences(place: Path, recorded: Sequence[Entry]) -> tuple[Differences, tuple[Entry, ...]]:
    """What is no longer as recorded; and the entries with the times they have now, for the next look."""
    found, _ = files_of(place)
    now = {path: (file, status) for path, file, status in found}
    before = {entry["path"]: entry for entry in recorded}
    changed, entries = [], []
    for path, entry in before.items():
        if path not in now:
            continue
        file, status = now[path]
        if not _same_file(entry, status):
            if status.st_size != entry["size"] or hash_of(file) != entry["hash"]:
                changed.append(path)
            elif status.st_mtime_ns < time.time_ns() - SETTLED:
                entry = {**entry, "mtime": status.st_mtime_ns}
        entries.append(entry)
    missing, new = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    return Differences(tuple(sorted(changed)), tuple(missing), tuple(new)), tuple(entries)


def between(before: Sequence[Entry], now: Sequence[Entry]) -> Differences:
    """How two manifests of one bucket differ."""

    def kept(entries: Sequence[Entry]) -> dict[str, tuple[int, Any]]:
        return {entry["path"]: (entry["size"], entry.get("hash") or entry.get("etag")) for entry in entries}

    old, new = kept(before), kept(now)
    changed = sorted(path for path in old.keys() & new.keys() if old[path] != new[path])
    return Differences(tuple(changed), tuple(sorted(old.keys() - new.keys())), tuple(sorted(new.keys() - old.keys())))


def files_of(place: Path) -> tuple[list[tuple[str, str, os.stat_result]], bool]:
    """(path below the place, file, its status) of every file, sorted; and whether the place itself is a file."""
    try:
        status = os.stat(place)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{place}: {said}", hint="name an existing file or directory") from None
    if stat.S_ISREG(status.st_mode):
        return [(_utf8(place.name), str(place), status)], True
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{place} is neither a file nor a directory", hint="name a file or a directory")
    found = sorted(_walk(str(place), "", ((status.st_dev, status.st_ino),)))
    if not found:
        raise UsageError(f"{place} holds no files", hint="put the data there first")
    return found, False


def _walk(directory: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str, os.stat_result]]:
    """Links are followed, also those to directories, but not back into one that is being walked."""
    try:
        names = [entry.name for entry in os.scandir(directory)]
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}", hint="is it yours to read?") from None
    for name in names:
        file, path = os.path.join(directory, name), prefix + _utf8(name)
        try:
            status = os.stat(file)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}", hint="a link that leads nowhere? remove it") from None
        if stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in above:
                raise UsageError(f"{file} leads back to a directory above it", hint="remove the link")
            yield from _walk(file, path + "/", (*above, (status.st_dev, status.st_ino)))
        elif stat.S_ISREG(status.st_mode):
            yield path, file, status
        else:
            raise UsageError(f"{file} is neither a file nor a directory", hint="a socket or a device? remove it")


def hash_of(file: str | Path) -> str:
    """sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    buffer = bytearray(READ)
    view = memoryview(buffer)
    try:
        with open(file, "rb", buffering=0) as source:
            while count := source.readinto(buffer):
                digest.update(view[:count])
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", hint="is it yours to read?") from None
    return digest.hexdigest()


def safe(path: str) -> bool:
    """Whether a path of a manifest stays below the directory it is put into."""
    return bool(path) and "\0" not in path and all(step not in ("", ".", "..") for step in path.split("/"))


def _same_file(entry: Entry, status: os.stat_result) -> bool:
    return bool(entry["size"] == status.st_size and entry.get("mtime") == status.st_mtime_ns)


def _utf8(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name!a}: the name of a file is not UTF-8", hint="rename it") from None
    return name
