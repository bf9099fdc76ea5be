"""Files from the server into a directory: whole or not at all, and what is there already is not fetched again.

Content that has a hash goes on where an earlier download broke off, and is checked at its end.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from shoal.errors import ShoalError, Unavailable, UsageError

if TYPE_CHECKING:
    from shoal.client import Client

CHUNK = 1 << 20


@dataclass(frozen=True)
class Remote:
    """A file on the server: where it is asked for, and what it should be here."""

    url: str
    path: str  # below the directory
    size: int
    hash: str | None = None
    modified: float | None = None


def fetch(client: Client, files: Sequence[Remote], directory: Path) -> int:
    """Brings the files into the directory; how many were not there yet. Says each on stderr."""
    fetched = 0
    for file in files:
        target = directory / _inside(file.path)
        try:
            if _same(target, file):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            _bring(client, file, target)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}", hint="choose another directory with --to") from None
        print(target, file=sys.stderr)
        fetched += 1
    return fetched


def pour(client: Client, url: str, target: BinaryIO) -> None:
    """The content of a file, as it comes."""
    with client.content(url) as parts:
        for part in parts:
            target.write(part)
    target.flush()


def _inside(path: str) -> PurePosixPath:
    """A server that is not ours must not choose where we write."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
        raise ShoalError(f"the server has a file called {path[:200]!r}, which is no place below a directory")
    return pure


def _same(target: Path, file: Remote) -> bool:
    """By hash where there is one; else by size and time, which a download keeps."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return False
    if found.st_size != file.size:
        return False
    if file.hash is not None:
        return _hash(target) == file.hash
    return file.modified is not None and abs(found.st_mtime - file.modified) < 0.001


def _bring(client: Client, file: Remote, target: Path) -> None:
    temporary = target.with_name(f".{target.name[:200]}.{(file.hash or 'live')[:16]}.part")
    start = temporary.stat().st_size if file.hash is not None and temporary.exists() else 0
    if start > file.size:
        start = 0
    with temporary.open("r+b" if start else "wb") as part:
        part.seek(start)
        part.truncate()
        if start < file.size or not file.size:
            with client.content(file.url, start) as chunks:
                for chunk in chunks:
                    part.write(chunk)
        part.flush()
        os.fsync(part.fileno())
    if file.hash is not None and _hash(temporary) != file.hash:
        temporary.unlink()
        raise Unavailable(f"{file.path}: what came is not what its hash says", hint="try again")
    if file.modified is not None:
        os.utime(temporary, (file.modified, file.modified))
    temporary.replace(target)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()
