"""Has attempts rendered and submitted by threads of their own: packing code takes time, and a cluster may not answer.

So whoever asks for it waits for neither, and one slow cluster delays nothing elsewhere. What comes of it stands where
everything does, in the directory of the attempt: a request that a tender looks after, or a result that says why not.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.backends.local import files
from shoal.errors import ShoalError, Unavailable
from shoal.launcher.replica import read_json, write_json
from shoal.states import FAILED, NOT_SUBMITTED, STOPPED, Outcome, Status

AGAIN = 2.0  # seconds until it is tried again


class Preparing:
    """`on_change` is called when an attempt is in trouble, or is not any more; `on_end` when one ended here."""

    def __init__(self, on_change: Callable[[], None], on_end: Callable[[], None]) -> None:
        self._on_change = on_change
        self._on_end = on_end
        self._troubles: dict[str, str] = {}  # directory -> why it is not submitted yet
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def begin(self, directory: str, replicas: Sequence[str], submit: Callable[[], object]) -> None:
        """Has it submitted, and tried until that is done or will never be. Silent when somebody is at it."""
        with self._lock:
            if directory in self._troubles:
                return
            self._troubles[directory] = ""
        work = threading.Thread(target=self._work, args=(directory, replicas, submit), name="preparing", daemon=True)
        work.start()

    def trouble(self, directory: str) -> str | None:
        """Why it is not submitted yet, if that is known; None when nobody is at it."""
        with self._lock:
            return self._troubles.get(directory)

    def close(self) -> None:
        self._closing.set()

    def _work(self, directory: str, replicas: Sequence[str], submit: Callable[[], object]) -> None:
        while not self._closing.is_set():
            try:
                submit()
                break
            except (Unavailable, OSError) as error:
                said = error.problems[0].message if isinstance(error, Unavailable) else str(error)
                wish = read_json(os.path.join(directory, files.STOP))
                if wish is not None:
                    self._end(directory, replicas, STOPPED, wish["reason"])
                    break
                self._tell(directory, said)
            except ShoalError as error:  # the cluster will never take it
                self._end(directory, replicas, FAILED, f"{NOT_SUBMITTED}: {error.problems[0].message}")
                break
            except Exception as error:  # noqa: BLE001  it must not be tried for ever
                with suppress(OSError):
                    traceback.print_exc()
                said = f"{NOT_SUBMITTED}: a mistake in Shoal: {type(error).__name__}: {error}"
                self._end(directory, replicas, FAILED, said)
                break
            self._wait(directory)
        with self._lock:
            self._troubles.pop(directory, None)
        self._on_change()

    def _tell(self, directory: str, said: str) -> None:
        with self._lock:
            new = self._troubles[directory] != said
            self._troubles[directory] = said
        if new:
            self._on_change()

    def _wait(self, directory: str) -> None:
        """Until it is tried again; not so long when somebody wants it to stop."""
        until = time.monotonic() + AGAIN
        while time.monotonic() < until and not os.path.exists(os.path.join(directory, files.STOP)):
            if self._closing.wait(0.1):
                return

    def _end(self, directory: str, replicas: Sequence[str], state: str, reason: str) -> None:
        """A server before may have made objects: whoever is told of the end has them removed."""
        now = time.time()
        statuses = tuple(Status(name, state=STOPPED, reason=reason, finished=now) for name in replicas)
        try:
            write_json(os.path.join(directory, files.RESULT), Outcome(state, reason, statuses, finished=now).json())
        except OSError:
            with suppress(OSError):
                traceback.print_exc()
            self._closing.wait(AGAIN)
            return  # nobody is at it any more: it is submitted again
        self._on_end()
