"""Files before they run: what only the server can tell of them; and with which variables a browser's file runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.spec.schema import json_schema
from tests.api.speaking import Served

RUN = "run: {cmd: a}\n"


def checked(served: Served, text: str, **more: Any) -> Any:
    body = {"files": [{"name": "e.yml", "text": text}], "whole": True, **more}
    answer = served.ask("POST", "/api/check", body)
    assert answer.status == 200
    return answer.json()


@pytest.mark.parametrize(
    ("text", "more", "where", "said"),
    [
        (f"code: nowhere\n{RUN}", {}, "e.yml:1:7", "/nowhere is no directory"),
        (f"data: [{{dataset: unheard-of}}]\n{RUN}", {}, "e.yml:1:18", "unheard-of"),
        (f"environment: {{secret_refs: [none-such]}}\n{RUN}", {}, "e.yml:1:29", "none-such"),
        (f"environment: {{resources: {{cpu: {{requests: 5000}}}}}}\n{RUN}", {}, None, "5000 cpu"),
        (RUN, {"directory": "/there/is/none"}, None, "/there/is/none"),
        (RUN, {"cluster": "moon"}, None, "moon"),
    ],
    ids=[
        "a directory that is not there",
        "a data set that nobody added",
        "a secret that nobody wrote down",
        "more than the machine has",
        "a place that is not there",
        "a cluster that nobody knows",
    ],
)
def test_what_only_the_server_can_tell(
    served: Served, text: str, more: dict[str, Any], where: str | None, said: str
) -> None:
    plain = checked(served, text, **more, whole=False)
    assert (plain["ok"], plain["errors"]) == (True, []), "the file itself is right"
    told = checked(served, text, **more)
    assert told["ok"] is False
    (error,) = told["errors"]
    assert said in error["message"]
    assert error["where"] == where
    assert [replica["replica"] for replica in told["replicas"]] == ["master-0"], "what it means is told all the same"


def test_what_can_run_is_told_with_its_request(served: Served) -> None:
    greedy = f"environment: {{resources: {{cpu: {{requests: 5000}}}}}}\n{RUN}"
    told = checked(served, greedy, oversubscribe=True)
    assert (told["ok"], told["errors"]) == (True, [])
    assert "master-0" in told["request"]
    assert checked(served, RUN, whole=False)["request"] is None


def test_the_schema_is_that_of_the_command(served: Served) -> None:
    assert served.ask("GET", "/api/schema").json() == json_schema()


def test_who_has_no_variables_gets_those_of_the_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser has none; what it submits shall find the same programs as what a terminal submits."""
    monkeypatch.setenv("MARK", "of the server")
    served = Served(home, Client(home))
    line = 'echo "${MARK-nothing} $(env | grep -c ^SHOAL_HOME)"'
    body = {"files": [{"name": "e.yml", "text": f"run: {{cmd: '{line}'}}\n"}], "oversubscribe": True}
    for given, expected in (({}, "of the server 0"), ({"environment": {}}, "nothing 0")):
        word = served.ask("POST", "/api/experiments", {**body, **given}).json()["experiment"]["id"]
        served.finished(word)
        lines = served.ask("GET", f"/api/experiments/{word}/logs/raw?replica=master-0&attempt=0&try=0").body.decode()
        assert lines.strip() == expected
