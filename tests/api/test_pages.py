"""Files of the console and the small pages around it. A console made by hand stands for the built one."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest

from shoal.server.pages import Pages, safe_path
from tests.api.speaking import Answer, Served
from tests.running import shoal

SCRIPT = b"console.log('a whale is no fish')\n" * 20


@pytest.fixture
def console(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>console</title>")
    (tmp_path / "favicon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "assets" / "main-3fa9.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "main-3fa9.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path.parent / "beside.txt").write_text("not of the console")
    return tmp_path


def ask(console: Path, path: str, method: str = "GET", **headers: str) -> Answer:
    """What the pages answer, without a server around them; what they leave to the API is 299."""

    async def api(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    said: list[Any] = []
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": given}
    pages: Any = Pages(api, None, console)  # type: ignore[arg-type]  # with a console, no store is asked
    asyncio.run(pages(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return Answer(said[0]["status"], found, b"".join(part.get("body", b"") for part in said[1:]))


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/", 200, "text/html; charset=utf-8"),
        ("/index.html", 200, "text/html; charset=utf-8"),
        ("/experiments/e7k2m9", 200, "text/html; charset=utf-8"),
        ("/experiments/e7k2m9/logs", 200, "text/html; charset=utf-8"),
        ("/apians", 200, "text/html; charset=utf-8"),
        ("/favicon.svg", 200, "image/svg+xml"),
        ("/assets/main-3fa9.js", 200, "text/javascript; charset=utf-8"),
        ("/assets/main-3fa9.js.gz", 404, "application/json"),
        ("/assets/main-old.js", 404, "application/json"),
        ("/assets", 200, "text/html; charset=utf-8"),
        ("/assets/", 404, "application/json"),
        ("/robots.txt", 404, "application/json"),
        ("/datasets/cifar10.small", 200, "text/html; charset=utf-8"),
        ("/../beside.txt", 200, "text/html; charset=utf-8"),
        ("//../beside.txt", 200, "text/html; charset=utf-8"),
        ("/assets/../../beside.txt", 404, "application/json"),
        ("/a\0b", 200, "text/html; charset=utf-8"),
        ("/" + "x" * 5000, 200, "text/html; charset=utf-8"),
    ],
)
def test_what_lies_behind_an_address(console: Path, path: str, status: int, kind: str) -> None:
    answer = ask(console, path)
    assert (answer.status, answer.headers["content-type"]) == (status, kind)
    if kind.startswith("text/html"):
        assert b"<title>console</title>" in answer.body
        assert answer.headers["cache-control"] == "no-cache"
    if status == 200:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/experiments", "/sign-in"])
def test_the_api_is_left_to_the_api(console: Path, path: str) -> None:
    assert ask(console, path).status == 299


def test_pages_are_only_read(console: Path) -> None:
    assert ask(console, "/", "POST").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
    ],
)
def test_assets_are_sent_packed_and_kept_for_ever(console: Path, accepts: str, packed: bool) -> None:
    answer = ask(console, "/assets/main-3fa9.js", accept_encoding=accepts)
    assert answer.headers.get("content-encoding") == ("gzip" if packed else None)
    assert (gzip.decompress(answer.body) if packed else answer.body) == SCRIPT
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["vary"] == "accept-encoding"


def test_what_a_browser_has_is_not_sent_again_until_it_changes(console: Path) -> None:
    tag = ask(console, "/").headers["etag"]
    assert ask(console, "/", if_none_match=tag).status == 304
    (console / "index.html").write_text("<!doctype html><title>another</title>")
    assert ask(console, "/", if_none_match=tag).status == 200


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("/", True),
        ("/experiments/e7k2m9?tab=logs&replicas=worker-*#a", True),
        ("//elsewhere.example", False),
        ("/\\elsewhere.example", False),
        ("/\t/elsewhere.example", False),
        ("/ /elsewhere.example", False),
        ("https://elsewhere.example", False),
        ("javascript:alert(1)", False),
        ("experiments", False),
        ("", False),
        ("/ä", False),
        ('/"><script>', False),
        ("/\r\nset-cookie: a=b", False),
    ],
)
def test_a_link_leads_to_this_server_only(given: str, safe: bool) -> None:
    assert safe_path(given) == (given if safe else "/")


def test_a_browser_that_is_not_signed_in_is_told_how(served: Served) -> None:
    answer = served.ask("GET", "/experiments/e7k2m9", authorization=None, accept="text/html,*/*")
    assert (answer.status, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert b"<code>shoal open</code>" in answer.body
    assert b"http-equiv=refresh" not in answer.body
    from_a_link = served.ask("GET", "/", authorization=None, accept="text/html", sec_fetch_site="cross-site")
    assert b"http-equiv=refresh" in from_a_link.body, "the cookie comes along when our own page asks"
    for path in ("/api/experiments", "/api"):
        program = served.ask("GET", path, authorization=None, accept="text/html")
        assert (program.status, program.json()["what"]) == (401, "a token is needed")


def test_a_link_shows_the_page_it_was_made_for(served: Served) -> None:
    word = served.quick()
    result = shoal("open", "--print", word, SHOAL_HOME=str(served.home))
    path = result.stdout.strip().removeprefix(f"http://{served.host}")
    first = served.ask("GET", path, authorization=None)
    assert (first.status, first.headers["location"]) == (303, f"/experiments/{word}")
    cookie = first.headers["set-cookie"].partition(";")[0]
    again = served.ask("GET", path, authorization=None, cookie=cookie)
    assert (again.status, again.headers["location"]) == (303, f"/experiments/{word}"), "the cookie is enough"
    assert "set-cookie" not in again.headers
    missing = shoal("open", "--print", "nobody", SHOAL_HOME=str(served.home))
    assert (missing.returncode, missing.stdout) == (2, "")


@pytest.mark.parametrize("next_", ["//elsewhere.example", "https://elsewhere.example", "%5C%5Celsewhere", "/%09/x"])
def test_no_link_leads_elsewhere(served: Served, next_: str) -> None:
    assert served.ask("POST", f"/api/sign-in?next={next_}").status == 422
    code = served.ask("POST", "/api/sign-in").json()["url"].rpartition("=")[2]
    answer = served.ask("GET", f"/sign-in?code={code}&next={next_}", authorization=None)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_signing_out_takes_the_cookie(served: Served) -> None:
    answer = served.ask("POST", "/api/sign-out", origin=f"http://{served.host}")
    assert answer.status == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert served.token not in answer.headers["set-cookie"]


def test_run_prints_where_its_experiment_is_shown(served: Served, tmp_path: Path) -> None:
    (tmp_path / "experiment.yml").write_text("run: {cmd: 'true'}")
    result = shoal("run", str(tmp_path), SHOAL_HOME=str(served.home))
    word = served.client.experiments()[0]["id"]
    assert f"&next=/experiments/{word}\n" in result.stderr
