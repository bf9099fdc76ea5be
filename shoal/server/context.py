"""What all routes share: the server, how an experiment is named, what a route says of itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi.responses import Response

from shoal.engine import provenance
from shoal.engine.act import Engine
from shoal.engine.ingest import Ingest
from shoal.engine.keeping import Keeper
from shoal.engine.places import experiment_directory
from shoal.errors import ShoalError
from shoal.server import changes, live
from shoal.server.memory import Memory
from shoal.server.trust import Keys
from shoal.store import experiments as store
from shoal.store.database import Database


def gives(kind: str, text: str, status: int = 200) -> dict[str, Any]:
    """Describes a route whose answer is not JSON; its errors are."""
    return {"response_class": Response, "responses": {status: {"description": text, "content": {kind: {}}}}}


Word = Annotated[str, InPath(description="An experiment: its id, its number, its uid, or its name (the newest).")]


class Missing(ShoalError):
    """There is no such thing."""


class Conflict(ShoalError):
    """Not possible in this state."""


class Server:
    """What the routes need: the store, the engine, and when somebody last asked for something."""

    def __init__(
        self, place: Path, database: Database, engine: Engine, ingest: Ingest, keys: Keys, *, kept: bool, url: str
    ) -> None:
        self.home = place
        self.database = database
        self.engine = engine
        self.ingest = ingest
        self.keeper = Keeper(place, database)
        ingest.on_files = self.keeper.wake
        self.keys = keys
        self.kept = kept
        self.url = url
        self.started = time.time()
        self.last_request = time.monotonic()
        self.bell = live.Bell(engine)
        self.changes = changes.Changes(database, self.directory)
        ingest.on_change = changes.noted(self.changes, self.bell.ring)
        self.recorder = provenance.Recorder(place, database)
        ingest.on_adopted(self.recorder.add)
        self.memory = Memory()

    def touched(self) -> None:
        self.last_request = time.monotonic()

    def find(self, word: str) -> store.Row:
        with self.database.read() as connection:
            row = store.find(connection, word)
            if row is None:
                newest = [entry["id"] for entry in store.newest(connection, 5)]
        if row is None:
            hint = f"the newest are {', '.join(newest)}" if newest else "there are none yet"
            raise Missing(f"there is no experiment {word[:80]!r}", hint=hint)
        return row

    def directory(self, row: store.Row) -> Path:
        return experiment_directory(self.home, row)
