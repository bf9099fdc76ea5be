"""`python -m shoal.server --home DIR`: the server of one home.

The command line starts it when it needs one, and hands over a pipe to be told that it listens. It ends by itself after
half an hour with nothing to do, unless it is kept (`shoal serve`).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import os
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

IDLE_SECONDS = 30 * 60.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="shoal serve")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--ready-fd", type=int)
    options = parser.parse_args()
    from shoal.errors import ShoalError

    try:
        serve(options)
    except ShoalError as error:
        print(error.text(), file=sys.stderr)
        _tell(options.ready_fd, f"error {error.problems[0].message}")
        sys.exit(error.exit_code)


def serve(options: argparse.Namespace) -> None:
    from shoal import home as homes
    from shoal.backends.local import files

    place: Path = options.home.absolute()
    homes.prepare(place)
    lock = _lock(place / files.SERVER_LOCK)

    import uvicorn

    from shoal.backends.local.backend import LocalBackend
    from shoal.engine.act import Engine
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
    database.take_lease()
    settings = homes.config(place).get("clusters", {}).get("local", {})
    backend = LocalBackend(place, gpus=settings.get("gpus"), archive=archive(str(place / "launcher")))
    engine = Engine(place, database, backend)
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
    written = {"url": url, "port": port, "token": token, "pid": os.getpid(), "started": time.time()}
    write_json(str(place / homes.SERVER_FILE), written)
    engine.start()
    _tell(options.ready_fd, "ready")
    if options.keep:
        print(f"shoal serves {place} at {url}", file=sys.stderr)
    asyncio.run(_run(program, listening, server))
    engine.close()
    database.close()
    os.close(lock)


async def _run(program: Any, listening: socket.socket, server: Any) -> None:
    """Serves until it is told to end, or has been idle for long."""

    def end() -> None:
        program.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    watch = asyncio.create_task(_watch(server, end))
    await program.serve(sockets=[listening])
    watch.cancel()


async def _watch(server: Any, end: Any) -> None:
    from shoal.store import experiments

    while True:
        await asyncio.sleep(0.2 if server.stop_asked else 1.0)
        if server.stop_asked:
            end()
        if server.kept or time.monotonic() - server.last_request < IDLE_SECONDS:
            continue
        with server.database.read() as connection:
            if not experiments.unfinished(connection):
                end()


def _lock(path: Path) -> int:
    """Held for the life of the server: one per home."""
    from shoal.errors import Unavailable
    from shoal.home import read_server

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}", hint="is the home read-only, or the disk full?") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        running = read_server(path.parent) or {}
        raise Unavailable(
            f"a server already serves {path.parent} (pid {running.get('pid', '?')})",
            hint="use it, or end it with shoal server stop",
        ) from None
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
    return frozenset(f"{name}:{port}" for name in names)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _tell(descriptor: int | None, word: str) -> None:
    if descriptor is not None:
        os.write(descriptor, word.encode())
        os.close(descriptor)


if __name__ == "__main__":
    main()
