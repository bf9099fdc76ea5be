"""The record format of a stream: what one process says, frame after frame. Its writers and readers agree here.

A stream is a sequence of frames in segment files `<stream>.000000`, `<stream>.000001`, …, each written by one process
and only appended to. All numbers are little-endian.

    frame    4  marker F5 73 68 6C
             1  kind: 1 header, 2 points, 3 event, 4 end
             1  flags: bit 0, the body is compressed with zlib
             2  zero
             4  seq: 0, 1, 2, … through all segments of the stream
             4  length of the body as it lies in the file
             4  CRC-32 of the twelve bytes before it (kind to length) and of the body as it lies in the file
             …  body

    header   JSON: version, stream, experiment, replica, attempt, try, rank, process, host, pid, … First in each segment
    points   one or more groups: calls that logged the same names
             4  rows, then 2  names, then 2  bytes of all names together: UTF-8 with zero bytes between them
             8 × rows            times, UTC seconds, float64
             8 × rows            steps, int64
             8 × rows × names    values, float64, one name after the other
    event    JSON: kind (params, tag, artifact, …), time, and what belongs to it. `dropped` tells how many calls the
             writer had to drop until then, while it lives
    end      JSON: how the writer ended, and how many calls it had to drop

Every frame can be read by itself: nothing refers to an earlier one, so a damaged frame costs only itself.

Pure, standard library only, clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from array import array
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple, Union

VERSION = 1
HEADER, POINTS, EVENT, END = 1, 2, 3, 4
COMPRESSED = 1

MARKER = b"\xf5shl"
PREFIX = struct.Struct("<4sBBHIII")
CHECKED = struct.Struct("<BBHII")
GROUP = struct.Struct("<IHH")
SEGMENT = 16 * 1024 * 1024
LARGEST = 64 * 1024 * 1024  # of one body, also unpacked; more is damage
WORTH_COMPRESSING = 256
SAMPLE = 4096
MOST_NAMES = 65535
MOST_NAME_BYTES = 65535

_NAME = re.compile(r"([0-9a-f]{8,64})\.(\d{6})")


class Frame(NamedTuple):
    """One whole frame; `body` is unpacked, `start` and `end` are its place among the bytes that were scanned."""

    kind: int
    seq: int
    body: bytes
    start: int
    end: int


class Damage(NamedTuple):
    """Bytes that are no frame: torn, zeros, or overwritten."""

    start: int
    end: int


class Group(NamedTuple):
    """Calls that logged the same names: columns of equal length. `values` has one column for each name."""

    names: Tuple[str, ...]
    times: Sequence[float]
    steps: Sequence[int]
    values: Sequence[Sequence[float]]


def pack(kind: int, seq: int, body: bytes) -> bytes:
    """One frame; its body is compressed when that pays."""
    flags = 0
    if len(body) >= WORTH_COMPRESSING and not _noise(body):
        smaller = zlib.compress(body, 1)
        if len(smaller) < len(body):
            body, flags = smaller, COMPRESSED
    checked = CHECKED.pack(kind, flags, 0, seq, len(body))
    return MARKER + checked + struct.pack("<I", zlib.crc32(body, zlib.crc32(checked))) + body


def _noise(body: bytes) -> bool:
    """Whether a large body is not worth the time: a piece from its middle, where values are, does not get smaller."""
    if len(body) < 8 * SAMPLE:
        return False
    piece = body[len(body) // 2 : len(body) // 2 + SAMPLE]
    return len(zlib.compress(piece, 1)) > 0.9 * SAMPLE


def pack_json(kind: int, seq: int, value: Mapping[str, Any]) -> bytes:
    return pack(kind, seq, json.dumps(value, separators=(",", ":")).encode("utf-8", "replace"))


def scan(data: bytes, *, over: bool = False) -> Tuple[List[Union[Frame, Damage]], int]:
    """What the bytes hold, and how many of them are dealt with. They begin where an earlier scan ended, or a file.

    What follows is left for the next scan: the writer may be in the middle of it. With `over` there is no writer any
    more, and a torn rest is damage. Damage is only told apart from a frame on its way by a whole frame after it.
    """
    found: List[Union[Frame, Damage]] = []
    place = done = 0
    while True:
        frame = _frame_at(data, place)
        if frame is not None:
            if place > done:
                found.append(Damage(done, place))
            found.append(frame)
            place = done = frame.end
            continue
        place = data.find(MARKER, place + 1)
        if place < 0:
            break
    if over and done < len(data):
        found.append(Damage(done, len(data)))
        done = len(data)
    return found, done


def _frame_at(data: bytes, place: int) -> Union[Frame, None]:
    if len(data) - place < PREFIX.size or data[place : place + 4] != MARKER:
        return None
    _, kind, flags, _, seq, length, crc = PREFIX.unpack_from(data, place)
    start, end = place + PREFIX.size, place + PREFIX.size + length
    if length > LARGEST or end > len(data):
        return None
    body = data[start:end]
    if zlib.crc32(body, zlib.crc32(data[place + 4 : start - 4])) != crc:
        return None
    if flags & COMPRESSED:
        unpacking = zlib.decompressobj()
        try:
            body = unpacking.decompress(body, LARGEST)
        except zlib.error:
            return None
        if not unpacking.eof:
            return None
    return Frame(kind, seq, body, place, end)


def pack_points(groups: Iterable[Group]) -> bytes:
    """The body of a frame of points. Names that do not fit are cut by whoever makes the groups."""
    parts: List[bytes] = []
    for names, times, steps, values in groups:
        joined = "\0".join(names).encode("utf-8", "replace")
        parts.append(GROUP.pack(len(times), len(names), len(joined)))
        parts.append(joined)
        parts.append(_bytes("d", times))
        parts.append(_bytes("q", steps))
        parts.extend(_bytes("d", column) for column in values)
    return b"".join(parts)


def unpack_points(body: bytes) -> List[Group]:
    """The groups of a frame of points; ValueError when they are no such thing."""
    groups = []
    place = 0
    while place < len(body):
        try:
            rows, count, length = GROUP.unpack_from(body, place)
        except struct.error:
            raise ValueError("a group without its head") from None
        place += GROUP.size
        names = tuple(body[place : place + length].decode("utf-8").split("\0"))
        place += length
        if len(names) != count or place + 8 * rows * (count + 2) > len(body):
            raise ValueError("a group that is shorter than its head says")
        columns = []
        for number in range(count + 2):
            columns.append(_array("q" if number == 1 else "d", body[place : place + 8 * rows]))
            place += 8 * rows
        groups.append(Group(names, columns[0], columns[1], columns[2:]))
    return groups


def _bytes(code: str, column: Sequence[Any]) -> bytes:
    numbers = column if isinstance(column, array) and column.typecode == code else array(code, column)
    if sys.byteorder == "big":
        numbers = array(code, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _array(code: str, data: bytes) -> Sequence[Any]:
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def unpack_json(body: bytes) -> Dict[str, Any]:
    """The value of a header, an event or an end; ValueError when it is no object."""
    value = json.loads(body.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def segment_name(stream: str, number: int) -> str:
    return f"{stream}.{number:06d}"


def segments(names: Iterable[str]) -> Dict[str, List[int]]:
    """stream -> the numbers of its segments, in order, among the names in a directory."""
    found: Dict[str, List[int]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            found.setdefault(match.group(1), []).append(int(match.group(2)))
    return {stream: sorted(numbers) for stream, numbers in found.items()}
