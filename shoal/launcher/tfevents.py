"""Reads TensorBoard's event files: records with checksums, and the few messages of protocol buffers that they hold.

    record   8  length, 4  masked CRC-32C of these eight bytes, then the data, then 4  masked CRC-32C of the data
    Event    1 wall_time   2 step   5 summary
    Summary  1 value: 1 tag   2 simple_value   5 histogram   8 tensor   9 metadata

Checksums of lengths are always verified; those of data up to 64 KiB, beyond which only pictures and graphs are found,
and checking them would take a replica's time. Numbers of fields are TensorFlow's:
https://github.com/tensorflow/tensorflow/tree/master/tensorflow/core/framework (summary.proto, tensor.proto).

Pure, standard library only, clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

CHECKED_UP_TO = 64 * 1024  # bytes of data
LARGEST = 4 * 1024 * 1024  # of data that is looked at: what is larger is passed over
HEAD, TAIL = 12, 4  # bytes around the data

SCALARS, TEXT, HISTOGRAMS = "scalars", "text", "histograms"


class Scalar(NamedTuple):
    time: float
    step: int
    tag: str
    value: float


class Text(NamedTuple):
    time: float
    step: int
    tag: str
    text: str


class Histogram(NamedTuple):
    time: float
    step: int
    tag: str
    edges: List[float]  # one more than counts
    counts: List[float]


Item = Union[Scalar, Text, Histogram]


class Records(NamedTuple):
    """What lies in some bytes of an event file: whole records, how far they reach, and where to go on reading."""

    data: List[bytes]
    done: int  # bytes that are dealt with
    skip: int  # so many more after them belong to a record that is passed over


def records(data: bytes) -> Records:
    """The whole records in bytes that begin where one begins. A torn one waits for its rest; damage is passed over."""
    found: List[bytes] = []
    place = 0
    while len(data) - place >= HEAD:
        length = _length_at(data, place)
        if length is None:
            place = _next_record(data, place + 1)
            continue
        end = place + HEAD + length + TAIL
        if length > LARGEST:
            return Records(found, place, end - place)
        if end > len(data):
            break
        content = data[place + HEAD : end - TAIL]
        (crc,) = struct.unpack_from("<I", data, end - TAIL)
        if length > CHECKED_UP_TO or masked_crc(content) == crc:
            found.append(content)
        place = end
    return Records(found, place, 0)


def items(event: bytes, plugins: Dict[str, str]) -> List[Item]:
    """What one event tells. `plugins` remembers what each tag is: some writers say it only once."""
    time, step, summaries = 0.0, 0, []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            (time,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = _signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    found = []
    for summary in summaries:
        for number, value in _fields(summary):
            item = _item(value, time, step, plugins) if number == 1 and isinstance(value, bytes) else None
            if item is not None:
                found.append(item)
    return found


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and moved as TensorFlow does, so that a checksum of checksums stays one."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> List[int]:
    found = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        found.append(number)
    return found


_TABLE = _table()


def _length_at(data: bytes, place: int) -> Optional[int]:
    length, crc = struct.unpack_from("<QI", data, place)
    return int(length) if masked_crc(data[place : place + 8]) == crc else None


def _next_record(data: bytes, place: int) -> int:
    """Where the next record begins, or where one may still begin."""
    while len(data) - place >= HEAD and _length_at(data, place) is None:
        place += 1
    return place


def _item(value: bytes, time: float, step: int, plugins: Dict[str, str]) -> Optional[Item]:
    parts = dict(_fields(value))
    tag = _text(parts.get(1))
    if isinstance(parts.get(9), bytes):
        plugin = _text(dict(_fields(_bytes(dict(_fields(parts[9])).get(1)))).get(1))
        if plugin:
            plugins[tag] = plugin
    if isinstance(parts.get(2), bytes):
        return Scalar(time, step, tag, struct.unpack("<f", parts[2])[0])
    if isinstance(parts.get(5), bytes):
        return _old_histogram(parts[5], time, step, tag)
    if not isinstance(parts.get(8), bytes):
        return None
    plugin = plugins.get(tag, "")
    if plugin == SCALARS:
        numbers = _numbers(parts[8])
        return Scalar(time, step, tag, numbers[0]) if len(numbers) == 1 else None
    if plugin == TEXT:
        words = [entry.decode("utf-8", "replace") for number, entry in _fields(parts[8]) if number == 8]
        return Text(time, step, tag, "\n".join(words))
    if plugin == HISTOGRAMS:
        return _new_histogram(_numbers(parts[8]), time, step, tag)
    return None


def _old_histogram(value: bytes, time: float, step: int, tag: str) -> Optional[Histogram]:
    """HistogramProto: upper limits of buckets. The lowest begins at the least value, the highest ends at the most."""
    least, most = float("nan"), float("nan")
    limits: List[float] = []
    counts: List[float] = []
    for number, entry in _fields(value):
        if number in (1, 2) and isinstance(entry, bytes) and len(entry) == 8:
            least, most = struct.unpack("<d", entry) * 2 if number == 1 else (least, struct.unpack("<d", entry)[0])
        elif number in (6, 7) and isinstance(entry, bytes):
            (limits if number == 6 else counts).extend(_packed(entry, "d"))
    if not limits or len(limits) != len(counts):
        return None
    edges = [min(least, limits[0]), *limits]
    edges[-1] = max(min(edges[-1], most), edges[-2])
    if edges[0] == edges[1] and len(counts) > 1 and not counts[0]:
        edges, counts = edges[1:], counts[1:]  # some writers begin with a bucket that only says where the next begins
    return Histogram(time, step, tag, edges, counts)


def _new_histogram(numbers: List[float], time: float, step: int, tag: str) -> Optional[Histogram]:
    """Rows of (left, right, count)."""
    rows = [numbers[place : place + 3] for place in range(0, len(numbers) - 2, 3)]
    if not rows:
        return None
    return Histogram(time, step, tag, [rows[0][0], *(row[1] for row in rows)], [row[2] for row in rows])


def _numbers(tensor: bytes) -> List[float]:
    """The numbers of a TensorProto, however they are written; empty when they are none, or of a kind nobody logs."""
    kind, content = 0, b""
    listed: List[float] = []
    for number, value in _fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in _LISTS:
            listed += _LISTS[number](value)
    if content and kind in _RAW:
        return [float(found) for found in _packed(content, _RAW[kind])]
    if content and kind == _BFLOAT16:
        return [_from_bfloat(bits) for bits in _packed(content, "H")]
    if kind == _HALF:
        return [struct.unpack("<e", struct.pack("<H", int(bits) & 0xFFFF))[0] for bits in listed]
    return [_from_bfloat(int(bits)) for bits in listed] if kind == _BFLOAT16 else listed


_HALF, _BFLOAT16 = 19, 14
# DataType -> how the bytes of tensor_content are read.
_RAW = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", _HALF: "e", 22: "I", 23: "Q"}


def _from_bfloat(bits: int) -> float:
    """The upper half of a float32."""
    return float(struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0])


def _floats(code: str) -> Callable[[Any], List[float]]:
    def read(value: Any) -> List[float]:
        return [float(found) for found in _packed(value, code)] if isinstance(value, bytes) else []

    return read


def _integers(value: Any) -> List[float]:
    """One, or several packed into bytes."""
    if isinstance(value, int):
        return [float(_signed(value))]
    found, place = [], 0
    while place < len(value):
        number, place = _varint(value, place)
        found.append(float(_signed(number)))
    return found


# Field -> how its numbers are read: float, double, and then int, int64, bool, half, uint32 and uint64.
_LISTS: Dict[int, Callable[[Any], List[float]]] = {
    5: _floats("f"),
    6: _floats("d"),
    **dict.fromkeys((7, 10, 11, 13, 16, 17), _integers),
}


def _packed(data: bytes, code: str) -> Tuple[Any, ...]:
    size = struct.calcsize("<" + code)
    return struct.unpack(f"<{len(data) // size}{code}", data[: len(data) // size * size])


def _fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    """(number, value) of each field: an int for a varint, else bytes. ValueError for what is no message."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == 2:
            length, place = _varint(data, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if place + length > len(data):
            raise ValueError("a field that is longer than its message")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> Tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number without an end")


def _signed(value: int) -> int:
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8", "replace")
