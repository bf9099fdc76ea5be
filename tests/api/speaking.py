"""A real server of a home of its own, and plain HTTP to it, with nothing in between that could be kind."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.client import Client
from shoal.home import read_server
from shoal.states import FINAL
from tests.running import until

PATIENCE = 60.0
THREE = "framework: none\nrun: {{cmd: '{command}'}}\nenvironment: {{replicas: {{n_workers: 2}}}}\ngrace: {{stop: 1s}}\n"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A home whose server lives."""

    home: Path
    client: Client

    @property
    def written(self) -> dict[str, Any]:
        written = read_server(self.home)
        assert written is not None
        return written

    @property
    def port(self) -> int:
        return int(self.written["port"])

    @property
    def pid(self) -> int:
        return int(self.written["pid"])

    @property
    def token(self) -> str:
        return str(self.written["token"])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        """One request with the token; `host=`, `origin=`, `authorization=None` and the like change its headers."""
        with self.open(method, path, body, **headers) as answer:
            endless = answer.getheader("content-type", "").startswith("text/event-stream")
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, b"" if endless else answer.read())

    @contextmanager
    def open(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> Iterator[http.client.HTTPResponse]:
        """The same, for answers that do not end by themselves: leaving breaks the connection."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        sent: dict[str, str | None] = {"host": self.host, **self.bearer}
        if content is not None:
            sent |= {"content-type": "application/json", "content-length": str(len(content))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(content)
            with connection.getresponse() as answer:
                yield answer
        finally:
            connection.close()

    def raw(self, request: bytes) -> bytes:
        """The first line of the answer to these very bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(request)
            return connection.makefile("rb").readline()

    def run(self, text: str, directory: Path | str = "/", **more: Any) -> str:
        """Submits an experiment; its id."""
        created = self.client.create([("experiment.yml", text)], (), str(directory), {"PATH": "/usr/bin:/bin"}, **more)
        return str(created["experiment"]["id"])

    def finished(self, word: str) -> dict[str, Any]:
        def over() -> dict[str, Any] | None:
            found = self.client.show(word)
            return found if found["state"] in FINAL else None

        return dict(until(over, f"the end of {word}"))

    def quick(self, command: str = "true") -> str:
        """Runs an experiment of three replicas to its end; its id."""
        word = self.run(THREE.format(command=command), oversubscribe=True)
        self.finished(word)
        return word

    def operations(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(method, path, description) of everything that the OpenAPI document tells of."""
        paths = self.ask("GET", "/api/openapi.json").json()["paths"]
        return [(method.upper(), path, told) for path, entry in paths.items() for method, told in entry.items()]


class Gate:
    """Where commands wait: `wait` is what each of them says, `open` lets so many of them through."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.wait = f"read -r _ < {path}"  # bash reads byte by byte: each takes one line and leaves the rest
        self._pipe = os.open(path, os.O_RDWR)

    def open(self, count: int = 1) -> None:
        os.write(self._pipe, b"\n" * count)


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Server-sent events, each as {id, event, data}; comments are left out."""
    event: dict[str, Any] = {}
    while line := answer.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        event[name] = value
        while line := answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            event[name] = value
        if "data" in event:
            yield {**event, "data": json.loads(event["data"])}
        event = {}
