"""Keeps what a replica prints: raw bytes of both streams in the order they came, with their times.

The launcher reads two pipes and hands over whatever it got; there is no work per line here, so a replica that prints
half a million lines a second is limited by the disk. Lines of the two streams do not tear each other: the beginning of
a line waits for its end, but not longer than `PATIENCE`, and not when it is longer than `LONG`.

`shoal.logformat` describes the files, `shoal.store.logs` reads them. Standard library only and clean for Python 3.8.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Optional, Tuple

from shoal.launcher.arrivals import Arrivals
from shoal.logformat import (
    BEGINS_LINE,
    CAP,
    CLOSED,
    HEADER,
    LOST,
    NO_STREAM,
    RECORD,
    SEGMENT,
    STDERR,
    STDOUT,
    Record,
    index_name,
    index_numbers,
    makes_sense,
    pack_header,
    pack_record,
    segment_name,
    segment_numbers,
    unpack_header,
    unpack_record,
)

PATIENCE = 0.2  # seconds that the beginning of a line waits for its end
LONG = 64 * 1024  # bytes from which on the beginning of a line does not wait
SPARSE = 0.05  # seconds of one stream that share a record of the index
RETRY = 1.0  # seconds until a disk that refused is tried again

LAST_LINES = 60  # torchrun writes more than thirty below the traceback of the script

NEWLINE = ord("\n")


class LogWriter:
    """The log of one replica, open for appending; the only writer of its directory.

    Goes on at the end of a log whose writer was killed. Never raises because of the disk: what the disk does not take
    is counted in `dropped`, takes its place in the offsets, and readers see a gap there; `error` is the last refusal,
    None when the disk works. Segments between the first and the last half of `cap` are deleted as new ones begin.
    `arrivals` hold what is written until it is in the log; a line that waits for its end waits there too.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        segment: int = SEGMENT,
        cap: int = CAP,
        arrivals: Optional[Arrivals] = None,
    ) -> None:
        self._number = self._data = self._index = -1  # the open segment and its two files
        if segment < 1 or cap < 2 * segment:
            raise ValueError(f"a cap of {cap} bytes cannot keep a head and a tail of segments of {segment} bytes")
        self.dropped = 0
        self.error: OSError | None = None
        self._directory = os.fspath(directory)
        self._segment = segment
        self._cap = cap
        self._ended = False
        self._arrivals = arrivals or Arrivals(None)

        self._held = {STDOUT: bytearray(), STDERR: bytearray()}
        self._held_since = {STDOUT: 0.0, STDERR: 0.0}
        self._at_line_start = {STDOUT: False, STDERR: False}  # False: no, or not known after a restart

        self._recovered = False
        self._kept: list[int] = []
        self._index_end = 0
        self._end = 0
        self._last: Record | None = None

        self._lost = 0  # bytes that were refused and are not yet recorded
        self._lost_since = 0.0
        self._refused_at: float | None = None
        try:
            self._recover()
        except OSError as error:
            self.error = error

    @property
    def size(self) -> int:
        """The offset at which the next byte will be kept; what is held back is not in it."""
        return self._end + self._lost

    @property
    def pending(self) -> bool:
        """Whether the beginning of a line waits for its end."""
        return bool(self._held[STDOUT] or self._held[STDERR])

    @property
    def deadline(self) -> float | None:
        """When `flush` has something to do."""
        return min((self._held_since[stream] + PATIENCE for stream, held in self._held.items() if held), default=None)

    def write(self, stream: int, data: bytes, now: float) -> None:
        """Keep what came from a stream; an unfinished last line is held back."""
        if self._ended:
            raise ValueError("write to a closed log")
        held = self._held[stream]
        whole = data.rfind(b"\n") + 1
        if not whole:
            if not held:
                self._held_since[stream] = now
            held += data
            if len(held) >= LONG:
                self._release(stream, now)
            return

        arrived = now
        ready = data if whole == len(data) else data[:whole]
        if held:
            arrived = self._held_since[stream]
            ready = bytes(held) + ready
            held.clear()
        self._keep(stream, ready, arrived, now)
        if whole < len(data):
            held += data[whole:]
            self._held_since[stream] = now
            if len(held) >= LONG:
                self._release(stream, now)

    def flush(self, now: float) -> None:
        """Keep the beginnings of lines that have waited long enough."""
        for stream in self._waiting():
            since = self._held_since[stream]
            if now >= since + PATIENCE or now < since:  # less: the clock was set back
                self._release(stream, now)

    def close(self, now: float) -> None:
        """Keep everything that is held back and mark the log as complete; silent when already closed."""
        if self._ended:
            return
        self._refused_at = None  # the last chance: do not wait for a better time
        for stream in self._waiting():
            self._release(stream, now)
        self._ended = True
        try:
            self._recover()
            self._record_loss()
            self._open(max(self._number, 0))
            self._record(NO_STREAM, CLOSED, now)
        except OSError as error:
            self.error = error
        self._close_files()

    def __del__(self) -> None:
        self._close_files()

    def _waiting(self) -> list[int]:
        return sorted((stream for stream in self._held if self._held[stream]), key=lambda s: self._held_since[s])

    def _release(self, stream: int, now: float) -> None:
        held = bytes(self._held[stream])
        self._held[stream].clear()
        self._keep(stream, held, self._held_since[stream], now)

    def _keep(self, stream: int, data: bytes, arrived: float, now: float) -> None:
        rest = memoryview(data)
        self._arrivals.will_be_logged(stream, self.size)
        if self._refused_at is None or not 0 <= now - self._refused_at < RETRY:
            try:
                while rest:
                    rest = rest[self._append(stream, rest, arrived) :]
                self.error = self._refused_at = None
            except OSError as error:
                self.error = error
                self._refused_at = now
        if rest:
            if not self._lost:
                self._lost_since = arrived
            self._lost += len(rest)
            self.dropped += len(rest)
        self._arrivals.are_logged(stream, len(data))
        self._at_line_start[stream] = data[-1] == NEWLINE

    def _append(self, stream: int, data: memoryview, arrived: float) -> int:
        """Append what fits into the segment; tells how many bytes that was."""
        self._recover()
        self._record_loss()
        number, place = divmod(self._end, self._segment)
        self._open(number)
        if self._needs_record(stream, arrived):
            # Before the data: a reader that sees a byte must find out whose it is.
            self._record(stream, BEGINS_LINE if self._at_line_start[stream] else 0, arrived)
        count = os.pwrite(self._data, data[: self._segment - place], place)
        self._end += count
        self._at_line_start[stream] = data[count - 1] == NEWLINE
        return count

    def _needs_record(self, stream: int, arrived: float) -> bool:
        if self._last is None or self._index_end == HEADER.size:  # each index stands for itself: others are deleted
            return True
        return self._last.stream != stream or arrived - self._last.time >= SPARSE

    def _record(self, stream: int, flags: int, time: float) -> None:
        # Times that never fall can be searched; a clock that is set back stands still here for a while.
        record = Record(self._end, max(time, self._last.time) if self._last else time, stream, flags)
        # To a place and not to the end: half a record, left by a full disk, is overwritten by the next.
        if os.pwrite(self._index, pack_record(record), self._index_end) < RECORD.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._index_end += RECORD.size
        self._last = record

    def _record_loss(self) -> None:
        if not self._lost:
            return
        if self._number < 0:
            self._open(self._end // self._segment)
        if not (self._last and self._last.flags & LOST):  # else the loss goes on, and so does its record
            self._record(NO_STREAM, LOST, self._lost_since)
        self._end += self._lost
        self._lost = 0

    def _open(self, number: int) -> None:
        """Make this segment the one to append to."""
        if number == self._number:
            return
        self._make_room()
        # The index first: a segment without one would have bytes of no stream.
        index = os.open(self._path(index_name(number)), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.pwrite(index, pack_header(self._segment), 0) < HEADER.size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = os.open(self._path(segment_name(number)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError:
            os.close(index)
            raise
        self._close_files()
        self._number, self._index, self._data, self._index_end = number, index, data, HEADER.size
        self._kept.append(number)

    def _make_room(self) -> None:
        most = max(self._cap // self._segment, 2)
        while len(self._kept) >= most:
            self._delete(self._kept[most // 2])
            del self._kept[most // 2]

    def _delete(self, number: int) -> None:
        # The data first: an index alone is nothing, data alone would be bytes of no stream.
        for name in (segment_name(number), index_name(number)):
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def _recover(self) -> None:
        """Find the end of what an earlier writer left, and forget what it had announced and not written."""
        if self._recovered:
            return
        self._close_files()
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        names = os.listdir(self._directory)
        self._kept = segment_numbers(names)
        for number in set(index_numbers(names)).difference(self._kept):
            self._delete(number)
        if self._kept:
            self._reopen(self._kept[-1])
        else:
            self._at_line_start = {STDOUT: True, STDERR: True}
        self._recovered = True

    def _reopen(self, number: int) -> None:
        index = os.open(self._path(index_name(number)), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            data = os.open(self._path(segment_name(number)), os.O_WRONLY)
        except OSError:
            os.close(index)
            raise
        self._number, self._index, self._data = number, index, data

        found = unpack_header(os.pread(index, HEADER.size, 0))
        self._segment = found or self._segment
        self._end = number * self._segment + os.fstat(data).st_size
        self._index_end = HEADER.size
        if found is None:
            os.ftruncate(index, 0)
            os.pwrite(index, pack_header(self._segment), 0)
            return
        count = (os.fstat(index).st_size - HEADER.size) // RECORD.size
        while count:
            record = unpack_record(os.pread(index, RECORD.size, HEADER.size + (count - 1) * RECORD.size))
            if record.flags & CLOSED:
                self._end = max(self._end, record.offset)
            elif makes_sense(record) and record.offset < self._end:
                self._last = record
                break
            count -= 1
        self._index_end += count * RECORD.size
        # What was announced must not speak for the bytes that come now.
        os.ftruncate(index, self._index_end)

    def _close_files(self) -> None:
        for fd in (self._data, self._index):
            if fd >= 0:
                os.close(fd)
        self._data = self._index = self._number = -1

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def last_lines(log: str) -> Tuple[str, ...]:
    """The end of a log as text; the whole log is the store's to read."""
    try:
        segments = sorted(name for name in os.listdir(log) if name.isdigit())
    except FileNotFoundError:
        return ()
    data = b""
    for name in reversed(segments):
        with open(os.path.join(log, name), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            data = file.read() + data
        if data.count(b"\n") > LAST_LINES:
            break
    text = data.decode("utf-8", "replace").rstrip("\n")
    return tuple(line.rpartition("\r")[2][:2000] for line in text.split("\n")[-LAST_LINES:]) if text else ()
