"""Experiments, their replicas and their history: what the server and the engine ask the database."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from sqlalchemy import Connection, Executable, Text, cast, delete, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from shoal.states import CREATED, FINAL, LOST, QUEUED, RUNNING, Status
from shoal.store import defined
from shoal.store.progress import after
from shoal.store.tables import allocations, counters, events, experiments, replicas

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that is read for something else
WEB = 500

Row = Mapping[str, Any]


def create(connection: Connection, values: Mapping[str, Any], state: str = QUEUED) -> Row:
    """A new experiment, waiting in the queue, with its uid, its short id and the next number."""
    number = _next_number(connection)
    identity = _new_id(connection)
    row = {
        "created": time.time(),
        **values,
        "uid": secrets.token_hex(16),
        "id": identity,
        "number": number,
        "state": state,
        "reason": "",
        "attempt": 0,
    }
    connection.execute(insert(experiments).values(row))
    add_event(connection, row, CREATED, state, "")
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
    """The experiment that a person means: its id, its number (`12`, `#12`), its uid, or the newest of that name.

    A run outside Shoal has a key as well, which is all that its own script knows of it.
    """
    if not word:  # the name of all that have none
        return None
    number = word.removeprefix("#")
    conditions = [experiments.c.id == word, experiments.c.uid == word, experiments.c.origin_key == word]
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
    mine = experiments.c.state.not_in(FINAL), experiments.c.origin == "run"
    query = select(experiments).where(*mine).order_by(experiments.c.number)
    return _rows(connection, query)


def alive(connection: Connection) -> Sequence[Row]:
    """Everything that may still print something, those included that Shoal did not start."""
    return _rows(connection, select(experiments).where(experiments.c.state.not_in((*FINAL, LOST, QUEUED))))


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


def in_state_since(connection: Connection, uids: Iterable[str]) -> dict[str, float]:
    """uid -> when the experiment itself came into its state."""
    query = select(events.c.uid, func.max(events.c.time)).where(
        events.c.uid.in_(list(uids)), events.c.replica.is_(None)
    )
    return {row[0]: row[1] for row in connection.execute(query.group_by(events.c.uid))}


def users_of(connection: Connection, digests: Iterable[str]) -> Sequence[Row]:
    """The experiments that were given content with one of these digests, the newest first, with their provenance."""
    columns = ("uid", "id", "number", "name", "state", "created", "provenance")
    named = or_(*(cast(experiments.c.provenance, Text).contains(digest, autoescape=True) for digest in digests))
    query = select(*(experiments.c[name] for name in columns)).where(named).order_by(experiments.c.number.desc())
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


def untracked(connection: Connection) -> Sequence[Row]:
    """Those of which not everything is in the store yet; what is lost is read again when somebody asks for it."""
    query = select(experiments).where(experiments.c.tracked.is_(False), experiments.c.state != LOST)
    return _rows(connection, query.order_by(experiments.c.number))


def tracked(connection: Connection, uid: str, metrics: Mapping[str, Any]) -> None:
    connection.execute(update(experiments).where(experiments.c.uid == uid).values(tracked=True, metrics=dict(metrics)))


def untrack(connection: Connection, uid: str) -> None:
    connection.execute(update(experiments).where(experiments.c.uid == uid).values(tracked=False))


def told(
    connection: Connection,
    uid: str,
    *,
    params: Mapping[str, Any],
    tags: Sequence[str],
    progress: Sequence[Mapping[str, Any]],
    host: Mapping[str, Any] | None,
    name: str,
) -> None:
    """What a script said of its experiment. Only a run outside Shoal has its name from there."""
    row = get(connection, uid)
    values: dict[str, Any] = {}
    if params:  # of ranks that say different things the lowest is right, whichever was read last
        values["params"] = {**row["params"], **params, **defined.params_of(connection, uid)}
    if set(tags) - set(row["tags"]):
        values["tags"] = list(dict.fromkeys([*row["tags"], *tags]))
    if name and row["cluster"] == "outside":
        values["name"] = name
    if progress:
        values["progress"] = reduce(after, progress, row["progress"])
    if host is not None:
        values["provenance"] = {**(row["provenance"] or {}), **host}
    if values:
        connection.execute(update(experiments).where(experiments.c.uid == uid).values(**values))


def retag(connection: Connection, uid: str, add: Iterable[str], remove: Iterable[str]) -> None:
    """Adds tags at the end, then removes others; without the blanks around them."""
    row = get(connection, uid)
    gone = {tag.strip() for tag in remove}
    kept = [tag for tag in dict.fromkeys([*row["tags"], *(tag.strip() for tag in add)]) if tag.strip() not in gone]
    if kept != row["tags"]:
        connection.execute(update(experiments).where(experiments.c.uid == uid).values(tags=kept))


def set_provenance(connection: Connection, uid: str, provenance: Mapping[str, Any]) -> None:
    connection.execute(update(experiments).where(experiments.c.uid == uid).values(provenance=dict(provenance)))


def origin_keys(connection: Connection) -> dict[str, bool]:
    """Which runs outside Shoal are experiments already, and whether they are read to their end."""
    query = select(experiments.c.origin_key, experiments.c.tracked).where(experiments.c.origin_key.is_not(None))
    return {key: bool(tracked) for key, tracked in connection.execute(query)}


def of_origin(connection: Connection, key: str) -> Row | None:
    found = _rows(connection, select(experiments).where(experiments.c.origin_key == key))
    return found[0] if found else None


def ages(connection: Connection) -> Sequence[Row]:
    """What has to be known of every experiment to tell which are kept; also of those that are not over."""
    columns = ("uid", "number", "state", "tracked", "tags", "created", "finished")
    return _rows(connection, select(*(experiments.c[name] for name in columns)))


def read_again(connection: Connection, row: Row) -> None:
    """A run outside Shoal that was over and has more to tell."""
    change(connection, row, RUNNING, "", tracked=False, finished=None, first_failure=None)


def extend_plan(connection: Connection, row: Row, places: Sequence[Row]) -> None:
    """Replicas that only showed themselves by writing."""
    known = row["plan"]["replicas"]
    if sorted(entry["replica"] for entry in known) != sorted(entry["replica"] for entry in places):
        plan = {**row["plan"], "replicas": sorted(places, key=lambda entry: (entry["rank"], entry["replica"]))}
        connection.execute(update(experiments).where(experiments.c.uid == row["uid"]).values(plan=plan))


def remove(connection: Connection, uid: str) -> None:
    """Forgets an experiment; its files are removed by whoever calls this."""
    for table in (allocations, events, replicas, experiments):
        connection.execute(delete(table).where(table.c.uid == uid))


def _rows(connection: Connection, query: Executable) -> list[Row]:
    return [dict(row) for row in connection.execute(query).mappings()]
