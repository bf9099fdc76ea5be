"""Lines of logs by number: what a list that shows a few of a million lines needs.

A line has the number of its newline among all newlines of its log, so numbers are found by counting bytes and not by
making lines: a million lines take 20 ms the first time, nothing later. Lines of several logs have one order together,
that of the times at which they were finished, and in it a place as exact as in one log.

What the cap took from the middle of a long log has no numbers; those after it then become smaller.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.logformat import HEADER, NO_STREAM, RECORD, STDERR, STDOUT, index_name, unpack_header
from shoal.store.logs import CHUNK, LONGEST, Assembled, Gap, LineAssembler, Log, look, walk

BLOCK = 64 * 1024  # bytes whose newlines are counted together
KEPT = 512  # logs whose counts are remembered
BOTH = 0  # in place of a stream
TORN = " … ".encode()  # where bytes are missing in a line

RECORDS = np.dtype([("offset", "<u8"), ("time", "<f8"), ("stream", "u1"), ("flags", "u1"), ("", "V6")])
assert RECORDS.itemsize == RECORD.size

Integers = NDArray[np.int64]


class Ends(NamedTuple):
    """Lines without their texts: numbers in their log, offsets behind their last bytes, times of these bytes."""

    numbers: Integers
    offsets: Integers
    times: NDArray[np.float64]

    def take(self, rows: Any) -> Ends:
        return Ends(self.numbers[rows], self.offsets[rows], self.times[rows])


def joined(parts: Sequence[Ends]) -> Ends:
    if not parts:
        return Ends(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
    return Ends(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.times for part in parts]),
    )


class Found(NamedTuple):
    """One line. `gap` bytes before it, or in it, are missing; `length` is that of all of it, however long."""

    number: int
    offset: int
    time: float
    stream: int
    text: bytes
    length: int
    complete: bool
    gap: int


class NumberedLog:
    """One log as it is now; what is asked of it later is still of this moment."""

    def __init__(self, directory: str | os.PathLike[str], stream: int = BOTH) -> None:
        self.log: Log = look(directory)
        self.stream = stream
        self._records: dict[int, NDArray[Any]] = {}
        counts = _counts(self)
        self._numbers = [number for number in self.log.numbers if number in counts]
        self._blocks = [counts[number] for number in self._numbers]
        sums = np.array([block.sum(axis=0) for block in self._blocks], dtype=np.int64).reshape(-1, 3)
        self._before = np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(sums, axis=0)])  # per segment, each stream

    @property
    def finished(self) -> int:
        """How many lines have ended."""
        return int(self._before[-1, self.stream])

    @property
    def count(self) -> int:
        """How many lines there are, those included that have begun and not ended."""
        return self.finished + len(self._open_here)

    @cached_property
    def open(self) -> list[tuple[int, int]]:
        """(the offset behind its last byte, stream) of each line that has not ended; of both streams, in this order."""
        last: dict[int, int] = {}
        for number in reversed(self._numbers):
            records = self.records(number)
            ends = np.append(records["offset"][1:], min((number + 1) * self.log.segment, self.log.end)).astype(np.int64)
            for stream in {STDOUT, STDERR} - set(last):
                mine = np.flatnonzero((records["stream"] == stream) & (ends > records["offset"]))
                if len(mine):
                    last[stream] = min(int(ends[mine[-1]]), self.log.end)
            if len(last) == 2:
                break
        return sorted((end, stream) for stream, end in last.items() if self._read(end - 1, 1) != b"\n")

    @property
    def _open_here(self) -> list[int]:
        """Which of the open lines are of the chosen stream."""
        return [place for place, (_, stream) in enumerate(self.open) if self.stream in (BOTH, stream)]

    def before(self, time: float, *, inclusive: bool = False) -> int:
        """How many lines were finished before a time; `inclusive`: or at that very time."""
        for place, number in enumerate(self._numbers):
            records = self.records(number)
            first = int(np.searchsorted(records["time"], time, "right" if inclusive else "left"))
            if first < len(records):
                return self.at(int(records["offset"][first]), place)
        return self.count

    def at(self, offset: int, place: int | None = None) -> int:
        """How many lines end before this offset."""
        if place is None:
            place = bisect_right(self._numbers, offset // self.log.segment) - 1
        if place < 0:
            return 0
        block, rest = divmod(offset - self._numbers[place] * self.log.segment, BLOCK)
        counted = int(self._before[place, self.stream] + self._blocks[place][:block, self.stream].sum())
        if not rest or block >= len(self._blocks[place]):
            return counted
        return counted + int((self._block(place, block).offsets <= offset).sum())

    def ends(self, first: int, last: int) -> Ends:
        """The lines from one number (among those of the chosen stream) up to another, that one not included."""
        first, last = max(first, 0), min(last, self.count)
        parts: list[Ends] = []
        place = int(np.searchsorted(self._before[:, self.stream], first, "right")) - 1
        missing = min(last, self.finished) - first
        skip = first - int(self._before[place, self.stream]) if missing > 0 else 0
        while missing > 0:
            within = np.cumsum(self._blocks[place][:, self.stream])
            block = int(np.searchsorted(within, skip, "right"))
            skip -= int(within[block - 1]) if block else 0
            while missing > 0 and block < len(within):
                parts.append(self._block(place, block).take(slice(skip, skip + missing)))
                missing -= len(parts[-1].numbers)
                skip, block = 0, block + 1
            place += 1
        for place in self._open_here[max(first - self.finished, 0) : max(last - self.finished, 0)]:
            # They come last, wherever their last bytes are.
            number = int(self._before[-1, BOTH]) + place
            parts.append(Ends(np.array([number]), np.array([self.log.end]), np.array([self._last_time])))
        return joined(parts)

    def texts(self, ends: Ends) -> list[Found]:
        """The same lines with their texts; lines that are neighbours are read together."""
        all_finished = int(self._before[-1, BOTH])
        done = int(np.searchsorted(ends.numbers, all_finished))
        found: list[Found] = []
        breaks = np.flatnonzero(np.diff(ends.offsets[:done]) > CHUNK) + 1
        for group in np.split(np.arange(done), breaks):
            if len(group):
                found += self._read_lines(ends.numbers[group], ends.offsets[group])
        for number in ends.numbers[done:]:
            found.append(self._read_open(int(number), *self.open[int(number) - all_finished]))
        return found

    def _read_lines(self, numbers: Integers, offsets: Integers) -> list[Found]:
        wanted = {int(end): int(number) for number, end in zip(numbers, offsets, strict=True)}
        back = CHUNK // 16
        while True:
            begin = max(int(offsets[0]) - back, 0)
            reader = _Reader(self.log, begin)
            found = {end: line for end, line in reader.lines(int(offsets[-1])) if end in wanted}
            if begin == 0 or not any(line.number for line in found.values()) or back > 2 * LONGEST:
                gone = Found(0, 0, 0.0, STDOUT, b"", 0, True, 0)  # the cap took it while we looked
                return [found.get(end, gone)._replace(number=number) for end, number in wanted.items()]
            back *= 8

    def _read_open(self, number: int, end: int, stream: int) -> Found:
        back = CHUNK // 16
        while True:
            begin = max(end - back, 0)
            line = _Reader(self.log, begin).open_line(end, stream)
            if begin == 0 or not line.number or back > 2 * LONGEST:
                return line._replace(number=number)
            back *= 8

    def segments(self) -> Iterator[tuple[int, bytes]]:
        """(offset, content) of each segment."""
        for number in self._numbers:
            base = number * self.log.segment
            yield base, self._read(base, min(self.log.segment, self.log.end - base))

    def ends_in(self, base: int, data: bytes) -> Ends:
        """The lines that end in a segment."""
        place = self._numbers.index(base // self.log.segment)
        return self._ends_in(self._numbers[place], base, data, int(self._before[place, BOTH]))

    def records(self, number: int) -> NDArray[Any]:
        """The index of one segment."""
        if number not in self._records:
            self._records[number] = _records_of(self.log, number)
        return self._records[number]

    @property
    def _last_time(self) -> float:
        return float(self.records(self._numbers[-1])["time"][-1]) if self._numbers else 0.0

    def _block(self, place: int, block: int) -> Ends:
        """The lines of the chosen stream that end in one block."""
        number, counts = self._numbers[place], self._blocks[place]
        base = number * self.log.segment + block * BLOCK
        data = self._read(base, min(BLOCK, self.log.end - base))  # not more than at the moment we look at
        return self._ends_in(number, base, data, int(self._before[place, BOTH] + counts[:block, BOTH].sum()))

    def _ends_in(self, number: int, base: int, data: bytes, first: int) -> Ends:
        found = newlines(data) + base
        numbers = first + np.arange(len(found))
        records = self.records(number)
        whose = np.maximum(np.searchsorted(records["offset"], found, "right") - 1, 0)
        if self.stream != BOTH:
            mine = records["stream"][whose] == self.stream
            found, numbers, whose = found[mine], numbers[mine], whose[mine]
        return Ends(numbers.astype(np.int64), found + 1, records["time"][whose])

    def _read(self, offset: int, length: int) -> bytes:
        try:
            descriptor = os.open(self.log.data(offset // self.log.segment), os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, length, offset % self.log.segment)
        finally:
            os.close(descriptor)


@dataclass
class Together:
    """Several logs as one list. The order of lines is that of time, then of the logs, then of numbers."""

    logs: Sequence[NumberedLog]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(log.count for log in self.logs)

    def around(self, place: int, before: int, after: int) -> tuple[int, list[tuple[int, Found]]]:
        """The lines around a place in the common order: the place of the first, and (which log, the line) of each."""
        place = min(max(place, 0), self.total)
        if not self.total:
            return 0, []
        return self._window(self._time_at(min(place, self.total - 1)), place, before, after)

    def place_of(self, log: int, number: int) -> int:
        """The place of a line, by its log and its number there (among all lines of that log); the next one if gone."""
        chosen = self.logs[log]
        everything = chosen if chosen.stream == BOTH else NumberedLog(chosen.log.directory)
        found = everything.ends(number, number + 1)
        if not len(found.offsets):
            return self.total
        if number < everything.finished:
            mine = chosen.at(int(found.offsets[0]) - 1)
        else:
            mine = chosen.finished + sum(place < number - everything.finished for place in chosen._open_here)
        time = float(found.times[0])
        earlier = sum(
            other.before(time, inclusive=which < log) for which, other in enumerate(self.logs) if which != log
        )
        return earlier + mine

    def at_time(self, time: float) -> int:
        """The place of the first line that was finished at this time or later."""
        return sum(log.before(time) for log in self.logs)

    def _window(self, time: float, place: int, before: int, after: int) -> tuple[int, list[tuple[int, Found]]]:
        lows = [max(log.before(time) - before, 0) for log in self.logs]
        highs = [log.before(time, inclusive=True) + after for log in self.logs]
        gathered = [log.ends(low, high) for log, low, high in zip(self.logs, lows, highs, strict=True)]
        whose = np.concatenate([np.full(len(ends.numbers), which) for which, ends in enumerate(gathered)])
        within = np.concatenate([np.arange(len(ends.numbers)) for ends in gathered])
        order = np.lexsort((within, whose, np.concatenate([ends.times for ends in gathered])))
        begins = sum(lows)  # the place of the first in `order`, as far as that has no holes, which is far enough
        first = max(place - before, 0)
        chosen = order[first - begins : place + after - begins]
        lines: dict[int, list[Found]] = {}
        for which in np.unique(whose[chosen]):
            rows = np.sort(within[chosen][whose[chosen] == which])
            ends = gathered[which]
            lines[int(which)] = self.logs[which].texts(ends.take(rows))
        taken = dict.fromkeys(lines, 0)
        found = []
        for which in whose[chosen]:
            found.append((int(which), lines[int(which)][taken[int(which)]]))
            taken[int(which)] += 1
        return first, found

    def _time_at(self, place: int) -> float:
        """The time of the line at a place: the latest before which no more than `place` lines were finished."""
        if len(self.logs) == 1:
            return float(self.logs[0].ends(place, place + 1).times[0])
        times = [log.records(number)["time"] for log in self.logs for number in log.log.numbers]
        known = np.unique(np.concatenate(times))
        low, high = 0, len(known) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.at_time(float(known[middle])) <= place:
                low = middle
            else:
                high = middle - 1
        return float(known[low])


class _Reader:
    """Makes lines from an offset on. Their `number` is 1 where they may have begun before it, and 0 where not."""

    def __init__(self, log: Log, begin: int) -> None:
        self.log = log
        self.begin = begin
        self.assembler = LineAssembler(inside=begin > 0)
        self.begun: dict[int, Found] = {}  # stream -> what is known of a line whose first pieces were read
        self.gap = 0

    def lines(self, end: int) -> Iterator[tuple[int, Found]]:
        """(offset behind it, line) of all that are finished before an offset, in this order."""
        for item in walk(self.log, self.begin, CHUNK):
            if item.offset >= end:
                return
            if isinstance(item, Gap):
                self.gap += item.length
            for entry in self.assembler._feed(item):
                line = self._joined(entry, torn=isinstance(item, Gap))
                if entry.line.complete:
                    del self.begun[entry.line.stream]
                    yield entry.end, line
                    self.gap = 0

    def open_line(self, end: int, stream: int) -> Found:
        """The line of a stream that goes up to an offset and is not finished."""
        for _ in self.lines(end):
            pass
        for entry in self.assembler._rest():
            self._joined(entry, torn=False)
        return self.begun.get(stream) or Found(1, end, 0.0, stream, b"", 0, False, 0)

    def _joined(self, entry: Assembled, *, torn: bool) -> Found:
        line = entry.line
        before = self.begun.get(line.stream)
        if before is None:
            text = line.text + TORN if torn else line.text
            now = Found(int(entry.doubtful), line.offset, line.time, line.stream, text, len(line.text), True, self.gap)
        else:
            text = before.text if len(before.text) >= LONGEST else before.text + line.text
            now = before._replace(text=text, length=before.length + len(line.text), gap=max(before.gap, self.gap))
        self.begun[line.stream] = now = now._replace(complete=line.complete)
        return now


_remembered: OrderedDict[str, dict[int, tuple[int, NDArray[np.int64]]]] = OrderedDict()
_remembering = threading.Lock()


def _counts(log: NumberedLog) -> dict[int, NDArray[np.int64]]:
    """segment -> how many newlines each block has: of both streams, of stdout, of stderr. Counts only what is new."""
    snapshot = log.log
    with _remembering:
        known = _remembered.setdefault(snapshot.directory, {})
        _remembered.move_to_end(snapshot.directory)
        while len(_remembered) > KEPT:
            _remembered.popitem(last=False)
        known = dict(known)
    for gone in set(known) - set(snapshot.numbers):
        del known[gone]
    found: dict[int, NDArray[np.int64]] = {}
    for number in snapshot.numbers:
        if not len(log.records(number)):
            continue  # nobody knows whose bytes these are
        size, counts = known.get(number, (0, np.zeros((0, 3), np.int64)))
        length = min(snapshot.segment, snapshot.end - number * snapshot.segment)
        if size < length:
            sure = size // BLOCK  # blocks that were full
            try:
                counts, size = np.concatenate([counts[:sure], _counted(log, number, sure, length)]), length
            except FileNotFoundError:
                continue  # the cap took it meanwhile
            known[number] = (size, counts)
        found[number] = counts if size == length else _counted(log, number, 0, length)
    with _remembering:
        _remembered[snapshot.directory] = known
    return found


def _counted(log: NumberedLog, number: int, first: int, length: int) -> NDArray[np.int64]:
    with open(log.log.data(number), "rb", buffering=0) as file:
        data = os.pread(file.fileno(), length - first * BLOCK, first * BLOCK)
    found = newlines(data)
    blocks = -(-len(data) // BLOCK)
    records = log.records(number)
    whose = np.searchsorted(records["offset"], found + number * log.log.segment + first * BLOCK, "right") - 1
    streams = records["stream"][np.maximum(whose, 0)]
    columns = [found, found[streams == STDOUT], found[streams == STDERR]]
    return np.stack([np.bincount(column // BLOCK, minlength=blocks) for column in columns], axis=1).astype(np.int64)


def _records_of(log: Log, number: int) -> NDArray[Any]:
    try:
        with open(os.path.join(log.directory, index_name(number)), "rb") as file:
            whole = file.read()
    except FileNotFoundError:
        return np.empty(0, RECORDS)
    if unpack_header(whole) is None:
        return np.empty(0, RECORDS)
    body = whole[HEADER.size :]
    records = np.frombuffer(body, RECORDS, len(body) // RECORD.size)
    sound = (records["stream"] != NO_STREAM) | (records["flags"] != 0)  # zeros: the machine lost its power
    if not sound.all():
        records = records[: int(np.flatnonzero(sound)[-1]) + 1] if sound.any() else records[:0]
    return records


def newlines(data: bytes) -> Integers:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
