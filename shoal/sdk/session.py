"""What one process records: a buffer that calls append to, and a thread that writes it to the process's stream.

A call costs one append to a deque. The thread wakes every quarter of a second, makes columns of what came and appends
them to the stream as one frame. A fork begins anew with a stream of its own; nothing is opened before somebody speaks.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, NoReturn, Optional, Tuple

from shoal import __version__, journal
from shoal.journalfile import JournalFile
from shoal.sdk import identity, place, stacks
from shoal.sdk.bell import Bell
from shoal.sdk.packages import installed
from shoal.sdk.place import Place
from shoal.sdk.points import Entry, Mark, Points, Said
from shoal.sdk.values import plain
from shoal.sdk.warning import warn

INTERVAL = 0.25
SYNC = 5.0  # seconds between two calls of fsync
CROWDED = 20_000  # calls in the buffer that wake the writer early, fewer when they are wide
CROWDED_POINTS = 1_000_000
MOST_CALLS = 500_000  # calls that may wait in the buffer, fewer when they are wide: 200 MB at most
MOST_POINTS = 4_000_000
CHUNK = 20_000
ROOM = 64 * 1024 * 1024  # bytes that wait for a disk that takes nothing
MOST_EVENT = 16 * 1024 * 1024
PATIENCE = 10.0  # seconds to wait for a writer that hangs in the disk, when the process ends
PROGRESS = 1.0  # seconds between two records of progress

buffer: Deque[Entry] = deque()
bell = Bell()


class State:
    """What the calls look at. `threshold` is compared with the length of the buffer: 0 asks for the careful way."""

    def __init__(self) -> None:
        self.off = os.environ.get("SHOAL_DISABLED", "") not in ("", "0", "false")
        self.disabled = self.off  # or by init(mode="disabled"), until the run is finished
        self.instead: Any = None  # after an init in the manner of wandb: its `log`
        self.threshold = 0
        self.crowded = CROWDED
        self.session: Optional[Session] = None
        self.exiting = False
        self.error = ""  # an exception that ends the process
        self.held: Dict[str, Any] = {}  # from log(…, commit=False)
        self.held_step: Optional[int] = None
        self.counts: Dict[str, int] = {}  # steps of media that were given none
        self.about: Dict[str, Any] = {}  # what `init` said of the run
        self.directory: Optional[str] = None
        self.run: Optional[str] = None  # outside Shoal: the run this process has a part in
        self.origin: Optional[str] = None  # in a fork: the process whose run it is
        self.runs = 0  # how many it has finished
        self.ended = False  # the last one is over; what is said now still belongs to it
        self.handed = 0  # how often content was handed over
        self.parent: Optional[str] = None  # the stream of the process that forked this one

    def adjust(self) -> None:
        """Calls take the short way while a thread writes and nobody else wants to see them."""
        threaded = self.session is not None and self.session.threaded
        self.threshold = self.crowded if threaded and not self.disabled and self.instead is None else 0


class Session:
    """The stream of this process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self.stream = secrets.token_hex(16)
        self.dropped = 0
        self._written = 0  # of them: what the stream tells
        self.started = time.time()
        self.wanted = False  # by `init`: it is recorded even if nothing is said
        self._lock = threading.Lock()  # of everything below
        self._owner: Optional[int] = None
        self._late: List[Any] = []  # to be done when the lock is free again
        self._place: Optional[Place] = None
        self._journal: Optional[JournalFile] = None
        self._points = Points()
        self._unsent: Deque[Tuple[int, bytes, int]] = deque()
        self._waiting = 0
        self._kept_back: List[Entry] = []
        self._progress: Optional[bytes] = None
        self._progress_at = self._synced = self._flushed = self._try_again = 0.0
        self._pause = INTERVAL
        self._told = False
        self._closed = self._woken = False
        self._thread: Optional[threading.Thread] = None

    # What calls use

    def event(self, kind: str, **data: Any) -> None:
        """Records an event as it is now: {kind, time, …}. Values that JSON cannot say are made plain."""
        if state.disabled:
            return
        now = time.time()
        body = json.dumps({"kind": kind, "time": now, **plain(data)}, separators=(",", ":")).encode("utf-8", "replace")
        if len(body) > MOST_EVENT:
            self.dropped += 1
            size, most = len(body) >> 20, MOST_EVENT >> 20
            warn(f"large {kind}", f"a {kind} of {size} MiB is not recorded; at most {most} MiB are")
            return
        self.append((now, None, Said(kind, body)))

    def append(self, entry: Entry) -> None:
        """Takes an entry, or counts it as dropped when too many wait."""
        if len(buffer) >= state.crowded and not self._has_room(entry):
            return
        buffer.append(entry)
        if self._thread is not None:
            return
        if state.exiting:  # nobody comes after this call who could write
            end("exception" if state.error else "exited", state.error)
        elif entry[0] - self._flushed >= INTERVAL:
            self.flush()  # no thread can be started: who calls writes

    def _has_room(self, entry: Entry) -> bool:
        if not self._woken:
            self._woken = True
            bell.ring()
        width = len(entry[2]) if type(entry[2]) is dict else 1
        if len(buffer) < MOST_CALLS and len(buffer) * width < MOST_POINTS:
            return True
        self.dropped += 1
        warn("dropped", "the script logs faster than can be written; calls are dropped and counted")
        return False

    def place(self) -> Place:
        """Where this process records; made when needed. Raises OSError."""
        found: List[Place] = []
        self._locked(lambda: found.append(self._settle()), PATIENCE)
        return found[0] if found else _hangs()

    def flush(self, patience: float = PATIENCE) -> bool:
        """Everything that was said before this call is in the file when it returns True."""
        return self._locked(self._flush, patience) and not self._unsent

    def finish(self, how: str, error: str = "", **more: Any) -> bool:
        """Writes everything and the last frame; the session is over."""

        def end() -> None:
            if self._closed:
                return
            self._flush(last=True)
            self._closed = True
            try:
                if not self._unsent and (self._journal is not None or self.wanted):
                    final = {"time": time.time(), "how": how, "error": error, "dropped": self.dropped, **more}
                    self._open().end(final)
                elif self._unsent:
                    warn("lost", f"{len(self._unsent)} blocks of records could not be written and are lost")
            except OSError:
                pass
            if self._journal is not None:
                self._journal.close()
            if self._place is not None:
                place.knock(self._place.home)
            bell.ring()

        return self._locked(end, PATIENCE)

    def later(self, action: Any) -> bool:
        """Does the action when the lock is free, if the calling thread itself holds it: then it is a signal handler."""
        if self._owner != threading.get_ident():
            return False
        self._late.append(action)
        return True

    def start(self) -> None:
        """Starts the thread, where that is still possible."""
        bell.open()
        if state.exiting:
            return
        thread = threading.Thread(target=self._work, name="shoal-writer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or there are too many
            return
        self._thread = thread

    def forget(self) -> None:
        """After a fork, in the child: the file is the parent's."""
        if self._journal is not None:
            self._journal.forget()

    @property
    def threaded(self) -> bool:
        return self._thread is not None

    @property
    def settled(self) -> Optional[Place]:
        return self._place

    # What happens under the lock

    def _locked(self, action: Any, patience: float) -> bool:
        me = threading.get_ident()
        if self._owner == me or not self._lock.acquire(timeout=patience):
            return False
        self._owner = me
        try:
            action()
        finally:
            self._owner = None
            self._lock.release()
        while self._late:
            self._late.pop(0)()
        return True

    def _work(self) -> None:
        while not self._closed:
            try:
                signals = bell.wait(INTERVAL)
                self._woken = False
                if signal.SIGTERM in signals:
                    ending().terminated(self)
                self._locked(self._turn, PATIENCE)
            except Exception as error:  # noqa: BLE001  training goes on, whatever is wrong here
                warn("writer", f"recording: {type(error).__name__}: {error}")
                time.sleep(INTERVAL)

    def _turn(self) -> None:
        if self._closed:
            return
        self._flush(forced=False)
        now = time.monotonic()
        if self._journal is not None and now - self._synced >= SYNC:
            self._synced = now
            try:
                self._journal.sync()
            except OSError:
                pass

    def _flush(self, last: bool = False, forced: bool = True) -> None:
        count = len(buffer)
        if last and state.held:
            buffer.append((time.time(), state.held_step, dict(state.held)))
            state.held, state.held_step = {}, None
            count += 1
        self._flushed = time.time()
        if not count and self._kept_back:
            self._fold([], last=True)
        while count > 0:
            size = min(count, CHUNK)
            count -= size
            self._fold_safely([buffer.popleft() for _ in range(size)], last=last and not count)
        now = time.monotonic()
        if self._progress is not None and (last or now - self._progress_at >= PROGRESS):
            self._put(journal.EVENT, self._progress, 0)
            self._progress, self._progress_at = None, now
        if (self._unsent or self.dropped != self._written) and (forced or now >= self._try_again):
            self._send()

    def _fold_safely(self, entries: List[Entry], last: bool) -> None:
        """What cannot be folded costs itself, and is counted."""
        try:
            self._fold(entries, last)
        except Exception as error:  # noqa: BLE001  values are whatever a user hands over
            self.dropped += len(entries)
            warn("fold", f"up to {len(entries)} calls cannot be recorded: {type(error).__name__}")

    def _fold(self, entries: List[Entry], last: bool) -> None:
        """Columns and events of the entries, in line to be sent."""
        if self._kept_back:
            entries = self._kept_back + entries
            self._kept_back = []
        if not last and type(entries[-1][2]) is Mark:
            self._kept_back = [entries.pop()]  # its `with` may be about to begin
        said = self._points.add(entries)
        if self._points.refused:
            self.dropped += self._points.refused
            self._points.refused = 0
            warn("names", "calls with names that cannot be compared are dropped and counted")
        crowded = max(100, min(CROWDED, CROWDED_POINTS // self._points.widest))
        if crowded != state.crowded:
            state.crowded = crowded
            state.adjust()
        for groups, calls in self._points.frames():
            self._put(journal.POINTS, journal.pack_points(groups), calls)
        for event in said:
            if event.kind == "progress":
                self._progress = event.body  # only the newest counts
            else:
                self._put(journal.EVENT, event.body, 1)

    def _put(self, kind: int, body: bytes, calls: int) -> None:
        if self._waiting + len(body) > ROOM and self._unsent:
            self.dropped += calls
            return
        self._unsent.append((kind, body, calls))
        self._waiting += len(body)

    def _send(self) -> None:
        try:
            stream = self._open()
            while self._unsent:
                kind, body, _ = self._unsent[0]
                stream.append(kind, body)
                self._unsent.popleft()
                self._waiting -= len(body)
            self._tell_dropped(stream)
        except OSError as error:
            self._pause = min(self._pause * 2, 5.0)
            self._try_again = time.monotonic() + self._pause
            where = error.filename or (self._place.directory if self._place else "the home")
            kept = f"up to {ROOM >> 20} MiB wait in memory"
            warn("disk", f"cannot write to {where}: {error.strerror or error}; {kept} and it is tried again")
            return
        self._pause = INTERVAL
        if not self._told:
            self._told = True
            self._introduce()

    def _tell_dropped(self, stream: JournalFile) -> None:
        """How many calls were dropped until now: the last frame tells it too, but nobody is sure to write that one."""
        calls = self.dropped
        if calls != self._written:
            stream.event({"kind": "dropped", "time": time.time(), "calls": calls})
            self._written = calls

    def _introduce(self) -> None:
        """After the first frames: the server is told, and what is installed here is recorded."""
        settled = self._settle()
        place.knock(settled.home)
        if settled.identity.process == 0 and state.origin is None and not state.exiting:
            data = {"kind": "host", "time": time.time(), **installed()}
            self._put(journal.EVENT, json.dumps(data).encode("utf-8", "replace"), 0)
            self._send()

    def _settle(self) -> Place:
        if self._place is None:
            known = {"directory": state.directory, "run": state.run, "origin": state.origin}
            self._place = place.settle(state.about, number=state.runs, **known)
            state.run = self._place.run or None
            place.invite(self.stream, self._place.run)
            stacks.register(self._place.directory)
        return self._place

    def _open(self) -> JournalFile:
        if self._journal is None:
            settled = self._settle()
            header: Mapping[str, Any] = {
                "stream": self.stream,
                "experiment": settled.identity.experiment,
                **({"key": settled.key} if settled.key else {}),
                **identity.header(settled.identity),
                "started": self.started,
                "kind": "metric",
                "parent": state.parent,
                "sdk": __version__,
            }
            self._journal = JournalFile(settled.streams, header)
            self._journal.stream = self.stream  # known before there was a place: to forks and to staged files
        return self._journal


def _hangs() -> NoReturn:
    raise OSError("the writer hangs, and is not waited for any longer")


state = State()
_beginning = threading.Lock()


def current() -> Session:
    """The session of this process, begun when there is none. Touches no disk."""
    session = state.session
    if session is not None:
        return session
    with _beginning:
        if state.session is None:
            if state.parent is None and not state.ended:
                state.parent, state.run = place.invitation()
            session = Session()
            place.invite(session.stream, state.run or "")
            session.start()
            state.session = session
            state.adjust()
            ending().watch()
        return state.session


def lost(calls: int) -> None:
    """Counts what could not be taken; shown with the experiment, also when nothing else was said."""
    try:
        current().dropped += calls
    except Exception:  # noqa: BLE001  a session that cannot begin stops no training
        pass


def ending() -> Any:
    """The module that sees to the end of the process; it needs this one."""
    from shoal.sdk import ending

    return ending


def end(how: str, error: str = "", **more: Any) -> None:
    """Finishes the session, if there is one. What is said later begins another one."""
    session = state.session
    if session is None and (buffer or state.held):
        session = current()
    if session is not None:
        session.finish(how, error, **more)
        state.session, state.ended = None, True
        state.counts.clear()
    state.disabled, state.instead = state.off, None
    state.adjust()
    if "shoal.sdk.wandb" in sys.modules:
        sys.modules["shoal.sdk.wandb"].forget()


def begin_anew() -> None:
    """In the child of a fork: nothing of the parent's is ours, and nothing is open."""
    global _beginning, bell
    _beginning = threading.Lock()
    bell.close()
    bell = Bell()
    buffer.clear()
    state.held, state.held_step = {}, None
    state.counts.clear()
    session, state.session, state.threshold = state.session, None, 0
    if session is not None:
        session.forget()
        state.parent = session.stream
        state.origin = state.origin or identity.name_process(os.getppid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_anew)
