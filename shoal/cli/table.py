"""Columns of plain text: they align in any terminal, and `awk` can read them."""

from __future__ import annotations

import re
from collections.abc import Sequence

WIDEST = 80

_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def plain(text: str) -> str:
    """As it can stand in a line: names and what replicas print come from anywhere, and are no orders to a terminal."""
    return _CONTROLS.sub("?", _COLOURS.sub("", text))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their header, columns as wide as their widest cell, no trailing blanks.

    A cell of more than WIDEST characters stands out of its column: the other rows are not padded for it.
    """
    rows = [[plain(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max([len(cell) for cell in column if len(cell) <= WIDEST], default=0) for column in columns]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    return "\n".join(line.rstrip() for line in lines)
