"""Where a try's files go: a directory, the server, or lines of text.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import quote, unquote, urlsplit

from shoal.launcher.shipping import EXIT, PIECE, Away, Behind, Closed, Marks, Refused

TIMEOUT = 30.0  # seconds for one answer of a server
MARKER = "#shoal1"  # and `#shoal1-2` for the third try: several may run in one pod
LINE = 8 * 1024  # bytes: clusters tear longer lines apart
ANSWER = 16 << 20  # bytes of one answer that are read


class DirectorySink:
    """Copies into a directory that somebody else reads."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def watermarks(self) -> Marks:
        sizes: Dict[str, int] = {}
        for place, _, names in os.walk(self.directory):
            for name in names:
                whole = os.path.join(place, name)
                if not name.endswith(".new"):
                    sizes[os.path.relpath(whole, self.directory).replace(os.sep, "/")] = os.stat(whole).st_size
        return Marks(sizes, {})

    def put(self, path: str, offset: int, data: bytes) -> int:
        target = os.path.join(self.directory, path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            return _replace(target, data) if path == EXIT else _append(target, offset, data)
        except OSError as error:
            raise Away(f"{target}: {error.strerror}") from None

    def delete(self, path: str) -> None:
        try:
            os.unlink(os.path.join(self.directory, path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise Away(f"{path}: {error.strerror}") from None

    def close(self, sizes: Mapping[str, int]) -> None:
        return


def _append(target: str, offset: int, data: bytes) -> int:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if offset > size:
            raise Behind(size)
        place = offset
        while data:
            written = os.pwrite(descriptor, data, place)
            data, place = data[written:], place + written
        return max(size, place)
    finally:
        os.close(descriptor)


def _replace(target: str, data: bytes) -> int:
    """Whole or not at all: whoever waits for this file reads it at once."""
    with open(target + ".new", "wb") as file:
        file.write(data)
    os.replace(target + ".new", target)
    return len(data)


class HttpSink:
    """The server, over one connection that is made again when it breaks."""

    def __init__(self, url: str, place: str, token: str, *, ca: str = "", context: Any = None) -> None:
        """`place` is `<uid>/<attempt>/<replica>/<try>`; `context` an SSL context in place of one made from `ca`."""
        self._url = urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"{url}: not the address of a server; for example https://host:port/")
        self._base = f"{self._url.path.rstrip('/')}/api/ingest/{quote(place)}"
        self._token = token
        self._ca = ca
        self._context = context
        self._connection: Any = None
        self._to_say_goodbye = False

    def watermarks(self) -> Marks:
        found = self._ask("GET", "")
        try:
            return Marks(dict(found["sizes"]), dict(found["taken"]))
        except (KeyError, TypeError, ValueError):
            raise Away("what answers there is not Shoal") from None

    def put(self, path: str, offset: int, data: bytes) -> int:
        self._to_say_goodbye = True
        found = self._ask("PUT", f"/{quote(path)}?offset={offset}", zlib.compress(data, 1))
        size = found.get("size")
        if not isinstance(size, int):
            raise Away("what answers there is not Shoal")
        return size

    def delete(self, path: str) -> None:
        self._ask("DELETE", f"/{quote(path)}")

    def close(self, sizes: Mapping[str, int]) -> None:
        if self._to_say_goodbye:
            try:
                self._ask("POST", "")
            except (Away, Closed, Refused):
                pass  # everything is there; the server only waits a little for more
        self._hang_up()

    def pieces(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """What the server keeps under a path, from a byte on. Raises as the others do; Away also when it breaks off."""
        import http.client

        try:
            connection = self._connected()
            target = f"{self._base}/{quote(path)}" + (f"?offset={offset}" if offset else "")
            connection.request("GET", target, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            if answer.status != 200:
                content = answer.read(ANSWER)
                self._hang_up()
                _judged(int(answer.status), content)
                raise Away(f"{answer.status}: no answer to be understood")
            missing = int(answer.headers["Content-Length"])
            while missing:
                piece = answer.read(min(PIECE, missing))
                if not piece:
                    raise OSError("the connection broke")
                missing -= len(piece)
                yield piece
        except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
            self._hang_up()
            raise Away(f"{self._url.hostname}: {type(error).__name__}: {error}") from None

    def _ask(self, method: str, path: str, body: Optional[bytes] = None) -> Dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Encoding"] = "deflate"
            headers["Content-Type"] = "application/octet-stream"
        import http.client

        try:
            connection = self._connected()
            connection.request(method, self._base + path, body, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER)
            status = int(answer.status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._hang_up()
            raise Away(f"{self._url.hostname}: {type(error).__name__}: {error}") from None
        if status >= 400:
            self._hang_up()  # what was sent may not have been read to its end
        return _judged(status, content)

    def _connected(self) -> Any:
        if self._connection is None:
            import http.client

            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "http":
                self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
            else:
                self._connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=self._trust())
        return self._connection

    def _trust(self) -> Any:
        if self._context is None:
            import ssl

            self._context = ssl.create_default_context(cafile=self._ca or None)
        return self._context

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _judged(status: int, content: bytes) -> Dict[str, Any]:
    """What an answer means."""
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        found = {}
    told = found if isinstance(found, dict) else {}
    if status < 300:
        return told
    what = f"{status}: {str(told.get('what') or 'no reason given')[:500]}"
    if status == 409 and isinstance(told.get("size"), int):
        raise Behind(told["size"])
    if status == 404 and told.get("what"):
        raise Closed(what)
    if status in (409, 413, 422):
        raise Refused(what)
    raise Away(what)  # a wrong token too: the server may be put right while the command runs


class StdoutSink:
    """Lines of text among others, which `decode` makes into files again.

        #shoal1 log/000000 65536 8d3fa1c2 eJyrVspIzcnJVy…     path, offset, CRC-32, base64 of zlib
        #shoal1 log/000003 gone 1b2e9a70                       deleted
        #shoal1 . sizes 77ab0c12 eJyrVs…                       at the end: what there must be, as JSON
        #shoal1 . end 6f1c44e0                                 nothing follows

    Nobody answers, so a launcher that starts anew begins at the first byte again; whoever decodes has both.
    """

    def __init__(self, descriptor: int, try_: int = 0) -> None:
        self._descriptor = descriptor
        self._marker = marker(try_)
        self._held: Dict[str, int] = {}
        self._fits = LINE  # bytes of data that fitted into a line last

    def watermarks(self) -> Marks:
        return Marks(dict(self._held), {})

    def put(self, path: str, offset: int, data: bytes) -> int:
        rest = data
        place = offset
        while True:
            line, used = self._line(path, place, rest)
            self._write(line)
            rest, place = rest[used:], place + used
            self._held[path] = place
            if not rest:
                return place

    def delete(self, path: str) -> None:
        self._write(self._encoded(path, "gone", b""))
        self._held.pop(path, None)

    def close(self, sizes: Mapping[str, int]) -> None:
        names = sorted(sizes)
        for start in range(0, len(names), 50):
            content = json.dumps({name: sizes[name] for name in names[start : start + 50]}).encode()
            self._write(self._encoded(".", "sizes", content))
        self._write(self._encoded(".", "end", b""))

    def _line(self, path: str, offset: int, data: bytes) -> Tuple[bytes, int]:
        """A line for the beginning of the data, and how many bytes that is; as many as the last lines let hope for."""
        used = min(len(data), max(LINE // 2, self._fits * 5 // 4))
        line = self._encoded(path, str(offset), data[:used])
        while len(line) > LINE:
            used = used * LINE // len(line) * 15 // 16
            line = self._encoded(path, str(offset), data[:used])
        if used < len(data) or used > self._fits:
            self._fits = used
        return line, used

    def _encoded(self, path: str, offset: str, data: bytes) -> bytes:
        name = quote(path)
        crc = zlib.crc32(data, zlib.crc32(f"{name} {offset} ".encode()))
        packed = base64.b64encode(zlib.compress(data)).decode() if data else ""
        # The line before may have no end: whatever printed it is not ours.
        return f"\n{self._marker} {name} {offset} {crc:08x} {packed}\n".encode()

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            raise Away(f"standard output: {error.strerror}") from None


def marker(try_: int) -> str:
    return f"{MARKER}-{try_}" if try_ else MARKER


class Gap(NamedTuple):
    """Bytes of a file that did not come through."""

    path: str
    start: int
    end: int


class Decoded(NamedTuple):
    """What lines of text held for us."""

    files: List[str]  # paths below the directory, in the order in which they came
    gaps: List[Gap]
    torn: int  # lines that were ours and could not be read
    complete: bool  # the end was seen: gaps at the ends of files are known as well


_FRAME = re.compile(r"(\S+) (\d+|gone|sizes|end) ([0-9a-f]{8}) ?([A-Za-z0-9+/=]*)\s*$")
_SAFE = re.compile(r"(streams|log|files|outputs)(/[^/\0]+)+|exit\.json|manifest\.jsonl")


def decode(lines: Iterable[str], directory: str, try_: int = 0) -> Decoded:
    """Builds the files again, in `directory`, from lines that have anything else between them. Holes are zeros."""
    decoder = Decoder(directory, try_=try_)
    for line in lines:
        decoder.feed(line)
    return decoder.found()


class Decoder:
    """Builds files again from lines. It may be fed the same lines any number of times, from anywhere on.

    `holes` are the bytes that have not come, of files that were begun before as well; `on_hole` is called before a file
    gets one, so that whoever keeps them knows of it first. Lines of other tries are passed over.
    """

    def __init__(
        self,
        directory: str,
        holes: Optional[Mapping[str, Iterable[Tuple[int, int]]]] = None,
        on_hole: Callable[[], None] = lambda: None,
        try_: int = 0,
    ) -> None:
        self.directory = directory
        self.holes: Dict[str, List[Tuple[int, int]]] = {path: list(parts) for path, parts in (holes or {}).items()}
        self.torn = 0  # lines that were ours and could not be read
        self.complete = False  # the end was seen
        self.over = False  # after this line comes nothing, though whoever printed it may stay
        self._on_hole = on_hole
        self._marker = marker(try_) + " "
        self._sizes: Dict[str, int] = {}
        self._expected: Dict[str, int] = {}

    def feed(self, line: str) -> None:
        self.over = False
        start = line.rfind(self._marker)
        if start < 0:
            return
        frame = _decoded(line[start + len(self._marker) :])
        if frame is None:
            self.torn += 1
            return
        path, offset, data = frame
        if offset == "sizes":
            self.complete = True
            self._expected.update(json.loads(data))
        elif offset == "end":
            self.over = True
        elif not _SAFE.fullmatch(path) or ".." in path.split("/"):
            self.torn += 1
        elif offset == "gone":
            self._sizes.pop(path, None)
            self.holes.pop(path, None)
            _forget(os.path.join(self.directory, path))
        else:
            self._place(path, int(offset), data)

    def found(self) -> Decoded:
        gaps = []
        for path in {**self._sizes, **self._expected, **self.holes}:
            size, expected = self._size(path), self._expected.get(path, 0)
            missing = [*self.holes.get(path, ()), *([(size, expected)] if expected > size else [])]
            gaps += [Gap(path, start, end) for start, end in missing]
        return Decoded(list(self._sizes), gaps, self.torn, self.complete)

    def _place(self, path: str, offset: int, data: bytes) -> None:
        target = os.path.join(self.directory, path)
        size = self._size(path)
        if offset > size:
            self.holes.setdefault(path, []).append((size, offset))
            self._on_hole()
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if path == EXIT and offset == 0:
            self._sizes[path] = _replace(target, data)
            return
        _place_at(target, offset, data)
        self._sizes[path] = max(size, offset + len(data))
        if path in self.holes:
            left = [part for hole in self.holes[path] for part in _without(hole, offset, offset + len(data))]
            self.holes[path] = left
            if not left:
                del self.holes[path]

    def _size(self, path: str) -> int:
        if path not in self._sizes:
            try:
                return os.stat(os.path.join(self.directory, path)).st_size
            except OSError:
                return 0
        return self._sizes[path]


def _without(hole: Tuple[int, int], start: int, end: int) -> List[Tuple[int, int]]:
    """What is left of a hole when a part of it has come."""
    parts = [(hole[0], min(hole[1], start)), (max(hole[0], end), hole[1])]
    return [part for part in parts if part[0] < part[1]]


def _decoded(text: str) -> Optional[Tuple[str, str, bytes]]:
    match = _FRAME.match(text)
    if match is None:
        return None
    name, offset, crc, packed = match.groups()
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), PIECE) if packed else b""
    except (ValueError, zlib.error):
        return None
    whole = zlib.crc32(data, zlib.crc32(f"{name} {offset} ".encode())) == int(crc, 16)
    return (unquote(name), offset, data) if whole else None


def _place_at(target: str, offset: int, data: bytes) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(descriptor)


def _forget(target: str) -> None:
    try:
        os.unlink(target)
    except FileNotFoundError:
        return
