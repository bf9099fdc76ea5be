"""How points of one series lie in a chunk, and the summary of every 64 of them. Pure; numbers are little-endian.

A chunk holds up to SIZE points as three columns: steps, times (microseconds), values. Of steps and times the
differences are kept, less the smallest of them; of values the bits, or what changed in them since the point before,
whichever is smaller. A column lies as eight planes, one for each byte of its numbers, lowest first: floats share their
high bytes and integers have none, so a plane is one byte, or deflates well, or is noise that is kept as it is.

    chunk    1  version    1  how values are kept: 0 plain, 1 as changes    2  points
             then steps, times, values
    column   8  first number    8  smallest difference    (steps and times only)
             16  lengths of eight planes, then the planes
             0: one byte, the same for all points; as many as points: as they are; else: raw deflate

Groups are what a chart of a long series reads. A group is GROUP consecutive points of the series, counted from its
first point and not from the chunk's, so that they stay the same however points are spread over chunks.

    groups   1  version    1  points of the first group that lie in the chunk before    2  points
             2 × 3  lengths of the parts: steps, times, values; shorter than the numbers in them means raw deflate
    part     numbers of 8 bytes, their lowest bytes first, then their second bytes, …
             steps, times: first (as difference to the group before), lowest, highest, where the minimum and the
             maximum are; all but the first as difference to it
             values: minimum, maximum, last, sum of what is finite; then two counts of one byte: NaN, infinities
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

SIZE = 4096
GROUP = 64
VERSION = 1

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Number = TypeVar("Number", np.int64, np.float64)

_CHUNK = struct.Struct("<BBH")
_START = struct.Struct("<qq")
_PLANES = struct.Struct("<8H")
_GROUPS = struct.Struct("<BBHHHH")
_SPAN_COLUMNS = 5
_STAT_COLUMNS = 4
PARTS = ("steps", "times", "stats")


class Points(NamedTuple):
    """Points of one series: steps, times in microseconds UTC, values."""

    steps: Ints
    times: Ints
    values: Floats


class Spans(NamedTuple):
    """Where groups lie on an axis: their first point, the lowest and highest, those of minimum and maximum."""

    first: Ints
    low: Ints
    high: Ints
    at_min: Ints
    at_max: Ints


class Stats(NamedTuple):
    """What the values of groups are. Minimum and maximum are NaN where all is NaN; the sum is of what is finite."""

    min: Floats
    max: Floats
    last: Floats
    sum: Floats
    nans: Ints
    infs: Ints


class Groups(NamedTuple):
    """Summaries of consecutive points; parts that were not asked for are None."""

    counts: Ints
    steps: Spans | None
    times: Spans | None
    stats: Stats | None


def join(parts: Sequence[Points]) -> Points:
    """Points after points."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Points(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
    steps, times, values = zip(*parts, strict=True)
    return Points(np.concatenate(steps), np.concatenate(times), np.concatenate(values))


def encode(points: Points) -> bytes:
    """One chunk of 1 to SIZE points."""
    bits = points.values.astype("<f8", copy=False).view("<u8")
    changes = bits.copy()
    changes[1:] ^= bits[:-1]
    plain, changed = _planes(bits), _planes(changes)
    smaller = len(changed) < len(plain)
    head = _CHUNK.pack(VERSION, smaller, len(bits))
    return b"".join((head, _integers(points.steps), _integers(points.times), changed if smaller else plain))


def decode(data: bytes) -> Points:
    """The points of one chunk."""
    version, changes, count = _CHUNK.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"a chunk of version {version}")
    steps, place = _from_integers(data, _CHUNK.size, count)
    times, place = _from_integers(data, place, count)
    bits, place = _from_planes(data, place, count)
    if changes:
        np.bitwise_xor.accumulate(bits, out=bits)
    return Points(steps, times, bits.view(np.float64))


