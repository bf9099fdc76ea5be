"""Streams in the database: how far each is read, what was read and is not in chunks yet, what scripts said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from shoal.store.defined import SUMMARY
from shoal.store.tables import heads, records, streams

Row = Mapping[str, Any]


def get(connection: Connection, stream: str) -> dict[str, Any] | None:
    found = connection.execute(select(streams).where(streams.c.stream == stream)).mappings().first()
    return dict(found) if found is not None else None


def streams_of(connection: Connection, uid: str) -> list[dict[str, Any]]:
    """In the order of attempt, replica, try, process and start."""
    order = (streams.c.attempt, streams.c.rank, streams.c["try"], streams.c.process, streams.c.started)
    return _rows(connection, select(streams).where(streams.c.uid == uid).order_by(*order))


def signs_of_life(connection: Connection, uid: str, attempt: int) -> dict[tuple[str, int], dict[str, Any]]:
    """(replica, try) -> {metric, sample, pid}: when its scripts and its launcher were heard, and which process it is.

    The process is the script's first one that tracks anything, else the launcher.
    """
    found: dict[tuple[str, int], dict[str, Any]] = {}
    mine = streams.c.uid == uid, streams.c.attempt == attempt
    order = (streams.c.kind == "metric", streams.c.process.desc(), streams.c.started)  # whose pid it is comes last
    for row in connection.execute(select(streams).where(*mine).order_by(*order)).mappings():
        entry = found.setdefault((row["replica"], row["try"]), {"metric": None, "sample": None, "pid": None})
        kind = "sample" if row["kind"] == "resource" else "metric"
        entry[kind] = max(entry[kind] or 0.0, row["heard"]) or None
        if row["kind"] in ("metric", "resource"):
            entry["pid"] = row["header"].get("pid")
    return found


def add(connection: Connection, row: Row) -> None:
    connection.execute(insert(streams).values(**row))


def advance(connection: Connection, row: Row) -> None:
    """Keeps how far the stream is read; in the transaction that keeps what was read."""
    kept = {key: row[key] for key in ("segment", "offset", "seq", "closed", "ended", "heard", "dropped", "gaps")}
    connection.execute(update(streams).where(streams.c.stream == row["stream"]).values(**kept))


def add_head(connection: Connection, stream: str, seq: int, points: int, data: bytes) -> None:
    connection.execute(insert(heads).values(stream=stream, seq=seq, points=points, data=data))


def heads_of(connection: Connection, stream: str) -> list[bytes]:
    query = select(heads.c.data).where(heads.c.stream == stream).order_by(heads.c.seq)
    return [data for (data,) in connection.execute(query)]


def head_sizes(connection: Connection) -> dict[str, tuple[int, int]]:
    """stream -> (bytes, points) of what is not in chunks yet."""
    query = select(heads.c.stream, func.sum(func.length(heads.c.data)), func.sum(heads.c.points))
    return {
        stream: (int(size), int(points)) for stream, size, points in connection.execute(query.group_by(heads.c.stream))
    }


def add_records(connection: Connection, rows: Sequence[Row]) -> None:
    kept = _with_one_summary(connection, rows)
    if kept:
        connection.execute(insert(records), kept)


def _with_one_summary(connection: Connection, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A script may set a value of its summary at every step, and the last counts: a stream has one record of them."""
    said: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["kind"] == SUMMARY:
            known = said.get(row["stream"])
            before = known["data"]["values"] if known else _summary_of(connection, row["stream"])
            said[row["stream"]] = {**row, "data": {**row["data"], "values": {**before, **_values(row["data"])}}}
    for stream in said:
        connection.execute(delete(records).where(records.c.stream == stream, records.c.kind == SUMMARY))
    return [dict(row) for row in rows if row["kind"] != SUMMARY] + list(said.values())


def _summary_of(connection: Connection, stream: str) -> dict[str, Any]:
    mine = select(records.c.data).where(records.c.stream == stream, records.c.kind == SUMMARY).order_by(records.c.seq)
    return {name: value for (data,) in connection.execute(mine) for name, value in _values(data).items()}


def _values(data: Row) -> dict[str, Any]:
    """Empty where something else than our SDK wrote the record, and no values in it."""
    found = data.get("values")
    return found if isinstance(found, dict) else {}


def records_of(
    connection: Connection, uid: str, kind: str | None = None, name: str | None = None
) -> list[dict[str, Any]]:
    """What the scripts of an experiment said beside points, in the order of time."""
    query = select(records).where(records.c.uid == uid)
    if kind is not None:
        query = query.where(records.c.kind == kind)
    if name is not None:
        query = query.where(records.c.name == name)
    return _rows(connection, query.order_by(records.c.time, records.c.stream, records.c.seq))


def has_pending(connection: Connection, uid: str) -> bool:
    query = select(records.c.seq).where(records.c.uid == uid, records.c.pending).limit(1)
    return connection.execute(query).first() is not None


def remove(connection: Connection, uid: str) -> None:
    mine = select(streams.c.stream).where(streams.c.uid == uid)
    connection.execute(delete(heads).where(heads.c.stream.in_(mine)))
    connection.execute(delete(records).where(records.c.uid == uid))
    connection.execute(delete(streams).where(streams.c.uid == uid))


def _rows(connection: Connection, query: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(query).mappings()]
