"""What is decided of pods, and when nothing may be: an API server that goes away, comes back, or is another one.

The API server is a socket of the test; it has the few objects that the test puts there.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.backends.kubernetes.anchors import Anchor, Anchors
from shoal.backends.kubernetes.api import Api
from shoal.backends.kubernetes.collecting import AT_ONCE
from shoal.backends.kubernetes.settings import Settings
from shoal.backends.kubernetes.tending import Tender
from shoal.states import Policy
from tests.running import until

NAME = "shoal-e1-0"


class Cluster:
    """An API server with one namespace. `close` hangs up and answers nobody, until `open`."""

    def __init__(self, place: Path, uid: str = "the cluster") -> None:
        self.uid = uid
        self.pods: dict[str, dict[str, Any]] = {}
        self.maps: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []  # `DELETE pods/x`
        self.refuses = 0  # requests that are answered by 401
        self.answers = threading.Event()
        self.answers.set()
        self._connections: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.open()
        self.kubeconfig = place / f"kubeconfig-{self.port}"
        self.lead(self.kubeconfig)

    def lead(self, kubeconfig: Path) -> None:
        """Has a kubeconfig lead here."""
        content = {
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "test", "user": {"token": "secret"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        kubeconfig.write_text(json.dumps(content))

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections = []

    def changes(self) -> list[str]:
        return [entry for entry in self.asked if not entry.startswith("GET")]

    def _listen(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection, connection.makefile("rb") as requests:
            while line := requests.readline():
                method, target = line.decode().split()[:2]
                length = 0
                while header := requests.readline().strip().lower():
                    if header.startswith(b"content-length:"):
                        length = int(header.partition(b":")[2])
                requests.read(length)
                path, _, query = target.partition("?")
                self._answer(connection, method, path.removeprefix("/api/v1/namespaces/"), query)

    def _answer(self, connection: socket.socket, method: str, path: str, query: str) -> None:
        watch = "watch=1" in query
        self.asked.append(f"{method} {'watch ' if watch else ''}{path}")
        self.answers.wait(60)
        if self.refuses:
            self.refuses -= 1
            self._send(connection, 401, {"message": "who are you?"})
        elif watch:  # and nothing ever happens: what has, a list tells
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            connection.recv(1)
        elif path == "default":
            self._send(connection, 200, {"metadata": {"uid": self.uid}})
        elif method == "GET" and path == "default/pods":
            self._send(connection, 200, {"items": list(self.pods.values()), "metadata": {"resourceVersion": "1"}})
        elif path.startswith("default/configmaps/"):
            found = self.maps.get(path.rpartition("/")[2])
            if method == "DELETE":
                self.maps.pop(path.rpartition("/")[2], None)
            self._send(connection, 200 if found else 404, found or {"message": "not found"})
        elif method == "GET":
            self._send(connection, 200, {"items": [], "metadata": {"resourceVersion": "1"}})
        else:
            self._send(connection, 200, {})

    def _send(self, connection: socket.socket, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        connection.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)


class Lab:
    """One attempt of one replica, and who looks after it."""

    def __init__(self, place: Path, cluster: Cluster, *, operator: str = "", timeout: float | None = None) -> None:
        self.cluster = cluster
        self.directory = place / "experiments" / "e1" / "attempt-0"
        self.directory.mkdir(parents=True)
        self.anchors = Anchors(place / "clusters" / "lab")
        self.api = Api(Settings("lab", kubeconfig=str(cluster.kubeconfig)))
        self.tender = Tender(self.api, self.anchors, lambda: None)
        policy = Policy(frozenset({"master-0"}), timeout_start=timeout)
        self.write(
            "request.json", uid="u", attempt=0, began=time.time(), policy=policy.json(), replicas=["master-0"],
            anchor=NAME, sink="https://host", operator=operator, pods={"master-0": "pod"} if operator else {}, jobs={},
        )  # fmt: skip
        where = self.tender.identity.note()
        self.write("created.json", owner={"uid": "o"}, **where)
        self.anchors.note(Anchor(NAME, "u", str(self.directory)), where)
        cluster.maps[NAME] = {"metadata": {"name": NAME, "uid": "o", "labels": {"shoal/uid": "u"}}}

    def write(self, name: str, **content: Any) -> None:
        (self.directory / name).write_text(json.dumps(content))

    def start(self) -> None:
        assert self.tender.tend(str(self.directory))

    def state(self) -> str:
        return self.tender.statuses(str(self.directory))[0].state

    def result(self) -> dict[str, Any] | None:
        file = self.directory / "result.json"
        found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
        return found


def pod(state: dict[str, Any] | None = None, phase: str = "Pending", **status: Any) -> dict[str, Any]:
    labels = {"shoal/uid": "u", "shoal/attempt": "0", "shoal/replica": "master-0", "shoal/try": "0"}
    told = {"containerStatuses": [{"name": "shoal", "state": state}]} if state else {}
    return {
        "metadata": {"name": "pod", "uid": "p", "labels": labels, "creationTimestamp": "2026-11-16T00:00:00Z"},
        "spec": {"containers": [{"name": "shoal"}], **({"nodeName": "n1"} if state else {})},
        "status": {"phase": phase, **told, **status},
    }


RUNS = pod({"running": {"startedAt": "2026-11-16T00:00:01Z"}}, "Running")
ENDED = {"exitCode": 0, "startedAt": "2026-11-16T00:00:01Z", "finishedAt": "2026-11-16T00:00:02Z"}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Any]]:
    """What has to be closed."""
    found: list[Any] = []
    yield found
    for each in reversed(found):
        each.close()


@pytest.fixture
def cluster(tmp_path: Path, made: list[Any]) -> Cluster:
    found = Cluster(tmp_path)
    made.append(found)
    return found


def lab(made: list[Any], *arguments: Any, **options: Any) -> Lab:
    found = Lab(*arguments, **options)
    made.append(found.tender)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["", "TFJob"])
def test_nobody_is_late_while_the_cluster_is_away(
    tmp_path: Path, cluster: Cluster, made: list[Any], operator: str
) -> None:
    cluster.pods["pod"] = pod()
    found = lab(made, tmp_path, cluster, operator=operator, timeout=1.0)
    found.start()
    until(lambda: "GET watch default/pods" in cluster.asked, "the watch")
    cluster.close()
    until(lambda: found.tender.pods.unreachable, "the loss")
    deadline = time.time() + 1.3
    until(lambda: time.time() > deadline, "a start that is late")
    cluster.pods["pod"] = RUNS
    cluster.open()
    until(lambda: found.state() == "running", "what has happened meanwhile")
    assert found.result() is None
    assert cluster.changes() == []


def test_a_connection_on_which_nothing_comes_is_not_believed(tmp_path: Path, cluster: Cluster, made: list[Any]) -> None:
    """As after a laptop has slept: the watch is silent, though much has happened."""
    cluster.pods["pod"] = pod()
    found = lab(made, tmp_path, cluster, timeout=1.0)
    found.start()
    until(lambda: "GET watch default/pods" in cluster.asked, "the watch")
    cluster.pods["pod"] = RUNS
    until(lambda: found.state() == "running", "a second look")
    assert found.result() is None
    assert cluster.changes() == []
    assert cluster.asked.count("GET default/pods") == 2


def test_who_has_not_started_in_time_is_late_once_the_cluster_has_said_so(
    tmp_path: Path, cluster: Cluster, made: list[Any]
) -> None:
    cluster.pods["pod"] = pod()
    found = lab(made, tmp_path, cluster, timeout=0.5)
    found.start()
    result = until(found.result, "the end")
    assert (result["state"], result["reason"]) == ("failed", "TimedOut: master-0 not started after 0.5 s")
    assert cluster.asked.count("GET default/pods") == 2
    assert cluster.asked.index(f"DELETE /apis/batch/v1/namespaces/default/jobs/{NAME}-master-0") > 0
    until(lambda: not cluster.maps, "an empty namespace")


@pytest.mark.slow
def test_pods_are_not_gone_because_a_kubeconfig_leads_elsewhere(
    tmp_path: Path, cluster: Cluster, made: list[Any]
) -> None:
    other = Cluster(tmp_path, "another")
    made.append(other)
    cluster.pods["pod"] = RUNS
    found = lab(made, tmp_path, cluster)
    found.start()
    until(lambda: found.state() == "running", "the start")
    other.lead(cluster.kubeconfig)
    cluster.refuses = 1
    cluster.cut()
    until(lambda: "not the one" in found.tender.unreachable(str(found.directory)), "the other cluster")
    assert "GET default/pods" in other.asked
    assert (found.state(), found.result()) == ("running", None)
    cluster.pods["pod"] = pod({"terminated": ENDED}, "Succeeded")
    cluster.lead(cluster.kubeconfig)
    other.refuses = 1
    other.cut()
    result = until(found.result, "the end")
    assert result["state"] == "succeeded"
    assert other.changes() == []


def test_what_lies_in_another_cluster_is_not_taken_for_removed(
    tmp_path: Path, cluster: Cluster, made: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    other = Cluster(tmp_path, "another")
    made.append(other)
    anchor = Anchor(NAME, "u", "")
    found = lab(made, tmp_path, cluster)
    wrong = Tender(Api(Settings("lab", kubeconfig=str(other.kubeconfig))), found.anchors, lambda: None)
    made.append(wrong)
    wrong.remove(anchor)
    until(lambda: "is not the one that shoal-e1-0 is in" in capsys.readouterr().err, "a word about it")
    assert [noted.name for noted in found.anchors.noted()] == [NAME]
    assert other.changes() == []
    settings = Settings("lab", kubeconfig=str(cluster.kubeconfig), namespace="elsewhere")
    moved = Tender(Api(settings), found.anchors, lambda: None)
    made.append(moved)
    moved.remove(anchor)
    until(lambda: not found.anchors.noted(), "its removal")
    assert cluster.changes() == [f"DELETE default/configmaps/{NAME}"]


def test_a_kubeconfig_that_is_gone_is_said_and_not_traced(
    tmp_path: Path, cluster: Cluster, made: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Something is left in a cluster that nobody can reach any more: the server's log must not fill up with that."""
    found = lab(made, tmp_path, cluster)
    cluster.kubeconfig.unlink()
    tender = Tender(Api(Settings("lab", kubeconfig=str(cluster.kubeconfig))), found.anchors, lambda: None)
    made.append(tender)
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return f"cluster lab: {cluster.kubeconfig}" in said

    tender.remove(Anchor(NAME, "u", ""))
    until(told, "a word about it")
    assert "Traceback" not in said
    assert [noted.name for noted in found.anchors.noted()] == [NAME]


