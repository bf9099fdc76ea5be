"""Carries what a try writes to where the server can read it, as it grows, by (path, offset): nothing is lost, nothing
comes twice, whoever dies in between.

    SHOAL_SINK=directory:/shared/…   copies, for a disk that both sides see
    SHOAL_SINK=https://host:port/    to the server
    SHOAL_SINK=stdout:               lines on the launcher's own output, for a cluster that keeps that and nothing else
    SHOAL_SINK_TOKEN                 for the server: may write to this experiment, and nothing else
    SHOAL_SINK_CA                    a file of certificates to trust in place of the system's
    SHOAL_SINK_PATIENCE=300          seconds after the command's end in which a sink that is away is tried again
    SHOAL_SINK_OTHERWISE=stdout:     where the rest goes when that was not enough

Without SHOAL_SINK the files are at home. `python -m shoal.launcher.shipping TRY` carries what a launcher has left that
was killed; the same variables tell whereto.

`streams`, `log` and `files` only grow at their ends, and are carried as they do; exit.json comes last. A file comes
after those it speaks of: bytes of a log after their index and before the word that nothing follows, a stream after the
files it hands over. `outputs`, which lie in the try where no disk is shared, change as they like. They are carried when
they have not changed for a while, and once the command has ended; `manifest` tells which of them came as a whole, and
what stays behind.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, Set, Tuple

from shoal.launcher.manifest import MANIFEST, OUTPUTS, Begun, Outputs
from shoal.logformat import CLOSED, HEADER, RECORD, unpack_record

PIECE = 1 << 20  # bytes that are carried at once
SOON, IDLE = 0.5, 2.0  # seconds between looks while something comes, and while nothing does
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # before a sink that is away is tried again
PATIENCE = 300.0
AT_ONCE = 0.5  # seconds that outputs are carried for, while the command runs and others wait for their turn
EXIT = "exit.json"
TOO_LATE = "there was no time left"
OUTPUTS_IN_LOG = 1 << 20  # bytes of outputs that may become lines of text: nodes keep 10 MiB of what a container prints


class Away(Exception):
    """The sink cannot take anything now; later it may."""


class Refused(Exception):
    """The sink will never take this file."""


class Closed(Exception):
    """The sink will never take anything: the experiment is gone."""


class Behind(Exception):
    """The sink holds less of the file than was thought."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it holds {size} bytes")
        self.size = size


class Marks(NamedTuple):
    """What a sink holds: sizes of files; and what it has taken in and needs no more, up to a size if it knows one."""

    sizes: Mapping[str, int]
    taken: Mapping[str, Optional[int]]


class Sink(Protocol):
    """Where files go. Every call may raise Away or Closed."""

    def watermarks(self) -> Marks:
        """How much of each file is there."""

    def put(self, path: str, offset: int, data: bytes) -> int:
        """Adds to a file; its size then. Raises Behind when there is less than `offset`, Refused when it may not be."""

    def delete(self, path: str) -> None:
        """Forgets a file. Silent when there is none."""

    def close(self, sizes: Mapping[str, int]) -> None:
        """All that was carried; nothing follows."""


