"""Experiments, their replicas and their history: what the server and the engine ask the database."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Executable, delete, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from shoal.states import CREATED, FINAL, QUEUED, Status
from shoal.store.tables import allocations, counters, events, experiments, replicas

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that is read for something else
WEB = 500

Row = Mapping[str, Any]


def create(connection: Connection, values: Mapping[str, Any]) -> Row:
    """A new experiment, waiting in the queue, with its uid, its short id and the next number."""
    number = _next_number(connection)
    identity = _new_id(connection)
    row = {
        **values,
        "uid": secrets.token_hex(16),
        "id": identity,
        "number": number,
        "state": QUEUED,
        "reason": "",
        "attempt": 0,
        "created": time.time(),
    }
    connection.execute(insert(experiments).values(row))
    add_event(connection, row, CREATED, QUEUED, "")
    return get(connection, row["uid"])


def _next_number(connection: Connection) -> int:
    """Counts on, also over experiments that were removed."""
    statement = upsert(counters).values(name="experiments", value=1)
    statement = statement.on_conflict_do_update(index_elements=["name"], set_={"value": counters.c.value + 1})
    return int(connection.execute(statement.returning(counters.c.value)).scalar_one())


def _new_id(connection: Connection) -> str:
    while True:
        identity = "e" + "".join(secrets.choice(ALPHABET) for _ in range(5))
        if connection.execute(select(experiments.c.uid).where(experiments.c.id == identity)).first() is None:
            return identity


def get(connection: Connection, uid: str) -> Row:
    return dict(connection.execute(select(experiments).where(experiments.c.uid == uid)).mappings().one())


def find(connection: Connection, word: str) -> Row | None:
    """The experiment that a person means: its id, its number (`12`, `#12`), its uid, or the newest of that name."""
    if not word:  # the name of all that have none
        return None
    number = word.removeprefix("#")
    conditions = [experiments.c.id == word, experiments.c.uid == word]
    if number.isascii() and number.isdigit() and len(number) < 10:
        conditions.append(experiments.c.number == int(number))
    named = select(experiments).where(experiments.c.name == word).order_by(experiments.c.number.desc()).limit(1)
    found = _rows(connection, select(experiments).where(or_(*conditions))) or _rows(connection, named)
    return found[0] if found else None


def newest(connection: Connection, limit: int, before: int | None = None, states: Sequence[str] = ()) -> Sequence[Row]:
    query = select(experiments).order_by(experiments.c.number.desc()).limit(limit)
    if before is not None:
        query = query.where(experiments.c.number < before)
    if states:
        query = query.where(experiments.c.state.in_(states))
    return _rows(connection, query)


def unfinished(connection: Connection) -> Sequence[Row]:
    """Everything the engine has to see to, the oldest first."""
    query = select(experiments).where(experiments.c.state.not_in(FINAL)).order_by(experiments.c.number)
    return _rows(connection, query)


def change(connection: Connection, row: Row, state: str, reason: str, **values: Any) -> None:
    """Sets the state and records the change; nothing is recorded when nothing changed."""
    if (row["state"], row["reason"]) != (state, reason) or values:
        connection.execute(
            update(experiments).where(experiments.c.uid == row["uid"]).values(state=state, reason=reason, **values)
        )
    if row["state"] != state:
        add_event(connection, {**row, **values}, row["state"], state, reason)


def add_event(
    connection: Connection, row: Row, before: str, after: str, reason: str, status: Status | None = None
) -> None:
    connection.execute(
        insert(events).values(
            time=time.time(),
            uid=row["uid"],
            id=row["id"],
            attempt=row["attempt"],
            replica=status.replica if status else None,
            **{"try": status.try_ if status else None},
            from_state=before,
            to_state=after,
            reason=reason,
        )
    )


def replicas_of(connection: Connection, uid: str, attempt: int | None = None) -> Sequence[Row]:
    """All tries of all replicas, in the order of attempt, rank and try."""
    query = select(replicas).where(replicas.c.uid == uid)
    if attempt is not None:
        query = query.where(replicas.c.attempt == attempt)
    return _rows(connection, query.order_by(replicas.c.attempt, replicas.c.rank, replicas.c["try"]))


def record(connection: Connection, row: Row, planned: Mapping[str, Row], statuses: Iterable[Status]) -> None:
    """Writes what was observed of the replicas of the newest attempt, and an event for every change."""
    known = {(r["replica"], r["try"]): r for r in replicas_of(connection, row["uid"], row["attempt"])}
    for status in statuses:
        values = {
            "state": status.state,
            "reason": status.reason,
            "exit_code": status.exit_code,
            "signal": status.signal,
            "node": status.node,
            "started": status.started,
            "finished": status.finished,
        }
        before = known.get((status.replica, status.try_))
        if before is None:
            place = planned[status.replica]
            connection.execute(
                insert(replicas).values(
                    uid=row["uid"],
                    attempt=row["attempt"],
                    replica=status.replica,
                    **{"try": status.try_},
                    role=place["role"],
                    index=place["index"],
                    rank=place["rank"],
                    **values,
                )
            )
        elif all(before[name] == value for name, value in values.items()):
            continue
        else:
            connection.execute(
                update(replicas)
                .where(
                    replicas.c.uid == row["uid"],
                    replicas.c.attempt == row["attempt"],
                    replicas.c.replica == status.replica,
                    replicas.c["try"] == status.try_,
                )
                .values(**values)
            )
        old_state = before["state"] if before is not None else CREATED
        if old_state != status.state:
            add_event(connection, row, old_state, status.state, status.reason, status)


def events_after(connection: Connection, number: int, limit: int = WEB, uid: str | None = None) -> Sequence[Row]:
    query = select(events).where(events.c.number > number).order_by(events.c.number).limit(limit)
    if uid is not None:
        query = query.where(events.c.uid == uid)
    return _rows(connection, query)


def last_event(connection: Connection) -> int:
    return connection.execute(select(func.max(events.c.number))).scalar() or 0


def allocate(connection: Connection, uid: str, units: Iterable[tuple[str, int, str]]) -> None:
    """Takes (kind, unit, replica); when one is taken, a primary key forbids it, and none is taken."""
    rows = [{"kind": kind, "unit": unit, "replica": replica, "uid": uid} for kind, unit, replica in units]
    if rows:
        with connection.begin_nested():  # whoever catches the error and commits must not keep a part
            connection.execute(insert(allocations), rows)


def allocated(connection: Connection, kind: str, uid: str | None = None) -> Sequence[Row]:
    query = select(allocations).where(allocations.c.kind == kind)
    if uid is not None:
        query = query.where(allocations.c.uid == uid)
    return _rows(connection, query.order_by(allocations.c.unit))


def release(connection: Connection, uid: str) -> None:
    connection.execute(delete(allocations).where(allocations.c.uid == uid))


def remove(connection: Connection, uid: str) -> None:
    """Forgets an experiment; its files are removed by whoever calls this."""
    for table in (allocations, events, replicas, experiments):
        connection.execute(delete(table).where(table.c.uid == uid))


def _rows(connection: Connection, query: Executable) -> list[Row]:
    return [dict(row) for row in connection.execute(query).mappings()]
