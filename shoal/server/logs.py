"""What replicas printed, and events: at once, or as they come."""

from __future__ import annotations

import fnmatch
import heapq
import json
import re
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query

from shoal.errors import UsageError
from shoal.server import live, views
from shoal.server.changes import Cursor, events
from shoal.server.context import Server, Word, gives
from shoal.store import experiments as store
from shoal.store import logs


def add_routes(app: FastAPI, server: Server) -> None:
    @app.get("/api/experiments/{word}/logs", tags=["logs"], **gives("application/x-ndjson", "One object a line"))
    def lines(
        word: Word,
        replica: Annotated[str | None, Query(description="`worker-2`, or a pattern: `worker-*`.")] = None,
        attempt: Annotated[int | None, Query(description="Only this attempt; default: all.", ge=0, le=2**31)] = None,
        tail: Annotated[int | None, Query(description="Only the last lines of each replica.", ge=0, le=100_000)] = None,
        since: Annotated[float | None, Query(description="Only lines from this time on, UTC seconds.")] = None,
        until: Annotated[float | None, Query(description="Only lines up to this time, UTC seconds.")] = None,
        text: Annotated[str | None, Query(description="Only lines that hold this text.", max_length=1000)] = None,
        stream: Annotated[int | None, Query(description="1 stdout, 2 stderr; default: both.", ge=1, le=2)] = None,
    ) -> Any:
        """Lines, one JSON object each, of all replicas in the order of time; a gap is a line that has `gap`."""
        row = server.find(word)
        with server.database.read() as connection:
            tries = store.replicas_of(connection, row["uid"], attempt)
        wanted = [entry for entry in tries if replica is None or fnmatch.fnmatchcase(entry["replica"], replica)]

        def lines_of(entry: store.Row) -> Iterator[tuple[float, int, dict[str, Any]]]:
            place = live.try_directory(server.directory(row), entry["attempt"], entry["replica"], entry["try"])
            who = {key: entry[key] for key in ("replica", "attempt", "try")}
            time_of_gap = 0.0  # a gap has no time of its own: it stands after the line before it
            for found in _chosen(place / "log", tail, since, until, text, stream):
                if isinstance(found, logs.Gap):
                    what = f"… {found.length:,} bytes are missing here ({found.reason}) …"
                    said: dict[str, Any] = {
                        "time": time_of_gap,
                        "stream": 0,
                        "offset": found.offset,
                        "text": what,
                        "gap": found.length,
                    }
                else:
                    time_of_gap = found.time
                    said = {
                        "time": found.time,
                        "stream": found.stream,
                        "offset": found.offset,
                        "text": found.text.decode("utf-8", "replace").rstrip("\n"),
                    }
                yield said["time"], entry["rank"], {**who, **said}

        def produce() -> Generator[bytes]:
            for _, _, shown in heapq.merge(*[lines_of(entry) for entry in wanted], key=lambda item: item[:2]):
                yield json.dumps(shown).encode() + b"\n"

        return live.Stream(live.batches(produce()), "application/x-ndjson")

    @app.get("/api/experiments/{word}/follow", tags=["logs"], **gives("application/x-ndjson", "One object a line"))
    def follow(
        word: Word,
        replica: Annotated[str | None, Query(description="`worker-2`, or a pattern: `worker-*`.")] = None,
        start: Annotated[
            list[str] | None,
            Query(
                description="`attempt:replica:try:end` of what is known already, to continue there.", max_length=10_000
            ),
        ] = None,
    ) -> Any:
        """Logs and changes of state as they happen, one JSON object a line, until the experiment is over."""
        row = server.find(word)
        offsets = dict(_known(text) for text in start or ())

        def wanted(name: str) -> bool:
            return replica is None or fnmatch.fnmatchcase(name, replica)

        frames = live.follow(
            server.database, server.bell, server.directory(row), row["uid"], wanted, views.summary, offsets
        )
        return live.Stream(frames, "application/x-ndjson")

    @app.get("/api/events", tags=["events"], **gives("text/event-stream", "The data of a `change` is an EventView"))
    def stream_of_events(
        after: Annotated[
            int | None, Query(description="The number of an event; default: only what comes now.", ge=0, le=2**53)
        ] = None,
        experiment: Annotated[str | None, Query(description="Only this experiment.")] = None,
        tracked: Annotated[
            bool, Query(description="Tell also which experiments have new points, records, logs.")
        ] = False,
        cursor: Annotated[str, Query(description="The id of the last event heard; goes before `after`.")] = "",
        last_event_id: Annotated[str, Header(description="The same, as browsers send it; goes before both.")] = "",
    ) -> Any:
        """Changes as server-sent events; `Last-Event-ID` continues where a connection broke.

        `change`: of a state. With `tracked` also `tracked`: `{experiments: [{id, points, records, logs}]}`, who has
        new ones of what, at most twice a second; and `stale`, when the server cannot tell what was missed.
        """
        with server.database.read() as connection:
            newest = store.last_event(connection)
        begin = Cursor.parse(last_event_id) or Cursor.parse(cursor) or Cursor(newest if after is None else after)
        uid = server.find(experiment)["uid"] if experiment else None
        frames = events(server.database, server.bell, begin, uid, server.changes if tracked else None)
        return live.Stream(frames, "text/event-stream")


def _known(text: str) -> tuple[live.TryKey, int]:
    """`0:worker-2:1:4096` -> ((0, "worker-2", 1), 4096)"""
    match = re.fullmatch(r"(\d{1,9}):([\w-]{1,64}):(\d{1,9}):(\d{1,18})", text, re.ASCII)
    if match is None:
        raise UsageError(f"start: {text[:80]!r} is not attempt:replica:try:end", hint="for example 0:worker-2:0:4096")
    attempt, replica, try_, end = match.groups()
    return (int(attempt), replica, int(try_)), int(end)


def _chosen(
    place: Path, tail: int | None, since: float | None, until: float | None, text: str | None, stream: int | None
) -> Iterator[logs.Line | logs.Gap]:
    """The lines of one log that are wanted, and the gaps between them unless a text is looked for."""
    if tail is not None and since is None and until is None and text is None and stream is None:
        yield from logs.tail(place, tail)
        return
    choice: dict[str, Any] = {"since": since, "until": until, "stream": stream}
    kept: Iterator[logs.Line | logs.Gap] = logs.entries(place, **choice)
    if text:
        kept = (line for line in logs.lines(place, **choice) if text.encode() in line.text)
    yield from kept if tail is None else deque(kept, maxlen=tail)
