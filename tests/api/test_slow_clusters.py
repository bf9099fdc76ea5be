"""A cluster that is slow delays nobody but those who run there, and those not for long."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.client import Client
from tests.api.speaking import Served
from tests.running import SHOAL, until

NATIVE = "framework: none\nrun: {cmd: sleep 1000}\n"
HERE = "framework: none\nrun: {cmd: echo here}\n"
KUBEFLOW = "framework: tensorflow\nbackend: kubeflow\nrun: {cmd: sleep 1000}\n"
ANSWERS = {
    "/version": {"major": "1", "minor": "34"},
    "/apis/kubeflow.org/v1": {"resources": [{"name": "tfjobs"}, {"name": "pytorchjobs"}]},
}


class Silent:
    """An API server that answers every question once, and takes it and never answers the second time.

    `held` are questions that it does not answer the first time either, until `speak` is set.
    """

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.speak = threading.Event()
        self.answered: set[str] = set()
        self.waiting: list[str] = []
        self.connections: list[socket.socket] = []
        self.given_up = 0  # of those who waited
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Hangs up."""
        self.speak.set()
        for connection in (self.listener, *self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as requests:
            while line := requests.readline():
                path = line.decode().split()[1]
                while requests.readline().strip():
                    pass
                if path in self.answered:
                    self.waiting.append(path)
                    connection.recv(1)
                    self.given_up += 1
                    return
                if path in self.held:
                    self.waiting.append(path)
                    self.speak.wait()
                self.answered.add(path)
                body = json.dumps(ANSWERS[path]).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@pytest.fixture
def api_server() -> Iterator[Silent]:
    found = Silent()
    yield found
    found.close()


@pytest.fixture
def served(home: Path, tmp_path: Path, api_server: Silent) -> Served:
    content = {
        "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{api_server.port}"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        "current-context": "lab",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(content))
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[clusters.lab]\nkubeconfig = "{tmp_path}/kubeconfig"\nimage = "train:1"\n')
    (tmp_path / "code").mkdir()
    return Served(home, Client(home))


def stopped_without_an_answer(served: Served, word: str, api_server: Silent) -> None:
    served.client.stop(word, 0.0)
    api_server.close()
    assert served.finished(word)["state"] == "stopped"


def test_a_local_experiment_starts_while_a_cluster_does_not_answer(
    served: Served, tmp_path: Path, api_server: Silent
) -> None:
    far = served.run(KUBEFLOW, tmp_path / "code", cluster="lab")  # what it serves is asked, and answered
    until(lambda: "/apis/kubeflow.org/v1" in api_server.waiting, "the question that is not answered")
    near = served.run(HERE, tmp_path / "code", oversubscribe=True)
    assert served.finished(near)["state"] == "succeeded"
    assert (api_server.given_up, served.client.show(far)["state"]) == (0, "starting"), "it still waits for the cluster"
    stopped_without_an_answer(served, far, api_server)


def test_who_submits_to_a_cluster_that_does_not_answer_has_an_experiment_soon(
    served: Served, tmp_path: Path, api_server: Silent
) -> None:
    api_server.held.add("/version")
    far = served.run(NATIVE, tmp_path / "code", cluster="lab")
    assert set(api_server.waiting) == {"/version"}
    stopped_without_an_answer(served, far, api_server)


def test_who_leaves_before_the_cluster_answers_leaves_no_experiment_behind(
    served: Served, tmp_path: Path, api_server: Silent
) -> None:
    api_server.held.add("/version")
    (tmp_path / "code" / "experiment.yml").write_text(NATIVE)
    process = subprocess.Popen(
        [SHOAL, "run", "--on", "lab", str(tmp_path / "code")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: "/version" in api_server.waiting, "the question of the server")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    api_server.speak.set()
    until(lambda: "/version" in api_server.answered, "the answer")
    near = served.run(HERE, tmp_path / "code", oversubscribe=True)
    assert served.finished(near)["state"] == "succeeded"
    assert [found["id"] for found in served.client.experiments()] == [near]
