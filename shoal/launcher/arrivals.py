"""What has come through the pipes of a command and is not in its log yet, in files: nobody's death takes it away.

splice(2) moves bytes from a pipe into a file without passing them through this process. So each of them is in the pipe,
which whoever started the launcher holds too, or in a file here, or in the log. Before something is appended to the log,
a note tells whose bytes will stand there; where the log ends then tells how many of them do.

    arrivals/1.0  arrivals/2.0     what came from standard output and standard error; the second number counts files
    arrivals/note                  for both: number of the file, and how many of its bytes are in the log;
                                   then: which of the two is appended to the log, and at which offset

A disk that refuses, or a filesystem that cannot splice, costs only this: what waits is then in memory alone.
Standard library only and clean for Python 3.8.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
from typing import Dict, Optional

from shoal.logformat import STDERR, STDOUT

DIRECTORY = "arrivals"
CHUNK = 1 << 18
LARGE = 4 << 20  # bytes of a file that are in the log already: what is left begins another file

NOTE = struct.Struct("<QQQQBxxxxxxxQ")
SPLICE_F_NONBLOCK = 2


class Arrivals:
    """The files of one try; goes on with those of a process that was killed.

    Never raises because of the disk: `take` then reads the pipe. Without a directory there are no files at all.
    """

    def __init__(self, directory: Optional[str], chunk: int = CHUNK, large: int = LARGE) -> None:
        self._directory = os.path.join(directory, DIRECTORY) if directory else ""
        self._chunk, self._large = chunk, large
        self._numbers = {STDOUT: 0, STDERR: 0}
        self._files: Dict[int, int] = {}
        self._sizes = {STDOUT: 0, STDERR: 0}
        self._logged = {STDOUT: 0, STDERR: 0}
        self._note = -1
        self._appending, self._offset = 0, 0  # what the note of a killed process says
        if directory:
            try:
                self._open()
            except OSError:
                self._close()  # what another process left stays for the next who tries

    def take(self, stream: int, pipe: int) -> bytes:
        """What is in the pipe, nothing at its end. Raises BlockingIOError where a pipe that does not block is empty."""
        if stream in self._files:
            try:
                count = _splice(pipe, self._files[stream], self._sizes[stream], self._chunk)
                data = os.pread(self._files[stream], count, self._sizes[stream])
                self._sizes[stream] += count
                return data
            except BlockingIOError:
                raise
            except OSError:
                self.forget()
        return os.read(pipe, self._chunk)

    def put(self, stream: int, data: bytes) -> None:
        """As if it had come from the stream."""
        if stream in self._files:
            try:
                count = os.pwrite(self._files[stream], data, self._sizes[stream])
                self._sizes[stream] += count
                if count < len(data):
                    self.forget()
            except OSError:
                self.forget()

    def left(self, end: int) -> Dict[int, bytes]:
        """For both streams what a killed process had taken and not logged; the log it wrote to ends at `end`."""
        found = {STDOUT: b"", STDERR: b""}
        try:
            if self._appending in self._files:
                self._logged[self._appending] += max(0, end - self._offset)
                self._appending = 0
            for stream, file in self._files.items():
                self._logged[stream] = min(self._logged[stream], self._sizes[stream])
                found[stream] = os.pread(file, self._sizes[stream], self._logged[stream])
            self._write_note(0, 0)
        except OSError:
            self.forget()
        return found

    def will_be_logged(self, stream: int, offset: int) -> None:
        """The next bytes of the stream will stand in the log from this offset on."""
        try:
            self._write_note(stream, offset)
        except OSError:
            self.forget()

    def are_logged(self, stream: int, count: int) -> None:
        """So many of them are the log's matter now, whether it could keep them or not."""
        if stream not in self._files:
            return
        self._logged[stream] += count
        if self._logged[stream] >= self._large:
            try:
                self._begin_another(stream)
            except OSError:
                self.forget()

    def forget(self) -> None:
        """Closes and removes the files; silent when there are none."""
        self._close()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        for file in (*self._files.values(), self._note):
            if file >= 0:
                os.close(file)
        self._files, self._note = {}, -1

    def _open(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._note = os.open(os.path.join(self._directory, "note"), os.O_RDWR | os.O_CREAT, 0o600)
        written = os.pread(self._note, NOTE.size, 0)
        if len(written) == NOTE.size:
            (
                self._numbers[STDOUT],
                self._logged[STDOUT],
                self._numbers[STDERR],
                self._logged[STDERR],
                self._appending,
                self._offset,
            ) = NOTE.unpack(written)
        for stream in (STDOUT, STDERR):
            self._files[stream] = os.open(self._path(stream), os.O_RDWR | os.O_CREAT, 0o600)
            self._sizes[stream] = os.fstat(self._files[stream]).st_size

    def _write_note(self, stream: int, offset: int) -> None:
        if self._note < 0:
            return
        note = NOTE.pack(
            self._numbers[STDOUT],
            self._logged[STDOUT],
            self._numbers[STDERR],
            self._logged[STDERR],
            stream,
            offset,
        )
        os.pwrite(self._note, note, 0)

    def _begin_another(self, stream: int) -> None:
        """The new file counts from the note on; one that was made and not noted is made again."""
        before, path = self._files[stream], self._path(stream)
        rest = os.pread(before, self._sizes[stream], self._logged[stream])
        self._numbers[stream] += 1
        file = os.open(self._path(stream), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._files[stream] = file
        os.close(before)
        if os.pwrite(file, rest, 0) < len(rest):
            raise OSError("the disk is full")
        self._sizes[stream], self._logged[stream] = len(rest), 0
        self._write_note(0, 0)
        os.unlink(path)

    def _path(self, stream: int) -> str:
        return os.path.join(self._directory, f"{stream}.{self._numbers[stream]}")


def exist(directory: str) -> bool:
    """Whether a process that took what arrived at this try was killed before the log had all of it."""
    return os.path.isdir(os.path.join(directory, DIRECTORY))


_libc = ctypes.CDLL(None, use_errno=True)


def _splice(pipe: int, file: int, offset: int, most: int) -> int:
    at = ctypes.c_int64(offset)
    while True:
        count = int(_libc.splice(pipe, None, file, ctypes.byref(at), ctypes.c_size_t(most), SPLICE_F_NONBLOCK))
        if count >= 0:
            return count
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
