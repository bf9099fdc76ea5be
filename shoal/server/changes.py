"""Server-sent events: changes of states, and which experiments have new points, records or log lines.

Nothing is sent but that: whoever shows an experiment asks for what it lacks. Each change has a number, and a listener
a cursor, so a connection that broke goes on where it was. Changes of states are kept in the store; the others begin
anew when the server does, and a listener is then told that everything it shows may be stale.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from anyio import to_thread

from shoal.server.live import Bell, try_directory
from shoal.store import experiments as store
from shoal.store import logs
from shoal.store.database import Database

INTERVAL = 0.5  # seconds between looks at logs, and between two messages to a listener
HEARTBEAT = 15.0  # seconds after which somebody to whom nothing was said hears that we are here
KINDS = ("points", "records", "logs")


class Cursor(NamedTuple):
    """How far a listener is: `12`, or `12-9f3c2a10-345` for one who hears of more than states."""

    event: int
    epoch: str = ""
    change: int = 0

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        match = re.fullmatch(r"(\d{1,15})(?:-([0-9a-f]{1,16})-(\d{1,15}))?", text, re.ASCII)
        return cls(int(match[1]), match[2] or "", int(match[3] or 0)) if match else None

    def __str__(self) -> str:
        return f"{self.event}-{self.epoch}-{self.change}" if self.epoch else str(self.event)


class Changes:
    """One for the server. `epoch` names this life of it."""

    def __init__(self, database: Database, directory_of: Callable[[store.Row], Path]) -> None:
        self.epoch = secrets.token_hex(4)
        self.number = 0
        self._database = database
        self._directory_of = directory_of
        self._newest: dict[str, dict[str, int]] = {}  # uid -> kind -> the number of its newest change
        self._ids: dict[str, str] = {}
        self._sizes: dict[tuple[str, int, str, int], int] = {}
        self._looked = 0.0
        self._lock = threading.Lock()

    def note(self, uid: str, *kinds: str) -> None:
        with self._lock:
            self.number += 1
            self._newest.setdefault(uid, {}).update(dict.fromkeys(kinds, self.number))

    def since(self, number: int, uid: str | None = None) -> tuple[int, list[dict[str, Any]]]:
        """(the newest number, [{id, points, records, logs}]): what has changed after a number."""
        with self._lock:
            newest = self.number
            changed = {
                which: {kind: kinds.get(kind, 0) > number for kind in KINDS}
                for which, kinds in self._newest.items()
                if uid in (None, which) and max(kinds.values()) > number
            }
        return newest, [{"id": self._id(which), **kinds} for which, kinds in changed.items() if self._id(which)]

    def look(self) -> bool:
        """Looks whether logs have grown, unless somebody just did; whether there is anybody who could print.

        Costs a few system calls for each running replica.
        """
        with self._lock:
            if time.monotonic() - self._looked < INTERVAL / 2:
                return bool(self._sizes)
            self._looked = time.monotonic()
        sizes: dict[tuple[str, int, str, int], int] = {}
        with self._database.read() as connection:
            for row in store.alive(connection):
                for entry in store.replicas_of(connection, row["uid"], row["attempt"]):
                    key = (row["uid"], entry["attempt"], entry["replica"], entry["try"])
                    over = entry["finished"] is not None and key in self._sizes
                    place = try_directory(self._directory_of(row), *key[1:]) / "log"
                    sizes[key] = self._sizes[key] if over else logs.size(place)
        grown = {key[0] for key, size in sizes.items() if size > self._sizes.get(key, 0)}
        self._sizes = sizes
        for uid in grown:
            self.note(uid, "logs")
        return bool(sizes)

    def _id(self, uid: str) -> str:
        """Its short id; empty when it was removed meanwhile."""
        if uid not in self._ids:
            with self._database.read() as connection:
                found = store.find(connection, uid)
            self._ids[uid] = str(found["id"]) if found is not None else ""
        return self._ids[uid]


def noted(changes: Changes, ring: Callable[[], None]) -> Callable[[Mapping[str, tuple[int, int]]], None]:
    """What ingest calls with uid -> (new points, new records)."""

    def on_change(found: Mapping[str, tuple[int, int]]) -> None:
        for uid, (points, records) in found.items():
            kinds = [kind for kind, count in (("points", points), ("records", records)) if count]
            changes.note(uid, *(kinds or KINDS[:2]))
        ring()

    return on_change


async def events(
    database: Database, bell: Bell, cursor: Cursor, uid: str | None, changes: Changes | None
) -> AsyncGenerator[str]:
    """From a cursor on: `change` for each change of a state. A comment now and then keeps the connection alive.

    With `changes` also `tracked`, not more often than every INTERVAL, and `stale` when it is not known what was missed.
    """

    def look(number: int) -> tuple[list[store.Row], bool]:
        somebody = changes.look() if changes is not None else False
        with database.read() as connection:
            return list(store.events_after(connection, number, uid=uid)), somebody

    yield ": shoal\n\n"
    if changes is not None:
        stale = cursor.epoch not in ("", changes.epoch)
        cursor = cursor if cursor.epoch == changes.epoch else Cursor(cursor.event, changes.epoch, changes.number)
        yield _event(cursor, "stale" if stale else "tracked", {} if stale else {"experiments": []})
    else:
        cursor = Cursor(cursor.event)
    told, said = 0.0, time.monotonic()
    while True:
        rung = bell.listen()
        found, somebody = await to_thread.run_sync(look, cursor.event)
        for row in found:
            cursor = cursor._replace(event=row["number"])
            yield _event(cursor, "change", {key: value for key, value in row.items() if key != "uid"})
            said = time.monotonic()
        if changes is not None and time.monotonic() - told >= INTERVAL:
            newest, changed = await to_thread.run_sync(changes.since, cursor.change, uid)
            cursor = cursor._replace(change=newest)
            if changed:
                told = said = time.monotonic()
                yield _event(cursor, "tracked", {"experiments": changed})
        if found:
            continue
        more = changes is not None and changes.number > cursor.change
        wait = told + INTERVAL - time.monotonic() if more else INTERVAL if somebody else HEARTBEAT
        await bell.wait(rung, max(wait, 0.01))
        if time.monotonic() - said >= HEARTBEAT - 1:
            said = time.monotonic()
            yield ": still here\n\n"


def _event(cursor: Cursor, name: str, data: Mapping[str, Any]) -> str:
    return f"id: {cursor}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
