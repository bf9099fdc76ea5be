"""PNG files with a palette: a picture of a page has few colours, and then takes a third of the room."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256
CLOSE = 60  # squared distance of colours that nobody tells apart


def shrunk(data: bytes) -> bytes:
    """The same picture with at most 256 colours: frequent ones stay exact, others become their nearest."""
    pixels = decoded(data)
    height, width, _ = pixels.shape
    packed = (pixels[..., 0].astype(np.uint32) << 16) | (pixels[..., 1].astype(np.uint32) << 8) | pixels[..., 2]
    colours, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    parts = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.int32)
    palette = parts[_chosen(parts, counts)]
    nearest = np.empty(len(colours), np.uint8)
    for start in range(0, len(colours), 4096):
        part = parts[start : start + 4096]
        nearest[start : start + 4096] = ((part[:, None] - palette[None]) ** 2).sum(axis=2).argmin(axis=1)
    rows = np.zeros((height, width + 1), np.uint8)  # the first byte of each row says: not filtered
    rows[:, 1:] = nearest[places].reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = _chunk(b"PLTE", palette.astype(np.uint8).tobytes()) + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
    return SIGNATURE + _chunk(b"IHDR", header) + body + _chunk(b"IEND", b"")


def _chosen(parts: Any, counts: Any) -> list[int]:
    """Frequent colours that differ: a rare green is not lost to the hundredth grey."""
    chosen: list[int] = []
    apart = np.full(len(parts), 1 << 30)
    for place in np.argsort(counts)[::-1]:
        if apart[place] > CLOSE:
            chosen.append(int(place))
            apart = np.minimum(apart, ((parts - parts[place]) ** 2).sum(axis=1))
        if len(chosen) == COLOURS:
            break
    return chosen


def decoded(data: bytes) -> Any:
    """Height × width × 3 or 4 bytes of a PNG of 8 bits a colour, as browsers write them."""
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    assert kind in (2, 6)
    size = 3 if kind == 2 else 4
    raw, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            raw += data[at + 8 : at + 8 + length]
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(raw), np.uint8).reshape(height, width * size + 1)
    before = np.zeros(width * size, np.uint8)
    found = np.empty((height, width * size), np.uint8)
    for number, line in enumerate(lines):
        before = found[number] = _unfiltered(line[0], line[1:], before, size)
    return found.reshape(height, width, size)


def _unfiltered(how: int, line: Any, above: Any, size: int) -> Any:
    if how == 0:
        return line
    if how == 2:
        return line + above
    if how == 1:
        return np.cumsum(line.reshape(-1, size), axis=0, dtype=np.uint8).reshape(-1)
    out = bytearray(line.tobytes())
    up = above.tobytes()
    for place in range(len(out)):
        left = out[place - size] if place >= size else 0
        if how == 3:
            guess = (left + up[place]) >> 1
        else:
            corner = up[place - size] if place >= size else 0
            whole = left + up[place] - corner
            by = (abs(whole - left), abs(whole - up[place]), abs(whole - corner))
            guess = left if by[0] <= by[1] and by[0] <= by[2] else up[place] if by[1] <= by[2] else corner
        out[place] = (out[place] + guess) & 255
    return np.frombuffer(bytes(out), np.uint8)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
