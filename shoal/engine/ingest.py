"""Brings what scripts wrote into their streams into the store. One thread; whoever reads may ask it to catch up.

Each look reads the new frames of every experiment that is not tracked to its end, and keeps them in one transaction
with how far each stream is read: reading twice is harmless. Heads that have grown large, and those of streams that are
over, are made into chunks. When an experiment is over and all of it is in the store, its stream files are removed.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import journal
from shoal.engine import arriving, outside
from shoal.engine.places import experiment_directory, tries
from shoal.engine.reading import Piece, Position, identity, read
from shoal.states import FINAL, QUEUED
from shoal.store import experiments as store
from shoal.store import progress, streams
from shoal.store.database import Database, LeaseLost

if TYPE_CHECKING:
    from shoal.store.series import Summaries

INTERVAL = 0.5  # seconds between looks while something runs
LARGE_BYTES = 1 << 20  # of a head: then it becomes chunks
LARGE_POINTS = 1 << 16
MOST_FULL = 4.0  # times that: ranks that began together grow large together, and are not all made to wait for chunks
AT_ONCE = 64  # streams whose pieces are kept in one transaction
MOST_BYTES = 32 << 20  # of pieces that are in memory at the same time, and the last of them
KEPT = ("params", "tag", "summary", "define", "text", "image", "table", "histogram", "artifact", "model", "checkpoint")
WITH_FILES = ("artifact", "model", "image")


@dataclass
class Open:
    """A stream that is not read to its end, as the database has it."""

    row: dict[str, Any]
    head_bytes: int = 0
    head_points: int = 0
    stored: bool = True  # else it was found, and is not in the database yet

    @property
    def fullness(self) -> float:
        """Of its head: from 1 on it is worth being made into chunks."""
        return max(self.head_bytes / LARGE_BYTES, self.head_points / LARGE_POINTS)

    @property
    def position(self) -> Position:
        return Position(self.row["segment"], self.row["offset"], self.row["seq"])


@dataclass
class Found:
    """One stream with something new in it."""

    stream: Open
    piece: Piece
    new: bool
    over: bool
    directory: str
    values: dict[str, Any] = field(default_factory=dict)


class Ingest:
    def __init__(self, home: Path, database: Database, on_files: Callable[[], None] = lambda: None) -> None:
        self.home = home
        self.database = database
        self.on_files = on_files  # called when there are files to be taken into blobs/
        # Called with uid -> (points, records) that are new; both are 0 when the experiment is read to its end.
        self.on_change: Callable[[Mapping[str, tuple[int, int]]], None] = lambda found: None
        self.failure = ""
        self._open: dict[str, Open] = {}
        self._summaries: Summaries | None = None
        self._lock = threading.RLock()
        self._bell = threading.Event()
        self._ending = False
        self._outside = outside.Adopter(home, database)
        self._thread = threading.Thread(target=self._loop, name="ingest", daemon=True)

    @property
    def summaries(self) -> Summaries:
        """What is known of series whose points are not all in chunks."""
        with self._lock:
            self._load()
            assert self._summaries is not None
            return self._summaries

    @property
    def known(self) -> Summaries | None:
        """The same for whoever must not wait; None before anything was read. What it lacks is in the heads."""
        return self._summaries

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._bell.set()

    def close(self) -> None:
        self._ending = True
        self.wake()
        self._thread.join(timeout=10)

    def catch_up(self, uid: str) -> None:
        """Until everything that was written before the call is in the store."""
        with self._lock:
            with self.database.read() as connection:
                row = store.get(connection, uid)
            if not row["tracked"]:
                self._load()
                while self._look([row]):
                    pass

    def adopt(self, about: Mapping[str, Any]) -> store.Row:
        """The experiment of a run outside Shoal, made when there is none yet; it is read (again) from now on."""
        with self._lock:
            row = self._outside.adopt(about, again=True)
        self.wake()
        return row

    def expect(self, uid: str, place: Path) -> None:
        """Streams of this try are carried here, and more may come: nothing of it is settled meanwhile."""
        if arriving.is_surely_expected(place):
            arriving.expect(place)
            return
        with self._lock:  # not while somebody settles it, and removes the files
            arriving.expect(place)
            with self.database.write() as connection:
                row = store.get(connection, uid)
                if row["origin"] != "run" and row["state"] in FINAL:
                    store.read_again(connection, row)  # nobody but its streams tells how it ended
                elif row["tracked"]:
                    store.untrack(connection, uid)

    def on_adopted(self, action: Callable[[str], None]) -> None:
        """What is done with a run outside Shoal that has just become an experiment."""
        self._outside.on_new = action

    @contextmanager
    def removing(self, uid: str) -> Iterator[None]:
        """While an experiment is removed nothing of it is read."""
        with self._lock:
            yield
            self.forget(uid)

    def forget(self, uid: str) -> None:
        with self._lock:
            for name in [name for name, entry in self._open.items() if entry.row["uid"] == uid]:
                del self._open[name]
                if self._summaries is not None:
                    self._summaries.forget(name)

    def _loop(self) -> None:
        while not self._ending:
            self._bell.clear()
            try:
                busy = self._round()
                self.failure = ""
            except LeaseLost:
                os._exit(3)  # another server has taken over this home
            except Exception:  # noqa: BLE001  a full disk must not end it: the streams wait in their files
                self.failure = traceback.format_exc()
                with suppress(OSError):
                    traceback.print_exc()
                busy = True
            self._bell.wait(INTERVAL if busy else None)

    def _round(self) -> bool:
        """Reads what is new; whether to look again soon although nobody rings."""
        with self._lock:
            self._outside.look()
            with self.database.read() as connection:
                rows = [row for row in store.untracked(connection) if row["state"] != QUEUED]
            if rows:
                self._load()
                while self._look(rows) and not self._ending:
                    pass
        return bool(rows)

    def _load(self) -> None:
        """What the database knows of open streams; once. numpy is loaded here, not when the server starts."""
        if self._summaries is not None:
            return
        from shoal.store.heads import frames_of
        from shoal.store.series import Summaries

        self._summaries = Summaries()
        with self.database.read() as connection:
            for name, (size, points) in streams.head_sizes(connection).items():
                row = streams.get(connection, name)
                if row is None:
                    continue
                self._open[name] = Open(row, size, points)
                for data in streams.heads_of(connection, name):
                    self._summaries.add(row, frames_of(data))

    def _look(self, rows: list[store.Row]) -> bool:
        """One piece of every stream of these experiments that has something new; whether there is more."""
        new: dict[str, tuple[int, int]] = {}
        more = False
        expected = {row["uid"] for row in rows if self._expected(row)}  # before anything is read
        for found in _batches(entry for row in rows for entry in self._read(row)):
            self._keep(found)
            more = more or any(entry.piece.more for entry in found)
            _count(new, found)
        if new:
            self.on_change(new)
        if not more:
            for row in rows:
                if row["uid"] not in expected and not self._expected(row):
                    self._settle(row)
        return more

    def _expected(self, row: store.Row) -> bool:
        """Whether more is carried here."""
        return any(arriving.is_expected(place) for *_, place in tries(experiment_directory(self.home, row)))

    def _read(self, row: store.Row) -> Iterator[Found]:
        directory = experiment_directory(self.home, row)
        for attempt, replica, try_, place in tries(directory):
            streams_here = os.path.join(place, "streams")
            try:
                known = journal.segments(os.listdir(streams_here))
            except (FileNotFoundError, NotADirectoryError):
                continue
            if not known:
                continue
            expected = arriving.is_expected(place)
            over = not expected and (row["state"] in FINAL or os.path.exists(os.path.join(place, "exit.json")))
            for name, numbers in known.items():
                entry = self._stream(name)
                at = entry.position if entry is not None else Position()
                if entry is not None and entry.row["uid"] != row["uid"]:
                    continue  # the copy of another experiment's stream
                left = not expected and entry is not None and row["origin"] != "run"
                left = left and outside.gone(entry.row["header"])  # type: ignore[union-attr]
                piece = read(streams_here, name, numbers, at, over=over or left)
                if entry is None:
                    if piece.header is None:
                        continue  # its first frame is not there yet
                    mine = {"uid": row["uid"], "attempt": attempt, "replica": replica, "try": try_}
                    entry = self._open[name] = Open(_new_row(name, piece.header, mine), stored=False)
                closes = (piece.end is not None or over or left) and not entry.row["closed"] and not piece.more
                new = not entry.stored
                if new or closes or piece.position != at or _gaps(entry.row, piece) != entry.row["gaps"]:
                    yield Found(entry, piece, new, closes, place)

    def _stream(self, name: str) -> Open | None:
        if name not in self._open:
            with self.database.read() as connection:
                row = streams.get(connection, name)
            if row is None:
                return None
            self._open[name] = Open(row)
        return self._open[name]

    def _keep(self, found: list[Found]) -> None:
        """One transaction: what was read, and how far."""
        records: list[dict[str, Any]] = []
        told: list[tuple[Found, dict[str, Any]]] = []
        for entry in found:
            entry.values = _advanced(entry)
            for seq, event in entry.piece.events:
                told.append((entry, event))
                if event.get("kind") in KEPT:
                    records.append(_record(entry.stream.row, seq, event))
        try:
            with self.database.write() as connection:
                for entry in found:
                    row, piece = entry.stream.row, entry.piece
                    if entry.new:
                        streams.add(connection, {**row, **entry.values})
                    else:
                        streams.advance(connection, {**row, **entry.values})
                    if piece.first is not None:
                        streams.add_head(connection, row["stream"], piece.first, piece.points, b"".join(piece.frames))
                streams.add_records(connection, records)
                _tell(connection, told)
        except BaseException:
            for entry in found:
                if entry.new:
                    self._open.pop(entry.stream.row["stream"], None)
            raise
        for entry in found:
            entry.stream.stored = True
        assert self._summaries is not None
        until = time.monotonic() + INTERVAL
        for entry in found:
            stream, piece = entry.stream, entry.piece
            stream.row.update(entry.values)
            stream.head_bytes += sum(len(frame) for frame in piece.frames)
            stream.head_points += piece.points
            if piece.groups:
                self._summaries.add(stream.row, piece.groups)
            due = stream.fullness > (1.0 if time.monotonic() < until else MOST_FULL)
            if due or entry.over or (stream.row["closed"] and stream.head_points):
                self._compact(stream)
        if any(record["pending"] for record in records):
            self.on_files()

    def _compact(self, stream: Open) -> None:
        from shoal.store import series

        assert self._summaries is not None
        with self.database.write() as connection:
            series.compact(connection, stream.row)
        self._summaries.forget(stream.row["stream"])
        stream.head_bytes = stream.head_points = 0

    def _settle(self, row: store.Row) -> None:
        """An experiment that is over and read to its end: its summary is final, its stream files go."""
        if row["origin"] != "run" and row["state"] not in FINAL:
            with self.database.read() as connection:  # of a run that was taken up again, also what was read before
                mine = streams.streams_of(connection, row["uid"])
            row = self._outside.settle(row, mine) or row
        if row["state"] not in FINAL:
            return
        from shoal.store import series

        for entry in [entry for entry in self._open.values() if entry.row["uid"] == row["uid"]]:
            if entry.head_points:
                self._compact(entry)
        with self.database.read() as connection:
            if streams.has_pending(connection, row["uid"]):
                self.on_files()
                return  # the staged files are still needed
            metrics = series.metrics_of(connection, row["uid"], self.summaries)
            if row["state"] in FINAL and store.get(connection, row["uid"])["state"] not in FINAL:
                return  # it was taken up again meanwhile
        with self.database.write() as connection:
            store.tracked(connection, row["uid"], metrics)
        for _, _, _, place in tries(experiment_directory(self.home, row)):
            _remove_streams(os.path.join(place, "streams"), set(self._open))
        self.forget(row["uid"])
        self.on_change({row["uid"]: (0, 0)})


def _batches(found: Iterable[Found]) -> Iterator[list[Found]]:
    """What is kept together. A backlog of many streams is read no faster than it is kept."""
    batch: list[Found] = []
    size = 0
    for entry in found:
        batch.append(entry)
        size += entry.piece.size
        if len(batch) == AT_ONCE or size > MOST_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _count(counts: dict[str, tuple[int, int]], found: list[Found]) -> None:
    """Adds how many points and records there are to uid -> their numbers."""
    for entry in found:
        points, records = counts.get(entry.stream.row["uid"], (0, 0))
        counts[entry.stream.row["uid"]] = points + entry.piece.points, records + len(entry.piece.events)


def _new_row(name: str, header: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "stream": name,
        **place,
        **identity(header),
        "header": dict(header),
        "segment": 0,
        "offset": 0,
        "seq": 0,
        "closed": False,
        "dropped": 0,
        "gaps": [],
        "ended": None,
        "heard": 0.0,
    }


def _advanced(entry: Found) -> dict[str, Any]:
    row, piece = entry.stream.row, entry.piece
    return {
        "segment": piece.position.segment,
        "offset": piece.position.offset,
        "seq": piece.position.seq,
        "closed": row["closed"] or entry.over,
        "ended": piece.end or row["ended"],
        "heard": time.time(),
        "dropped": max(row["dropped"], piece.dropped),
        "gaps": _gaps(row, piece),
    }


def _gaps(row: Mapping[str, Any], piece: Piece) -> list[dict[str, int]]:
    """A torn end is looked at again each time: the rest of it may come late."""
    here = (row["segment"], row["offset"])
    return [*(gap for gap in row["gaps"] if (gap["segment"], gap["offset"]) < here), *piece.gaps]


def _record(row: Mapping[str, Any], seq: int, event: Mapping[str, Any]) -> dict[str, Any]:
    step, when = event.get("step"), event.get("time")
    kind = str(event["kind"])
    return {
        "stream": row["stream"],
        "seq": seq,
        "uid": row["uid"],
        "kind": kind,
        "name": str(event.get("name", "")).encode("utf-8", "replace").decode(),  # JSON can say half a character
        "step": step if isinstance(step, int) and abs(step) < 2**63 else None,
        "time": float(when) if isinstance(when, (int, float)) else 0.0,
        "attempt": row["attempt"],
        "replica": row["replica"],
        "process": row["process"],
        "data": {key: value for key, value in event.items() if key not in ("kind", "time", "step")},
        "pending": kind in WITH_FILES,
    }


def _tell(connection: Any, told: list[tuple[Found, dict[str, Any]]]) -> None:
    """What an event changes on the experiment itself."""
    changes: dict[str, dict[str, Any]] = {}
    for entry, event in told:
        uid = entry.stream.row["uid"]
        change = changes.setdefault(uid, {"params": {}, "tags": [], "progress": [], "host": None, "name": ""})
        kind, values = event.get("kind"), event.get("values")
        if kind == "params" and isinstance(values, dict):
            change["params"].update(values)
        elif kind == "tag" and isinstance(event.get("tags"), list):
            change["tags"] += [str(tag) for tag in event["tags"]]
        elif kind == "name" and isinstance(event.get("name"), str):
            change["name"] = event["name"][:128]
        elif kind == "progress" and isinstance(event.get("fraction"), (int, float)):
            said = progress.spoken(entry.stream.row, event["fraction"], event.get("time"), time.time())
            change["progress"].append(said)
        elif kind == "host":
            change["host"] = {key: value for key, value in event.items() if key not in ("kind", "time")}
    for uid, change in changes.items():
        store.told(connection, uid, **change)


def _remove_streams(directory: str, stored: set[str]) -> None:
    """A stream that came meanwhile stays."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.partition(".")[0] in stored:
            with suppress(OSError):
                os.unlink(os.path.join(directory, name))
