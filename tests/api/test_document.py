"""What the OpenAPI document says, and how errors read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.speaking import Served
from tests.running import until


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "what"),
    [
        ("GET", "/api/experiments/nobody", None, 404, "there is no experiment 'nobody'"),
        ("GET", "/api/nowhere", None, 404, "GET /api/nowhere: Not Found"),
        ("GET", "/nowhere.txt", None, 404, "there is no /nowhere.txt"),
        ("PUT", "/nowhere", None, 405, "PUT /nowhere: Method Not Allowed"),
        ("GET", "/api/experiments/", None, 404, "GET /api/experiments/: Not Found"),
        ("PUT", "/api/experiments", None, 405, "PUT /api/experiments: Method Not Allowed"),
        ("GET", "/api/experiments?limit=0", None, 422, "query.limit: Input should be greater than or equal to 1"),
        ("GET", "/api/experiments?before=x", None, 422, "query.before: Input should be a valid integer"),
        ("POST", "/api/experiments", None, 422, "body: Field required"),
        ("POST", "/api/experiments", b"{", 422, "body.1: JSON decode error"),
        ("POST", "/api/experiments", {"files": [], "x": 1}, 422, "body.files: List should have at least 1 item"),
        ("POST", "/api/plan", {"files": [{"name": "e.yml", "text": "run: {cmd: a}\nx: 1"}]}, 422, "e.yml:2:1: x: "),
        ("POST", "/api/experiments/nobody/stop", {}, 404, "there is no experiment 'nobody'"),
        ("DELETE", "/api/experiments/{waiting}", None, 409, "{waiting} is queued"),
    ],
)
def test_errors_say_what_where_and_one_way_on(
    served: Served, waiting: str, method: str, path: str, body: Any, status: int, what: str
) -> None:
    answer = served.ask(method, path.format(waiting=waiting), body)
    said = answer.json()
    assert (answer.status, set(said)) == (status, {"what", "where", "hint", "problems"})
    assert said["what"].startswith(what.format(waiting=waiting))
    assert said["hint"]
    if status == 405:
        assert answer.headers["allow"]


@pytest.fixture(scope="module")
def waiting(served: Served) -> Iterator[str]:
    """An experiment that waits in the queue, because another holds all of the machine."""
    cpus = len(os.sched_getaffinity(0))
    text = f"environment: {{resources: {{cpu: {{requests: {cpus}}}}}}}\ngrace: {{stop: 0s}}\nrun: {{cmd: sleep 1000}}"
    first, second = served.run(text), served.run(text)
    until(lambda: served.client.show(first)["state"] == "running", "the start of the first")
    yield second
    for word in (second, first):
        served.client.stop(word, 0.0)
        served.finished(word)


def test_the_document_describes_everything(served: Served) -> None:
    document = served.ask("GET", "/api/openapi.json").json()
    lacking = []
    for method, path, told in served.operations():
        route = f"{method} {path}"
        if not (told.get("summary") and told.get("description")):
            lacking.append(f"{route}: no description")
        lacking += [f"{route}: {p['name']}" for p in told.get("parameters", []) if not p.get("description")]
        lacking += [
            f"{route}: {status}" for status in ("401", "403", "421", "422", "503") if status not in told["responses"]
        ]
        lacking += [f"{route}: {status}" for status, given in told["responses"].items() if not given.get("description")]
        if "{word}" in path and "404" not in told["responses"]:
            lacking.append(f"{route}: 404")
    for name, model in document["components"]["schemas"].items():
        if name not in ("HTTPValidationError", "ValidationError"):
            lacking += [f"{name}.{key}" for key, field in model["properties"].items() if not says(field)]
    assert lacking == []
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def says(field: dict[str, Any]) -> bool:
    """A field is described, or is a list of, or a reference to, something that is."""
    return bool(field.get("description") or field.get("$ref") or field.get("items", {}).get("$ref"))
