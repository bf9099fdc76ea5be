"""Appends frames to the segment files of one stream. One writer per file: safe on network filesystems.

Standard library only, clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Mapping, Optional

from shoal import journal


class JournalFile:
    """A stream on disk. Not for several threads: whoever has several keeps them apart.

    A frame that the disk does not take is not lost by being forgotten: `append` raises OSError, the file is cut back to
    its last whole frame, and the same call may be tried again.
    """

    def __init__(self, directory: str, header: Mapping[str, Any], *, segment: int = journal.SEGMENT) -> None:
        self.stream = os.urandom(16).hex()
        self.directory = directory
        self.header: Dict[str, Any] = {"version": journal.VERSION, "stream": self.stream, **header}
        self.seq = 0
        self._limit = segment
        self._number = -1
        self._size = 0
        self._file: Optional[int] = None

    def points(self, groups: Iterable[journal.Group]) -> None:
        self.append(journal.POINTS, journal.pack_points(groups))

    def event(self, value: Mapping[str, Any]) -> None:
        self._json(journal.EVENT, value)

    def end(self, value: Mapping[str, Any]) -> None:
        """The last frame; the file is closed."""
        self._json(journal.END, value)
        self.close()

    def _json(self, kind: int, value: Mapping[str, Any]) -> None:
        self._make_room()
        self._write(journal.pack_json(kind, self.seq, value))

    def append(self, kind: int, body: bytes) -> None:
        """One frame, whole or not at all."""
        self._make_room()
        self._write(journal.pack(kind, self.seq, body))

    def sync(self) -> None:
        """Until here even a machine that loses its power keeps it."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def forget(self) -> None:
        """After a fork: the file is the parent's."""
        self.close()

    def _make_room(self) -> None:
        if self._file is not None and self._size < self._limit:
            return
        path = os.path.join(self.directory, journal.segment_name(self.stream, self._number + 1))
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._file is not None:
            os.close(self._file)
        self._file, self._size, self._number = new, 0, self._number + 1
        try:
            self._write(journal.pack_json(journal.HEADER, self.seq, {**self.header, "segment": self._number}))
        except OSError:
            os.close(new)
            os.unlink(path)
            self._file, self._number = None, self._number - 1
            raise

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, self._size)
            raise
        self._size += written
        self.seq += 1
