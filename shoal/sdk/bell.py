"""What wakes the writer before its time: a pipe, which a signal can ring while the main thread is busy in C code."""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import Optional, Tuple


class Bell:
    """Rung from any thread, and by signals once it listens to them; whoever waits wakes."""

    def __init__(self) -> None:
        self._event: Optional[threading.Event] = None
        self._pipe: Optional[Tuple[int, int]] = None
        self._listens = False

    def open(self) -> None:
        """Makes it ready; before, nobody hears it. It takes no descriptors until then."""
        if self._pipe is not None or self._event is not None:
            return
        try:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._poll()
        except (OSError, AttributeError):  # no descriptors left, or a system without poll
            self._event, self._pipe = threading.Event(), None

    def ring(self) -> None:
        if self._event is not None:
            self._event.set()
        elif self._pipe is not None:
            try:
                os.write(self._pipe[1], b"\0")
            except OSError:  # full: it is rung already
                pass

    def wait(self, seconds: float) -> bytes:
        """Waits until it rings or the time is over. The numbers of signals that came, among zeros."""
        if self._event is not None:
            self._event.wait(seconds)
            self._event.clear()
            return b""
        if self._pipe is None or not self._poll().poll(seconds * 1000):
            return b""
        try:
            return os.read(self._pipe[0], 4096)
        except OSError:
            return b""

    def _poll(self) -> select.poll:
        """A new one for each wait: the threads of two sessions may wait for a moment."""
        poll = select.poll()
        poll.register(self._pipe[0] if self._pipe is not None else -1, select.POLLIN)
        return poll

    def listen(self) -> bool:
        """Signals with a Python handler ring it from now on; False where another listens. In the main thread only."""
        if self._pipe is None or self._listens:
            return self._listens
        before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            return False
        self._listens = True
        return True

    def close(self) -> None:
        """After a fork: the pipe is the parent's."""
        if self._pipe is None:
            return
        if self._listens:
            before = signal.set_wakeup_fd(-1)
            if before not in (-1, self._pipe[1]):
                signal.set_wakeup_fd(before)
        for end in self._pipe:
            os.close(end)
        self._pipe = None
