"""One server for each home: how they start, end, share a machine, and listen."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.client import Client, alive
from shoal.errors import Unavailable, UsageError
from shoal.home import read_server
from tests.api.speaking import THREE, Gate, Served
from tests.clusters.daemons import free_ports
from tests.conftest import clear
from tests.running import SHOAL, shoal, until


def serve(home: Path, *options: str) -> subprocess.Popen[str]:
    """`python -m shoal.server`, in the foreground of the test."""
    command = [sys.executable, "-m", "shoal.server", "--home", str(home), *options]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_a_second_server_refuses_politely(alone: Served) -> None:
    before = alone.written
    second = serve(alone.home)
    _, said = second.communicate(timeout=60)
    assert second.returncode == 3
    assert said.splitlines()[0] == f"error: a server already serves {alone.home} (pid {alone.pid})"
    assert "Traceback" not in said
    assert alone.written == before
    assert alone.client.server()["pid"] == alone.pid


def test_clients_that_start_a_server_at_the_same_moment_get_the_same(home: Path) -> None:
    barrier = threading.Barrier(4)

    def start(_: int) -> int:
        barrier.wait()
        return int(Client(home).server()["pid"])

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(start, range(4)))) == 1


def test_two_homes_do_not_disturb_each_other(alone: Served, tmp_path: Path) -> None:
    place = tmp_path / "other"
    try:
        other = Served(place, Client(place))
        assert (other.port, other.pid) != (alone.port, alone.pid)
        assert other.ask("GET", "/api/server", authorization=alone.bearer["authorization"]).status == 401
        gate = Gate(tmp_path / "gate")
        first = alone.run(THREE.format(command=gate.wait), oversubscribe=True)
        second = other.quick("echo other")
        assert [e["id"] for e in alone.client.experiments()] == [first]
        assert [e["id"] for e in other.client.experiments()] == [second]
        other.client.end_server()
        clear(place)
        gate.open(3)
        assert alone.finished(first)["state"] == "succeeded"
    finally:
        clear(place)


def test_links_survive_a_restart(alone: Served) -> None:
    word = alone.quick("echo hello")
    before = alone.written
    alone.client.end_server()
    after = Served(alone.home, Client(alone.home))
    assert after.pid != before["pid"]
    assert (after.written["url"], after.token) == (before["url"], before["token"])
    assert [line["text"] for line in after.client.logs(word)] == ["hello"] * 3


def test_whoever_comes_while_a_server_ends_gets_the_next(alone: Served) -> None:
    before = alone.pid
    with alone.open("GET", "/api/events"):  # it waits a while for those who listen
        alone.ask("POST", "/api/server/stop")
        until(lambda: alive(alone.home) is None, "that it does not answer any more")
        assert Client(alone.home).server()["pid"] != before


def test_another_port_is_taken_when_somebody_holds_the_last_one(alone: Served) -> None:
    """And whoever holds it is not shown the token."""
    port = alone.port
    alone.client.end_server()
    with socket.create_server(("127.0.0.1", port)) as stranger:
        stranger.setblocking(False)
        again = Served(alone.home, Client(alone.home))
        assert again.port != port
        assert again.client.server()["pid"] == again.pid
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_a_home_has_one_server_whatever_it_is_called(alone: Served, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "link").symlink_to(alone.home)
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "link", Path("home"), tmp_path / "x" / ".." / "home"):
        (tmp_path / "x").mkdir(exist_ok=True)
        assert Client(name).server()["pid"] == alone.pid


def test_a_copied_home_gets_a_server_of_its_own(alone: Served, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(alone.home / "server.json", copy)
    try:
        assert Client(copy).server()["home"] == str(copy)
        assert alone.client.server()["pid"] == alone.pid
    finally:
        clear(copy)


@pytest.mark.parametrize(
    ("server", "code", "said"),
    [
        ("http://127.0.0.1:{closed}", 3, "cannot be reached"),
        ("http://[::1", 2, "SHOAL_SERVER or SHOAL_TOKEN cannot be used"),
        ("nonsense", 3, "cannot be reached"),
        ("http://127.0.0.1:{other}", 3, "what answers there is not Shoal"),
    ],
)
def test_a_wrong_address_is_a_clear_error(server: str, code: int, said: str) -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi"
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))

        def answer() -> None:
            with suppress(OSError):
                connection, _ = other.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(page)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = server.format(other=other.getsockname()[1], closed=closed.getsockname()[1])
        result = shoal("ls", SHOAL_SERVER=address, SHOAL_TOKEN="x")
    assert result.returncode == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_question_to_a_connection_that_was_closed_meanwhile_is_asked_again(monkeypatch: Any) -> None:
    """By a proxy, for example, that keeps idle ones for a shorter time than we do."""
    nothing = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]"
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def answer() -> None:
            for _ in range(2):
                connection, _ = proxy.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(nothing)
                    connection.recv(65536)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        monkeypatch.setenv("SHOAL_SERVER", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(UsageError, match="SHOAL_TOKEN is not"):
            Client()
        monkeypatch.setenv("SHOAL_TOKEN", "x")
        client = Client()
        assert [client.experiments(), client.experiments()] == [[], []]
        with pytest.raises(Unavailable, match="cannot be reached"):
            client.stop("x")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=shoal.example",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    return place


def test_serve_answers_over_https(home: Path, certificate: Path) -> None:
    (port,) = free_ports(1)
    options = ["--host", "127.0.0.1", "--port", str(port), "--tls-cert", str(certificate / "cert.pem")]
    command = [SHOAL, "serve", *options, "--tls-key", str(certificate / "key.pem")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = f"https://127.0.0.1:{port}"
            assert process.stderr.readline() == f"shoal serves {home} at {url}\n"
            written = read_server(home)
            assert written is not None
            token = {"authorization": f"Bearer {written['token']}"}
            trusted = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
            with httpx.Client(base_url=url, verify=trusted, trust_env=False) as client:
                assert client.get("/api/server").status_code == 401
                assert client.get("/api/server", headers=token).json()["kept"] is True
                assert client.get("/api/server", headers={**token, "origin": url}).status_code == 200
                link = client.post("/api/sign-in", headers=token).json()["url"]
                assert link.startswith(url)
                assert "secure" in client.get(link).headers["set-cookie"].lower()
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.get(url, trust_env=False)
            # The command line of this home trusts the certificate that its server wrote down.
            assert json.loads(shoal("server", "status", "--json").stdout)["pid"] == written["pid"]
            assert Client(home).experiments() == []
            assert "the server has ended" in shoal("server", "stop").stdout
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--tls-key", "key.pem"], 2),
        (["--tls-cert", "nowhere.pem"], 3),
        (["--tls-cert", "key.pem"], 3),
        (["--tls-cert", "cert.pem"], 3),
        (["--host", "192.0.2.1"], 3),
        (["--port", "1", "--host", "256.256.256.256"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_server_that_cannot_start_says_so_before_it_tells_anybody(
    home: Path, certificate: Path, options: list[str], code: int
) -> None:
    paths = [str(certificate / option) if option.endswith(".pem") else option for option in options]
    server = serve(home, *paths)
    _, said = server.communicate(timeout=60)
    assert server.returncode == code, said
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert not (home / "server.json").exists()


def test_a_server_on_all_addresses_answers_to_each_and_to_names_of_the_settings(home: Path) -> None:
    """To the address that a request came to, but to no other; and to no name that somebody else made up."""
    home.mkdir()
    (home / "config.toml").write_text('[server]\nhosts = ["Shoal.Lab", "proxy.lab:8443"]\n')
    server = serve(home, "--host", "0.0.0.0")
    try:
        until(lambda: alive(home) or server.poll() is not None, "a server")
        written = read_server(home)
        assert written is not None
        port = written["port"]
        own = own_address()
        expected = [
            ("127.0.0.1", f"127.0.0.1:{port}", 200),
            ("127.0.0.1", f"localhost:{port}", 200),
            ("127.0.0.2", f"127.0.0.2:{port}", 200),
            (own, f"{own}:{port}", 200),
            ("127.0.0.1", f"{socket.gethostname().lower()}:{port}", 200),
            ("127.0.0.1", f"shoal.lab:{port}", 200),
            ("127.0.0.1", "shoal.lab", 200),
            ("127.0.0.1", "proxy.lab:8443", 200),
            ("127.0.0.1", "proxy.lab", 421),
            ("127.0.0.1", f"{own}:{port + 1}", 421),
            ("127.0.0.1", f"127.0.0.9:{port}", 421),
            ("127.0.0.1", f"elsewhere.example:{port}", 421),
        ]
        for address, name, status in expected:
            headers = {"host": name, "authorization": f"Bearer {written['token']}"}
            answer = httpx.get(f"http://{address}:{port}/api/server", headers=headers, trust_env=False)
            assert answer.status_code == status, (address, name)
        assert shoal("ls", SHOAL_HOME=str(home)).returncode == 0
    finally:
        server.terminate()
        server.wait(timeout=30)


def own_address() -> str:
    """One that is not of loopback, where there is one: nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.3"