def summarise(points: Points, before: int = 0) -> Groups:
    """The groups of points that follow `before` points of the same series."""
    count = len(points.steps)
    phase = before % GROUP
    starts = np.maximum(np.arange(-phase, count, GROUP), 0)
    counts = np.diff(starts, append=count)
    values = points.values
    mins, maxs = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    at_min, at_max = _first_equal(values, mins, starts, counts), _first_equal(values, maxs, starts, counts)
    ends = starts + counts - 1
    finite = np.isfinite(values)
    nans = np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    of_nans = np.add.reduceat(nans, starts, dtype=np.int64)
    stats = Stats(mins, maxs, values[ends], sums, of_nans, np.add.reduceat(~finite, starts, dtype=np.int64) - of_nans)

    def spans(column: Ints) -> Spans:
        low, high = np.minimum.reduceat(column, starts), np.maximum.reduceat(column, starts)
        return Spans(column[starts], low, high, column[at_min], column[at_max])

    return Groups(counts, spans(points.steps), spans(points.times), stats)


def encode_groups(groups: Groups, before: int = 0) -> bytes:
    """The groups of one chunk, which `summarise` made of the same points."""
    assert groups.steps is not None
    assert groups.times is not None
    assert groups.stats is not None
    stats = np.stack(groups.stats[:4]).astype("<f8", copy=False).view("<u8")
    counted = np.stack(groups.stats[4:]).astype(np.uint8).tobytes()
    parts = [_span_words(groups.steps), _span_words(groups.times), _shuffled(stats) + counted]
    parts = [_deflated(part) for part in parts]
    head = _GROUPS.pack(VERSION, before % GROUP, int(groups.counts.sum()), *[len(part) for part in parts])
    return b"".join((head, *parts))


def decode_groups(blobs: Sequence[bytes], wanted: Sequence[str] = PARTS) -> tuple[Groups, Ints]:
    """The groups of many chunks, one after the other, and how many of them each chunk has.

    Only the parts that are wanted are read. Neighbours with equally many groups are decoded together: that is what
    makes charts of thousands of chunks quick.
    """
    heads = [_GROUPS.unpack_from(blob) for blob in blobs]
    table = np.array(heads, np.int64).reshape(-1, 6)
    if (table[:, 0] != VERSION).any():
        raise ValueError(f"groups of version {table[:, 0].max()}")
    phases, points = table[:, 1], table[:, 2]
    sizes = -(-(phases + points) // GROUP)
    ends = np.cumsum(sizes)
    offsets = ends - sizes
    total = int(ends[-1]) if len(ends) else 0
    counts = np.full(total, GROUP, np.int64)
    counts[offsets] -= phases
    counts[ends - 1] -= sizes * GROUP - phases - points
    turns = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(blobs)]
    runs = list(pairwise(turns)) if blobs else []

    def part(number: int, columns: int, extra: int) -> tuple[Words, Bytes]:
        words = np.empty((columns, total), np.uint64)
        small = np.empty((extra, total), np.uint8)
        for start, end in runs:
            size, chunks = int(sizes[start]), end - start
            length = size * (8 * columns + extra)
            raw = b"".join([_inflated(blobs[index], heads[index], number, length) for index in range(start, end)])
            rows = np.frombuffer(raw, np.uint8).reshape(chunks, length)
            planes = rows[:, : 8 * columns * size].reshape(chunks, 8, columns, size)
            here = slice(int(offsets[start]), int(ends[end - 1]))
            words[:, here] = np.ascontiguousarray(planes.transpose(2, 0, 3, 1)).view("<u8").reshape(columns, -1)
            if extra:
                counted = rows[:, 8 * columns * size :].reshape(chunks, extra, size)
                small[:, here].reshape(extra, chunks, size)[...] = counted.transpose(1, 0, 2)
        return words, small

    def spans(number: int) -> Spans:
        words, _ = part(number, _SPAN_COLUMNS, 0)
        sums = np.cumsum(words[0], dtype=np.uint64)
        # The first of each chunk is whole, not a difference: what was summed before it is taken off.
        first = sums - np.repeat(sums[offsets] - words[0][offsets], sizes)
        return Spans(first.view(np.int64), *[(first + column).view(np.int64) for column in words[1:]])

    stats = None
    if "stats" in wanted:
        words, small = part(2, _STAT_COLUMNS, 2)
        stats = Stats(*words.view(np.float64), *small.astype(np.int64))
    steps = spans(0) if "steps" in wanted else None
    return Groups(counts, steps, spans(1) if "times" in wanted else None, stats), sizes


