"""`python -m shoal.server --home DIR`: the server of one home.

The command line starts it when it needs one, and hands over a pipe to be told that it listens. It ends by itself after
half an hour with nothing to do, unless it is kept (`shoal serve`).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import io
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from shoal.errors import ShoalError

IDLE_SECONDS = 30 * 60.0


def main() -> None:
    options = parse(sys.argv[1:])
    from shoal.errors import ShoalError, Unavailable

    sys.stderr = Journal(open(2, "wb", closefd=False), errors="backslashreplace", line_buffering=True)  # noqa: SIM115
    try:
        serve(options)
    except ShoalError as error:
        _give_up(error, options.ready_fd)
    except OSError as error:
        _give_up(Unavailable(f"{options.home}: {error}", hint="is the disk full or read-only?"), options.ready_fd)


class Journal(io.TextIOWrapper):
    """stderr, which is server.log: what a full disk does not take is no reason to end."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shoal serve")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds without work after which it ends")
    parser.add_argument("--ready-fd", type=int)
    return parser.parse_args(arguments)


def serve(options: argparse.Namespace, between: Callable[[object], None] = lambda point: None) -> None:
    """Serves until the end. `between` is called between any two steps of the engine: tests die there."""
    from shoal import home as homes
    from shoal.backends.local import files
    from shoal.errors import UsageError

    if options.tls_key and not options.tls_cert:
        raise UsageError("--tls-key without --tls-cert", hint="name the certificate as well")
    place: Path = options.home.absolute()
    homes.prepare(place)
    lock = _lock(place / files.SERVER_LOCK)
    try:
        _serve(options, place, between)
    finally:
        os.close(lock)  # before anybody is told that we failed, so that the next can try


def _serve(options: argparse.Namespace, place: Path, between: Callable[[object], None]) -> None:
    import uvicorn
    from sqlalchemy.exc import OperationalError

    from shoal import home as homes
    from shoal.backends.local.backend import LocalBackend
    from shoal.engine.act import Engine
    from shoal.errors import Unavailable
    from shoal.launcher.archive import archive
    from shoal.launcher.replica import write_json
    from shoal.server.app import Server, create_app
    from shoal.server.trust import Keys
    from shoal.store.database import Database

    last = homes.read_server(place) or {}
    listening = _listen(options.host, options.port, last.get("port"))
    port = listening.getsockname()[1]
    scheme = "https" if options.tls_cert else "http"
    url = f"{scheme}://{_in_url(options.host)}:{port}"
    token = last.get("token") or secrets.token_urlsafe(32)
    database = Database(place / "shoal.db", exclusive=homes.config(place).get("store", {}).get("exclusive"))
    try:
        database.take_lease()
    except OperationalError as error:
        raise Unavailable(f"{database.path}: {error.orig}", hint="is the disk full or read-only?") from None
    settings = homes.config(place).get("clusters", {}).get("local", {})
    backend = LocalBackend(place, gpus=settings.get("gpus"), archive=archive(str(place / "launcher")))
    engine = Engine(place, database, backend, between)
    cookie = "shoal_" + hashlib.sha256(str(place).encode()).hexdigest()[:12]
    keys = Keys(token, cookie, _hosts(options.host, port))
    server = Server(place, database, engine, keys, kept=options.keep, url=url)
    config = uvicorn.Config(
        create_app(server),
        log_level="warning",
        access_log=False,
        lifespan="on",
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
        timeout_graceful_shutdown=1,
    )
    program = uvicorn.Server(config)
    config.load()  # a wrong certificate is found before anybody is told that we listen
    written = {"url": url, "port": port, "token": token, "pid": os.getpid(), "started": time.time()}
    if options.tls_cert:
        written["certificate"] = Path(options.tls_cert).read_text()  # what the clients of this home trust
    write_json(str(place / homes.SERVER_FILE), written)
    engine.start()
    _tell(options.ready_fd, "ready")
    if options.keep:
        print(f"shoal serves {place} at {url}", file=sys.stderr)
    asyncio.run(_run(program, listening, server, options.idle))
    engine.close()
    database.close()


async def _run(program: Any, listening: socket.socket, server: Any, idle: float) -> None:
    """Serves until it is told to end, or has been idle for long."""

    def end() -> None:
        program.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    watch = asyncio.create_task(_watch(server, end, idle))
    await program.serve(sockets=[listening])
    watch.cancel()


async def _watch(server: Any, end: Any, idle: float) -> None:
    """Ends the server when nobody has asked for anything and nothing has run for a while."""
    from shoal.store import experiments

    while True:
        await asyncio.sleep(min(idle, 10.0))
        if server.kept or time.monotonic() - server.last_request < idle:
            continue
        with server.database.read() as connection:
            if not experiments.unfinished(connection):
                end()


def _lock(path: Path) -> int:
    """Held for the life of the server: one per home."""
    from shoal.errors import Unavailable

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}", hint="is the home read-only, or the disk full?") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unavailable(
            f"a server already serves {path.parent} (pid {path.read_text() or '?'})",
            hint="use it, or end it with shoal server stop",
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def _listen(host: str, wanted: int | None, last: int | None) -> socket.socket:
    """A listening socket: the port asked for, else the one the home had last, so that links survive, else any."""
    from shoal.errors import Unavailable

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in [wanted] if wanted is not None else [*([last] if last else []), 0]:
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            if wanted is not None:
                raise Unavailable(f"{host}:{wanted}: {error.strerror}", hint="choose another --port") from None
    raise Unavailable(f"{host}: no port is free")


def _hosts(host: str, port: int) -> frozenset[str]:
    """The names by which clients may call this server."""
    names = {"127.0.0.1", "localhost", "[::1]"} if host in ("127.0.0.1", "localhost", "::1") else {_in_url(host)}
    if host in ("0.0.0.0", "::"):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower(), "localhost", "127.0.0.1"}
    unsaid = names if port in (80, 443) else set()  # browsers leave these out
    return frozenset({f"{name}:{port}" for name in names} | unsaid)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _give_up(error: ShoalError, ready_fd: int | None) -> NoReturn:
    print(error.text(), file=sys.stderr)
    _tell(ready_fd, f"error {error.problems[0].message}")
    sys.exit(error.exit_code)


def _tell(descriptor: int | None, word: str) -> None:
    if descriptor is not None:
        os.write(descriptor, word.encode())
        os.close(descriptor)


if __name__ == "__main__":
    main()
