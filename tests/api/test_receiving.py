"""What launchers far away send reaches the server once, and nothing else does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal import journal
from shoal.client import Client
from shoal.journalfile import JournalFile
from shoal.launcher.shipping import Away, Behind, Closed, Mirror, Refused, Shipper
from shoal.launcher.sinks import HttpSink
from shoal.server.trust import write_token
from tests.api.speaking import Gate, Served
from tests.launched import points, ran, try_directory
from tests.running import until
from tests.tries import MIB, fill, over, tree

TWO = "framework: none\nrun: {{cmd: '{command}'}}\nenvironment: {{replicas: {{n_workers: 2, master: false}}}}\n"


class Remote:
    """A running experiment, and a try of it that writes elsewhere."""

    def __init__(self, served: Served, place: Path) -> None:
        self.served = served
        self.gate = Gate(place / "gate")
        self.word = served.run(TWO.format(command=self.gate.wait), oversubscribe=True)
        self.uid = str(json.loads(next(self.attempt_files("request.json")).read_text())["uid"])
        self.token = write_token(served.token, self.uid)
        self.directory = try_directory(place / "far")
        self.directory.mkdir(parents=True)
        self.copy = served.home / "experiments" / self.word / "attempt-0" / "worker-0" / "try-9"

    def attempt_files(self, name: str) -> Iterator[Path]:
        pattern = f"experiments/{self.word}/attempt-0/{name}"
        return iter(until(lambda: list(self.served.home.glob(pattern)), "the start of it"))

    def sink(self, token: str | None = None, uid: str | None = None) -> HttpSink:
        place = f"{uid or self.uid}/0/worker-0/9"
        return HttpSink(f"http://{self.served.host}/", place, self.token if token is None else token)

    def variables(self) -> dict[str, str]:
        return {
            "SHOAL_SINK": f"http://{self.served.host}/",
            "SHOAL_SINK_TOKEN": self.token,
            "SHOAL_REPLICA_UID": f"{self.uid}-far-worker-0",
            "SHOAL_REPLICA": "worker-0",
            "SHOAL_ATTEMPT": "0",
            "SHOAL_TRY": "9",
        }

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        place = f"/api/ingest/{self.uid}/0/worker-0/9{path}"
        given = {"authorization": f"Bearer {self.token}", "content_type": "application/octet-stream", **headers}
        return self.served.ask(method, place, body, **given)

    def end(self) -> None:
        self.gate.open(2)
        self.served.finished(self.word)


@pytest.fixture
def remote(home: Path, tmp_path: Path) -> Iterator[Remote]:
    found = Remote(Served(home, Client(home)), tmp_path)
    yield found
    found.served.client.stop(found.word, 0.0)


def test_the_server_holds_what_a_launcher_far_away_wrote(remote: Remote) -> None:
    fill(remote.directory)
    over(remote.directory)
    Shipper(Mirror(str(remote.directory), remote.sink())).finish()
    assert tree(remote.copy) == tree(remote.directory)
    marks = remote.sink().watermarks()
    assert marks.sizes == {path: len(data) for path, data in tree(remote.directory).items()}
    again = Mirror(str(remote.directory), remote.sink())
    assert not again.carry()
    assert again.carried == 0


def test_what_comes_after_the_end_comes_whole(remote: Remote) -> None:
    """A launcher that was cut off while its experiment ended brings the rest in pieces that end anywhere."""
    remote.end()
    (remote.directory / "streams").mkdir(exist_ok=True)
    header = {"kind": "metric", "rank": 0, "process": 0, "started": 1.0, "replica": "worker-0"}
    file = JournalFile(str(remote.directory / "streams"), header)
    draw = random.Random(1)
    for start in range(0, 300_000, 10_000):
        steps = list(range(start, start + 10_000))
        file.points([journal.Group(("late",), [float(s) for s in steps], steps, [[draw.random() for _ in steps]])])
    file.end({"time": 1.0, "how": "finished", "error": "", "dropped": 0})
    mirror = Mirror(str(remote.directory), remote.sink())
    assert mirror.carry()
    mirror.close()
    assert mirror.carried > 2 * MIB
    found = until(lambda: remote.served.client.series(remote.word, name="late"), "the late points")
    assert [one["count"] for one in found] == [300_000]
    until(lambda: not list(remote.copy.glob("streams/*")), "the end of reading")


def test_a_piece_is_put_exactly_where_it_belongs(remote: Remote) -> None:
    """(offset, data) one after the other; the status and the size that is held then."""
    for offset, data, status, size in [
        (5, b"world", 409, 0),
        (0, b"hello", 200, 5),
        (0, b"hello", 200, 5),
        (3, b"lo wor", 200, 9),
        (10, b"!", 409, 9),
        (9, b"", 200, 9),
        (2, b"l", 200, 9),
        (9, b"ld", 200, 11),
    ]:
        answer = remote.ask("PUT", f"/log/000000?offset={offset}", data)
        assert (answer.status, answer.json()["size"]) == (status, size), (offset, data, answer.body)
    assert (remote.copy / "log" / "000000").read_bytes() == b"hello world"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/log/000000", 200),
        ("/log/000000.index", 200),
        ("/streams/0123456789abcdef.000000", 200),
        ("/files/a/b%20%C3%A4", 200),
        ("/streams/x.000000", 422),
        ("/streams/0123456789abcdef.000000/x", 422),
        ("/log/1", 422),
        ("/log/../exit.json", 422),
        ("/files/../../../x", 422),
        ("/files/%2e%2e/%2e%2e/x", 422),
        ("/files//x", 422),
        ("/files/a%00b", 422),
        ("/files/" + "x" * 300, 422),
        ("/files/" + "x/" * 40 + "x", 422),
        ("/environment.json", 422),
        ("/", 422),
        ("", 405),
    ],
)
def test_only_files_of_a_try_are_taken(remote_once: Remote, path: str, status: int) -> None:
    assert remote_once.ask("PUT", f"{path}?offset=0", b"x").status == status


@pytest.fixture(scope="module")
def remote_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    from tests.conftest import clear

    place = tmp_path_factory.mktemp("remote")
    try:
        yield Remote(Served(place / "home", Client(place / "home")), place)
    finally:
        clear(place / "home")


@pytest.mark.parametrize(
    ("path", "query", "body", "headers", "status"),
    [
        pytest.param("/log/000000", "offset=-1", b"x", {}, 422, id="a negative offset"),
        pytest.param("/log/000000", "", b"x", {}, 422, id="no offset"),
        pytest.param("/log/000000", f"offset={2**40}", b"x", {}, 422, id="beyond what a segment may hold"),
        pytest.param("/log/000000", "offset=0", b"x", {"content_encoding": "deflate"}, 422, id="not packed"),
        pytest.param("/log/000000", "offset=0", zlib.compress(bytes(100 * MIB)), {"content_encoding": "deflate"}, 422,
                     id="a little that unpacks to much"),
        pytest.param("/log/000000", "offset=0", zlib.compress(b"xyz" * 99)[:-4], {"content_encoding": "deflate"}, 422,
                     id="packed and cut off"),
        pytest.param("/log/000000", "offset=0", b"x", {"content_encoding": "br"}, 422, id="packed in another way"),
        pytest.param("/log/000000", "offset=0", bytes(9 * MIB), {}, 422, id="more than a piece"),
        pytest.param("/exit.json", "offset=0", b"{", {}, 422, id="half an exit.json"),
        pytest.param("/exit.json", "offset=0", b"{}", {}, 422, id="an exit.json without an exit code"),
        pytest.param("/exit.json", "offset=0", b'{"exit_code": true}', {}, 422, id="an exit code that is no number"),
        pytest.param("/exit.json", "offset=0", b'{"exit_code": 256}', {}, 422, id="an exit code that cannot be"),
        pytest.param("/exit.json", "offset=0", b'{"exit_code": 0, "signal": 9}', {}, 422, id="a signal without a name"),
        pytest.param("/exit.json", "offset=0", b'{"exit_code": 0, "finished": "now"}', {}, 422, id="a time in words"),
        pytest.param("/exit.json", "offset=0", b'{"exit_code": 0, "started": NaN}', {}, 422, id="a time that is none"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    remote_once: Remote, path: str, query: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = remote_once.ask("PUT", f"{path}?{query}", body, **headers)
    assert answer.status == status
    assert {"what", "hint"} <= set(answer.json())


def test_replicas_that_the_experiment_does_not_have_cannot_write(remote_once: Remote) -> None:
    bearer = {"authorization": f"Bearer {remote_once.token}"}
    for place in ("0/worker-2/0", "1/worker-0/0", "0/master-0/0", "0/attempt-0/0"):
        path = f"/api/ingest/{remote_once.uid}/{place}"
        assert remote_once.served.ask("PUT", f"{path}/log/000000?offset=0", b"x", **bearer).status == 422
        assert remote_once.served.ask("DELETE", f"{path}/log/000000", **bearer).status == 422
        for method in ("GET", "POST"):
            assert remote_once.served.ask(method, path, **bearer).status == 422
    path = f"/api/ingest/{remote_once.uid}/0/../0/log/000000?offset=0"
    assert remote_once.served.ask("PUT", path, b"x", **bearer).status == 422


def test_no_link_leads_out_of_the_experiment(remote_once: Remote, tmp_path: Path) -> None:
    place = remote_once.copy.parent / "try-7"
    place.mkdir()
    (place / "log").symlink_to(tmp_path)
    (place / "files").mkdir()
    (place / "files" / "x").symlink_to(tmp_path / "y")
    bearer = {"authorization": f"Bearer {remote_once.token}"}
    for path in ("log/000000", "files/x"):
        address = f"/api/ingest/{remote_once.uid}/0/worker-0/7/{path}?offset=0"
        assert remote_once.served.ask("PUT", address, b"x", **bearer).status == 503
    assert list(tmp_path.iterdir()) == []


def test_a_token_writes_to_its_own_experiment_and_does_nothing_else(remote_once: Remote) -> None:
    served, uid = remote_once.served, remote_once.uid
    mine, other = {"authorization": f"Bearer {remote_once.token}"}, "f" * 32
    assert served.ask("GET", f"/api/ingest/{uid}/0/worker-0/9", **mine).status == 200
    for method, path, headers in [
        ("GET", f"/api/ingest/{other}/0/worker-0/9", mine),
        ("PUT", f"/api/ingest/{other}/0/worker-0/9/log/000000?offset=0", mine),
        ("GET", f"/api/ingest/{uid}/0/worker-0/9", {"authorization": f"Bearer {write_token(served.token, other)}"}),
        ("GET", f"/api/ingest/{uid}/0/worker-0/9", {"authorization": "Bearer wrong"}),
        ("GET", f"/api/ingest/{uid}/0/worker-0/9", {"authorization": None}),
        ("GET", "/api/experiments", mine),
        ("GET", f"/api/experiments/{uid}", mine),
        ("POST", "/api/outside", mine),
        ("POST", "/api/server/stop", mine),
        ("GET", f"/api/ingestion/{uid}/0/worker-0/9", mine),
        ("GET", "/api/openapi.json", mine),
    ]:
        assert served.ask(method, path, **headers).status == 401, (method, path)
    home = {"authorization": f"Bearer {served.token}"}
    assert served.ask("GET", f"/api/ingest/{uid}/0/worker-0/9", **home).status == 200
    assert served.ask("GET", f"/api/ingest/{other}/0/worker-0/9", **home).status == 404


def test_how_a_sink_meets_refusals(remote_once: Remote) -> None:
    with pytest.raises(Away, match="401"):
        remote_once.sink(token="wrong").watermarks()
    with pytest.raises(Closed, match="404"):
        remote_once.sink(token=remote_once.served.token, uid="f" * 32).watermarks()
    with pytest.raises(Refused, match="422"):
        remote_once.sink().put("log/x", 0, b"x")
    with pytest.raises(Behind) as told:
        remote_once.sink().put("log/000003", 7, b"x")
    assert told.value.size == 0


def test_only_logs_and_outputs_can_be_deleted(remote_once: Remote) -> None:
    for path in ("/log/000005", "/files/kept", "/outputs/a/b"):
        assert remote_once.ask("PUT", f"{path}?offset=0", b"x").status == 200
    assert remote_once.ask("DELETE", "/outputs/a/b").status == 204
    assert not (remote_once.copy / "outputs" / "a" / "b").exists()
    for path, status in (("/log/000005", 204), ("/log/000005", 204), ("/files/kept", 422), ("/exit.json", 422)):
        assert remote_once.ask("DELETE", path).status == status
    assert not (remote_once.copy / "log" / "000005").exists()
    assert (remote_once.copy / "files" / "kept").exists()


def test_after_the_end_what_is_missing_can_be_added_and_nothing_changes(remote: Remote) -> None:
    first, other = b'{"exit_code": 0}', b'{"exit_code": 1}'
    assert remote.ask("PUT", "/log/000000?offset=0", b"begun").status == 200
    assert remote.ask("PUT", "/exit.json?offset=0", first).status == 200
    remote.end()
    assert remote.ask("PUT", "/log/000000?offset=0", b"BEGUN, and the end").status == 200
    assert (remote.copy / "log" / "000000").read_bytes() == b"begun, and the end", "only what was missing is taken"
    for method, path, body in (
        ("DELETE", "/log/000000", None),
        ("DELETE", "/outputs/x", None),
        ("PUT", "/exit.json?offset=0", other),
    ):
        answer = remote.ask(method, path, body)
        assert (answer.status, "is over" in answer.json()["what"]) == (409, True), path
    with pytest.raises(Refused, match="is over"):
        remote.sink().delete("log/000000")
    assert remote.ask("PUT", "/exit.json?offset=0", first).status == 200, "it is there already"
    assert (remote.copy / "exit.json").read_bytes() == first


def test_outputs_that_come_after_the_end_are_published_once_they_are_whole(remote: Remote) -> None:
    """Its node was lost, say, and came back: what its launcher holds is the only copy."""
    (remote.directory / "outputs" / "worker-0").mkdir(parents=True)
    (remote.directory / "outputs" / "worker-0" / "model.pt").write_bytes(random.Random(2).randbytes(3 * MIB))
    over(remote.directory)
    remote.end()
    Shipper(Mirror(str(remote.directory), remote.sink())).finish()
    (found,) = [file for file in remote.served.client.outputs(remote.word) if file["path"].endswith("model.pt")]
    assert (found["path"], found["size"]) == ("worker-0/model.pt", 3 * MIB)
    again = Mirror(str(remote.directory), remote.sink())
    assert not again.carry()
    other = {"path": "outputs/worker-0/model.pt", "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    end = (remote.copy / "manifest.jsonl").stat().st_size
    for method, path, body in (
        ("PUT", "/outputs/worker-0/model.pt?offset=0", b"x"),
        ("PUT", f"/manifest.jsonl?offset={end}", json.dumps(other).encode() + b"\n"),
        ("POST", "", None),
    ):
        assert remote.ask(method, path, body).status in (200, 204), path
    (found,) = [file for file in remote.served.client.outputs(remote.word) if file["path"].endswith("model.pt")]
    assert found["size"] == 3 * MIB, "what is there already stays as it is"


def test_half_a_request_leaves_nothing(remote: Remote) -> None:
    import socket

    head = (
        f"PUT /api/ingest/{remote.uid}/0/worker-0/9/log/000000?offset=0 HTTP/1.1\r\nhost: {remote.served.host}\r\n"
        f"authorization: Bearer {remote.token}\r\ncontent-length: 100\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", remote.served.port)) as connection:
        connection.sendall(head.encode() + b"half")
    assert remote.sink().put("log/000000", 0, b"whole") == 5
    assert (remote.copy / "log" / "000000").read_bytes() == b"whole"


def test_a_server_that_is_away_loses_nothing_and_doubles_nothing(remote: Remote) -> None:
    shipper = Shipper(Mirror(str(remote.directory), remote.sink()))
    (remote.directory / "streams").mkdir()
    stream = JournalFile(str(remote.directory / "streams"), {"kind": "metric", "rank": 0, "started": 1.0})
    trouble = []
    for step in range(300):
        stream.points([journal.Group(("loss",), [float(step)], [step], [[step / 2]])])
        if step == 100:
            assert shipper.carry()
            remote.served.client.end_server()
        elif step == 200:
            remote.served.client.server()  # whoever asks first starts it again
        elif step % 50 == 25:
            trouble.append(shipper.carry())
    assert trouble == [True, True, False, False, True, True]
    stream.end({"time": 1.0, "how": "finished", "error": "", "dropped": 0})
    over(remote.directory)
    shipper.finish()
    assert tree(remote.copy) == tree(remote.directory)
    found = points(remote.copy / "streams", "metric")
    assert [(step, value) for step, _, value in found["loss"]] == [(step, step / 2) for step in range(300)]


def test_a_shipper_that_is_killed_again_and_again_loses_nothing(remote: Remote) -> None:
    fill(remote.directory)
    command = [sys.executable, "-m", "shoal.launcher.shipping", str(remote.directory)]
    chance = random.Random(11)
    for _ in range(6):
        process = subprocess.Popen(command, env={**os.environ, **remote.variables()})
        wanted = chance.randint(0, 3 * MIB)
        until(lambda wanted=wanted: held(remote) >= wanted or held(remote) >= 3 * MIB, "some of it")
        process.kill()
        process.wait()
        with open(remote.directory / "log" / "000000", "ab") as log:
            log.write(chance.randbytes(200_000))
    over(remote.directory)
    done = subprocess.run(command, env={**os.environ, **remote.variables()}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert tree(remote.copy) == tree(remote.directory)


def held(remote: Remote) -> int:
    return sum(len(data) for data in tree(remote.copy).values()) if remote.copy.exists() else 0


def test_what_the_server_has_taken_in_is_not_sent_again(remote: Remote) -> None:
    fill(remote.directory)
    Mirror(str(remote.directory), remote.sink()).carry()
    (remote.copy / "files" / "a" / "model.bin").unlink()  # as when it becomes a blob
    again = Mirror(str(remote.directory), remote.sink())
    again.carry()
    assert again.carried == 0
    assert not (remote.copy / "files" / "a" / "model.bin").exists()


def test_a_launcher_far_away_carries_everything_by_itself(remote: Remote, tmp_path: Path) -> None:
    variables = remote.variables()
    directory = ran(tmp_path / "elsewhere", "echo hello; sleep 0.3; echo bye >&2", **variables)
    assert not (directory / "companion.err").exists()
    assert tree(remote.copy) == tree(directory)
    lines = remote.served.client.home / "experiments" / remote.word / "attempt-0" / "worker-0" / "try-9" / "log"
    assert (lines / "000000").read_bytes() == b"hello\nbye\n"


def test_over_tls_only_who_is_trusted_gets_anything(tmp_path: Path) -> None:
    for name in ("cert", "other"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{name}.key", "-out", f"{name}.pem"],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip
    listening = subprocess.Popen(
        [sys.executable, "-c", TLS_SERVER, "cert.pem", "cert.key"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert listening.stdout is not None
    port = int(listening.stdout.readline())
    try:
        address = f"https://localhost:{port}/"
        assert HttpSink(address, "u/0/w/0", "t", ca=str(tmp_path / "cert.pem")).watermarks().sizes == {"log/000000": 7}
        for ca in ("", str(tmp_path / "other.pem")):
            with pytest.raises(Away, match="SSLCertVerificationError"):
                HttpSink(address, "u/0/w/0", "t", ca=ca).watermarks()
    finally:
        listening.kill()
        listening.wait()


TLS_SERVER = """
import http.server, ssl, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"sizes": {"log/000000": 7}, "taken": {}}'
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"""
