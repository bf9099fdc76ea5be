"""What launchers far from the home send: pieces of files, each put exactly where it belongs.

A token of one experiment writes here and nowhere else (`trust.write_token`). A piece that is known is passed over, one
that leaves a hole is refused with the size that is held, so a launcher may send again whatever it is not sure of.

When an attempt is over, its token can still add what is missing, and change nothing: a launcher that was cut off while
its experiment ended without it, its node lost, say, holds the only copy of the rest, and whoever brings that is no
danger to what is here already. So pieces are taken; logs are not cut, outputs not taken back, and the exit.json that
came first stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from shoal.backends.kubernetes import carried
from shoal.backends.local.files import RESULT
from shoal.engine import arriving
from shoal.errors import UsageError
from shoal.launcher.manifest import OUTPUTS
from shoal.launcher.replica import write_json, wrong_ending
from shoal.server import types
from shoal.states import FINAL
from shoal.store import experiments as store
from shoal.store import streams

if TYPE_CHECKING:
    from shoal.server.context import Server

MOST = 8 << 20  # bytes of one piece
MIB, GIB = 1 << 20, 1 << 30
ALLOWED = (  # paths below a try, and how large each file may become
    (re.compile(r"streams/[0-9a-f]{8,64}\.\d{6}"), 96 * MIB),
    (re.compile(r"log/\d{6,9}"), 64 * MIB),
    (re.compile(r"log/\d{6,9}\.index"), 256 * MIB),
    (re.compile(r"(files|outputs)(/[^/\0-\x1f\x7f]{1,255}){1,32}"), 256 * GIB),
    (re.compile(r"manifest\.jsonl"), 64 * MIB),
    (re.compile(r"exit\.json"), MIB),
)
REPLICA = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
EXIT, OUTSIDE = "exit.json", "outside.json"
RECEIVED = "received"  # beside them: names of staged files that came; what is named there and gone was taken in
_collecting = threading.Lock()
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Size(BaseModel):
    """How much of a file the server holds."""

    size: int = Field(description="Bytes.")


class Behind(types.ErrorBody):
    """The piece does not join what is held."""

    size: int = Field(description="Bytes that are held: go on from there.")


class Watermarks(BaseModel):
    """What the server has of one try."""

    sizes: dict[str, int] = Field(description="Bytes of each file that is held.")
    taken: dict[str, int | None] = Field(
        description="Files that have been taken in and are not needed again, up to this size; null: whatever its size."
    )


class OutsideRun(BaseModel):
    """A run that Shoal did not start."""

    about: dict[str, Any] = Field(description="The content of its outside.json.")


class Adopted(BaseModel):
    """The experiment it has become."""

    id: str = Field(description="Its short id.")
    uid: str = Field(description="Its uid, under which files are sent.")


Uid = Annotated[str, InPath(description="The uid of an experiment.", max_length=64)]
Attempt = Annotated[int, InPath(description="The attempt.", ge=0, le=2**31 - 1)]
Name = Annotated[str, InPath(description="The replica: `worker-1`.", pattern=f"^{REPLICA}$")]
Try = Annotated[int, InPath(alias="try", description="The try of the replica within the attempt.", ge=0, le=2**31 - 1)]
InTry = Annotated[
    str,
    InPath(
        description="A file of the try: `streams/…`, `log/…`, `files/…`, `outputs/…` or `exit.json`.", max_length=4096
    ),
]
BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}
OF_A_TRY = "/api/ingest/{uid}/{attempt}/{replica}/{try}"


def add_routes(app: FastAPI, server: Server) -> None:
    @app.get(OF_A_TRY, response_model=Watermarks, tags=["ingest"])
    def watermarks(uid: Uid, attempt: Attempt, replica: Name, try_: Try) -> Any:
        """How much the server has of each file of a try."""
        row = experiment_of(server, uid)
        _check_planned(row, attempt, replica)
        place = _try_directory(server, row, attempt, replica, try_)
        with server.database.read() as connection:
            mine = [
                stream
                for stream in streams.streams_of(connection, uid)
                if (stream["attempt"], stream["replica"], stream["try"]) == (attempt, replica, try_)
            ]
        sizes = dict(_sizes(place))
        known = {**_read_streams(mine), **_came(place), **dict.fromkeys(carried.published(str(place)))}
        taken = {path: size for path, size in known.items() if path not in sizes}
        return {"sizes": sizes, "taken": taken}

    @app.put(
        OF_A_TRY + "/{path:path}",
        response_model=Size,
        responses={409: {"model": Behind, "description": "It does not join what is held"}},
        openapi_extra=BODY,
        tags=["ingest"],
    )
    async def put(
        request: Request,
        uid: Uid,
        attempt: Attempt,
        replica: Name,
        try_: Try,
        path: InTry,
        offset: Annotated[int, Query(description="Where in the file the piece begins.", ge=0, le=2**53)],
    ) -> Any:
        """Add a piece to a file of a try. `Content-Encoding: deflate` is understood."""
        data = await _piece(request)

        def keep() -> int:
            row = experiment_of(server, uid)
            _check(path, offset + len(data))
            _check_planned(row, attempt, replica)
            place = _try_directory(server, row, attempt, replica, try_)
            if path == EXIT:
                size = _replace(place, data, over=_is_over(row, attempt, place))
                arriving.end(place)
                return size
            if path.startswith("streams/"):
                server.ingest.expect(row["uid"], place)
            return _append(place, path, offset, data)

        size = await run_in_threadpool(keep)
        if size < offset:
            told: dict[str, Any] = {"what": f"{path}: a piece at {offset} leaves a hole", "where": None, "problems": []}
            return JSONResponse({**told, "hint": f"send from {size} on", "size": size}, 409)
        server.ingest.wake()
        if path.startswith("files/"):
            server.keeper.wake()
        return {"size": size}

    @app.post(OF_A_TRY, status_code=204, tags=["ingest"])
    def brought(uid: Uid, attempt: Attempt, replica: Name, try_: Try) -> Response:
        """Nothing more of this try is on its way now: what its streams lack is lost, if their process is gone."""
        row = experiment_of(server, uid)
        _check_planned(row, attempt, replica)
        place = _try_directory(server, row, attempt, replica, try_)
        arriving.end(place)
        if _is_over(row, attempt, place):  # nobody else looks for outputs that come so late
            with _collecting:
                found = carried.judge(str(place), again=True)
                carried.collect(str(place), str(server.directory(row) / OUTPUTS), replica, found.whole, late=True)
        server.ingest.wake()
        return Response(status_code=204)

    @app.delete(
        OF_A_TRY + "/{path:path}",
        status_code=204,
        responses={409: {"model": types.ErrorBody, "description": "The attempt is over"}},
        tags=["ingest"],
    )
    def delete(uid: Uid, attempt: Attempt, replica: Name, try_: Try, path: InTry) -> Response:
        """Forget a file whose launcher has it no more, or has another: a segment of a log, an output."""
        from shoal.server.context import Conflict

        row = experiment_of(server, uid)
        _check(path, 0)
        _check_planned(row, attempt, replica)
        if not path.startswith(("log/", "outputs/")):
            raise UsageError(f"{path[:80]}: only logs and outputs can be deleted", hint="for example log/000007")
        place = _try_directory(server, row, attempt, replica, try_)
        if _is_over(row, attempt, place):
            raise Conflict(f"attempt {attempt} of {row['id']} is over", hint="what is missing can still be added")
        parent, _, name = path.rpartition("/")
        with suppress(FileNotFoundError), _opened(place, parent) as directory:
            os.unlink(name, dir_fd=directory)
        return Response(status_code=204)

    @app.post("/api/outside", response_model=Adopted, tags=["ingest"])
    def adopt(run: OutsideRun) -> Any:
        """Take up a run that Shoal did not start. The same key is the same experiment; what it wrote so far is read."""
        row = server.ingest.adopt(run.about)
        place = server.directory(row)
        if not (place / OUTSIDE).exists():
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(place / OUTSIDE), run.about)
        server.ingest.catch_up(row["uid"])
        return {"id": row["id"], "uid": row["uid"]}


def experiment_of(server: Server, uid: str) -> store.Row:
    """By its uid only: a write token is good for that very word."""
    from shoal.server.context import Missing

    with server.database.read() as connection:
        row = store.find(connection, uid)
    if row is None or row["uid"] != uid:
        raise Missing(f"there is no experiment with the uid {uid[:80]!r}", hint="was it removed?")
    return row


def _check_planned(row: store.Row, attempt: int, replica: str) -> None:
    """A token can write for replicas that its experiment has, and for no others."""
    if row["origin"] != "run":
        return
    names = [entry["replica"] for entry in row["plan"]["replicas"]]
    if replica not in names or attempt > row["attempt"]:
        hint = f"attempts 0 to {row['attempt']} of {', '.join(names[:8])}{' …' if len(names) > 8 else ''}"
        raise UsageError(f"{row['id']} has no attempt {attempt} of {replica}", hint=hint)


def _is_over(row: store.Row, attempt: int, place: Path) -> bool:
    """Whether it is known how the attempt ended: then nothing changes that is here."""
    if row["origin"] != "run":
        return False  # whoever has the files says how a run outside Shoal went
    return row["state"] in FINAL or attempt < row["attempt"] or (place.parents[1] / RESULT).exists()


def _check(path: str, size: int) -> None:
    for pattern, most in ALLOWED:
        if pattern.fullmatch(path) and not {".", ".."} & set(path.split("/")) and len(path.encode()) <= 4096:
            if size > most:
                raise UsageError(f"{path}: {size} bytes are too many", hint=f"{most} at most")
            return
    raise UsageError(f"{path[:80]!r} is no file of a try", hint="streams/…, log/…, files/…, outputs/… or exit.json")


async def _piece(request: Request) -> bytes:
    """The body, unpacked, and never more of it than may be."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST:
            raise UsageError("the piece is too large", hint=f"send {MOST} bytes at most")
    encoding = request.headers.get("content-encoding", "")
    if encoding in ("", "identity"):
        return bytes(body)
    if encoding != "deflate":
        raise UsageError(f"content-encoding {encoding[:80]!r} is not known", hint="deflate, or none")
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(bytes(body), MOST + 1)
    except zlib.error:
        raise UsageError("the piece cannot be unpacked", hint="deflate means the format of zlib") from None
    if len(data) > MOST or not unpacker.eof:
        raise UsageError("the piece is too large, or not whole", hint=f"send {MOST} bytes at most")
    return data


