"""Statistics over ranks as CSV on stdout, or as a Parquet file: one row for each name and bucket of x."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from shoal.errors import Unavailable

ALL = ("min", "mean", "p50", "p95", "max")


def write(chart: Mapping[str, Any], agg: str, file: str | None) -> None:
    """`name,x,mean,points,ranks`; with `all` every statistic, and who has the least and the largest value."""
    heads = ("name", chart["x"], *(ALL if agg == "all" else (agg,)), *_extremes(agg), "points", "ranks")
    rows = _rows(chart, agg)
    if file is None:
        out = csv.writer(sys.stdout, lineterminator="\r\n")
        out.writerow(heads)
        out.writerows(rows)
        return
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise Unavailable("Parquet needs pyarrow, which is not installed here", hint="--csv does without") from None
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in heads]
    made = [
        column if name in ("name", *_extremes(agg)) else list(map(float, column))
        for name, column in zip(heads, columns, strict=True)
    ]
    beside = f"{file}.part"
    try:
        parquet.write_table(arrow.table(made, names=list(heads)), beside)
        os.replace(beside, file)
    except OSError as error:
        raise Unavailable(f"{file}: {error.strerror or error}", hint="choose another place") from None


def _extremes(agg: str) -> tuple[str, ...]:
    return ("min is", "max is") if agg == "all" else (f"{agg} is",) if agg in ("min", "max") else ()


def _rows(chart: Mapping[str, Any], agg: str) -> Iterator[tuple[Any, ...]]:
    for entry in chart["series"]:
        keys = ALL if agg == "all" else (agg,)
        for place, x in enumerate(entry["x_last"]):
            who = tuple(_who(entry, f"{name.split()[0]}_of", place) for name in _extremes(agg))
            values = tuple(entry[key][place] for key in keys)
            yield (entry["name"], x, *values, *who, entry["count"][place], entry["curves"][place])


def _who(entry: Mapping[str, Any], key: str, place: int) -> str:
    index = entry[key][place]
    if index < 0:
        return ""
    member = entry["members"][index]
    return f"{member['replica']}:{member['process']}" if member["process"] else str(member["replica"])
