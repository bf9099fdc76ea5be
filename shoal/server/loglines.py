"""Logs for those who show a few of a million lines: windows, searching, and everything as text."""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query

from shoal.errors import UsageError
from shoal.server import live, logtypes
from shoal.server.context import Missing, Server, Word, gives
from shoal.store import experiments as store
from shoal.store import logs

if TYPE_CHECKING:
    from shoal.store.lines import Found, NumberedLog
    from shoal.store.searching import Hits, Wanted

MOST = 2000  # lines of a window, on each side
LONGEST = 10_000  # characters of a line that are shown
KEPT = 4  # searches whose hits are remembered, for those who go through them

Replicas = Annotated[
    list[str] | None, Query(description="`worker-2`, or patterns: `worker-*`; default: all.", max_length=1000)
]
Attempt = Annotated[int | None, Query(description="Only this attempt; default: all.", ge=0, le=2**31)]
Stream = Annotated[int | None, Query(description="1 stdout, 2 stderr; default: both.", ge=1, le=2)]
Anchor = Annotated[
    str | None, Query(description="A line: `attempt:replica:try:line`, as in other answers.", max_length=200)
]


def add_routes(app: FastAPI, server: Server) -> None:
    searches: OrderedDict[Any, list[Hits]] = OrderedDict()
    under_way: dict[Any, Lock] = {}

    @app.get("/api/experiments/{word}/logs/window", response_model=logtypes.LogWindow, tags=["logs"])
    def window(
        word: Word,
        replica: Replicas = None,
        attempt: Attempt = None,
        stream: Stream = None,
        line: Annotated[
            int | None, Query(description="Around this place in the list; -1 is the end.", ge=-(2**53), le=2**53)
        ] = None,
        anchor: Anchor = None,
        time: Annotated[float | None, Query(description="Around this time, UTC seconds.", allow_inf_nan=False)] = None,
        before: Annotated[int, Query(description="Lines before it.", ge=0, le=MOST)] = 100,
        after: Annotated[int, Query(description="Lines from it on.", ge=0, le=MOST)] = 100,
    ) -> Any:
        """Some lines of one log, or of several as one list in the order of time; default: from the beginning."""
        from shoal.store.lines import Together

        row = server.find(word)
        tries = chosen(row, replica, attempt)
        together = Together(opened(row, tries, stream))
        if anchor is not None:
            which, number = _anchor(anchor, tries)
            place = together.place_of(which, number)
        elif time is not None:
            place = together.at_time(time)
        else:
            place = line or 0
            place += together.total + 1 if place < 0 else 0
        first, found = together.around(place, before, after)
        return {
            "total": together.total,
            "first": first,
            "lines": [_shown(tries[which], entry) for which, entry in found],
            "logs": [_log(entry, log) for entry, log in zip(tries, together.logs, strict=True)],
        }

    @app.get("/api/experiments/{word}/logs/search", response_model=logtypes.LogHits, tags=["logs"])
    def search(
        word: Word,
        text: Annotated[str, Query(description="Lines that hold this text.", max_length=1000)] = "",
        regex: Annotated[str, Query(description="Lines that match this pattern of Python.", max_length=1000)] = "",
        ignore_case: Annotated[bool, Query(description="Whether a is A.")] = False,
        replica: Replicas = None,
        attempt: Attempt = None,
        stream: Stream = None,
        anchor: Anchor = None,
        first: Annotated[int, Query(alias="from", description="From this hit on.", ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(description="How many hits at most.", ge=0, le=1000)] = 100,
    ) -> Any:
        """How many lines match, and some of them in the order of time; with an anchor, those from that line on."""
        from shoal.store import searching
        from shoal.store.lines import NumberedLog

        row = server.find(word)
        tries = chosen(row, replica, attempt)
        opened_ = opened(row, tries, stream)
        wanted = searching.Wanted(text, regex, ignore_case)
        hits = remembered(opened_, wanted)
        counts = [len(found.starts) for found in hits]
        if anchor is not None:
            which, number = _anchor(anchor, tries)
            line = NumberedLog(opened_[which].log.directory).ends(number, number + 1)
            first = searching.before(hits, which, number, float(line.times[0])) if len(line.times) else sum(counts)
        whose, within = searching.in_order(hits) if sum(counts) else ((), ())
        page = [
            (int(a), int(b)) for a, b in zip(whose[first : first + limit], within[first : first + limit], strict=True)
        ]
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for which in {which for which, _ in page}:
            rows = [place for other, place in page if other == which]
            lines = opened_[which].texts(hits[which].lines.take(rows))
            for place, line_found in zip(rows, lines, strict=True):
                span = int(hits[which].starts[place]), int(hits[which].stops[place])
                match = span if regex else _characters(line_found.text, *span)
                shown = _shown(tries[which], line_found)
                found[which, place] = {**shown, "match": [min(edge, len(shown["text"])) for edge in match]}
        return {
            "count": sum(counts),
            "first": first,
            "hits": [found[key] for key in page],
            "logs": [{**_who(entry), "count": count} for entry, count in zip(tries, counts, strict=True)],
        }

    @app.get("/api/experiments/{word}/logs/raw", tags=["logs"], **gives("text/plain", "All of it"))
    def raw(
        word: Word,
        replica: Annotated[str, Query(description="`worker-2`", max_length=100)],
        attempt: Annotated[int | None, Query(description="Default: the newest.", ge=0, le=2**31)] = None,
        try_: Annotated[int | None, Query(alias="try", description="Default: the newest.", ge=0, le=2**31)] = None,
        stream: Stream = None,
    ) -> Any:
        """Everything that one replica printed, as text; lines of its two streams do not tear each other."""
        row = server.find(word)
        with server.database.read() as connection:
            tries = store.replicas_of(connection, row["uid"], attempt)
        mine = [entry for entry in tries if entry["replica"] == replica and try_ in (None, entry["try"])]
        if not mine:
            names = ", ".join(dict.fromkeys(entry["replica"] for entry in tries)) or "none yet"
            raise Missing(f"{row['id']} has no log of {replica[:80]!r} there", hint=f"its replicas: {names[:500]}")
        entry = mine[-1]
        place = live.try_directory(server.directory(row), entry["attempt"], replica, entry["try"]) / "log"
        answer = live.Stream(live.batches(_text(place, stream)), "text/plain; charset=utf-8")
        name = f"{row['id']}-{replica}-attempt-{entry['attempt']}-try-{entry['try']}.log"
        answer.headers["content-disposition"] = f'attachment; filename="{name}"'
        answer.headers["x-content-type-options"] = "nosniff"
        return answer

    def chosen(row: store.Row, patterns: Sequence[str] | None, attempt: int | None) -> list[store.Row]:
        with server.database.read() as connection:
            tries = store.replicas_of(connection, row["uid"], attempt)
        if not patterns:
            return list(tries)
        return [entry for entry in tries if any(fnmatch.fnmatchcase(entry["replica"], p) for p in patterns)]

    def opened(row: store.Row, tries: Sequence[store.Row], stream: int | None) -> list[NumberedLog]:
        from shoal.store.lines import BOTH, NumberedLog

        directory = server.directory(row)
        places = [live.try_directory(directory, entry["attempt"], entry["replica"], entry["try"]) for entry in tries]
        return [NumberedLog(place / "log", stream or BOTH) for place in places]

    def remembered(logs: Sequence[NumberedLog], wanted: Wanted) -> list[Hits]:
        """What was found in the very same logs is not searched for again."""
        from shoal.store.searching import search

        key = (wanted, tuple((log.log.directory, log.log.end, log.stream) for log in logs))
        with under_way.setdefault(key, Lock()):  # a page asks for hits and for their count at once: one search
            found = searches.get(key)
            if found is None:
                found = searches[key] = search(logs, wanted)
                while len(searches) > KEPT:
                    with suppress(KeyError):  # another thread was faster
                        searches.popitem(last=False)
            under_way.pop(key, None)
        return found


def _anchor(text: str, tries: Sequence[store.Row]) -> tuple[int, int]:
    """`0:worker-2:1:4096` -> (which of the logs, 4096)"""
    match = re.fullmatch(r"(\d{1,9}):([\w-]{1,64}):(\d{1,9}):(\d{1,15})", text, re.ASCII)
    if match is None:
        raise UsageError(f"anchor: {text[:80]!r} is not attempt:replica:try:line", hint="for example 0:worker-2:0:4096")
    attempt, replica, try_, line = match.groups()
    for which, entry in enumerate(tries):
        if (entry["attempt"], entry["replica"], entry["try"]) == (int(attempt), replica, int(try_)):
            return which, int(line)
    raise UsageError(f"anchor: there is no log {attempt}:{replica}:{try_} among those chosen", hint="choose it as well")


def _who(entry: store.Row) -> dict[str, Any]:
    return {key: entry[key] for key in ("replica", "attempt", "try")}


def _log(entry: store.Row, log: NumberedLog) -> dict[str, Any]:
    known = {"rank": entry["rank"], "lines": log.count, "size": log.log.end, "closed": log.log.closed}
    return {**_who(entry), **known}


def _shown(entry: store.Row, line: Found) -> dict[str, Any]:
    return {
        **_who(entry),
        "line": line.number,
        "offset": line.offset,
        "time": line.time,
        "stream": line.stream,
        "text": line.text[: 4 * LONGEST].decode("utf-8", "replace")[:LONGEST],
        "length": line.length,
        "complete": line.complete,
        "gap": line.gap,
    }


def _characters(text: bytes, start: int, stop: int) -> tuple[int, int]:
    """Places of bytes as places of characters."""
    return len(text[:start].decode("utf-8", "replace")), len(text[:stop].decode("utf-8", "replace"))


def _text(place: Any, stream: int | None) -> Generator[bytes]:
    for entry in logs.entries(place, stream=stream):
        if isinstance(entry, logs.Gap):
            yield f"… {entry.length:,} bytes are missing here ({entry.reason}) …\n".encode()
        elif entry.complete or len(entry.text) < logs.LONGEST:
            yield entry.text + b"\n"
        else:
            yield entry.text  # it goes on in the next
