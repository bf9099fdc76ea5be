"""How the log of one replica lies on disk; its writer and its readers agree here and nowhere else.

    log/000000          the first 16 MiB of what the replica printed, raw
    log/000000.index    which of these bytes came from which stream, and when
    log/000001 …        and so on; the byte at `offset` is in segment `offset // 16 MiB`

An index is a header and then records, 24 bytes each, little-endian. A record speaks for the bytes from its offset to
the offset of the next record. It is written before the first of them: who looks at the data first and at the index then
knows the stream of every byte seen. A segment has its own index, so that both go when the cap takes them.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import struct
from typing import Iterable, NamedTuple

SEGMENT = 16 * 1024 * 1024
CAP = 256 * 1024 * 1024

STDOUT = 1
STDERR = 2
NO_STREAM = 0

BEGINS_LINE = 1  # the first byte of the record is known to be the first byte of a line
LOST = 2  # these bytes were printed, and the disk did not take them
CLOSED = 4  # nothing follows: the offset of this record is the size of the log

HEADER = struct.Struct("<8sI4xQ")
RECORD = struct.Struct("<QdBB6x")
MAGIC = b"shoallog"
VERSION = 1


class Record(NamedTuple):
    """From this offset on, bytes are of this stream and came at this time (UTC seconds, never less than before)."""

    offset: int
    time: float
    stream: int
    flags: int


def pack_header(segment: int) -> bytes:
    return HEADER.pack(MAGIC, VERSION, segment)


def unpack_header(data: bytes) -> int | None:
    """The size of the segments, or None if this is no header of ours, or not all of it."""
    if len(data) < HEADER.size:
        return None
    magic, version, segment = HEADER.unpack_from(data)
    return segment if magic == MAGIC and version == VERSION and segment else None


def pack_record(record: Record) -> bytes:
    return RECORD.pack(*record)


def unpack_record(data: bytes) -> Record:
    return Record(*RECORD.unpack(data))


def makes_sense(record: Record) -> bool:
    """False for what a machine that lost its power may leave at the end of an index: zeros."""
    return record.stream in (STDOUT, STDERR) or bool(record.flags & (LOST | CLOSED))


def segment_name(number: int) -> str:
    return f"{number:06d}"


def index_name(number: int) -> str:
    return f"{number:06d}.index"


def segment_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the segments among the names in a directory, in order."""
    return sorted(int(name) for name in names if _is_number(name))


def index_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the indexes among the names in a directory, in order."""
    stems = (name[: -len(".index")] for name in names if name.endswith(".index"))
    return sorted(int(stem) for stem in stems if _is_number(stem))


def _is_number(name: str) -> bool:
    return len(name) >= 6 and name.isascii() and name.isdigit()
