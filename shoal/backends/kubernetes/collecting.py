"""What of a replica's outputs came as a whole. Hashing gigabytes takes a while, and nobody waits for it."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from shoal.backends.kubernetes.carried import Verdict, judge, size_of
from shoal.errors import ShoalError

AT_ONCE = 16 << 20  # bytes that are hashed while somebody waits
AGAIN = 2.0  # seconds until a disk that fails is read again


class Judging:
    """One thread for each try with large outputs. `judged` is called when there is something to know."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict | None] = {}  # the directory of a try -> what came
        self._lock = threading.Lock()

    def verdict(self, place: str, judged: Callable[[], None]) -> Verdict | None:
        """What came of the outputs of a try, all of whose files are here; None while that is looked at."""
        with self._lock:
            if place in self._verdicts:
                found = self._verdicts[place]
                if found is not None:
                    del self._verdicts[place]
                return found
            if size_of(place) > AT_ONCE:
                self._verdicts[place] = None
                threading.Thread(target=self._judge, args=(place, judged), name="judging", daemon=True).start()
                return None
        return judge(place)

    def _judge(self, place: str, judged: Callable[[], None]) -> None:
        found: Verdict | None = None
        try:
            found = judge(place)
        except (OSError, ShoalError):
            with suppress(OSError):
                traceback.print_exc()
            time.sleep(AGAIN)
        with self._lock:
            if found is None:
                del self._verdicts[place]
            else:
                self._verdicts[place] = found
        judged()
