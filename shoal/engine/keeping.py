"""Takes the files that scripts handed over into blobs/: artifacts, models, images.

A script's SDK stages content in `files/` of its try and says so in its stream; ingest keeps that as a record that is
pending. Here the staged files become blobs, and in one transaction the version is made and the record settled; then the
staged files go. A kill at any point leaves a record that is still pending and files that are still there, or a note
(`blobs/taken.json`) of staged files that are not needed any more.

A record whose file has not come yet waits: it may be on its way over the network. Once its experiment is over, and a
while has passed, it is settled with `error`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, update

from shoal import names
from shoal.engine.places import experiment_directory
from shoal.errors import ShoalError
from shoal.launcher.replica import read_json, write_json
from shoal.states import FINAL
from shoal.store import blobs as content
from shoal.store import files
from shoal.store.blobs import Blobs, Hold
from shoal.store.database import Database, LeaseLost
from shoal.store.tables import experiments, records, streams

Row = Mapping[str, Any]
Key = tuple[str, int]

WITH_FILES = ("artifact", "model", "image")
PATIENCE = 60.0  # seconds that a file may be late once its experiment is over
LOOK_AGAIN = 5.0  # seconds, while something is late and nobody rings


class Keeper:
    """One thread that sleeps until it is woken. `drain` does the same in the caller's."""

    def __init__(self, home: Path, database: Database, *, patience: float = PATIENCE) -> None:
        self.home = home
        self.database = database
        self.blobs = Blobs(home)
        self.failure = ""
        self._patience = patience
        self._late: dict[Key, float] = {}  # pending records without their files -> when that was first seen
        self._lock = threading.Lock()
        self._begun = self._done = 0  # rounds of the thread
        self._round = threading.Condition()
        self._bell = threading.Event()
        self._ending = False
        self._to_collect = False
        self._thread = threading.Thread(target=self._loop, name="keeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._bell.set()

    def collect(self) -> None:
        """Blobs that nobody names any more go, soon: for whoever has removed an experiment or a model."""
        self._to_collect = True
        self.wake()

    def settle(self, timeout: float = 5.0) -> None:
        """Until what was said before the call is taken, or the time is up: much content takes long."""
        with self._round:
            begun = self._begun
        self.wake()
        with self._round:
            self._round.wait_for(lambda: self._done > begun or not self._thread.is_alive(), timeout)

    def close(self) -> None:
        self._ending = True
        self.wake()
        self._thread.join(timeout=10)

    def _loop(self) -> None:
        self._bell.set()  # what the last server left
        while True:
            self._bell.wait(LOOK_AGAIN if self._late or self.failure else None)
            self._bell.clear()
            if self._ending:
                return
            with self._round:
                self._begun += 1
            try:
                self.drain()
                if self._to_collect:
                    self._to_collect = False
                    collect(self.home, self.database)
                self.failure = ""
            except LeaseLost:
                os._exit(3)  # another server has taken over this home
            except Exception as error:  # noqa: BLE001  a full disk must not end it: the files wait where they are
                said = error.text() if isinstance(error, ShoalError) else traceback.format_exc()
                if said != self.failure:  # it is tried again and again: the log is told once
                    with suppress(OSError):
                        print(said, file=sys.stderr)
                self.failure = said
            with self._round:
                self._done = self._begun
                self._round.notify_all()

    def drain(self) -> int:
        """Takes everything that is there; how many records are still pending."""
        with self._lock:
            for half_a_note in self.blobs.root.glob(f"{self._note.name}.*.new"):
                half_a_note.unlink(missing_ok=True)
            self._finish_last()
            late: dict[Key, float] = {}
            for key in self._pending():
                if self._ending:
                    break
                row = self._record(key)
                if row is not None and not self._take(row):
                    late[key] = self._late.get(key, time.time())
            self._late = late
            return len(late)

    def _pending(self) -> list[Key]:
        """In the order in which they were said."""
        query = select(records.c.stream, records.c.seq).where(records.c.pending, records.c.kind.in_(WITH_FILES))
        with self.database.read() as connection:
            found = connection.execute(query.order_by(records.c.time, records.c.stream, records.c.seq))
            return [(stream, seq) for stream, seq in found]

    def _record(self, key: Key) -> Row | None:
        """A record with what is needed of its stream and its experiment."""
        of_experiment = (experiments.c[name] for name in ("id", "state", "finished", "origin", "origin_key"))
        query = (
            select(records, streams.c["try"], *of_experiment)
            .join(streams, streams.c.stream == records.c.stream)
            .join(experiments, experiments.c.uid == records.c.uid)
            .where(records.c.stream == key[0], records.c.seq == key[1])
        )
        with self.database.read() as connection:
            found = connection.execute(query).mappings().first()
        return dict(found) if found is not None else None

    def _take(self, row: Row) -> bool:
        """Settles one record; False when its files are not all there yet."""
        wrong = names.problem(str(row["name"])) if row["kind"] in ("artifact", "model") else ""
        if wrong:
            self._settle(row, error=f"its name cannot be one: {wrong}; {names.RULE}")
            return True
        try:
            wanted = _wanted(row)
        except (ValueError, KeyError, TypeError) as error:
            self._settle(row, error=f"what it says of its files makes no sense: {error}")
            return True
        place = staging(self.home, row)
        missing = next((file for file in wanted if not _arrived(place, file)), None)
        if missing is not None:
            return self._give_up(row, f"{missing['path']}: its content ({missing['size']} bytes) never came")
        with self.blobs.holding() as hold:
            try:
                manifest = [_put(hold, place, file) for file in wanted]
            except OSError as error:  # one script's trouble is not that of the others
                return self._give_up(row, f"its content cannot be read: {error.strerror}")
            staged = [str(place / file["staged"]) for file in wanted]
            self.blobs.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(self._note), {"stream": row["stream"], "seq": row["seq"], "staged": staged})
            self._settle(row, manifest)
        self._finish_last()
        return True

    def _give_up(self, row: Row, why: str) -> bool:
        """Whether the record is settled with an error: its experiment is over, and it has waited long enough."""
        if row["state"] not in FINAL:
            return False
        since = max(row["finished"] or 0.0, self._late.get((row["stream"], row["seq"]), time.time()))
        if time.time() - since < self._patience:
            return False
        self._settle(row, error=why)
        return True

    def _settle(self, row: Row, manifest: files.Manifest = (), error: str = "") -> None:
        """One transaction: the version, and the record that it comes from. Nothing when that was done before."""
        key = (records.c.stream == row["stream"], records.c.seq == row["seq"])
        with self.database.write() as connection:
            if not connection.execute(select(records.c.pending).where(*key)).scalar():
                return  # settled, or removed with its experiment
            if error:
                data = {**row["data"], "error": error}
            else:
                data = {**_with_hashes(row, manifest), **_new_version(connection, row, manifest)}
            connection.execute(update(records).where(*key).values(data=data, pending=False))

    @property
    def _note(self) -> Path:
        return self.blobs.root / "taken.json"

    def _finish_last(self) -> None:
        """Removes the staged files of the record that was settled last, by us or by a server that was killed then."""
        try:
            note = read_json(str(self._note))
        except ValueError:
            note = None
        if note is None:
            return
        with self.database.read() as connection:
            key = (records.c.stream == note["stream"], records.c.seq == note["seq"])
            pending = connection.execute(select(records.c.pending).where(*key)).scalar()
        if not pending:
            for path in note["staged"]:
                _remove(Path(path))
        self._note.unlink(missing_ok=True)


