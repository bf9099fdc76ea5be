"""Answers of an API server that come in pieces: wherever they are divided, cut off or closed, lines are whole lines.

The API server is a socket of the test, so every byte goes when the test wants it to.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shoal.backends.kubernetes.api import Api, Away, Stream
from shoal.backends.kubernetes.settings import Settings

EVENTS = [
    {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}
    for kind, name, version in (("ADDED", "größer", "7"), ("MODIFIED", "文字 🐟", "8"), ("DELETED", "e", "9"))
]
LINES = [json.dumps(event, ensure_ascii=False).encode() for event in EVENTS]
BODY = b"".join(line + b"\n" for line in LINES)
OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
HEAD = OPEN + b"Connection: close\r\n\r\n"  # what is said to a stream, which asks for that
LAST = b"0\r\n\r\n"

Answer = Callable[[socket.socket], object]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Server:
    """Answers every request by `answer`, and takes the next one on the same connection."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answer: Answer = lambda connection: None
        self.asked: list[tuple[int, str, bool]] = []  # on which connection, for what, and whether for the last time
        self.connections = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with suppress(OSError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as requests:
                while line := requests.readline():
                    headers = list(iter(lambda: requests.readline().strip().lower(), b""))
                    path = line.split()[1].partition(b"?")[0].decode()
                    self.asked.append((number, path, b"connection: close" in headers))
                    self.answer(connection)


@contextmanager
def serving(place: Path, context: ssl.SSLContext | None = None, authority: Path | None = None) -> Iterator[tuple]:
    server = Server(context)
    there: dict[str, str] = {"server": f"{'https' if context else 'http'}://127.0.0.1:{server.port}"}
    if authority is not None:
        there["certificate-authority"] = str(authority)
    content = {
        "clusters": [{"name": "test", "cluster": there}],
        "users": [{"name": "test", "user": {"token": "secret"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    (place / "kubeconfig").write_text(json.dumps(content))
    api = Api(Settings("lab", kubeconfig=str(place / "kubeconfig")))
    try:
        yield server, api
    finally:
        api.close()
        server.close()


def watch(api: Api) -> Stream:
    return api.watch("Pod", "", "6")


PLACES = range(1, len(BODY))
DIVIDED = {
    "chunks end anywhere": [[HEAD, chunk(BODY[:at]) + chunk(BODY[at:]) + LAST] for at in PLACES],
    "packets end anywhere": [
        [HEAD, chunk(BODY)[:at], chunk(BODY)[at:] + LAST] for at in range(1, len(chunk(BODY)))
    ],
    "every byte is a chunk and a packet": [[HEAD, *(chunk(BODY[at : at + 1]) for at in range(len(BODY))), LAST]],
    "everything is one packet": [[HEAD + chunk(BODY) + LAST]],
}  # fmt: skip


@pytest.mark.parametrize("how", DIVIDED)
def test_events_are_whole_wherever_they_are_divided(tmp_path: Path, how: str) -> None:
    with serving(tmp_path) as (server, api):
        for parts in DIVIDED[how]:
            server.answer = lambda connection, parts=parts: [connection.sendall(part) for part in parts]
            assert [api.event(line) for line in watch(api).lines()] == EVENTS


def test_what_is_cut_off_is_told_and_half_a_line_is_not_given_out(tmp_path: Path) -> None:
    def cut(connection: socket.socket, data: bytes) -> None:
        connection.sendall(HEAD + data)
        connection.shutdown(socket.SHUT_RDWR)

    with serving(tmp_path) as (server, api):
        for at in PLACES:
            server.answer = lambda connection, at=at: cut(connection, chunk(BODY[:at]))
            found: list[bytes] = []
            with pytest.raises(Away):
                found.extend(watch(api).lines())
            assert found == LINES[: BODY[:at].count(b"\n")]
        for at in range(len(chunk(BODY))):  # within a chunk, and within its length
            server.answer = lambda connection, at=at: cut(connection, chunk(BODY)[:at])
            with pytest.raises(Away):
                list(watch(api).lines())


def test_nothing_is_given_out_that_came_after_a_close(tmp_path: Path) -> None:
    """A connection that is closed under its reader has no TLS any more: what comes then is noise, with newlines in it.

    The length of the second chunk is here already, so all that follows would count as its content.
    """
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    large = b"".join(LINES[1] + b"\n" for _ in range(1000))
    first, sent, over = chunk(LINES[0] + b"\n"), threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + first + b"%x\r\n" % len(large))
        over.wait(30)
        connection.sendall(large)
        sent.set()

    with serving(tmp_path, context, certificate) as (server, api):
        server.answer = answer
        stream = watch(api)
        lines = stream.lines()
        assert next(lines) == LINES[0]
        over.set()
        assert sent.wait(30)
        stream.close()
        assert list(lines) == []


def test_a_connection_that_somebody_may_close_is_nobody_elses(tmp_path: Path) -> None:
    """Ordinary questions share connections. A stream is the last on its own: who closes it late disturbs nobody."""
    with serving(tmp_path) as (server, api):

        def answer(connection: socket.socket) -> None:
            head = HEAD if server.asked[-1][2] else OPEN + b"\r\n"
            connection.sendall(head + chunk(b"{}") + LAST)

        server.answer = answer
        for _ in range(2):
            api.ask("GET", "/version")
        assert list(watch(api).lines()) == [b"{}"]
        for _ in range(2):
            api.ask("GET", "/version")
        question, pods = "/version", "/api/v1/namespaces/default/pods"
        assert server.asked == [
            (1, question, False), (1, question, False), (1, pods, True), (2, question, False), (2, question, False),
        ]  # fmt: skip
