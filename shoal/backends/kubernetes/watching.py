"""The pods of one namespace that are ours, as the cluster has them: one list, then one watch that goes on from there.

A pod that is deleted is kept as it was last seen, for as long as somebody needs it: how it ended stands there.

A watch that ends is begun anew where it was. One that cannot be begun was away, for how long nobody knows: then a list
comes first, and until it has come the cluster counts as unreachable. A connection that died without a word, as when a
laptop sleeps, looks alive for half a minute: whoever decides by the clock asks for a list from after that time
(`as_of`).
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shoal.backends.kubernetes.api import Api, Away, Expired, Stream
from shoal.errors import ShoalError

OURS = "app.kubernetes.io/managed-by=shoal"
AGAIN = 2.0  # seconds until a cluster that does not answer is asked again
WATCH = 300  # seconds that one watch is kept open

Object = dict[str, Any]
Key = tuple[str, str]
"""(uid of the experiment, attempt)"""


@dataclass(frozen=True)
class Seen:
    """A pod; `gone` when the cluster has it no more. `doomed`: when it was seen that somebody has deleted it."""

    pod: Object
    gone: bool = False
    doomed: float | None = None


class Pods:
    """`on_change` is told whose pod has changed, or nothing when that may be everybody's.

    `wanted` tells of which attempts the pods that are gone are kept.
    """

    def __init__(self, api: Api, on_change: Callable[[Key | None], None], wanted: Callable[[Key], bool]) -> None:
        self.api = api
        self.unreachable = ""  # why the cluster cannot be seen now
        self.listed = False  # what is here was true a moment ago, or at least before `unreachable`
        self.generation = 0  # of the connection by which it was listed (`Api.generation`)
        self._asked_at = 0.0  # when the last list was asked for
        self._on_change = on_change
        self._wanted = wanted
        self._version = ""  # from which the next watch goes on; none: a list has to come first
        self._seen: dict[Key, dict[str, Seen]] = {}  # of which attempt -> uid of the pod -> it
        self._lock = threading.Lock()
        self._needed = threading.Event()
        self._ending = threading.Event()
        self._again = False  # somebody needs a new list
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    def need(self, needed: bool) -> None:
        """Whether anybody looks at pods. A watch that nobody needs is not renewed."""
        if not needed:
            self._needed.clear()
            return
        self._needed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
            self._thread.start()

    def of(self, key: Key) -> list[Seen]:
        """The pods of an attempt, those that are gone too."""
        with self._lock:
            return list(self._seen.get(key, {}).values())

    def as_of(self, moment: float) -> bool:
        """Whether what is here was listed at that time or later. If not, it is listed again, and `on_change` tells."""
        if not self.listed or self.unreachable:
            return False
        if self._asked_at >= moment:
            return True
        self._again = True
        if self._stream is not None:
            self._stream.close()
        return False

    def forget(self, key: Key) -> None:
        """The attempt is over: its pods that are gone are needed no more."""
        with self._lock:
            left = {uid: seen for uid, seen in self._seen.pop(key, {}).items() if not seen.gone}
            if left:
                self._seen[key] = left

    def close(self) -> None:
        self._ending.set()
        self._needed.set()
        if self._stream is not None:
            self._stream.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            if not self._needed.is_set():
                self._version, self.listed = "", False
                self._needed.wait()
                continue
            try:
                if not self._version or self._again:
                    self._list()
                self._watch()
            except Expired:
                self._version = ""
            except ShoalError as error:
                self._lost(str(error).partition("\n")[0])
            except Exception as error:  # noqa: BLE001  whatever it is, the next look may be better
                with suppress(OSError):
                    traceback.print_exc()
                self._version = ""
                self._lost(f"{type(error).__name__}: {error}")

    def _list(self) -> None:
        self._again = False
        self.api.address()  # connected: from here on the generation tells whether that is another cluster by now
        generation, asked_at = self.api.generation, time.time()
        found, self._version = self.api.list("Pod", OURS)
        self.generation, self._asked_at = generation, asked_at
        self._replace(found)

    def _watch(self) -> None:
        """Takes note of changes until the watch ends."""
        stream = self._stream = self.api.watch("Pod", OURS, self._version, WATCH)
        try:
            if self._again:
                return  # asked for before there was a stream to close
            for line in stream.lines():
                event = self.api.event(line)
                if not self._ending.is_set():
                    self._take(event["type"], event["object"])
                self._version = event["object"]["metadata"].get("resourceVersion") or self._version
        except Away:
            pass  # broken off: the next watch tells whether anybody is there
        finally:
            stream.close()
            self._ending.wait(0.2)  # whoever ends each watch at once is not asked without pause

    def _replace(self, found: list[Object]) -> None:
        """A full list: what is not in it is gone."""
        now: dict[Key, dict[str, Seen]] = {}
        for pod in found:
            before = self._seen.get(key_of(pod), {}).get(pod["metadata"]["uid"])
            now.setdefault(key_of(pod), {})[pod["metadata"]["uid"]] = _next(before, pod)
        with self._lock:
            for key, pods in self._seen.items():
                for uid, seen in pods.items() if self._wanted(key) else ():
                    now.setdefault(key, {}).setdefault(uid, _next(seen, seen.pod, gone=True))
            self._seen = now
            self.listed = True
            self.unreachable = ""
        self._on_change(None)

    def _take(self, kind: str, pod: Object) -> None:
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return  # a bookmark
        key = key_of(pod)
        gone = kind == "DELETED"
        with self._lock:
            pods = self._seen.setdefault(key, {})
            pods[pod["metadata"]["uid"]] = _next(pods.get(pod["metadata"]["uid"]), pod, gone)
            if gone and not self._wanted(key):
                del pods[pod["metadata"]["uid"]]
            if not pods:
                del self._seen[key]
        self._on_change(key)

    def _lost(self, why: str) -> None:
        self._version = ""  # what has happened since is seen by a list only
        if why != self.unreachable:
            self.unreachable = why
            self._on_change(None)
        self._ending.wait(AGAIN)


def _next(before: Seen | None, pod: Object, gone: bool = False) -> Seen:
    doomed = gone or pod["metadata"].get("deletionTimestamp")
    return Seen(pod, gone, (before.doomed if before else None) or (time.time() if doomed else None))


def key_of(pod: Object) -> Key:
    labels = pod["metadata"].get("labels") or {}
    return labels.get("shoal/uid", ""), labels.get("shoal/attempt", "")
