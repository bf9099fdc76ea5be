"""Reads the log of one replica from its directory, also while the replica prints.

Everything is addressed by offset: the number of bytes the replica had printed before. What is no longer there, or never
was, is a `Gap` that takes its place in the offsets. Nothing here keeps a log in memory: a reader holds one chunk, the
unfinished line of each stream, and as many lines as it was asked for. A directory that does not exist is an empty log.

`shoal.logformat` describes the files, `shoal.launcher.logfile` writes them.
"""

from __future__ import annotations

import heapq
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

from shoal.logformat import (
    BEGINS_LINE,
    CLOSED,
    HEADER,
    LOST,
    NO_STREAM,
    RECORD,
    SEGMENT,
    Record,
    index_name,
    makes_sense,
    segment_name,
    segment_numbers,
    unpack_header,
    unpack_record,
)

LONGEST = 1024 * 1024  # bytes of a `Line`; longer lines are given in pieces
CHUNK = 256 * 1024  # bytes of a `Chunk`, at most

Directory = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one stream that came together; `begins_line` is False also where it is not known."""

    offset: int
    time: float
    stream: int
    data: bytes
    begins_line: bool = False

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that cannot be read: the cap removed the middle of a long log, or the disk had not taken them."""

    offset: int
    length: int
    reason: Literal["cap", "lost"]

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline; offset and time are those of its first byte.

    Not `complete`: no newline was found, because the line is longer than `LONGEST` and goes on in the next `Line` of
    its stream, because a gap follows, or because the log ends here for now.
    """

    offset: int
    time: float
    stream: int
    text: bytes
    complete: bool


def size(directory: Directory) -> int:
    """The offset of the byte that will come next."""
    return look(directory).end


def closed(directory: Directory) -> bool:
    """Whether the writer has ended properly: nothing will follow."""
    return look(directory).closed


def read(directory: Directory, start: int, limit: int) -> list[Chunk | Gap]:
    """Up to `limit` bytes from an offset on, and the gaps between them; go on at `.end` of the last item."""
    found: list[Chunk | Gap] = []
    if limit <= 0:
        return found
    for item in walk(look(directory), start, min(CHUNK, limit)):
        if isinstance(item, Gap):
            found.append(item)
            continue
        found.append(replace(item, data=item.data[:limit]))
        limit -= len(item.data)
        if limit <= 0:
            break
    return found


def lines(
    directory: Directory,
    start: int = 0,
    stream: int | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Line]:
    """The lines that are there now, in the order in which they were finished.

    `start` is taken for the beginning of a line. Times are those of first bytes: `since <= time < until`.
    """
    return (entry for entry in entries(directory, start, stream, since, until) if isinstance(entry, Line))


def entries(
    directory: Directory,
    start: int = 0,
    stream: int | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Line | Gap]:
    """The same as `lines`, with the gaps between them."""
    log = look(directory)
    begin = start if since is None else max(start, _offset_at(log, since))
    # One byte more tells whether a line begins here; what the reading finds begun is then of the time before.
    inside = begin > start
    assembler = LineAssembler(inside=inside)
    for item in walk(log, begin - inside, CHUNK):
        if isinstance(item, Gap):
            yield from _within(assembler.feed(item), begin, until)
            if item.end > begin:
                yield Gap(max(item.offset, begin), item.end - max(item.offset, begin), item.reason)
            continue
        if until is not None and item.time >= until and not assembler.unfinished(until):
            break
        if stream is None or item.stream == stream:
            yield from _within(assembler.feed(item), begin, until)
    yield from _within(assembler.rest(), begin, until)


def tail(directory: Directory, count: int, window: int = CHUNK // 4) -> list[Line]:
    """The last lines, in the order of their last bytes: one that was never finished stands where it stopped.

    Reads from the end in growing windows. When lines are so long that `count` times `LONGEST` does not show where they
    begin, the first is a fragment.
    """
    if count <= 0:
        return []
    log = look(directory)
    while True:
        start = max(log.end - window, 0)
        made = assembled(walk(log, start, CHUNK), LineAssembler(inside=start > 0))
        found = heapq.nlargest(count, made, key=lambda line: line.end)
        certain = len(found) == count and not any(line.doubtful for line in found)
        if certain or start == 0 or window > (count + 1) * LONGEST:
            return [line.line for line in reversed(found)]
        window *= 4


def find(
    directory: Directory, pattern: bytes | re.Pattern[bytes], start: int = 0, limit: int | None = None
) -> Iterator[Line]:
    """The lines that contain the pattern, up to `limit` of them; a line longer than `LONGEST` is searched in pieces.

    Bytes mean themselves, and are found much faster than a pattern.
    """
    search = re.compile(re.escape(pattern) if isinstance(pattern, bytes) else pattern).search
    items = walk(look(directory), start, CHUNK)
    if isinstance(pattern, bytes):
        items = (part for item in items for part in _without_lines_that_lack(pattern, item))
    matching = (line for line, _, _ in assembled(items, LineAssembler()) if search(line.text))
    return islice(matching, limit)


def offset_at(directory: Directory, time: float) -> int:
    """The offset of the first byte that came at this time or later; the size of the log if there is none yet."""
    return _offset_at(look(directory), time)


class LineAssembler:
    """Makes lines of chunks: feed it what `read` gives, in order; for those who follow a log as it grows.

    With `inside` the reading begins somewhere in the log: what may be the rest of a line begun before is not given.
    """

    def __init__(self, inside: bool = False) -> None:
        self._open: dict[int, _OpenLine] = {}
        self._inside = inside
        self._known: set[int] = set()  # streams whose beginnings of lines have been seen

    def unfinished(self, before: float) -> bool:
        """Whether a line has begun before this time and not ended."""
        return any(line.time < before for line in self._open.values())

    def feed(self, item: Chunk | Gap) -> list[Line]:
        """The lines that this item finishes."""
        return [line for line, _, doubtful in self._feed(item) if not doubtful]

    def rest(self) -> list[Line]:
        """The lines that have begun and will not be finished, in the order in which they began."""
        return [line for line, _, doubtful in self._rest() if not doubtful]

    def _feed(self, item: Chunk | Gap) -> Iterator[Assembled]:
        if isinstance(item, Gap):
            yield from self._rest()
            self._inside = False  # what comes after a gap is given, even if it is the rest of a line
            return
        if item.begins_line:
            self._known.add(item.stream)
        stream, offset = item.stream, item.offset
        parts = item.data.split(b"\n")
        for part in parts[:-1]:
            end = offset + len(part) + 1
            if stream in self._open or len(part) > LONGEST:
                yield from self._add(item, offset, part)
                line = self._open.pop(stream)
                yield Assembled(line.seal(stream, True), end, self._doubtful(stream))
            else:
                yield Assembled(Line(offset, item.time, stream, part, True), end, self._doubtful(stream))
            self._known.add(stream)
            offset = end
        yield from self._add(item, offset, parts[-1])

    def _add(self, item: Chunk, offset: int, text: bytes) -> Iterator[Assembled]:
        """Add to the open line of the stream; gives the pieces that it is too long for."""
        while text:
            line = self._open.get(item.stream)
            if line is not None and len(line.text) == LONGEST:
                yield Assembled(line.seal(item.stream, False), line.end, self._doubtful(item.stream))
                line = None
            if line is None:
                line = self._open[item.stream] = _OpenLine(offset, item.time, bytearray(), offset)
            part = text[: LONGEST - len(line.text)]
            text = text[len(part) :]
            offset += len(part)
            line.text += part
            line.end = offset

    def _rest(self) -> Iterator[Assembled]:
        for stream, line in sorted(self._open.items(), key=lambda item: item[1].offset):
            yield Assembled(line.seal(stream, False), line.end, self._doubtful(stream))
        self._open.clear()

    def _doubtful(self, stream: int) -> bool:
        return self._inside and stream not in self._known


class Assembled(NamedTuple):
    """A line, the offset after its last byte, and whether its beginning may lie before the reading began."""

    line: Line
    end: int
    doubtful: bool


@dataclass(slots=True)
class _OpenLine:
    offset: int
    time: float
    text: bytearray
    end: int

    def seal(self, stream: int, complete: bool) -> Line:
        return Line(self.offset, self.time, stream, bytes(self.text), complete)


def assembled(items: Iterable[Chunk | Gap], assembler: LineAssembler) -> Iterator[Assembled]:
    for item in items:
        yield from assembler._feed(item)
    yield from assembler._rest()


def _without_lines_that_lack(pattern: bytes, item: Chunk | Gap) -> Iterator[Chunk | Gap]:
    """The item, or only its ends when all whole lines between them lack the pattern: most lines need no work."""
    if isinstance(item, Gap):
        yield item
        return
    first, last = item.data.find(b"\n") + 1, item.data.rfind(b"\n") + 1
    if item.data.find(pattern, first, last) >= 0:
        yield item
        return
    yield replace(item, data=item.data[:first])
    yield replace(item, offset=item.offset + last, data=item.data[last:], begins_line=True)


def _within(found: list[Line], begin: int, until: float | None) -> Iterator[Line]:
    return (line for line in found if line.offset >= begin and (until is None or line.time < until))


@dataclass(frozen=True)
class Log:
    """What a log was at one moment; bytes before `end` never change, they can only go."""

    directory: str
    segment: int
    numbers: tuple[int, ...]
    end: int
    closed: bool

    def data(self, number: int) -> str:
        return os.path.join(self.directory, segment_name(number))


def look(directory: Directory) -> Log:
    directory = os.fspath(directory)
    try:
        numbers = tuple(segment_numbers(os.listdir(directory)))
    except FileNotFoundError:
        numbers = ()
    for count in range(len(numbers), 0, -1):
        last = numbers[count - 1]
        try:
            # The size of the data before the index: the writer makes them grow in the other order.
            length = os.stat(os.path.join(directory, segment_name(last))).st_size
            with _Index(directory, last) as index:
                segment, record = index.segment, index.last()
        except FileNotFoundError:
            continue
        if segment is None:
            continue
        end = last * segment + length
        if record and record.flags & CLOSED:
            return Log(directory, segment, numbers[:count], max(end, record.offset), True)
        return Log(directory, segment, numbers[:count], end, False)
    return Log(directory, SEGMENT, (), 0, False)


class _Index:
    """The records of one segment, looked up where they are: there may be many."""

    def __init__(self, directory: str, number: int) -> None:
        self._fd = os.open(os.path.join(directory, index_name(number)), os.O_RDONLY)
        self.segment = unpack_header(os.pread(self._fd, HEADER.size, 0))
        self.count = max(os.fstat(self._fd).st_size - HEADER.size, 0) // RECORD.size if self.segment else 0
        while self.count and not makes_sense(self[self.count - 1]):
            self.count -= 1

    def __enter__(self) -> _Index:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def __getitem__(self, place: int) -> Record:
        return unpack_record(os.pread(self._fd, RECORD.size, HEADER.size + place * RECORD.size))

    def last(self) -> Record | None:
        return self[self.count - 1] if self.count else None

    def covering(self, offset: int) -> int:
        """The place of the record that speaks for this offset; -1 if it lies before all of them."""
        return bisect_right(range(self.count), offset, key=lambda place: self[place].offset) - 1

    def at(self, time: float) -> Record | None:
        """The first record of this time or later."""
        place = bisect_left(range(self.count), time, key=lambda place: self[place].time)
        return self[place] if place < self.count else None

    def since(self, place: int) -> Iterator[Record]:
        block = 1024
        for first in range(place, self.count, block):
            wanted = min(block, self.count - first) * RECORD.size
            data = os.pread(self._fd, wanted, HEADER.size + first * RECORD.size)
            yield from map(Record._make, RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]))


def walk(log: Log, start: int, chunk: int) -> Iterator[Chunk | Gap]:
    """Everything from an offset on, in chunks of at most this size; gaps of one reason that meet are one gap."""
    open_gap: Gap | None = None
    for item in _pieces(log, max(start, 0), chunk):
        if isinstance(item, Gap):
            if open_gap and open_gap.reason == item.reason:
                item = Gap(open_gap.offset, open_gap.length + item.length, item.reason)
            elif open_gap:
                yield open_gap
            open_gap = item
            continue
        if open_gap:
            yield open_gap
            open_gap = None
        yield item
    if open_gap:
        yield open_gap


def _pieces(log: Log, position: int, chunk: int) -> Iterator[Chunk | Gap]:
    while position < log.end:
        number = position // log.segment
        border = min((number + 1) * log.segment, log.end)
        for item in _pieces_of_segment(log, number, position, border, chunk):
            yield item
            position = item.end
        if position < border:
            following = next((other for other in log.numbers if other > number), None)
            end = log.end if following is None else following * log.segment
            # The cap takes from the middle only: there is always a segment after what it took.
            yield Gap(position, end - position, "lost" if following is None else _reason(log, number))
            position = end


def _pieces_of_segment(log: Log, number: int, position: int, border: int, chunk: int) -> Iterator[Chunk | Gap]:
    """What there is of a segment between two offsets; nothing if it was deleted."""
    with ExitStack() as stack:
        try:
            data = stack.enter_context(open(log.data(number), "rb", buffering=0)).fileno()
            index = stack.enter_context(_Index(log.directory, number))
        except FileNotFoundError:
            return
        base = number * log.segment
        border = min(border, base + os.fstat(data).st_size)
        place = index.covering(position)
        if place < 0:  # a loss that began in an earlier segment ends in this one
            first = min(index[0].offset, border) if index.count else border
            if first > position:
                yield Gap(position, first - position, "lost")
                position = first
            place = 0
        for record, end in _ranges(index.since(place), border):
            begins_line = bool(record.flags & BEGINS_LINE) and position == record.offset
            while position < end:
                if record.stream == NO_STREAM:
                    piece: Chunk | Gap = Gap(position, end - position, "lost")
                else:
                    content = os.pread(data, min(end - position, chunk), position - base)
                    piece = Chunk(position, record.time, record.stream, content, begins_line)
                if piece.end == position:  # shorter than it was: not our writer's doing
                    return
                yield piece
                position = piece.end
                begins_line = False


def _ranges(records: Iterator[Record], border: int) -> Iterator[tuple[Record, int]]:
    """Each record with the offset at which it ends."""
    current = next(records, None)
    while current is not None and current.offset < border:
        following = next(records, None)
        yield current, border if following is None else min(following.offset, border)
        current = following


def _reason(log: Log, number: int) -> Literal["cap", "lost"]:
    """Why a segment, or the rest of it, is not there."""
    if number in log.numbers and os.path.exists(log.data(number)):
        return "lost"
    before = [other for other in log.numbers if other < number]
    if not before:
        return "lost"
    try:
        with _Index(log.directory, before[-1]) as index:
            last = index.last()
    except FileNotFoundError:
        return "cap"
    return "lost" if last and last.flags & LOST else "cap"


def _offset_at(log: Log, time: float) -> int:
    for number in log.numbers:
        try:
            with _Index(log.directory, number) as index:
                record = index.at(time)
        except FileNotFoundError:
            continue
        if record is not None:
            return min(record.offset, log.end)
    return log.end
