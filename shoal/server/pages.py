"""The web console: its built files, and the small pages that stand in for it.

The console is built by `make console` into `shoal/server/console`; a wheel has it inside. Names below `assets/` hold a
hash of their content, so browsers keep them for ever; `index.html` answers every other address, because the console
itself knows which page that is. Without a built console the address tells how to build it, and what runs.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from email.utils import formatdate
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from shoal.server.trust import Receive, Scope, Send, refused
from shoal.server.views import experiment
from shoal.store import experiments as store

if TYPE_CHECKING:
    from shoal.server.context import Server

CONSOLE = Path(__file__).parent / "console"

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}
ASK_AGAIN = {"cache-control": "no-cache"}
NEVER_KEPT = {"cache-control": "no-store"}


class Pages:
    """ASGI middleware: everything that is not the API's is a page or a file of the console."""

    def __init__(self, app: Any, server: Server, console: Path = CONSOLE) -> None:
        self.app = app
        self.server = server
        self.console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or of_the_api(scope["path"]):
            await self.app(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            answer: Response = refused(405, f"{scope['method']} {scope['path']}: Method Not Allowed", "GET reads pages")
            answer.headers["allow"] = "GET, HEAD"
        else:
            asked = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            answer = await to_thread.run_sync(self._answer, scope["path"], asked)
        await answer(scope, receive, send)

    def _answer(self, path: str, asked: dict[str, str]) -> Response:
        files = {str(file.relative_to(self.console)): file for file in self.console.rglob("*") if file.is_file()}
        wanted = path.removeprefix("/")
        if wanted not in files or wanted.endswith(".gz"):
            if wanted.startswith("assets/") or ("." in wanted and "/" not in wanted):  # names of data sets have dots
                return refused(404, f"there is no {path[:80]}", "the console's own page is at /")
            if "index.html" not in files:
                return _page(HOW_TO_BUILD + self._what_runs())
            wanted = "index.html"
        return _file(files[wanted], files.get(f"{wanted}.gz"), asked, for_ever=wanted.startswith("assets/"))

    def _what_runs(self) -> str:
        with self.server.database.read() as connection:
            rows = [experiment(row) for row in store.newest(connection, 50)]
        if not rows:
            return "<p>No experiments yet: <code>shoal run examples/quickstart</code></p>"
        columns = ("id", "number", "name", "state", "reason", "framework")
        heads = "".join(f"<th scope=col>{name}</th>" for name in columns)
        lines = "".join("<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in columns) + "</tr>" for row in rows)
        return f"<table><caption>The newest experiments</caption><tr>{heads}</tr>{lines}</table>"


def built(console: Path = CONSOLE) -> bool:
    """Whether there is a console to show."""
    return (console / "index.html").is_file()


def of_the_api(path: str) -> bool:
    """Whether an address is the API's; who asks there wants JSON and no page."""
    return path in ("/api", "/sign-in") or path.startswith("/api/")


def safe_path(text: str) -> str:
    """A path on this server, as it was given; `/` for whatever a browser could read as another place."""
    plain = text.isascii() and text.isprintable() and not set(text) & set(' \\"<>')
    return text if plain and text.startswith("/") and not text.startswith("//") else "/"


def sign_in_page(asked: dict[str, str]) -> Response:
    """For a browser that has not signed in."""
    body = "<h1>Not signed in</h1><p>Run <code>shoal open</code> in a terminal: it opens this page, signed in.</p>"
    if asked.get("sec-fetch-site") in ("cross-site", "same-site"):
        # A link on another site brought the browser here, so it kept our cookie back. From this page it comes along.
        body = "<meta http-equiv=refresh content=0>" + body
    return _page(body + "<p>The link is good once, for a minute.</p>", 401)


def used_link_page() -> Response:
    body = "<h1>This link has been used or is too old</h1><p>Run <code>shoal open</code> for a new one.</p>"
    return _page(body, 403)


HOW_TO_BUILD = (
    "<h1>Shoal</h1><p>The server runs; its web console is not built here. <code>make console</code> in the checkout "
    "builds it (it needs Node 20), and this address then shows it. The command line does without: "
    "<code>shoal ls</code>, <code>shoal --help</code>.</p>"
)
STYLE = (
    ":root{color-scheme:light dark}body{font:14px/1.5 system-ui;margin:3em auto;max-width:60em;padding:0 1.5em}"
    "h1{font-size:1.4em}code{background:#8883;padding:.1em .3em;border-radius:3px}caption{text-align:left;"
    "padding:.5em 0}td,th{text-align:left;padding:.2em 1.2em .2em 0;vertical-align:top}"
)


def _page(body: str, status: int = 200) -> HTMLResponse:
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Shoal</title>"
    text = f"<!doctype html><html lang=en>{head}<style>{STYLE}</style><main>{body}</main></html>"
    return HTMLResponse(text, status, headers={**HEADERS, **NEVER_KEPT})


def _cell(value: object) -> str:
    return escape(str(value)) if value is not None else ""


def _file(file: Path, packed: Path | None, asked: dict[str, str], *, for_ever: bool) -> Response:
    """A file of the console, packed when the browser takes that."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    status = file.stat()
    headers = {
        **HEADERS,
        **(FOR_EVER if for_ever else ASK_AGAIN),
        "vary": "accept-encoding",
        "last-modified": formatdate(status.st_mtime, usegmt=True),
        "etag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"',
    }
    if headers["etag"] in asked.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if packed is not None and _takes_gzip(asked.get("accept-encoding", "").split(",")):
        headers["content-encoding"] = "gzip"
        file = packed
    return Response(file.read_bytes(), media_type=kind, headers=headers)


def _takes_gzip(codings: Sequence[str]) -> bool:
    named = {name.strip().lower(): weight.replace(" ", "") for name, _, weight in (c.partition(";") for c in codings)}
    return "gzip" in named and named["gzip"] not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
