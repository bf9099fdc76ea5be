"""What scripts say of their params and metrics: values, which of them stands for a metric, what it is drawn over.

`define_metric("loss", summary="min", step_metric="epoch")` and `summary["best"] = 0.2` are records. Of several that say
different things, the newest attempt counts, in it the lowest rank, and of what that said the last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import Connection, select

from shoal.store.tables import chunks, heads, records, series, streams

Row = Mapping[str, Any]

DEFINE, PARAMS, SUMMARY = "define", "params", "summary"


def summary_of(connection: Connection, uid: str) -> dict[str, Any]:
    """name -> what was set by hand, as it was said: numbers, texts, whatever JSON has."""
    return _values(connection, uid, SUMMARY)


def params_of(connection: Connection, uid: str) -> dict[str, Any]:
    """name -> what scripts said of their parameters."""
    return _values(connection, uid, PARAMS)


def _values(connection: Connection, uid: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for data, _ in _said(connection, uid, kind):
        values = data.get("values")
        found.update(values if isinstance(values, dict) else {})
    return found


def definitions(connection: Connection, uid: str) -> dict[str, Row]:
    """name, or a pattern that ends with `*` -> {x, summary}."""
    return {str(data.get("name", "")): data for data, _ in _said(connection, uid, DEFINE)}


def definition_of(name: str, known: Mapping[str, Row]) -> Row | None:
    """That of the name itself, else of the longest pattern that means it."""
    if name in known:
        return known[name]
    patterns = [pattern for pattern in known if pattern.endswith("*") and fnmatchcase(name, pattern)]
    return known[max(patterns, key=len)] if patterns else None


def axis_of(connection: Connection, uid: str, names: Collection[str]) -> str | None:
    """The metric that all of these are to be drawn over; None when they do not agree on one."""
    known = definitions(connection, uid)
    if not known:
        return None
    chosen = {str((definition_of(name, known) or {}).get("x") or "") for name in names}
    return chosen.pop() or None if len(chosen) == 1 else None


def with_values(
    connection: Connection, uid: str, metrics: dict[str, dict[str, Any]], kinds: Collection[str]
) -> dict[str, dict[str, Any]]:
    """The metrics, each with its `value` where something else than the last stands for it; numbers by hand are some."""
    found = dict(metrics)
    known = definitions(connection, uid)
    for name, entry in metrics.items() if known else ():
        chosen = (definition_of(name, known) or {}).get("summary")
        if chosen in ("min", "max"):
            found[name] = {**entry, "value": entry[chosen]}
        elif chosen == "mean":
            found[name] = {**entry, "value": _mean(connection, uid, name, kinds)}
    for data, when in _said(connection, uid, SUMMARY):
        values = data.get("values")
        for name, value in values.items() if isinstance(values, dict) else ():
            if not _is_number(value):
                continue
            alone = {"last": value, "min": value, "max": value, "step": None, "time": when}
            found[name] = {**metrics.get(name, alone), "value": value}
    return found


def _is_number(value: Any) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or value in (
        "NaN",
        "Infinity",
        "-Infinity",
    )


def _said(connection: Connection, uid: str, kind: str) -> list[tuple[dict[str, Any], float]]:
    """What counts comes last."""
    query = (
        select(records.c.data, records.c.time)
        .join(streams, streams.c.stream == records.c.stream)
        .where(records.c.uid == uid, records.c.kind == kind)
        .order_by(records.c.attempt, streams.c.rank.desc(), streams.c["try"], records.c.time, records.c.seq)
    )
    return [(data, when) for data, when in connection.execute(query) if isinstance(data, dict)]


def _mean(connection: Connection, uid: str, name: str, kinds: Collection[str]) -> float | str:
    """Of all finite points of all processes; the summaries of chunks tell it without their points."""
    import numpy as np  # not before it is needed

    from shoal.store import chunks as codec
    from shoal.store import heads as reading

    mine = (streams.c.uid == uid, streams.c.kind.in_(kinds))
    packed = (
        select(chunks.c.groups)
        .join(series, series.c.id == chunks.c.series)
        .join(streams, streams.c.stream == series.c.stream)
        .where(*mine, series.c.name == name)
    )
    total, count = 0.0, 0
    blobs = list(connection.execute(packed).scalars())
    if blobs:
        groups, _ = codec.decode_groups(blobs, ("stats",))
        assert groups.stats is not None
        total = float(groups.stats.sum.sum())
        count = int((groups.counts - groups.stats.nans - groups.stats.infs).sum())
    open_ones = select(heads.c.stream).join(streams, streams.c.stream == heads.c.stream).where(*mine).distinct()
    for stream in connection.execute(open_ones).scalars().all():
        columns = reading.read(connection, stream)
        if name in columns:
            values = columns.points(name).values
            finite = values[np.isfinite(values)]
            total, count = total + float(finite.sum()), count + len(finite)
    return total / count if count else "NaN"
