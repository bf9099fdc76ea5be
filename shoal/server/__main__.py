"""`python -m shoal.server --home DIR`: the server of one home.

The command line starts it when it needs one, and hands over a pipe to be told that it listens. It ends by itself after
half an hour with nothing to do, unless it is kept (`shoal serve`).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import gc
import hashlib
import io
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from shoal.errors import ShoalError

IDLE_SECONDS = 30 * 60.0
KEEP_ALIVE = 60  # seconds: longer than clients keep a connection that is idle, or one is closed as it is used again
EVERYWHERE = ("0.0.0.0", "::")
INSTANT = 0.5  # seconds for which somebody may hold the lock who only looks whether a server lives
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


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
    gc.disable()  # modules are not garbage: looking for it takes a tenth of a start
    import uvicorn
    from sqlalchemy.exc import OperationalError

    from shoal import home as homes
    from shoal.backends.local.backend import LocalBackend
    from shoal.engine import retention
    from shoal.engine.act import Engine
    from shoal.engine.ingest import Ingest
    from shoal.errors import Unavailable
    from shoal.launcher.archive import archive
    from shoal.launcher.replica import write_json
    from shoal.server import clusters
    from shoal.server.app import create_app
    from shoal.server.context import Server
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
    travels = archive(str(place / "launcher"))
    backend = LocalBackend(place, gpus=clusters.gpus_of_local(place, homes.config(place)), archive=travels)
    retention.rules(homes.config(place), place / "config.toml")  # what is wrong there is said now
    others = clusters.backends(
        place, homes.config(place), archive=travels, token=token, on_change=lambda: engine.wake(), between=between
    )
    engine = Engine(place, database, backend, between, others)
    ingest = Ingest(place, database)
    engine.on_round.append(ingest.wake)
    cookie = "shoal_" + hashlib.sha256(str(place).encode()).hexdigest()[:12]
    names = _hosts(options.host, port, _names(homes.config(place), place))
    keys = Keys(token, cookie, names, any_address=options.host in EVERYWHERE)
    server = Server(place, database, engine, ingest, keys, kept=options.keep, url=url)
    config = uvicorn.Config(
        create_app(server),
        log_level="warning",
        access_log=False,
        lifespan="on",
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE,
    )
    program = uvicorn.Server(config)
    config.load()  # a wrong certificate is found before anybody is told that we listen
    written = {"url": url, "port": port, "token": token, "pid": os.getpid(), "started": time.time()}
    if options.tls_cert:
        written["certificate"] = Path(options.tls_cert).read_text()  # what the clients of this home trust
    write_json(str(place / homes.SERVER_FILE), written)
    engine.start()
    ingest.start()
    server.keeper.start()
    gc.freeze()
    gc.enable()
    _tell(options.ready_fd, "ready")
    if options.keep:
        print(f"shoal serves {place} at {url}", file=sys.stderr)
    asyncio.run(_run(program, listening, server, options.idle))
    ingest.close()
    server.keeper.close()
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
    """Ends the server when nobody has asked for anything and nothing has run for a while; tidies now and then."""
    from shoal.server import housekeeping
    from shoal.store import experiments

    tidied = -housekeeping.EVERY
    while True:
        if time.monotonic() - tidied >= housekeeping.EVERY:
            await asyncio.to_thread(housekeeping.tidy, server)
            tidied = time.monotonic()
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
    deadline = time.monotonic() + INSTANT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"a server already serves {path.parent} (pid {path.read_text() or '?'})",
                    hint="use it, or end it with shoal server stop",
                ) from None
            time.sleep(0.02)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def _listen(host: str, wanted: int | None, last: int | None) -> socket.socket:
    """A listening socket: the port asked for, else the one the home had last, so that links survive, else any."""
    from shoal.errors import Unavailable

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in [wanted] if wanted is not None else [*([last] if last else []), 0]:
        # With its protocol named, asyncio sends answers at once and does not wait for more to fill a packet.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


def _hosts(host: str, port: int, more: Sequence[str] = ()) -> frozenset[str]:
    """The names by which clients may call this server. Where it listens everywhere, its addresses are names too."""
    names = set(LOOPBACK) if host in ("127.0.0.1", "localhost", "::1") else {_in_url(host)}
    if host in EVERYWHERE:
        names |= LOOPBACK
    if host not in ("127.0.0.1", "localhost", "::1"):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    unsaid = names if port in (80, 443) else set()  # browsers leave these out
    return frozenset({f"{name}:{port}" for name in (*names, *more)} | unsaid | set(more))


def _names(config: Mapping[str, Any], place: Path) -> list[str]:
    """`[server] hosts`: other names, of a proxy for example."""
    from shoal.errors import UsageError

    section = config.get("server", {})
    hosts = section.get("hosts", []) if isinstance(section, dict) else None
    if not isinstance(hosts, list) or not all(isinstance(name, str) and name for name in hosts):
        raise UsageError(
            f"{place / 'config.toml'}: server.hosts: not a list of names",
            hint='[server] and hosts = ["shoal.lab", "shoal.lab:8443"]',
        )
    return [name.lower() for name in hosts]


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _give_up(error: ShoalError, ready_fd: int | None) -> NoReturn:
    from shoal.errors import UsageError

    print(error.text(), file=sys.stderr)
    problem = error.problems[0]
    said = {"message": problem.message, "hint": problem.hint, "usage": isinstance(error, UsageError)}
    _tell(ready_fd, f"error {json.dumps(said)}")
    sys.exit(error.exit_code)


def _tell(descriptor: int | None, word: str) -> None:
    if descriptor is not None:
        os.write(descriptor, word.encode())
        os.close(descriptor)


if __name__ == "__main__":
    main()
