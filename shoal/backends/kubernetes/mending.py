"""Makes holes of a log that was carried visible: readers see a gap, and not zeros.

The index of a segment says of which stream its bytes are (`shoal.logformat`). Bytes that never came are said to be lost
there, as when a disk does not take them. Of bytes that came without their part of the index the stream is not known:
they are taken for stdout.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from shoal.logformat import (
    CLOSED,
    HEADER,
    LOST,
    NO_STREAM,
    RECORD,
    SEGMENT,
    STDOUT,
    Record,
    index_name,
    makes_sense,
    pack_header,
    pack_record,
    segment_name,
    unpack_header,
    unpack_record,
)

Holes = Mapping[str, Sequence[tuple[int, int]]]


def mend(directory: str, holes: Holes) -> None:
    """Writes the holes of `log/000000`, `log/000000.index`, … into the indexes of the log in this directory."""
    numbers = {int(path[4:10]) for path in holes if path.startswith("log/") and path[4:10].isdigit()}
    for number in sorted(numbers):
        _mend_segment(directory, number, holes)


def _mend_segment(directory: str, number: int, holes: Holes) -> None:
    data, index = (os.path.join(directory, name) for name in (segment_name(number), index_name(number)))
    missing = list(holes.get(f"log/{segment_name(number)}", ()))
    try:
        size = max([os.stat(data).st_size, *(end for _, end in missing)])
        os.truncate(data, size)
    except FileNotFoundError:
        return
    try:
        with open(index, "rb") as file:
            packed = file.read()
    except FileNotFoundError:
        packed = b""
    torn = list(holes.get(f"log/{index_name(number)}", ()))
    segment = (unpack_header(packed) if not _touches(torn, 0, HEADER.size) else None) or SEGMENT
    base = number * segment
    records = mended(_records(packed, torn), base, [(base + start, base + end) for start, end in missing])
    with open(index + ".new", "wb") as file:
        file.write(pack_header(segment) + b"".join(map(pack_record, records)))
    os.replace(index + ".new", index)


def _records(packed: bytes, torn: Sequence[tuple[int, int]]) -> list[Record]:
    places = range(HEADER.size, len(packed) - RECORD.size + 1, RECORD.size)
    whole = [place for place in places if not _touches(torn, place, place + RECORD.size)]
    found = (unpack_record(packed[place : place + RECORD.size]) for place in whole)
    return [record for record in found if makes_sense(record)]


def mended(records: Iterable[Record], base: int, holes: Iterable[tuple[int, int]]) -> list[Record]:
    """The records with what is said to be lost. Every byte from `base` on is spoken for. Pure."""
    known = sorted(records, key=lambda record: record.offset)
    closing = [record for record in known if record.flags & CLOSED]
    known = [record for record in known if not record.flags & CLOSED]
    if not known or known[0].offset > base:
        time = known[0].time if known else closing[0].time if closing else 0.0
        known.insert(0, Record(base, time, STDOUT, 0))
    for start, end in holes:
        before = [record for record in known if record.offset < start]
        inside = [record for record in known if start <= record.offset <= end]
        after = [record for record in known if record.offset > end]
        speaks = (inside or before)[-1]  # for the first byte after the hole
        lost_at = before[-1].time if before else speaks.time
        resumed = speaks if speaks.offset == end else Record(end, speaks.time, speaks.stream, 0)
        known = [*before, Record(start, lost_at, NO_STREAM, LOST), resumed, *after]
    return [*known, *closing]


def _touches(parts: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    return any(first < end and start < last for first, last in parts)
