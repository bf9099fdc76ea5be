"""Reads the logs of many pods over few connections: where there are too many, they take turns.

A log that is left and taken up again goes on where it was left, so turns cost time, and nothing else. Up to MOST pods,
nobody waits.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

MOST = 200  # logs that are read at once: each has a thread here, a connection, and one more at the API server
TURN = 10.0  # seconds that a log is read while another one waits
IDLE = 10.0  # seconds until a thread without work ends


class Reader(Protocol):
    """One log."""

    following: bool  # it may be paused: what it reads has no end of its own

    def turn(self) -> float | None:
        """Reads. Seconds until it wants to read again; None when it is over."""

    def pause(self) -> None:
        """Has `turn` end soon. Silent when it does not read."""


class Turns:
    """Gives readers their turns, until they are over."""

    def __init__(self, most: int = MOST, turn: float = TURN) -> None:
        self.most = most
        self.turn = turn
        self._changed = threading.Condition()
        self._waiting: dict[Reader, float] = {}  # -> monotonic: when it wants to read
        self._reading: dict[Reader, float] = {}  # -> monotonic: since when it reads
        self._threads = 0
        self._idle = 0
        self._rotating = False
        self._closing = False

    def add(self, reader: Reader) -> None:
        with self._changed:
            self._queue(reader, 0.0)

    def hurry(self, reader: Reader) -> None:
        """It has reason to read now. Silent when it does so, or is over."""
        with self._changed:
            if reader in self._waiting:
                self._queue(reader, 0.0)

    def close(self) -> None:
        """Nobody begins a turn any more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _queue(self, reader: Reader, wait: float) -> None:
        self._waiting[reader] = time.monotonic() + wait
        if self._closing:
            return
        if not self._idle and self._threads < self.most:
            self._threads += 1
            threading.Thread(target=self._work, name="log", daemon=True).start()
        if not self._rotating and len(self._waiting) + len(self._reading) > self.most:
            self._rotating = True
            threading.Thread(target=self._rotate, name="turns of logs", daemon=True).start()
        self._changed.notify()

    def _work(self) -> None:
        while (reader := self._next()) is not None:
            wait = reader.turn()
            with self._changed:
                del self._reading[reader]
                if wait is not None:
                    self._queue(reader, wait)

    def _next(self) -> Reader | None:
        """Who has waited longest, once it wants to read; None when there is nothing to do."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                first = min(self._waiting, key=self._waiting.__getitem__, default=None)
                if first is not None and self._waiting[first] <= now:
                    del self._waiting[first]
                    self._reading[first] = now
                    return first
                self._idle += 1
                told = self._changed.wait(IDLE if first is None else self._waiting[first] - now)
                self._idle -= 1
                if not told and not self._waiting:
                    break
            self._threads -= 1
            return None

    def _rotate(self) -> None:
        """While there are more readers than places: those that have read longest make room for those that wait."""
        while True:
            time.sleep(self.turn / 4)
            with self._changed:
                now = time.monotonic()
                if self._closing or len(self._waiting) + len(self._reading) <= self.most:
                    self._rotating = False
                    return
                due = sum(1 for at in self._waiting.values() if at <= now) - self._idle
                longest = sorted(self._reading.items(), key=lambda entry: entry[1])
                full = [reader for reader, since in longest if reader.following and now - since >= self.turn]
                for reader in full[: max(0, due)]:
                    reader.pause()