def test_names_that_are_no_list_are_refused(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[server]\nhosts = "shoal.lab"\n')
    done = shoal("ls", SHOAL_HOME=str(home))
    assert done.returncode == 2
    assert "server.hosts: not a list of names" in done.stderr


def test_code_is_given_to_who_may_write_to_its_experiment(alone: Served) -> None:
    from shoal.server.trust import write_token

    made = alone.client.create([("x.yml", "run: {cmd: 'true'}\n")], [], str(alone.home), {})["experiment"]
    uid, sha = made["uid"], "ab" * 32
    place = alone.home / "experiments" / made["id"] / "attempt-0"
    place.mkdir(exist_ok=True)
    (place / f"code-{sha}.tar.gz").write_bytes(b"packed")
    path = f"/api/ingest/{uid}/0/code/{sha}"
    mine = f"Bearer {write_token(alone.token, uid)}"
    assert alone.ask("GET", path, authorization=mine).body == b"packed"
    assert alone.ask("GET", path, authorization=f"Bearer {write_token(alone.token, 'another')}").status == 401
    assert alone.ask("GET", path.replace(sha, "cd" * 32), authorization=mine).status == 404
    assert alone.ask("GET", path.replace(sha, "../../shoal.db"), authorization=mine).status in (404, 405, 422)
    assert alone.ask("GET", path.replace("/0/", "/7/"), authorization=mine).status == 404
