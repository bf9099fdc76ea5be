"""Many files as one, made while it is sent: nothing of it lies on the disk or whole in memory."""

from __future__ import annotations

import os
import tarfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shoal.launcher.fetching import HASH

CHUNK = 1 << 18
END = 2 * tarfile.BLOCKSIZE  # zeros behind the last member
EARLIEST, LATEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)  # what a zip file can say


class Member(NamedTuple):
    """A file of an archive. It is opened when its turn comes, and left out when it is gone by then."""

    path: str
    open: Callable[[], BinaryIO]
    modified: float | None = None  # None: as the file says


def zipped(members: Iterable[Member]) -> Generator[bytes]:
    """A zip file that stores files as they are: weights and images cannot be packed further."""
    sent = _Sent()
    with zipfile.ZipFile(sent, "w") as archive:
        for path, file, modified in _opened(members):
            name = path.encode(errors="replace").decode()  # of names that are no text, as much as can be written
            info = zipfile.ZipInfo(name, min(max(time.localtime(modified)[:6], EARLIEST), LATEST))
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as target:
                for data in _pieces(file, os.fstat(file.fileno()).st_size):
                    target.write(data)
                    yield sent.take()
            yield sent.take()
    yield sent.take()


def tarred(members: Iterable[Member]) -> Generator[bytes]:
    for path, file, modified in _opened(members):
        info = tarfile.TarInfo(path)
        info.size, info.mtime, info.mode = os.fstat(file.fileno()).st_size, int(modified), 0o644
        yield info.tobuf(tarfile.PAX_FORMAT)
        left = info.size
        for data in _pieces(file, info.size):
            left -= len(data)
            yield data
        if left:  # its size is said already
            raise OSError("it became shorter while it was sent")
        yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
    yield bytes(END)


class Laid:
    """A tar whose every byte is settled before the first is sent: (name, file, size, hash) of its members."""

    def __init__(self, members: Sequence[tuple[str, Path, int, str]]) -> None:
        self.members = members
        self.size = sum(len(header(*member)) + _blocks(member[2]) for member in members) + END


def laid_out(archive: Laid, offset: int) -> Generator[bytes]:
    """Its bytes from one on. Raises OSError when a file is not there with its size: the receiver sees it break off."""
    skip = offset
    for name, path, size, hash_ in archive.members:
        head = header(name, path, size, hash_)
        whole = len(head) + _blocks(size)
        if skip >= whole:
            skip -= whole
            continue
        yield head[skip:]
        skip = max(0, skip - len(head))
        if skip < size:
            file = path.open("rb")
            if os.fstat(file.fileno()).st_size != size:
                file.close()
                raise OSError(f"{path} has changed")
            yield from pieces_of(file, skip, size)
        yield bytes(_blocks(size) - max(size, skip))
        skip = 0
    yield bytes(max(0, END - skip))


def header(name: str, path: Path, size: int, hash_: str) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    info.pax_headers = {HASH: hash_} if hash_ else {}
    return info.tobuf(tarfile.PAX_FORMAT)


def pieces_of(file: BinaryIO, start: int, end: int) -> Generator[bytes]:
    """These bytes of an open file, which is closed then."""
    with file:
        while start < end:
            data = os.pread(file.fileno(), min(CHUNK, end - start), start)
            if not data:
                raise OSError("it became shorter while it was sent")
            start += len(data)
            yield data


def _blocks(size: int) -> int:
    return size + -size % tarfile.BLOCKSIZE


class _Sent:
    """What zipfile writes to, which cannot go back: bytes wait here until they are taken."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def write(self, data: bytes, /) -> int:
        self._waiting += data
        return len(data)

    def flush(self) -> None:
        """Whoever sends takes."""

    close = flush

    def take(self) -> bytes:
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken


def _opened(members: Iterable[Member]) -> Generator[tuple[str, BinaryIO, float]]:
    for member in members:
        try:
            file = member.open()
        except (FileNotFoundError, ValueError):
            continue
        with file:
            written = os.fstat(file.fileno()).st_mtime
            yield member.path, file, written if member.modified is None else member.modified


def _pieces(file: BinaryIO, size: int) -> Generator[bytes]:
    """As much as there was at first; less when it becomes shorter."""
    start = 0
    while start < size and (data := os.pread(file.fileno(), min(CHUNK, size - start), start)):
        start += len(data)
        yield data