def _first_equal(values: Floats, wanted: Floats, starts: Ints, counts: Ints) -> Ints:
    """Of each group the place of its first value that is the wanted one; its first place when there is none (NaN)."""
    equal = np.flatnonzero(values == np.repeat(wanted, counts))
    places = starts.copy()
    owner = np.searchsorted(starts, equal, side="right") - 1
    places[owner[::-1]] = equal[::-1]
    return places


def _integers(column: Ints) -> bytes:
    words = column.astype("<i8", copy=False).view("<u8")
    differences = np.diff(words)  # they wrap around, and so does the sum when it is read
    smallest = int(differences.view(np.int64).min()) if len(differences) else 0
    rest = np.zeros(len(words), np.uint64)
    rest[1:] = differences - np.uint64(smallest % 2**64)
    return _START.pack(int(column[0]), smallest) + _planes(rest)


def _from_integers(data: bytes, place: int, count: int) -> tuple[Ints, int]:
    first, smallest = _START.unpack_from(data, place)
    words, place = _from_planes(data, place + _START.size, count)
    words += np.uint64(smallest % 2**64)
    words[0] = np.uint64(first % 2**64)
    return np.cumsum(words, dtype=np.uint64).view(np.int64), place


def _planes(words: Words) -> bytes:
    """The bytes of the numbers, sorted by their weight."""
    count = len(words)
    table = np.ascontiguousarray(words.astype("<u8", copy=False).view(np.uint8).reshape(count, 8).T)
    same = (table == table[:, :1]).all(axis=1)
    parts: list[bytes] = []
    lengths: list[int] = []
    for number in range(8):
        plane = table[number].tobytes()
        if same[number]:
            parts.append(plane[:1])
            lengths.append(0)
            continue
        smaller = zlib.compress(plane, 1, -15)
        parts.append(smaller if len(smaller) < count else plane)
        lengths.append(len(parts[-1]))
    return _PLANES.pack(*lengths) + b"".join(parts)


def _from_planes(data: bytes, place: int, count: int) -> tuple[Words, int]:
    lengths = _PLANES.unpack_from(data, place)
    place += _PLANES.size
    table = np.empty((count, 8), np.uint8)
    for number, length in enumerate(lengths):
        if length == 0:
            table[:, number] = data[place]
            place += 1
            continue
        plane = data[place : place + length]
        table[:, number] = np.frombuffer(plane if length == count else zlib.decompress(plane, -15, count), np.uint8)
        place += length
    return table.view("<u8").reshape(count).astype(np.uint64, copy=False), place


def _span_words(spans: Spans) -> bytes:
    first = spans.first.view(np.uint64)
    rows = [np.diff(first, prepend=np.uint64(0)), *[column.view(np.uint64) - first for column in spans[1:]]]
    return _shuffled(np.stack(rows))


def _shuffled(words: Words) -> bytes:
    return np.ascontiguousarray(words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8).T).tobytes()


def _deflated(part: bytes) -> bytes:
    """Smaller where that saves a quarter: what is nearly noise is not worth the time of every reader."""
    smaller = zlib.compress(part, 1, -15)
    return smaller if len(smaller) * 4 < len(part) * 3 else part


def _inflated(blob: bytes, head: tuple[int, ...], number: int, length: int) -> bytes:
    start = _GROUPS.size + sum(head[3 : 3 + number])
    part = blob[start : start + head[3 + number]]
    return part if len(part) == length else zlib.decompress(part, -15, length)