def collect(home: Path, database: Database) -> tuple[int, int]:
    """Removes blobs that nobody names any more; how many, and how many bytes. Safe at any time."""
    return content.collect(Blobs(home), database.read)


def staging(home: Path, row: Row) -> Path:
    """`files/` of the try that a record comes from."""
    attempt = experiment_directory(home, row) / f"attempt-{row['attempt']}"
    return attempt / str(row["replica"]) / f"try-{row['try']}" / "files"


def _remove(staged: Path) -> None:
    """A staged file, and the directories that it leaves empty, up to `files`. Silent when it is gone."""
    with suppress(OSError):
        staged.unlink(missing_ok=True)
        for above in staged.parents:
            if above.name == "files":
                return
            above.rmdir()


def _wanted(row: Row) -> list[dict[str, Any]]:
    """[{path, size, staged}] of a record, checked: a stream is written by whatever the user runs."""
    said = [row["data"]["file"]] if row["kind"] == "image" else row["data"]["files"]
    wanted = []
    for file in said:
        size = file["size"]
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"{size!r} is no size")
        path = _text(files.inside(file["path"]))
        wanted.append({"path": path, "size": size, "staged": files.inside(file["staged"])})
    if len({file["path"] for file in wanted}) != len(wanted):
        raise ValueError("a path stands there twice")
    if row["kind"] != "image" and not row["name"]:
        raise ValueError("it has no name")
    return sorted(wanted, key=lambda file: str(file["path"]))


def _text(path: str) -> str:
    """The name of a file need not be text; what is shown and kept must be."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _arrived(place: Path, file: Row) -> bool:
    try:
        return bool(_inside(place, file["staged"]).stat().st_size == file["size"])
    except OSError:
        return False


def _put(hold: Hold, place: Path, file: Row) -> dict[str, Any]:
    blob = hold.put(_inside(place, file["staged"]), move=True)
    return {"path": file["path"], "size": blob.size, "hash": blob.hash}


def _inside(place: Path, staged: str) -> Path:
    """A link that leads out of the staged files is not followed."""
    path = place / staged
    if not path.resolve().is_relative_to(place.resolve()):
        raise FileNotFoundError(staged)
    return path


def _new_version(connection: Connection, row: Row, manifest: files.Manifest) -> dict[str, int]:
    said = row["data"]
    if row["kind"] == "artifact":
        kind, metadata = str(said.get("type") or "file"), _mapping(said.get("metadata"))
        return {"version": files.keep_artifact(connection, row, kind=kind, manifest=manifest, metadata=metadata)}
    if row["kind"] == "model":
        metrics = _mapping(said.get("metrics"))
        return {"version": files.keep_model(connection, row, manifest=manifest, metrics=metrics)}
    return {}


def _with_hashes(row: Row, manifest: files.Manifest) -> dict[str, Any]:
    """What the record says of its files, once they are blobs."""
    if row["kind"] == "image":
        return {**row["data"], "file": dict(manifest[0])}
    return {**row["data"], "files": [dict(entry) for entry in manifest]}


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
