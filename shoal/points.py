"""What `Client.metrics` gives: every point of every curve, as arrays, or as a table of pandas or polars.

    found = shoal.Client().metrics("e7k2m9", "loss", "val/*")
    for curve in found:
        print(curve.name, curve.replica, curve.values[-1])
    found.to_pandas()                   # columns name, replica, process, rank, attempt, step, time, value

Arrays are numpy's where it is installed, else lists. Nothing of this travels into replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, overload

from shoal.errors import Unavailable, UsageError

WHO = ("name", "replica", "process", "rank", "attempt")
COLUMNS = (*WHO, "step", "time", "value")


@dataclass(frozen=True)
class Curve:
    """What one process logged under one name. `times` are UTC seconds."""

    name: str
    replica: str
    process: int
    rank: int
    attempt: int
    kind: str
    steps: Any
    times: Any
    values: Any
    xs: Any = None  # where x is neither step nor time

    def __len__(self) -> int:
        return len(self.steps)


class Curves(Sequence[Curve]):
    """Curves, ordered by name and rank."""

    def __init__(self, curves: Iterable[Curve]) -> None:
        self._curves = tuple(curves)

    def __len__(self) -> int:
        return len(self._curves)

    def __iter__(self) -> Iterator[Curve]:
        return iter(self._curves)

    @overload
    def __getitem__(self, index: int) -> Curve: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Curve]: ...
    def __getitem__(self, index: int | slice) -> Curve | Sequence[Curve]:
        return self._curves[index]

    def __repr__(self) -> str:
        return f"<{len(self)} curves, {sum(map(len, self)):,} points>"

    def columns(self) -> dict[str, Any]:
        """All points as columns of equal length: name, replica, process, rank, attempt, step, time, value."""
        found: dict[str, list[Any]] = {key: [] for key in COLUMNS}
        for curve in self:
            for key in WHO:
                found[key] += [getattr(curve, key)] * len(curve)
            for key, column in (("step", curve.steps), ("time", curve.times), ("value", curve.values)):
                found[key] += list(column)
        numbers = {"process": "int64", "rank": "int64", "attempt": "int64", "step": "int64"}
        kinds = {**numbers, "time": "float64", "value": "float64"}
        return {key: _array(column, kinds[key]) if key in kinds else column for key, column in found.items()}

    def to_pandas(self) -> Any:
        """A DataFrame, one row for each point; times are in UTC."""
        pandas = _library("pandas")
        frame = pandas.DataFrame(self.columns())
        frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
        return frame

    def to_polars(self) -> Any:
        """A DataFrame, one row for each point; times are in UTC."""
        polars = _library("polars")
        frame = polars.DataFrame(self.columns())
        microseconds = (polars.col("time") * 1e6).round().cast(polars.Int64)
        return frame.with_columns(microseconds.cast(polars.Datetime("us", "UTC")).alias("time"))


def curve(entry: Mapping[str, Any]) -> Curve:
    """From what the server tells; in JSON, NaN and the infinities are strings."""
    points = entry["points"]
    return Curve(
        **{key: entry[key] for key in (*WHO, "kind")},
        steps=_array([point[0] for point in points], "int64"),
        times=_array([point[1] for point in points], "float64"),
        values=_array([float(point[2]) for point in points], "float64"),
        xs=_array([float(point[3]) for point in points], "float64") if points and len(points[0]) > 3 else None,
    )


def aggregated(entry: Mapping[str, Any], agg: str, x: str) -> Curve:
    """One statistic over ranks: `replica` is its name, and there is no process. A point is the last x of its bucket."""
    if agg == "all":
        raise UsageError("agg: a curve is of one statistic", hint="min, mean, max, p50 or p95")
    xs = _array([float(value) for value in entry["x_last"]], "float64")
    unknown = [float("nan")] * len(xs)
    steps = [round(float(value)) for value in entry["x_last"]] if x == "step" else list(range(len(xs)))
    return Curve(
        name=entry["name"],
        replica=agg,
        process=-1,
        rank=-1,
        attempt=max((member["attempt"] for member in entry["members"]), default=0),
        kind=entry["kind"],
        steps=_array(steps, "int64"),
        times=xs if x == "time" else _array(unknown, "float64"),
        values=_array([float(value) for value in entry[agg]], "float64"),
        xs=xs,
    )


def _array(values: list[Any], kind: str) -> Any:
    try:
        numpy = import_module("numpy")
    except ImportError:
        return values
    return numpy.array(values, dtype=kind)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise Unavailable(f"{name} is not installed here", hint=f"pip install {name}; or use .columns()") from None
