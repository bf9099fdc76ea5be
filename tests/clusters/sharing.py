"""One thing of this machine that several runs of tests use at once: who comes first starts it, who is last ends it.

lock     held shared by all who use it, alone by who starts or ends it
whole    there from when it is up until it is being ended: without, what runs is the half of a run that was killed
kept     there while somebody wants it to stay, whoever uses it

Nobody owns it: a run that is killed lets its lock go, and whoever leaves last ends what is there.
"""

from __future__ import annotations

import fcntl
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK, WHOLE, KEPT = "lock", "whole", "kept"


class Shared:
    """`down` ends what `up` has started, also half of it, and is silent when there is nothing."""

    def __init__(
        self,
        place: Path,
        *,
        alive: Callable[[], bool],
        up: Callable[[], None],
        down: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended`: looks whether anything was left, and raises if so."""
        self.place = place
        self._alive = alive
        self._up = up
        self._down = down
        self._ended = ended
        place.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def used(self, *, keep: bool = False) -> Iterator[None]:
        """It runs until the end of the block. With `keep` it also does afterwards, until `end`."""
        with (self.place / LOCK).open("w") as lock:
            while not self._joined(lock) and not self._begun(lock):
                fcntl.flock(lock, fcntl.LOCK_UN)
                time.sleep(0.1 + 0.1 * secrets.randbelow(4))  # somebody else starts or ends it
            if keep:
                (self.place / KEPT).touch()
            try:
                yield
            finally:
                # Of several who leave at once, the last to let go of its share finds it free.
                if _alone(lock) and not (self.place / KEPT).exists():
                    self._end()
                    self._ended()

    def end(self) -> None:
        """Ends it when nobody uses it any more."""
        with (self.place / LOCK).open("w") as lock:
            if not _alone(lock):
                print("tests use it; it is ended when they are over", file=sys.stderr, flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._end()
            self._ended()

    def _joined(self, lock: IO[str]) -> bool:
        """Whether it runs, and we use it with the others."""
        fcntl.flock(lock, fcntl.LOCK_SH)
        return self._runs()

    def _begun(self, lock: IO[str]) -> bool:
        """Whether we have started it, alone."""
        if not _alone(lock) or self._runs():
            return False
        self._end()
        try:
            self._up()
        except BaseException:
            self._end()
            raise
        (self.place / WHOLE).touch()
        fcntl.flock(lock, fcntl.LOCK_SH)
        return True

    def _runs(self) -> bool:
        return (self.place / WHOLE).exists() and self._alive()

    def _end(self) -> None:
        (self.place / WHOLE).unlink(missing_ok=True)
        self._down()
        (self.place / KEPT).unlink(missing_ok=True)


def _alone(lock: IO[str]) -> bool:
    """Whether nobody else has the lock; then it is ours, and else we have no share of it any more."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
