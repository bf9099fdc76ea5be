"""One more API server beside that of the cluster, over the same store: a test may kill it and disturbs nobody.

Shoal speaks to it through a wire that can be cut, so what a client sees of it is in the hands of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.clusters.kubernetes import cluster as machine
from tests.clusters.kubernetes.cluster import Cluster
from tests.running import until

NAME = "apiserver-of-a-test"


class Second:
    """The API server, and the wire that leads to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = machine.free_ports(1)[0]
        self.wire = Wire(self.port)

    def start(self) -> None:
        machine.Programs(self.cluster, self.cluster.info).api_server(NAME, self.port)
        until(lambda: self.ask("/readyz") == "ok", "the second API server")

    def kill(self) -> None:
        pid = self.cluster.info["pids"][NAME][0]
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def ask(self, path: str) -> str:
        """What it answers to its administrator; nothing when it does not."""
        context = ssl.create_default_context(cafile=str(self.cluster.place / "pki" / "ca.crt"))
        headers = {"Authorization": f"Bearer {self.cluster.info['token']}"}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers=headers)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=10) as answer:
                found: str = answer.read().decode()
                return found
        except OSError:
            return ""

    def asked_for_pods(self, verb: str) -> int:
        """How often pods of a namespace were asked for, by its own count: LIST, or WATCH."""
        return self._sum("apiserver_request_total", f'verb="{verb}"')

    def watches(self) -> int:
        """How many watches of pods of a namespace are open."""
        return self._sum("apiserver_longrunning_requests", 'verb="WATCH"')

    def _sum(self, name: str, part: str) -> int:
        found = 0
        for line in self.ask("/metrics").splitlines():
            mine = re.match(rf"{name}{{(.*)}} (\d+)$", line)
            if mine and all(
                text in mine[1] for text in (part, 'resource="pods"', 'scope="namespace"', 'subresource=""')
            ):
                found += int(mine[2])
        return found

    def lead(self, path: Path) -> None:
        """Has a kubeconfig lead here."""
        content = json.loads(path.read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.wire.port}"
        path.write_text(json.dumps(content))


class Wire:
    """A port that leads to another. `cut` ends all connections, `close` takes no new ones either."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._closed = False
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self.cut()

    def open(self) -> None:
        self._closed = False

    def _listen(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.target)) if not self._closed else None
            except OSError:
                far = None
            if far is None:
                near.close()
                continue
            with self._lock:
                self._ends |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._ends.discard(end)


@contextlib.contextmanager
def second_api_server(cluster: Cluster) -> Iterator[Second]:
    made = Second(cluster)
    made.start()
    try:
        yield made
    finally:
        made.kill()
