"""Requests that nobody thought of. Whatever comes, the server does as it is told or says what is wrong with it.

What is submitted here is harmless: the only command that ever runs is `true`.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from shoal.states import FINAL
from tests.api.speaking import Served
from tests.running import until

EXAMPLES = 40  # of each operation, and of each test by hand
STREAMS = ["/api/events", "/api/experiments/{word}/follow"]  # they do not end: by hand below
ENDS_THE_SERVER = "/api/server/stop"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    allow_header_conformance,
]
HARMLESS = (
    "run: {cmd: 'true'}",
    "name: fuzzed\ntags: [a]\nparams: {lr: .nan, b: [1, {c: null}]}\nrun: {cmd: 'true'}",
    "framework: pytorch\nrun: {cmd: ['true', 'true']}\nenvironment: {replicas: {n_workers: 1}}",
    "version: 1\nkind: experiment\nrun: {cmd: 'true # {{ x }}'}",
    "run: {cmd: 'true'}\ntimeout: {run: 1s}\nrestart: {policy: experiment, max: 1}",
    "environment: {resources: {cpu: {requests: 100000}}}\nrun: {cmd: 'true'}",
    "environment: {env_vars: {A: b}, secret_refs: [x]}\nrun: {cmd: 'true'}",
    "run: {cmd: 'true'}\ndata: [{dataset: a}, {uri: /etc/hostname}, {uri: 'ftp://a'}]",
    "run: {cmd: 'true'}\ndata: [{uri: /etc/hostname}]",
    "[", "- a", "", "%", "a: &a [*a]", "\t", "run: 1",
)  # fmt: skip
PLACES = ("/etc/hostname", "/nonexistent", "/etc/hostname/a", "ftp://a", "s3://", "\0")


@pytest.fixture(scope="module")
def known(served: Served) -> Iterator[str]:
    """An experiment to ask about; whatever else was submitted is ended afterwards."""
    word = served.run(HARMLESS[0])
    served.finished(word)
    yield word
    for experiment in served.client.experiments(limit=1000):
        if experiment["state"] not in FINAL:
            served.client.stop(experiment["id"], 0.0)
    states = {experiment["state"] for experiment in until(lambda: all_over(served), "the end of all experiments")}
    assert states <= set(FINAL)
    assert served.client.server()["engine"] == ""


def all_over(served: Served) -> list[dict[str, Any]]:
    found = served.client.experiments(limit=1000)
    return found if all(experiment["state"] in FINAL for experiment in found) else []


def operations(served: Served) -> Iterator[APIOperation]:
    schema = schemathesis.openapi.from_dict(served.ask("GET", "/api/openapi.json").json())
    schema.config.update(base_url=f"http://{served.host}")
    for found in schema.exclude(path=[*STREAMS, ENDS_THE_SERVER]).get_all_operations():
        yield found.ok()


@pytest.mark.parametrize("mode", GenerationMode, ids=["requests as they should be", "requests as they should not be"])
def test_the_server_does_what_its_document_says(
    served: Served, known: str, subtests: pytest.Subtests, mode: GenerationMode
) -> None:
    tried = 0
    for operation in operations(served):
        try:
            cases = operation.as_strategy(generation_mode=mode)
        except schemathesis.errors.SchemathesisError:
            continue  # nothing can be wrong with a request that takes nothing

        @given(case=cases)
        @settings(max_examples=EXAMPLES)
        def ask(case: schemathesis.Case) -> None:
            make_harmless(case)
            ask_about(case, known)
            answer = case.call(headers=served.bearer, timeout=30, allow_redirects=False)
            case.validate_response(answer, checks=CHECKS)
            if answer.status_code >= 400 and case.path != "/sign-in":
                assert set(answer.json()) == {"what", "where", "hint", "problems"}

        with subtests.test(operation.label):
            ask()
            tried += 1
    assert tried >= 8


def make_harmless(case: schemathesis.Case) -> None:
    """Files are taken from the table; half of the directories exist, so that some experiments are accepted."""
    body = case.body
    if not isinstance(body, dict):
        return
    for number, file in enumerate(body["files"] if isinstance(body.get("files"), list) else []):
        if isinstance(file, dict) and isinstance(file.get("text"), str):
            file["text"] = HARMLESS[(len(file["text"]) + number) % len(HARMLESS)]
    if isinstance(body.get("uri"), str):  # a data set may be any path, and reading all of a disk takes long
        body["uri"] = PLACES[len(body["uri"]) % len(PLACES)]
    if isinstance(body.get("directory"), str) and len(body["directory"]) % 2 == 0:
        body["directory"] = "/"
    if isinstance(body.get("params"), list) and len(body["params"]) % 2 == 0:
        body["params"] = [f"x={number}" for number, _ in enumerate(body["params"])]


def ask_about(case: schemathesis.Case, known: str) -> None:
    """Half of the requests are about an experiment that there is; it is never removed."""
    word = (case.path_parameters or {}).get("word")
    if case.method != "DELETE" and isinstance(word, str) and len(word) % 2 == 0:
        case.path_parameters["word"] = known


printable = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=80).map(
    str.strip
)


@given(
    after=st.none() | st.integers() | st.text(max_size=20),
    experiment=st.none() | st.text(max_size=20) | st.just("known"),
    last=st.none() | printable | st.integers().map(str),
)
@settings(max_examples=EXAMPLES)
def test_a_stream_of_events_begins_or_is_refused(
    served: Served, known: str, after: Any, experiment: str | None, last: str | None
) -> None:
    query = {"after": after, "experiment": known if experiment == "known" else experiment}
    answer = served.ask("GET", with_query("/api/events", query), last_event_id=last)
    assert answer.status in (200, 404, 422)


@given(replica=st.none() | st.text(max_size=40), word=st.text(max_size=40) | st.just("known"))
@settings(max_examples=EXAMPLES)
def test_following_begins_or_is_refused(served: Served, known: str, replica: str | None, word: str) -> None:
    about = known if word == "known" else quote(word, safe="")
    answer = served.ask("GET", with_query(f"/api/experiments/{about}/follow", {"replica": replica}))
    assert answer.status in (200, 404)
    assert word != "known" or answer.status == 200


def with_query(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode({name: value for name, value in query.items() if value is not None})}"


@given(
    host=printable | st.just("right"),
    origin=st.none() | printable,
    cookie=st.none() | printable,
    authorization=st.none() | printable | printable.map("Bearer {}".format),
    method=st.sampled_from(["GET", "POST", "DELETE", "OPTIONS"]),
    path=st.sampled_from(["/", "/api/experiments", "/api/experiments/1", "/api/events", "/api/server/stop", "/x"]),
)
@settings(max_examples=5 * EXAMPLES)
def test_no_headers_get_past_the_guard(served: Served, host: str, method: str, path: str, **others: str | None) -> None:
    answer = served.ask(method, path, host=served.host if host == "right" else host, **others)
    assert answer.status in (400, 401, 403, 421)


@given(body=st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(repr).map(str.encode))
@settings(max_examples=EXAMPLES)
def test_what_is_not_json_is_refused(served: Served, body: bytes) -> None:
    for path in ("/api/experiments", "/api/plan", "/api/experiments/1/stop", "/api/experiments/1/rerun"):
        assert served.ask("POST", path, body).status in (400, 404, 422)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 200_000, id="a very deep list"),
        pytest.param(b'{"a":' * 100_000, id="a very deep object"),
        pytest.param(b"1" * 100_000, id="a very long number"),
        pytest.param(b'{"grace": NaN}', id="not a number"),
        pytest.param(b'{"grace": 1e999}', id="an infinite number"),
        pytest.param(b'{"grace": ' + b"9" * 5000 + b"}", id="a long number"),
        pytest.param(b'{"\\ud800": 1}', id="half a character as a key"),
        pytest.param(b'{"params": ["\\ud800=1"]}', id="half a character in a param"),
        pytest.param(b'{"params": ["x=\\ud800"]}', id="half a character as a value"),
        pytest.param(b'{"params": ["x=\\u0000"]}', id="a zero byte as a value"),
        pytest.param(b"\xff\xfe", id="bytes that are no text"),
        pytest.param("{}".encode("utf-16"), id="an empty object in UTF-16"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"files": []}', id="no files"),
        pytest.param(b'{"files": [{"name": "\\ud800", "text": "["}]}', id="half a character as the name of a file"),
        pytest.param(b'{"files": [{"name": "a", "text": "\\ud800: 1"}]}', id="half a character in a file"),
        pytest.param(b'{"files": [{"name": "a", "text": "x: \\u0000"}]}', id="a zero byte in a file"),
        pytest.param(b'{"files": [{"name": "\\u0000\\n", "text": "["}]}', id="a zero byte in the name of a file"),
    ],
)
@pytest.mark.parametrize(
    "path", ["/api/experiments", "/api/plan", "/api/experiments/known/stop", "/api/experiments/known/rerun"]
)
def test_strange_json_is_no_mistake_of_the_server(served: Served, known: str, path: str, body: bytes) -> None:
    answer = served.ask("POST", path.replace("known", known), body)
    assert answer.status < 500
    assert answer.status in (200, 201) or set(answer.json()) == {"what", "where", "hint", "problems"}


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"\r\n\r\n", id="empty lines"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS"),
        pytest.param(b"GET /api/server\r\n\r\n", id="no version"),
        pytest.param(b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n", id="a zero byte in the path"),
        pytest.param(b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", id="a path that is too long"),
        pytest.param(
            b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", id="a header that is too long"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", id="a negative length"),
        pytest.param(
            b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", id="a web socket"
        ),
    ],
)
def test_what_is_not_http_is_refused(served: Served, request_: bytes) -> None:
    try:
        said = served.raw(request_)
    except ConnectionError:  # refused before it was read to its end
        said = b""
    assert not said or 400 <= int(said.split()[1]) < 500
    assert served.ask("GET", "/api/server").status == http.client.OK
