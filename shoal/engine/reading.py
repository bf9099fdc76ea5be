"""Reads the stream files of one try: what is new in each since it was read last. No database here.

A stream is read in pieces, so that a backlog of hours does not fill the memory. Its position is (segment, offset), and
`seq` is what comes next: a frame with a smaller one was read before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shoal import journal

if TYPE_CHECKING:
    from shoal.store.heads import Group

PIECE = 1024 * 1024
LARGEST_FRAME = journal.PREFIX.size + journal.LARGEST


@dataclass(frozen=True)
class Position:
    segment: int = 0
    offset: int = 0
    seq: int = 0


@dataclass
class Piece:
    """What one look at one stream has found."""

    position: Position
    header: dict[str, Any] | None = None
    first: int | None = None  # seq of the first frame of points
    frames: list[bytes] = field(default_factory=list)  # of points, as they lie in the file
    groups: list[list[Group]] = field(default_factory=list)  # of each of these frames
    events: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # (seq, event)
    gaps: list[dict[str, int]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    more: bool = False  # there is more to read at once
    size: int = 0  # bytes that were read, and unpacked

    @property
    def points(self) -> int:
        return sum(len(group.times) * len(group.names) for groups in self.groups for group in groups)

    @property
    def dropped(self) -> int:
        """Calls that the writer could not take, from its first to this piece; 0 when it says nothing of them here."""
        told = [event.get("calls") for _, event in self.events if event.get("kind") == "dropped"]
        told.append((self.end or {}).get("dropped"))
        return max((count for count in told if isinstance(count, int) and 0 < count < 2**63), default=0)


def read(directory: str, stream: str, numbers: list[int], position: Position, *, over: bool) -> Piece:
    """What follows the position, of one segment. With `over` the writer is gone, and what is torn is a gap.

    The position stays before a torn end: whoever carries the stream may bring the rest of it yet.
    """
    piece = Piece(position)
    coming = [number for number in numbers if number >= position.segment]
    if not coming:
        return piece
    number, last = coming[0], len(coming) == 1
    start = position.offset if number == position.segment else 0
    with open(os.path.join(directory, journal.segment_name(stream, number)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        for most in (PIECE, PIECE + LARGEST_FRAME):
            data = os.pread(file.fileno(), most, start) if size > start else b""
            whole = start + len(data) >= size
            found, done = journal.scan(data, over=whole and (over or not last))
            if found or whole:
                break
        else:  # no frame begins in the first PIECE bytes: the largest would have been seen as a whole
            found, done = [journal.Damage(0, PIECE)], PIECE
    piece.size = len(data)
    _take(piece, number, start, data, found)
    if found and last and whole and isinstance(found[-1], journal.Damage) and found[-1].end == len(data):
        done = found[-1].start
    piece.position = replace(piece.position, segment=number, offset=start + done)
    if whole and not last:
        piece.position = replace(piece.position, segment=coming[1], offset=0)
    piece.more = not whole or not last
    return piece


def _take(piece: Piece, segment: int, start: int, data: bytes, found: list[journal.Frame | journal.Damage]) -> None:
    for item in found:
        if isinstance(item, journal.Damage):
            piece.gaps.append(
                {"segment": segment, "offset": start + item.start, "length": item.end - item.start, "frames": 0}
            )
            continue
        expected = piece.position.seq
        if item.seq < expected:
            continue  # read before
        if item.seq > expected:
            _missing(piece, segment, start + item.start, item.seq - expected)
        piece.position = replace(piece.position, seq=item.seq + 1)
        piece.size += len(item.body)
        try:
            _one(piece, item, data)
        except ValueError:  # its checksum is right and its content is not: written by something else
            piece.gaps.append(
                {"segment": segment, "offset": start + item.start, "length": item.end - item.start, "frames": 1}
            )


def _missing(piece: Piece, segment: int, offset: int, frames: int) -> None:
    """Frames that never came; when damaged bytes lie just before, they were these."""
    if piece.gaps and piece.gaps[-1]["segment"] == segment and not piece.gaps[-1]["frames"]:
        piece.gaps[-1]["frames"] = frames
    else:
        piece.gaps.append({"segment": segment, "offset": offset, "length": 0, "frames": frames})


def _one(piece: Piece, item: journal.Frame, data: bytes) -> None:
    if item.kind == journal.HEADER:
        piece.header = _told(item.body)
    elif item.kind == journal.POINTS:
        from shoal.store.heads import unpack  # numpy: not before there are points

        groups = unpack(item.body)
        if piece.first is None:
            piece.first = item.seq
        piece.groups.append(groups)
        piece.frames.append(data[item.start : item.end])
    elif item.kind == journal.EVENT:
        piece.events.append((item.seq, _told(item.body)))
    elif item.kind == journal.END:
        piece.end = _told(item.body)


def _told(body: bytes) -> dict[str, Any]:
    value = journal.unpack_json(body)
    if b"\\ud" in body.lower():
        value = sound(value)
    return value


def sound(value: Any) -> Any:
    """The value with text that can be written: bytes of paths and arguments that are no text come as surrogates."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {sound(key): sound(item) for key, item in value.items()}
    return [sound(item) for item in value] if isinstance(value, list) else value


def identity(header: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a stream that its header tells, whatever wrote it."""

    def number(key: str, otherwise: int = 0) -> int:
        value = header.get(key)
        return value if isinstance(value, int) and abs(value) < 2**31 else otherwise

    kind = header.get("kind")
    started = header.get("started")
    return {
        "process": number("process"),
        "rank": number("rank"),
        "restart": number("restart"),
        "kind": kind if kind in ("metric", "resource", "tensorboard", "import") else "metric",
        "started": float(started) if isinstance(started, (int, float)) else 0.0,
    }
