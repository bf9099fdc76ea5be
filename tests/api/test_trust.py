"""Who may ask, by which name and from which page; and that neither the token nor a secret gets about."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from shoal.errors import FileProblems, UsageError
from shoal.launcher import processes
from shoal.server.trust import CODE_LIFETIME, Keys
from tests.api.speaking import Gate, Served
from tests.running import launchers_of, shepherd_of, shoal, until

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
BESIDE = ("/api/openapi.json", "/openapi.json", "/docs", "/redoc", "/nowhere", "/sign-in/", "//sign-in", "/api")
OPEN = "/sign-in"  # it asks for a code
ENDS_THE_SERVER = ("POST", "/api/server/stop")


def routes(served: Served) -> list[tuple[str, str]]:
    """Everything that the OpenAPI document tells of."""
    return [(method, path.replace("{word}", "e00000")) for method, path, _ in served.operations()]


def every_method(served: Served) -> list[tuple[str, str]]:
    """Every method on every path of the document, and on some that are not in it."""
    paths = {path for _, path in routes(served)}
    return [(method, path) for path in sorted({*paths, *BESIDE}) for method in METHODS]


def cookie_name(served: Served) -> str:
    return "shoal_" + hashlib.sha256(str(served.home).encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no token"),
        pytest.param({"authorization": ""}, id="an empty header"),
        pytest.param({"authorization": "Bearer "}, id="an empty token"),
        pytest.param({"authorization": "Bearer wrong"}, id="a wrong token"),
        pytest.param({"authorization": "Bearer {token}x"}, id="the token and more"),
        pytest.param({"authorization": "Bearer {half}"}, id="half of the token"),
        pytest.param({"authorization": "Basic {token}"}, id="the token in another scheme"),
        pytest.param({"authorization": "Bearer tök€n".encode().decode("latin-1")}, id="a token that is not ASCII"),
        pytest.param({"cookie": "shoal_000000000000={token}"}, id="a cookie of another home"),
        pytest.param({"cookie": "session={token}"}, id="a cookie of another program"),
        pytest.param({"cookie": "{name}=wrong"}, id="the cookie with a wrong token"),
        pytest.param({"cookie": "{name}"}, id="the cookie without a value"),
        pytest.param({"cookie": 'a@b="\\'}, id="a cookie that is none"),
        pytest.param({"authorization": "Bearer wrong", "cookie": "{name}={token}"}, id="a wrong token beside a cookie"),
        pytest.param({"x-token": "{token}"}, id="the token in another header"),
    ],
)
def test_nothing_is_answered_without_the_token(served: Served, headers: dict[str, str]) -> None:
    known = {"token": served.token, "half": served.token[:21], "name": cookie_name(served)}
    given = {"authorization": None} | {name: value.format(**known) for name, value in headers.items()}
    answers = {
        (method, path): served.ask(method, path, **given).status
        for method, path in every_method(served)
        if path != OPEN
    }  # fmt: skip
    assert set(answers.values()) == {401}, {route: status for route, status in answers.items() if status != 401}


@pytest.mark.parametrize("way", ["Authorization", "Cookie"])
def test_everything_is_answered_with_the_token(served: Served, way: str) -> None:
    cookie = {"authorization": None, "cookie": f"theme=dark; a@b=c; {cookie_name(served)}={served.token}"}
    for method, path in every_method(served):
        if (method, path) != ENDS_THE_SERVER:
            answer = served.ask(method, path, **(cookie if way == "Cookie" else {}))
            assert answer.status not in (401, 421), (method, path)
            assert answer.status < 500, (method, path)


def test_without_a_token_a_wrong_query_tells_no_more_than_a_right_one(served: Served) -> None:
    for path in ("/api/experiments?limit=no", "/api/experiments/..%2f", "/api/events?after=x", "/api/plan?token=x"):
        assert served.ask("GET", path, authorization=None).status == 401
    assert served.ask("GET", f"/api/server?token={served.token}", authorization=None).status == 401


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("rebound.example", id="another name"),
        pytest.param("rebound.example:{port}", id="another name with the port"),
        pytest.param("127.0.0.1", id="no port"),
        pytest.param("127.0.0.1:1", id="another port"),
        pytest.param("127.0.0.1:{port}.rebound.example", id="a name that begins right"),
        pytest.param("rebound.example@127.0.0.1:{port}", id="a name with a user"),
        pytest.param("127.0.0.2:{port}", id="another loopback address"),
        pytest.param("localhost.:{port}", id="a name with a dot behind"),
        pytest.param("0.0.0.0:{port}", id="the address of all interfaces"),
        pytest.param("", id="an empty name"),
    ],
)
def test_a_server_answers_to_its_own_names_only(served: Served, host: str) -> None:
    for method, path in routes(served):
        answer = served.ask(method, path, host=host.format(port=served.port))
        assert answer.status == 421, (method, path)
        assert answer.json()["hint"] == "use the address shoal prints"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        pytest.param(b"GET /api/server HTTP/1.0\r\n{auth}\r\n", b"421", id="an old client that names nobody"),
        pytest.param(b"GET /api/server HTTP/1.1\r\n{auth}\r\n", b"400", id="a new client that names nobody"),
        pytest.param(b"GET /api/server HTTP/1.1\r\nhost: {host}\r\nhost: x\r\n{auth}\r\n", b"400", id="two names"),
        pytest.param(b"GET http://x/api/server HTTP/1.1\r\nhost: x\r\n{auth}\r\n", b"421", id="a name in the address"),
    ],
)
def test_a_request_names_the_server_once(served: Served, request_: bytes, said: bytes) -> None:
    known = {b"{auth}": f"authorization: Bearer {served.token}\r\n".encode(), b"{host}": served.host.encode()}
    for name, value in known.items():
        request_ = request_.replace(name, value)
    assert served.raw(request_).split()[1] == said


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_all_names_of_loopback_are_its_own(served: Served, host: str) -> None:
    assert served.ask("GET", "/api/server", host=f"{host}:{served.port}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param("http://elsewhere.example", id="another site"),
        pytest.param("null", id="a page without an origin"),
        pytest.param("", id="an empty origin"),
        pytest.param("http://127.0.0.1:1", id="another port of this machine"),
        pytest.param("http://127.0.0.1", id="this machine without a port"),
        pytest.param("http://localhost:{port}", id="another name of this machine"),
        pytest.param("http://127.0.0.1:{port}.elsewhere.example", id="a name that begins right"),
        pytest.param("http://127.0.0.1:{port}@elsewhere.example", id="a user that looks right"),
        pytest.param("http://elsewhere.example/127.0.0.1:{port}", id="a path that looks right"),
        pytest.param("file://", id="a file"),
        pytest.param("http://[::1", id="a broken address"),
        pytest.param("127.0.0.1:{port}", id="no scheme"),
    ],
)
def test_pages_of_other_sites_are_refused_whatever_they_bring_along(served: Served, origin: str) -> None:
    signed_in = {"authorization": None, "cookie": f"{cookie_name(served)}={served.token}"}
    for credentials in ({}, signed_in, {"authorization": None}):
        for method, path in routes(served):
            answer = served.ask(method, path, origin=origin.format(port=served.port), **credentials)
            assert answer.status == 403, (method, path)
            assert "access-control-allow-origin" not in answer.headers


def test_the_own_pages_are_served(served: Served) -> None:
    assert served.ask("GET", "/api/server", origin=f"http://{served.host}").status == 200
    assert served.ask("GET", "/api/server", origin=f"HTTP://{served.host}").status == 200


def sign_in_path(served: Served) -> str:
    url = urlsplit(served.ask("POST", "/api/sign-in").json()["url"])
    assert url.netloc == served.host
    return f"{url.path}?{url.query}"


def test_a_link_signs_in_once(served: Served) -> None:
    link = sign_in_path(served)
    first, second = (served.ask("GET", link, authorization=None) for _ in range(2))
    assert (first.status, first.headers["location"]) == (303, "/")
    assert second.status == 403
    assert "set-cookie" not in second.headers
    (cookie,) = SimpleCookie(first.headers["set-cookie"]).values()
    assert cookie.key == cookie_name(served)
    assert cookie["httponly"] is True
    assert cookie["samesite"].lower() == "strict"
    assert cookie["path"] == "/"
    signed_in = {"authorization": None, "cookie": f"{cookie.key}={cookie.value}"}
    assert served.ask("GET", "/", **signed_in).status == 200
    assert served.ask("GET", "/api/experiments", **signed_in).status == 200


@pytest.mark.parametrize("code", ["", "wrong", "%00", "x" * 200, "x" * 201, "*", "../"])
def test_a_code_that_was_not_given_out_signs_nobody_in(served: Served, code: str) -> None:
    answer = served.ask("GET", f"/sign-in?code={code}", authorization=None)
    assert answer.status in (403, 422)
    assert "set-cookie" not in answer.headers


def test_only_who_has_the_token_gets_a_link(served: Served) -> None:
    assert served.ask("POST", "/api/sign-in", authorization=None).status == 401


@pytest.mark.parametrize(("seconds", "good"), [(0.0, True), (CODE_LIFETIME - 1, True), (CODE_LIFETIME, False)])
def test_a_link_is_good_for_a_minute(seconds: float, good: bool) -> None:
    times = [1000.0]
    keys = Keys("token", "cookie", frozenset(), clock=lambda: times[-1])
    code = keys.new_code()
    times.append(1000.0 + seconds)
    assert keys.take_code(code) is good
    assert keys.take_code(code) is False


def test_codes_that_nobody_took_are_forgotten() -> None:
    times = [0.0]
    keys = Keys("token", "cookie", frozenset(), clock=lambda: times[-1])
    old = [keys.new_code() for _ in range(100)]
    times.append(CODE_LIFETIME + 1)
    young = keys.new_code()
    assert not any(keys.take_code(code) for code in old)
    assert keys.take_code(young)


class Held:
    """An experiment of three replicas that print something and wait until they are released."""

    def __init__(self, served: Served, place: Path, more: str = "", says: str = "echo ready") -> None:
        self.served = served
        self.file = place / "experiment.yml"
        self.gate = Gate(place / "gate")
        self.file.write_text(
            "framework: none\n"
            f"run:\n  cmd:\n    - {says}\n    - {self.gate.wait}\n"
            f"environment:\n  replicas: {{n_workers: 2}}\n{more}"
        )
        self.id = served.run(self.file.read_text(), place, oversubscribe=True)
        self.shepherd = shepherd_of(served.home, self.id)
        self.launchers = launchers_of(served.home, self.id)
        until(lambda: len({line["replica"] for line in served.client.logs(self.id)}) == 3, "the first lines")

    def processes(self) -> set[int]:
        """The server, the shepherd, its twin, the launchers and all processes of the replicas."""
        below = {pid for launcher in self.launchers.values() for pid in processes.descendants(launcher)}
        found = {self.served.pid, self.shepherd["pid"], self.shepherd["twin"], *self.launchers.values(), *below}
        assert len(found) >= 9
        return found

    def release(self) -> dict[str, Any]:
        self.gate.open(3)
        return self.served.finished(self.id)


def files_below(home: Path) -> Iterator[Path]:
    return (path for path in home.rglob("*") if path.is_file())


def answers(served: Served, word: str, submitted: dict[str, Any]) -> dict[tuple[str, str], bytes]:
    """The bodies of all answers that look at an experiment or are about its file."""
    found = {}
    for method, path, _ in served.operations():
        if method == "GET" and "follow" not in path:
            found[method, path] = served.ask(method, path.replace("{word}", word)).body
    for path in ("/api/plan", "/api/sign-in"):
        found["POST", path] = served.ask("POST", path, submitted).body
    with served.open("GET", "/api/events?after=0") as stream:
        found["GET", "/api/events"] = b"".join(stream.readline() for _ in range(12))
    return found


def test_the_token_is_nowhere_but_in_its_file(alone: Served, tmp_path: Path) -> None:
    held = Held(alone, tmp_path)
    token = alone.token.encode()
    for pid in held.processes():
        assert token not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert token not in Path(f"/proc/{pid}/environ").read_bytes()
    submitted = {"files": [{"name": "e.yml", "text": held.file.read_text()}], "directory": str(tmp_path)}
    bodies = answers(alone, held.id, submitted)
    planned = shoal("plan", str(held.file), SHOAL_HOME=str(alone.home))
    assert planned.returncode == 0
    assert token.decode() not in planned.stdout + planned.stderr
    assert held.release()["state"] == "succeeded"
    with alone.open("GET", f"/api/experiments/{held.id}/follow") as stream:
        bodies["GET", "follow"] = stream.read()
    assert all(bodies.values())
    assert [route for route, body in bodies.items() if token in body] == []
    assert [file.name for file in files_below(alone.home) if token in file.read_bytes()] == ["server.json"]


def test_what_holds_variables_or_the_token_is_for_its_owner_only(alone: Served, tmp_path: Path) -> None:
    held = Held(alone, tmp_path)
    experiment = alone.home / "experiments" / held.id
    private = [
        alone.home / "server.json",
        alone.home / "server.lock",
        alone.home / "wake.sock",
        experiment / "environment.json",
        experiment / "attempt-0" / "request.json",
    ]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in private} == {
        path.name: "0o600" for path in private
    }
    for directory in (alone.home, experiment):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    held.release()
    assert not (experiment / "environment.json").exists(), "kept only while it is needed"


WORDS = [
    "..", ".", "%2e%2e", "%2e", "../..", "..%2f..%2fcanary", "..%2fcanary", "%2e%2e%2fcanary", "..%5c..%5ccanary",
    "%2fetc%2fpasswd", "%252e%252e", "..;", "%00", "canary%00", "e%00%2e%2e", "x" * 5000, "%f0%9f%90%9f" * 50, "%c3%a4",
    "%ff%fe", "%c0%ae%c0%ae", "*", "e*", "%3f", "%25", "_", "e%25", "%5b!x%5d*", "%27%20OR%201=1%20--", "-1", "%23",
    "0", "", "99999999999999999999", "1e0", "attempt-0", "outputs", "%0d%0ax:%20y", "$(touch%20canary)", "~", "NaN",
    "%d9%a1",
]  # fmt: skip
ABOUT_ONE = [
    ("GET", ""), ("GET", "/why"), ("GET", "/logs"), ("GET", "/follow"), ("POST", "/stop"), ("POST", "/rerun"),
    ("DELETE", ""),
]  # fmt: skip


def tree(root: Path) -> set[tuple[str, int]]:
    """Every file below, with its size; those that the server writes all the time without their sizes."""
    changing = ("shoal.db", "server.log")
    return {
        (str(path), 0 if path.name.startswith(changing) else path.lstat().st_size)
        for path in root.rglob("*")
    }  # fmt: skip


@pytest.fixture(scope="module")
def canary(served: Served) -> Iterator[Path]:
    """A finished experiment that no pattern may find, and files beside it that no path may reach."""
    for place in (served.home, served.home / "experiments", served.home.parent):
        (place / "canary").mkdir()
        (place / "canary" / "file").write_text("alive")
    served.finished(served.run("name: canary-bird\nrun: {cmd: echo sung}"))
    streams = "experiments/*/attempt-*/*/try-*/streams/*"
    until(lambda: not list(served.home.glob(streams)), "that the server has taken in what was recorded")
    return served.home.parent


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word[:24])
def test_no_word_becomes_a_path_or_a_pattern(served: Served, canary: Path, word: str) -> None:
    before = tree(canary)
    for method, more in ABOUT_ONE:
        answer = served.ask(method, f"/api/experiments/{word}{more}", {} if method == "POST" else None)
        assert answer.status in (404, 405, 422), (method, more, answer)
        assert set(answer.json()) == {"what", "where", "hint", "problems"}
    assert tree(canary) == before


@pytest.mark.parametrize(
    "pattern",
    ["../*", "..%2f..%2f*", "%00", "master-0%00", "%5b", "x" * 5000, "*a" * 500, "%ff", "master-0%2f..", "%20"],
)
def test_no_name_of_a_replica_becomes_a_path(served: Served, canary: Path, pattern: str) -> None:
    before = tree(canary)
    for verb in ("logs", "follow"):
        answer = served.ask("GET", f"/api/experiments/canary-bird/{verb}?replica={pattern}")
        assert answer.status == 200
        assert b"sung" not in answer.body
    assert tree(canary) == before


@pytest.mark.parametrize("pattern", ["master-0", "*", "m?ster-*", "[m]*"])
def test_patterns_find_replicas(served: Served, canary: Path, pattern: str) -> None:
    answer = served.ask("GET", f"/api/experiments/canary-bird/logs?replica={quote(pattern)}")
    assert [json.loads(line)["text"] for line in answer.body.splitlines()] == ["sung"]


@pytest.mark.parametrize("name", ["../../canary", "/etc", "..", "a/b", "a\\0b", "*", "x" * 300, "{{ name }}"])
def test_the_name_in_a_file_becomes_no_path(served: Served, canary: Path, name: str) -> None:
    before = tree(canary)
    text = f'name: "{name}"\nrun: {{cmd: "true"}}'
    answer = served.ask("POST", "/api/experiments", {"files": [{"name": name, "text": text}]})
    assert answer.status == 422
    assert answer.json()["problems"][0]["path"] == "name"
    assert tree(canary) == before


@pytest.mark.parametrize(
    "directory",
    ["", ".", "relative", "../..", "/nowhere", "/\0", "/" + "x" * 300, "/x" * 5000, "/etc/passwd", "\ud800"],
)
@pytest.mark.parametrize("path", ["/api/experiments", "/api/plan"])
def test_the_directory_is_one_that_exists(served: Served, path: str, directory: str) -> None:
    body = {"files": [{"name": "e.yml", "text": "run: {cmd: 'true'}"}], "directory": directory}
    assert served.ask("POST", path, body).status == 422


@pytest.mark.parametrize(
    "variables", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"\ud800": "x"}, {"A": "\ud800"}], ids=repr
)
def test_variables_that_no_process_can_have_are_refused(served: Served, variables: dict[str, str]) -> None:
    body = {"files": [{"name": "e.yml", "text": "run: {cmd: 'true'}"}], "environment": variables}
    answer = served.ask("POST", "/api/experiments", body)
    assert answer.status == 422
    assert answer.json()["what"].startswith("environment: ")


def test_variables_that_are_no_text_reach_the_replica_byte_for_byte(served: Served) -> None:
    variables = {"PATH": "/usr/bin:/bin", "LATIN": os.fsdecode(b"caf\xe9"), "UTF8": "café"}
    text = "run: {cmd: 'printf %s \"$LATIN$UTF8\" | od -An -tx1'}"
    created = served.client.create([("e.yml", text)], (), "/", variables)["experiment"]["id"]
    assert served.finished(created)["state"] == "succeeded"
    printed = "".join(line["text"] for line in served.client.logs(created)).replace(" ", "")
    assert bytes.fromhex(printed) == b"caf\xe9" + "café".encode()


SECRET = "correct-horse-battery-staple"
SECRET_FILE = f'[s3-credentials]\nS3_KEY = "{SECRET}"\n\n[other]\nOTHER_KEY = "{SECRET}-of-nobody"\n'
WITH_SECRET = "  secret_refs: [s3-credentials]\n"


def write_secrets(home: Path, mode: int = 0o600) -> None:
    (home / "secrets.toml").write_text(SECRET_FILE)
    (home / "secrets.toml").chmod(mode)


def test_a_secret_reaches_the_replicas_and_nobody_else(alone: Served, tmp_path: Path) -> None:
    write_secrets(alone.home)
    says = 'printf %s "$S3_KEY" | sha256sum; echo ${OTHER_KEY-unset}'
    held = Held(alone, tmp_path, WITH_SECRET, says)
    secret = SECRET.encode()
    for pid in held.processes():
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
    environment = alone.home / "experiments" / held.id / "environment.json"
    assert secret in environment.read_bytes()
    submitted = {"files": [{"name": "e.yml", "text": held.file.read_text()}], "directory": str(tmp_path)}
    bodies = answers(alone, held.id, submitted)
    for verb in (["plan"], ["check", "--env", "worker-0"]):
        result = shoal(*verb, str(held.file), SHOAL_HOME=str(alone.home))
        assert result.returncode == 0, result.stderr
        assert SECRET not in result.stdout + result.stderr
    for verb in ("show", "why", "logs"):
        assert SECRET not in shoal(verb, held.id, SHOAL_HOME=str(alone.home)).stdout
    assert held.release()["state"] == "succeeded"
    digest = hashlib.sha256(secret).hexdigest()
    printed = [line["text"] for line in alone.client.logs(held.id)]
    assert sorted(printed) == [f"{digest}  -"] * 3 + ["unset"] * 3
    assert [route for route, body in bodies.items() if secret in body] == []
    assert [file.name for file in files_below(alone.home) if secret in file.read_bytes()] == ["secrets.toml"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_secrets_that_others_can_read_are_not_used(served: Served, mode: int) -> None:
    write_secrets(served.home, mode)
    try:
        with pytest.raises(UsageError, match="others can read it") as refused:
            served.run(f"run: {{cmd: 'true'}}\nenvironment:\n{WITH_SECRET}")
        assert refused.value.problems[0].hint == f"chmod 600 {served.home / 'secrets.toml'}"
    finally:
        (served.home / "secrets.toml").unlink()


def test_a_secret_that_cannot_be_a_variable_is_refused_and_not_shown(served: Served) -> None:
    file = served.home / "secrets.toml"
    file.write_text(f'[s3-credentials]\nS3_KEY = "{SECRET}\\u0000"\n')
    file.chmod(0o600)
    try:
        with pytest.raises(UsageError, match="'S3_KEY' cannot be a variable") as refused:
            served.run(f"run: {{cmd: 'true'}}\nenvironment:\n{WITH_SECRET}")
        assert SECRET not in refused.value.text()
    finally:
        file.unlink()


def test_a_secret_that_does_not_exist_is_a_located_error(alone: Served, tmp_path: Path) -> None:
    write_secrets(alone.home)
    text = "run: {cmd: 'true'}\nenvironment:\n  secret_refs: [s3-credentials, gcs]\n"
    with pytest.raises(FileProblems) as refused:
        alone.run(text)
    (problem,) = refused.value.problems
    assert str(problem.where) == "experiment.yml:3:33"
    assert "no secret 'gcs'" in problem.message
    assert "known: s3-credentials, other" in problem.hint
    assert SECRET not in problem.hint
    file = tmp_path / "e.yml"
    file.write_text(text)
    for verb in ("run", "plan"):
        result = shoal(verb, str(file), SHOAL_HOME=str(alone.home))
        assert result.returncode == 2
        assert "e.yml:3:33: environment.secret_refs: there is no secret 'gcs'" in result.stderr
    assert alone.client.experiments() == []
