"""Points in the formats of others: JSON, lines of JSON, CSV, Parquet. Generators: nothing is held as a whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Generator, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.errors import Unavailable

if TYPE_CHECKING:
    from shoal.store.chunks import Floats, Points

AT_ONCE = 10_000  # points that become text in one go
COLUMNS = ("name", "replica", "process", "attempt", "step", "time", "value")


class Piece(NamedTuple):
    """Points of one curve and one attempt. `entry` is the curve; the pieces of one follow each other."""

    entry: Mapping[str, Any]
    attempt: int
    points: Points
    x: Floats | None


Pieces = Iterable[Piece]


def as_json(pieces: Pieces) -> Generator[bytes]:
    """A list of curves, each with its list of points."""
    entry: Mapping[str, Any] | None = None
    yield b"["
    some = False
    for piece in pieces:
        if piece.entry is not entry:
            yield (b"" if entry is None else b"]},") + json.dumps(piece.entry)[:-1].encode() + b', "points": ['
            entry, some = piece.entry, False
        for rows in _rows(piece):
            yield (b", " if some else b"") + json.dumps(rows)[1:-1].encode()
            some = True
    yield b"]" if entry is None else b"]}]"


def as_lines(pieces: Pieces) -> Generator[bytes]:
    """One object a line, one line a point."""
    for piece in pieces:
        names = ("step", "time", "value", "x")
        start = json.dumps({key: piece.entry[key] for key in COLUMNS[:3]} | {"attempt": piece.attempt})[:-1]
        for rows in _rows(piece):
            made = (json.dumps(dict(zip(names, row, strict=False)))[1:] for row in rows)
            yield "".join(f"{start}, {rest}\n" for rest in made).encode()


def as_csv(pieces: Pieces, with_x: bool) -> Generator[bytes]:
    """A header, then one line a point."""
    yield (",".join(COLUMNS) + (",x\r\n" if with_x else "\r\n")).encode()
    for piece in pieces:
        text = io.StringIO()
        values = [*[piece.entry[key] for key in COLUMNS[:3]], piece.attempt]
        csv.writer(text, lineterminator="").writerow(values)
        start = text.getvalue()
        for rows in _rows(piece):
            yield "".join(f"{start},{','.join(map(str, row))}\r\n" for row in rows).encode()


def as_parquet(pieces: Pieces, with_x: bool) -> Generator[bytes]:
    """A file with the columns of the CSV; times are UTC seconds there too."""
    arrow, parquet = pyarrow()
    kinds = {"process": arrow.int32(), "attempt": arrow.int32(), "step": arrow.int64()}
    kinds |= dict.fromkeys(("time", "value", "x"), arrow.float64())
    schema = arrow.schema(
        [
            (key, kinds.get(key, arrow.dictionary(arrow.int32(), arrow.string())))
            for key in (*COLUMNS, *(["x"] if with_x else []))
        ]
    )
    sink = _Sink()
    with parquet.ParquetWriter(sink, schema) as writer:
        for piece in pieces:
            count = len(piece.points.steps)
            if not count:
                continue
            same = {**{key: piece.entry[key] for key in COLUMNS[:3]}, "attempt": piece.attempt}
            columns: dict[str, Any] = {
                key: arrow.array([value], schema.field(key).type).take(arrow.array([0] * count))
                if not arrow.types.is_dictionary(schema.field(key).type)
                else arrow.DictionaryArray.from_arrays(arrow.array([0] * count, arrow.int32()), [value])
                for key, value in same.items()
            }
            columns |= {"step": piece.points.steps, "time": piece.points.times / 1e6, "value": piece.points.values}
            if piece.x is not None:
                columns["x"] = piece.x
            writer.write_table(arrow.table([columns[key] for key in schema.names], schema=schema))
            yield sink.taken()
    yield sink.taken()


def pyarrow() -> tuple[Any, Any]:
    """pyarrow and its part for Parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise Unavailable(
            "Parquet needs pyarrow, which is not installed where the server runs",
            hint="pip install 'shoal[parquet]', then shoal server stop; or take CSV",
        ) from None


def numbers(values: Any) -> list[Any]:
    """As JSON can say them: NaN and infinities as strings."""
    found: list[Any] = values.tolist()
    if values.dtype.kind != "f":
        return found
    return [value if value - value == 0 else _said(value) for value in found]


def strict(value: Any) -> Any:
    """The same as JSON can say it, whatever is in it."""
    if isinstance(value, float):
        return value if value - value == 0 else _said(value)
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    return [strict(inner) for inner in value] if isinstance(value, list) else value


def _said(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _rows(piece: Piece) -> Generator[list[tuple[Any, ...]]]:
    """(step, time, value) and x, many at a time."""
    steps, times, values = piece.points
    for start in range(0, len(steps), AT_ONCE):
        here = slice(start, start + AT_ONCE)
        columns = [steps[here].tolist(), (times[here] / 1e6).tolist(), numbers(values[here])]
        if piece.x is not None:
            columns.append(numbers(piece.x[here]))
        yield list(zip(*columns, strict=True))


class _Sink(io.RawIOBase):
    """Takes what a writer of files writes, and gives it on."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found