class Mirror:
    """Keeps a sink's copy of a directory up to date. It may be ended at any moment and begun anew."""

    def __init__(
        self,
        directory: str,
        sink: Sink,
        most_outputs: Optional[int] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most_outputs`: bytes of outputs that are carried; None: all."""
        self.directory = directory
        self.sink = sink
        self.clock = clock
        self.until: Optional[float] = None  # monotonic: what is large and not carried by then stays here
        self.refused: Dict[str, str] = {}  # path -> why
        self._outputs = Outputs(directory, most_outputs)
        self.carried = 0  # bytes
        self._held: Optional[Dict[str, int]] = None  # as far as known; None: the sink has to be asked
        self._last: Dict[str, int] = {}  # what it held when it was last heard of
        self._done: Set[str] = set()  # taken in by the sink

    def carry(self) -> bool:
        """Brings what there is now; whether there was anything. Raises Away, and goes on from there next time."""
        try:
            if self._held is None:
                self._ask()
            return self._carry()
        except Away:
            self._last = dict(self._held or self._last)
            self._held = None  # an answer may have been lost on its way
            raise

    def turn_to(self, sink: Sink) -> None:
        """What has not been brought goes to another sink, which takes small things only."""
        self.sink = sink
        self.until = None
        self._outputs.most = OUTPUTS_IN_LOG
        self._outputs.left.clear()
        self._held = dict(self._held or self._last)
        for path, size in _below(self.directory, "files").items():
            if size - self._held.get(path, 0) > OUTPUTS_IN_LOG and path not in self._done:
                self.refused[path] = "too large for a log"

    def close(self) -> None:
        self.sink.close(dict(self._held or {}))

    def _ask(self) -> None:
        try:
            marks = self.sink.watermarks()
        except Refused as error:
            raise Closed(str(error)) from None
        self._held = dict(marks.sizes)
        for path, size in marks.taken.items():
            if size is None or _size(os.path.join(self.directory, path)) <= size:
                self._done.add(path)

    def _carry(self) -> bool:
        before = self.carried
        waiting, sizes = snapshot(self.directory)
        over = EXIT in sizes
        for path, size in waiting:
            if path not in self._done and path not in self.refused and path != EXIT:
                self._bring(path, size)
        assert self._held is not None
        for path in [path for path in self._held if path.startswith("log/") and path not in sizes]:
            self._delete(path)  # the cap of the log took it
        self._carry_outputs(over)
        if over:
            self._outputs.tell_left(self.refused)
            self._bring_manifest()
            if EXIT not in self._done and EXIT not in self.refused:
                self._bring(EXIT, sizes[EXIT])
            self.refused.update(self._outputs.left)
        return self.carried > before

    def _carry_outputs(self, over: bool) -> None:
        """Those that are due. While the command runs, others wait for their turn: only for a moment."""
        assert self._held is not None
        began = self.clock()
        for path in self._outputs.gone(self._held) if self._outputs.looks(began, over) else ():
            self._delete(path)
            self._outputs.forget(path)
        due = self._outputs.due(began, over)
        if over and self._outputs.expect(due):
            self._bring_manifest()
        while due:
            path = due.pop(0)
            if not over and self.clock() > began + AT_ONCE:
                break
            brought = self._bring_output(path, None if over else began + AT_ONCE)
            if over and not brought and path not in self._outputs.left:
                due = self._outputs.due(self.clock(), over)  # it has changed, or is gone
        self._bring_manifest()

    def _bring_output(self, path: str, pause_at: Optional[float]) -> bool:
        """Whether all of it is there, and its sink knows."""
        assert self._held is not None
        if path in self._done:
            return True
        try:
            begun = self._outputs.begun(path)
            if begun is None:
                return False
            if path in self._held and (not begun.sent or self._held[path] < begun.at):
                self._delete(path)  # another file of that name, or less than was sent
                self._outputs.again(path)
                begun = self._outputs.begun(path)
            if begun is None or not self._send_output(path, begun, pause_at):
                return False
            return self._outputs.declare(path)
        except FileNotFoundError:
            return False
        except (Refused, ValueError, OSError) as error:  # the last: it cannot be read, now
            if pause_at is None or not isinstance(error, OSError):
                self._outputs.left[path] = getattr(error, "strerror", None) or str(error)
            return False

    def _send_output(self, path: str, begun: Begun, pause_at: Optional[float]) -> bool:
        """Whether it was sent to its end."""
        assert self._held is not None
        size = begun.signature.size
        with open(os.path.join(self.directory, path), "rb") as file:
            while begun.at < size or path not in self._held:
                if self.until is not None and self.clock() > self.until:
                    raise Refused(TOO_LATE)
                if pause_at is not None and self.clock() > pause_at:
                    return False
                file.seek(begun.at)
                held = self._held.get(path, 0)  # more than `at`, when an answer was lost
                data = file.read(min(PIECE, (held if held > begun.at else size) - begun.at))
                if not data and size:
                    return False  # cut off meanwhile
                if held <= begun.at:
                    begun.sent = True
                    try:
                        self._held[path] = self.sink.put(path, begun.at, data)
                    except Behind as told:
                        self._held[path] = told.size
                        raise Away(f"{path}: {told}, and had more") from None
                    self.carried += len(data)
                begun.digest.update(data)
                begun.at += len(data)
        return True

    def _bring_manifest(self) -> None:
        size = _size(os.path.join(self.directory, MANIFEST))
        if size and MANIFEST not in self._done:
            self._bring(MANIFEST, size)

    def _delete(self, path: str) -> None:
        assert self._held is not None
        try:
            self.sink.delete(path)
        except Refused as error:
            self.refused[path] = str(error)
        self._held.pop(path, None)

    def _bring(self, path: str, size: int) -> None:
        assert self._held is not None
        steps_back = 0
        try:
            with open(os.path.join(self.directory, path), "rb") as file:
                while self._held.get(path, 0 if size else -1) < size:
                    if path.startswith("files/") and self.until is not None and self.clock() > self.until:
                        raise Refused(TOO_LATE)
                    held = max(0, self._held.get(path, 0))
                    file.seek(held)
                    data = file.read(min(PIECE, size - held))
                    if not data and held < size:
                        return  # cut off meanwhile
                    try:
                        self._held[path] = self.sink.put(path, held, data)
                        self.carried += len(data)
                    except Behind as told:
                        steps_back += 1
                        if steps_back > 3:
                            raise Away(f"{path}: {told}, and then less") from None
                        self._held[path] = told.size
        except FileNotFoundError:
            return
        except (Refused, ValueError) as error:  # the second: a name that is no text
            self.refused[path] = str(error)


def snapshot(directory: str) -> Tuple[List[Tuple[str, int]], Dict[str, int]]:
    """Paths in the order in which they may be carried, each with how far; and all sizes. Outputs are not among them.

    Streams are measured first and carried last: the files that they hand over were there before. The same holds for
    bytes of a log and its index. Who reads a log while it comes must not think that bytes are lost: so a segment comes
    after the one before it, and the record that closes the log after all bytes.
    """
    over = [EXIT] if os.path.exists(os.path.join(directory, EXIT)) else []  # then nothing grows any more
    sizes = _below(directory, "streams")
    streams = sorted(sizes)
    log = _below(directory, "log")
    sizes.update({path: size for path, size in log.items() if not path.endswith(".index")})
    log = _below(directory, "log")
    sizes.update({path: size // RECORD.size * RECORD.size for path, size in log.items() if path.endswith(".index")})
    files = _below(directory, "files")
    sizes.update(files)
    for path in over:
        sizes[path] = _size(os.path.join(directory, path))
    logs: List[Tuple[str, int]] = []
    indexes = sorted(path for path in log if path in sizes and path.endswith(".index"))
    for path in sorted(path for path in sizes if path.startswith("log/") and path not in indexes):
        index = f"{path}.index"
        if index in sizes:
            logs.append((index, sizes[index] - _closing(os.path.join(directory, index), sizes[index])))
        logs.append((path, sizes[path]))
    rest = [*indexes, *sorted(files), *streams, *over]
    return [*logs, *((path, sizes[path]) for path in rest)], sizes


def _closing(path: str, size: int) -> int:
    """The bytes of the record that says that nothing follows; 0 when the index does not end with one."""
    if size < HEADER.size + RECORD.size:
        return 0
    try:
        with open(path, "rb") as file:
            file.seek(size - RECORD.size)
            data = file.read(RECORD.size)
    except FileNotFoundError:
        return 0
    return RECORD.size if len(data) == RECORD.size and unpack_record(data).flags & CLOSED else 0


def outputs(directory: str, most: Optional[int]) -> Tuple[Dict[str, int], Dict[str, int]]:
    """The outputs that are carried, and those that stay because they are too large: path -> size."""
    found = _below(directory, OUTPUTS)
    if most is None:
        return found, {}
    taken: Dict[str, int] = {}
    for path in sorted(found, key=lambda path: (found[path], path)):
        if found[path] <= most:
            taken[path] = found[path]
            most -= found[path]
    return taken, {path: size for path, size in found.items() if path not in taken}


def stays_behind(directory: str, env: Mapping[str, str]) -> str:
    """What the log of a replica says of outputs that its sink does not take; empty when it takes all."""
    left = outputs(directory, _most_outputs(env))[1]
    if not left:
        return ""
    first = sorted(left)[:3]
    names = ", ".join(path[len(OUTPUTS) + 1 :] for path in first) + (", …" if len(left) > len(first) else "")
    size = sum(left.values()) / 2**20
    return (
        f"shoal: {len(left)} outputs of {size:.1f} MiB stay behind ({names}): the log takes {OUTPUTS_IN_LOG >> 20} MiB;"
        " set outputs_claim, or a server as sink, in the settings of the cluster\n"
    )


def _below(directory: str, part: str) -> Dict[str, int]:
    """Relative path -> size of every plain file."""
    found: Dict[str, int] = {}
    for place, _, names in os.walk(os.path.join(directory, part)):
        for name in names:
            whole = os.path.join(place, name)
            if os.path.isfile(whole) and not os.path.islink(whole):
                found[os.path.relpath(whole, directory).replace(os.sep, "/")] = _size(whole)
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class Shipper:
    """A mirror with patience: it tries again, later and later, and gives up only after a deadline."""

    def __init__(self, mirror: Mirror, patience: float = PATIENCE, otherwise: Optional[Sink] = None) -> None:
        """`otherwise`: a sink that is always there, for the rest when the mirror's own is away for too long."""
        self.mirror = mirror
        self.patience = patience
        self.otherwise = otherwise
        self.deadline: Optional[float] = None  # monotonic; None while the command runs
        self.limited = False  # somebody ends us when the patience is over: it counts also while something is carried
        self.pause = SOON  # seconds until `carry` is due again
        self.trouble = ""  # why nothing goes, at the moment
        self._failures = 0
        self._closed = False

    def carry(self) -> bool:
        """Carries what is new; whether that was possible. Raises what cannot be mended, once."""
        if self._closed:
            return True
        try:
            self.pause = SOON if self.mirror.carry() else IDLE
        except Away as error:
            self._failures += 1
            self.trouble = str(error)
            self.pause = back_off(self._failures)
            return False
        except Closed:
            self._closed, self.pause = True, LONGEST_WAIT
            raise
        self._failures, self.trouble = 0, ""
        return True

    def finish(self) -> None:
        """Carries the rest. Raises Away when the deadline came first."""
        if self.deadline is None:
            self.deadline = time.monotonic() + self.patience
            if self.limited:
                self.mirror.until = self.deadline
        while not self.carry():
            left = self.deadline - time.monotonic()
            if left <= 0 and self.otherwise is None:
                raise Away(f"given up after {self.patience:g} s: {self.trouble}")
            if left <= 0 and self.otherwise is not None:
                self.mirror.turn_to(self.otherwise)
                self.otherwise = None
            else:
                self._sleep(min(self.pause, left))
        if not self._closed:
            self.mirror.close()
        if self.mirror.refused:
            raise Refused("; ".join(f"{path}: {why}" for path, why in sorted(self.mirror.refused.items())))

    def limit(self, seconds: float) -> None:
        """Somebody waits for the end: what is not carried by then stays here."""
        self.limited = True
        if self.deadline is None:
            self.patience = min(seconds, self.patience)
        else:
            self.deadline = min(self.deadline, time.monotonic() + seconds)
            self.mirror.until = self.deadline

    def _sleep(self, seconds: float) -> None:
        """In small steps: somebody may hurry."""
        until = time.monotonic() + seconds
        while self.deadline is not None and time.monotonic() < min(until, self.deadline):
            time.sleep(min(0.2, seconds))


def back_off(failures: int) -> float:
    """Seconds to wait: twice as long each time, up to half a minute, and not the same for all who wait."""
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 1, 10))
    return longest * (0.5 + os.urandom(1)[0] / 510)


def shipper(directory: str, env: Mapping[str, str]) -> Optional[Shipper]:
    """Who carries what the try writes, as its variables tell; None when it stays where it is."""
    where = env.get("SHOAL_SINK", "")
    if not where:
        return None
    patience = env.get("SHOAL_SINK_PATIENCE", "")
    mirror = Mirror(directory, sink_of(where, env), _most_outputs(env))
    otherwise = env.get("SHOAL_SINK_OTHERWISE", "")
    last = sink_of(otherwise, env) if otherwise and otherwise != where else None
    return Shipper(mirror, float(patience) if patience else PATIENCE, last)


def _most_outputs(env: Mapping[str, str]) -> Optional[int]:
    return OUTPUTS_IN_LOG if env.get("SHOAL_SINK", "") == "stdout:" else None


def sink_of(where: str, env: Mapping[str, str]) -> Sink:
    """The sink that SHOAL_SINK names; ValueError when it names none."""
    from shoal.launcher import sinks

    kind, _, rest = where.partition(":")
    if kind == "directory" and os.path.isabs(rest):
        attempt, replica, try_ = _place(env)
        return sinks.DirectorySink(os.path.join(rest, f"attempt-{attempt}", replica, f"try-{try_}"))
    if kind in ("http", "https"):
        uid = env.get("SHOAL_REPLICA_UID", "").partition("-")[0]
        place = "/".join((uid, *_place(env)))
        return sinks.HttpSink(where, place, env.get("SHOAL_SINK_TOKEN", ""), ca=env.get("SHOAL_SINK_CA", ""))
    if where == "stdout:":
        return sinks.StdoutSink(1, int(env.get("SHOAL_TRY") or 0))
    raise ValueError(f"SHOAL_SINK={where}: use directory:/path, https://host:port/ or stdout:")


def _place(env: Mapping[str, str]) -> Tuple[str, str, str]:
    """Which start of which replica this is: attempt, replica, try."""
    names = ("SHOAL_ATTEMPT", "SHOAL_REPLICA", "SHOAL_TRY")
    attempt, replica, try_ = (env.get(name, "") for name in names)
    if not (attempt.isdigit() and replica and try_.isdigit()):
        raise ValueError(f"{', '.join(names)} do not say which replica this is")
    return attempt, replica, try_


def main() -> int:
    """Carries a whole try to its sink, and waits for its exit.json for as long as it may."""
    if len(sys.argv) != 2:
        print("usage: python -m shoal.launcher.shipping TRY_DIRECTORY", file=sys.stderr)
        return 2
    found = shipper(sys.argv[1], os.environ)
    if found is None:
        print("SHOAL_SINK does not say whereto", file=sys.stderr)
        return 2
    while not os.path.exists(os.path.join(sys.argv[1], EXIT)):
        found.carry()
        time.sleep(found.pause)
    try:
        found.finish()
    except (Away, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