def test_nothing_is_made_where_it_was_not_begun(tmp_path: Path, cluster: Cluster, made: list[Any]) -> None:
    """A server noted an anchor and died; the next one has another cluster under that name."""
    other = Cluster(tmp_path, "another")
    made.append(other)
    found = lab(made, tmp_path, cluster)
    (found.directory / "created.json").unlink()
    wrong = Tender(Api(Settings("lab", kubeconfig=str(other.kubeconfig))), found.anchors, lambda: None)
    made.append(wrong)
    wrong.tend(str(found.directory), [{"kind": "ConfigMap", "metadata": {"name": NAME}}])
    result = until(found.result, "the end")
    assert result["reason"].startswith("cannot be submitted: it was begun elsewhere")
    assert other.changes() == []
    assert [noted.name for noted in found.anchors.noted()] == [NAME], "what may be there is removed one day"


def write(place: Path, contents: dict[str, bytes]) -> None:
    for path, data in contents.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)


@pytest.mark.parametrize("content", [b"{}", b"{", b"[]", b'{"exit_code": "0"}', b'{"exit_code": null, "signal": ""}'])
def test_an_exit_json_that_says_nothing_is_passed_over(
    tmp_path: Path, cluster: Cluster, made: list[Any], content: bytes
) -> None:
    cluster.pods["pod"] = pod({"terminated": {**ENDED, "exitCode": 3}}, "Failed")
    found = lab(made, tmp_path, cluster)
    write(found.directory / "master-0" / "try-0", {"exit.json": content})
    found.start()
    result = until(found.result, "the end")
    assert (result["state"], result["reason"]) == ("failed", "master-0 failed: exit code 3")


