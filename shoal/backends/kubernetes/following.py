"""Reads what pods print, as they print it, and makes it into the files of their tries again (the `stdout` sink).

A log is read in turns (`turns`): mostly there is one, which lasts as long as the pod. A connection that breaks is begun
anew at the last line that came; after a restart of the server, at the first: a frame that comes twice changes nothing.
What a kubelet has thrown away meanwhile is a gap. It is kept beside the files (`gaps.json`), and written into the index
of the log, so that whoever reads the log sees it.
"""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from shoal.backends.kubernetes.api import Api, Away, Refused, Stream
from shoal.backends.kubernetes.mending import mend
from shoal.backends.kubernetes.turns import Turns
from shoal.errors import ShoalError
from shoal.launcher.replica import read_json, write_json
from shoal.launcher.sinks import Decoder

GAPS = "gaps.json"  # {"holes": {path: [[start, end], …]}, "torn": 0, "complete": true, "over": true}
AGAIN = 2.0  # seconds until a broken connection is tried again
PATIENCE = 60.0  # seconds for the log of a pod that has ended; a node that is lost never gives it

READ, GONE, BROKEN, REFUSED = "read to its end", "there is no such pod", "broken off", "not given"
PAUSED = "left for another"
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z(?= |$)")


class Follower:
    """One pod. `over` when nothing more will come; `on_end` is called then."""

    def __init__(
        self, api: Api, turns: Turns, pod: str, container: str, directory: str, on_end: Callable[[], None], try_: int
    ) -> None:
        self.api = api
        self.turns = turns
        self.pod = pod
        self.container = container
        self.directory = directory
        self.on_end = on_end
        self.try_ = try_
        self.over = False
        self.gone = False  # there is no such pod any more: its name may be another's
        self.ended_at: float | None = None  # monotonic: when its owner learned that the container has ended
        self.following = False  # it reads what has no end yet
        self._silent = False  # a connection that should have told more told nothing: the next asks for what there is
        self._closing = False
        self._paused = False
        self._stream: Stream | None = None
        self._progress = time.monotonic()
        self._since = ""
        self._decoder: Decoder | None = None

    def start(self) -> None:
        os.makedirs(self.directory, exist_ok=True)
        self.turns.add(self)

    def end(self) -> None:
        """The container has ended, or the pod is gone: what can be read now is all. Gives up in the end."""
        now = time.monotonic()
        if self.ended_at is None:
            self.ended_at = now
            self.turns.hurry(self)
        elif not self.over and now - max(self.ended_at, self._progress) > PATIENCE:
            self._close_stream()

    def close(self) -> None:
        """Reads no further; the next server does."""
        self._closing = True
        self._close_stream()

    def pause(self) -> None:
        """Leaves its place to another one, and goes on later."""
        self._paused = True
        self._close_stream()

    def _close_stream(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.close()

    def turn(self) -> float | None:
        """Reads until the log ends, or another one's turn comes. Seconds until the next turn; None when it is over."""
        try:
            if self._decoder is None:
                self._decoder, over = self._begun()
                if over:
                    self._end()
                    return None
            wait = self._follow(self._decoder)
            if wait is not None:
                return wait
            if not self._closing:
                self._settle(self._decoder)
        except Exception:  # noqa: BLE001  a full disk, say: what is there is there
            with suppress(OSError):
                traceback.print_exc()
        self._end()
        return None

    def _begun(self) -> tuple[Decoder, bool]:
        """As the server before left it, and whether it had read everything."""
        before = read_json(os.path.join(self.directory, GAPS)) or {}
        holes = {path: [(start, end) for start, end in parts] for path, parts in before.get("holes", {}).items()}
        decoder = Decoder(self.directory, holes, lambda: self._keep(decoder), self.try_)
        return decoder, bool(before.get("over"))

    def _end(self) -> None:
        if not self._closing:
            self.over = True
            self.on_end()

    def _follow(self, decoder: Decoder) -> float | None:
        """One connection. Seconds until the next; None when there is nothing more to read."""
        last = self.ended_at is not None  # what is read from now on is all there is
        follow, before = not (last or self._silent), self._progress
        how = READ if self._closing or self.gone else self._read(decoder, follow=follow)
        self._silent = follow and how == BROKEN and self._progress == before
        if self._closing or self.gone or (how == READ and (last or decoder.complete)):
            return None
        if last and (how == GONE or (how != BROKEN and self._late())):
            return None
        # Nothing is given up while the API server is away: the log is there when it comes back.
        if how != PAUSED and (self.ended_at is None or how == BROKEN):
            return AGAIN
        return 0.2 if last else 0.0

    def _late(self) -> bool:
        return self.ended_at is not None and time.monotonic() - self.ended_at > PATIENCE

    def _read(self, decoder: Decoder, *, follow: bool) -> str:
        try:
            self._stream = self.api.log(self.pod, follow=follow, container=self.container, since=self._since)
            self._paused, self.following = False, follow
            for line in self._stream.lines():
                self._progress = time.monotonic()
                stamp = STAMP.match(line)
                if stamp is not None:
                    self._since = stamp.group().decode()
                decoder.feed(line.decode("ascii", "replace"))
                if decoder.over:
                    self._stream.close()  # its launcher may stay
                    return READ
            return PAUSED if self._paused else READ
        except Refused as error:
            return GONE if error.status == 404 else REFUSED  # else its container has not started, or the log is gone
        except Away:
            return BROKEN
        except ShoalError:
            return REFUSED  # the kubelet of its node does not answer
        finally:
            self._stream, self.following = None, False

    def _settle(self, decoder: Decoder) -> None:
        """All is read. What is missing may have been skipped where the clock of the node was turned back."""
        if decoder.found().gaps and self._since:
            self._since = ""
            self._read(decoder, follow=False)
        found = decoder.found()
        if found.gaps or found.torn:
            for path, start, end in found.gaps:
                if (start, end) not in decoder.holes.get(path, []):
                    decoder.holes.setdefault(path, []).append((start, end))
            self._keep(decoder, over=True)
            mend(os.path.join(self.directory, "log"), decoder.holes)

    def _keep(self, decoder: Decoder, over: bool = False) -> None:
        told = {"holes": decoder.holes, "torn": decoder.torn, "complete": decoder.complete, "over": over}
        write_json(os.path.join(self.directory, GAPS), told)