def _try_directory(server: Server, row: store.Row, attempt: int, replica: str, try_: int) -> Path:
    return server.directory(row) / f"attempt-{attempt}" / replica / f"try-{try_}"


def _append(place: Path, path: str, offset: int, data: bytes) -> int:
    """The size of the file then; less than `offset` when the piece does not join it."""
    parent, _, name = path.rpartition("/")
    with _opened(place, parent, make=True) as directory:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if offset else os.O_CREAT)
        try:
            file = os.open(name, flags, 0o600, dir_fd=directory)
        except FileNotFoundError:
            return 0
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # a request that its sender gave up may still be at work
            size = os.fstat(file).st_size
            if offset > size:
                return size
            if not size and path.startswith("files/"):
                _note(place, path)
            rest = memoryview(data)[size - offset :]
            while rest:
                written = os.pwrite(file, rest, size)
                rest, size = rest[written:], size + written
            return size
        finally:
            os.close(file)


def _replace(place: Path, data: bytes, *, over: bool = False) -> int:
    """exit.json at once: whoever waits for it reads it then."""
    from shoal.server.context import Conflict

    try:
        value = json.loads(data)
    except ValueError:
        value = None
    wrong = wrong_ending(value)
    if wrong:
        raise UsageError(f"exit.json: {wrong}", hint="it is sent whole, as a launcher writes it")
    if over and (place / EXIT).exists():
        if (place / EXIT).read_bytes() == data:
            return len(data)
        raise Conflict("exit.json: the attempt is over, and there is another one", hint="the first one counts")
    with _opened(place, "", make=True) as directory:
        temporary = f"{EXIT}.{os.urandom(6).hex()}.new"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            with os.fdopen(file, "wb") as target:
                target.write(data)
            os.replace(temporary, EXIT, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            os.unlink(temporary, dir_fd=directory)
            raise
    return len(data)


@contextmanager
def _opened(place: Path, below: str, *, make: bool = False) -> Iterator[int]:
    """A directory of a try, reached step by step from the experiment's own, so that no link leads elsewhere."""
    experiment, steps = place.parents[2], [*place.parts[-3:], *(below.split("/") if below else ())]
    if make:
        experiment.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(experiment, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(step, 0o700, dir_fd=directory)
            inner = os.open(step, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        yield directory
    finally:
        os.close(directory)


def _sizes(place: Path) -> Iterator[tuple[str, int]]:
    for directory, _, names in os.walk(place):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), place)
            with suppress(UsageError, FileNotFoundError):
                _check(path, 0)
                yield path, os.lstat(os.path.join(directory, name)).st_size


def _read_streams(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    """Streams that are in the store to their ends: their files are removed one day."""
    return {
        f"streams/{row['stream']}.{number:06d}": None if number < row["segment"] else row["offset"]
        for row in rows
        if row["closed"]
        for number in range(row["segment"] + 1)
    }


def _note(place: Path, path: str) -> None:
    with open(place / RECEIVED, "a") as file:
        file.write(json.dumps(path) + "\n")


def _came(place: Path) -> dict[str, int | None]:
    try:
        lines = (place / RECEIVED).read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {json.loads(line): None for line in lines if line.endswith('"')}