LARGE = random.Random(5).randbytes(AT_ONCE + 1)


@pytest.mark.parametrize("model", [pytest.param(b"small", id="judged at once"), pytest.param(LARGE, id="in a thread")])
def test_whole_outputs_are_published_and_the_others_named(
    tmp_path: Path, cluster: Cluster, made: list[Any], model: bytes
) -> None:
    found = lab(made, tmp_path, cluster)
    place = found.directory / "master-0" / "try-0"
    line = {"path": "outputs/model.pt", "size": len(model), "sha256": hashlib.sha256(model).hexdigest()}
    lines = [{"expected": {"outputs/model.pt": len(model), "outputs/half": 100}}, line]
    write(
        place,
        {
            "outputs/model.pt": model,
            "outputs/half": b"x" * 50,
            "manifest.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in lines),
            "exit.json": b'{"exit_code": 0, "signal": ""}',
        },
    )
    cluster.pods["pod"] = pod({"terminated": ENDED}, "Succeeded")
    found.start()
    result = until(found.result, "the end")
    told = "1 output did not arrive: half (50 of 100 bytes came)"
    assert (result["state"], result["reason"]) == ("succeeded", f"master-0: {told}")
    assert result["statuses"][0]["reason"] == told
    published = found.directory.parent / "outputs"
    assert [(path.name, path.stat().st_size) for path in published.iterdir()] == [("model.pt", len(model))]
    assert (place / "outputs" / "half").exists(), "what came is kept where it is"
