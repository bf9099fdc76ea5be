"""What happens while it happens: a bell for those who wait, and logs as they are written."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shoal.engine.act import Engine
from shoal.states import FINAL
from shoal.store import experiments as store
from shoal.store import logs
from shoal.store.database import Database

TryKey = tuple[int, str, int]  # attempt, replica, try

LOOK_AGAIN = 0.03  # seconds between looks at a log that somebody follows
BATCH = 1 << 20  # bytes of one replica sent before others get their turn
TOGETHER = 1 << 16  # bytes of lines that are sent in one go


class Bell:
    """Tells coroutines that the engine has done something. One bell for all of them; ringing costs nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine.on_round.append(self.ring)

    def ring(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._swap)

    def _swap(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()

    def listen(self) -> asyncio.Event:
        """To be taken before looking: what happens between the look and the wait is then not missed."""
        return self._rung

    async def wait(self, rung: asyncio.Event, timeout: float) -> None:
        try:
            await asyncio.wait_for(rung.wait(), timeout)
        except TimeoutError:
            return


class Stream(StreamingResponse):
    """An answer of many parts. Whoever leaves early closes what it reads from at once, not when memory is tidied."""

    def __init__(self, parts: AsyncGenerator[Any], media_type: str) -> None:
        super().__init__(parts, media_type=media_type, headers={"cache-control": "no-store"})
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.parts.aclose()


async def batches(lines: Generator[bytes]) -> AsyncGenerator[bytes]:
    """Many lines at a time: to change threads for each would take longer than to read it."""

    def take() -> bytes:
        found = bytearray()
        for line in lines:
            found += line
            if len(found) >= TOGETHER:
                break
        return bytes(found)

    try:
        while batch := await to_thread.run_sync(take):
            yield batch
    finally:
        lines.close()


class Follower:
    """The logs of one experiment, of all attempts and tries, as they grow: from their beginning, or from offsets on."""

    def __init__(self, directory: Path, wanted: Callable[[str], bool], offsets: Mapping[TryKey, int]) -> None:
        self.directory = directory
        self.wanted = wanted
        self.offsets: dict[TryKey, int] = dict(offsets)
        self.decoders: dict[tuple[int, str, int, int], codecs.IncrementalDecoder] = {}
        self.newest: dict[tuple[int, str, int, int], float] = {}  # when each stream said something last

    def look(self, tries: list[tuple[int, str, int]]) -> list[dict[str, Any]]:
        """What was written since the last look."""
        found: list[dict[str, Any]] = []
        for key in tries:
            if not self.wanted(key[1]):
                continue
            log = try_directory(self.directory, *key) / "log"
            for item in logs.read(log, self.offsets.get(key, 0), BATCH):
                self.offsets[key] = item.end
                found.append(self._frame(key, item))
        return found

    def _frame(self, key: tuple[int, str, int], item: logs.Chunk | logs.Gap) -> dict[str, Any]:
        attempt, replica, try_ = key
        place = {"replica": replica, "attempt": attempt, "try": try_, "offset": item.offset, "end": item.end}
        if isinstance(item, logs.Gap):
            return {"gap": {**place, "length": item.length, "reason": item.reason}}
        writer = (*key, item.stream)
        decoder = self.decoders.setdefault(writer, codecs.getincrementaldecoder("utf-8")("replace"))
        self.newest[writer] = item.time
        return {"log": {**place, "time": item.time, "stream": item.stream, "text": decoder.decode(item.data)}}

    def rest(self) -> list[dict[str, Any]]:
        """The first bytes of characters that nobody finished."""
        found = []
        for (attempt, replica, try_, stream), decoder in self.decoders.items():
            text = decoder.decode(b"", final=True)
            if text:
                end = self.offsets[attempt, replica, try_]
                place = {"replica": replica, "attempt": attempt, "try": try_, "end": end}
                offset, time = self.offsets[attempt, replica, try_], self.newest[attempt, replica, try_, stream]
                found.append({"log": {**place, "offset": offset, "time": time, "stream": stream, "text": text}})
        return found


def try_directory(experiment: Path, attempt: int, replica: str, try_: int) -> Path:
    return experiment / f"attempt-{attempt}" / replica / f"try-{try_}"


async def follow(
    database: Database,
    bell: Bell,
    directory: Path,
    uid: str,
    wanted: Callable[[str], bool],
    describe: Callable[[Any, Mapping[str, Any]], dict[str, Any]],
    offsets: Mapping[TryKey, int],
) -> AsyncGenerator[bytes]:
    """Frames, one JSON object a line: {log}, {gap}, {state}, and {end} when the experiment is over and all is said."""
    follower = Follower(directory, wanted, offsets)
    told: dict[str, Any] = {}

    def look() -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        with database.read() as connection:
            row = store.get(connection, uid)
            tries = [(r["attempt"], r["replica"], r["try"]) for r in store.replicas_of(connection, uid)]
            summary = describe(connection, row)
        return (summary if summary != told else None), follower.look(tries)

    while True:
        rung = bell.listen()
        state, frames = await to_thread.run_sync(look)
        if frames:
            yield _as_lines(frames)
        if state is not None:
            told = state
            over = state["state"] in FINAL
            if over and frames:
                told = {}  # what was printed last may still be on its way: look once more before the end is told
                continue
            yield _as_lines([*follower.rest(), {"end": state}] if over else [{"state": state}])
            if over:
                return
        if not frames:
            await bell.wait(rung, LOOK_AGAIN)


def _as_lines(frames: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
