"""The server itself: plans, signing in."""

from __future__ import annotations

import os
import signal
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from fastapi.responses import RedirectResponse, Response

from shoal import __version__, home
from shoal.engine.data import Resolver
from shoal.engine.submission import Submission, prepare
from shoal.errors import Problem, UsageError
from shoal.server import pages, types, views
from shoal.server.context import Server, gives
from shoal.server.experiments import check_directory, rendered
from shoal.spec import Source
from shoal.store import experiments as store

NEXT = "The page to show then: a path on this server."
NO_TOKEN_NEEDED: dict[str, Any] = {"security": []}


def add_routes(app: FastAPI, server: Server) -> None:
    @app.post("/api/plan", response_model=types.Rendered, tags=["files"])
    def render(new: types.CheckFiles) -> Any:
        """What would be applied on a cluster, as a person would read it."""
        check_directory(new.directory)
        sources = [Source(file.name, file.text) for file in new.files]
        submission = Submission(sources, new.params, new.directory, oversubscribe=True, cluster=new.cluster)
        resolver = Resolver(server.home, server.database, {}, reach=False)
        prepared = prepare(submission, server.engine.site, home.secrets(server.home), resolver)
        text = rendered(server, new.cluster, prepared)
        assumed = server.engine.backend_of(new.cluster).assumed()
        warnings = [*prepared.warnings, *([Problem(assumed)] if assumed else [])]
        return {"text": text, "warnings": [views.note(problem) for problem in warnings]}

    @app.get("/api/server", response_model=types.ServerView, tags=["server"])
    def about() -> Any:
        """What this server is and does."""
        with server.database.read() as connection:
            unfinished = len(store.unfinished(connection))
        return {
            "version": __version__,
            "home": str(server.home),
            "pid": os.getpid(),
            "started": server.started,
            "unfinished": unfinished,
            "kept": server.kept,
            "console": pages.built(),
            "engine": server.engine.failure.strip().rpartition("\n")[2],
        }

    @app.post("/api/server/stop", status_code=202, tags=["server"])
    def end() -> Response:
        """End the server. Experiments go on: they belong to their shepherds."""
        os.kill(os.getpid(), signal.SIGTERM)  # this answer is still given
        return Response(status_code=202)

    @app.post("/api/sign-in", response_model=types.SignInCode, tags=["sign-in"])
    def sign_in_code(
        next: Annotated[str, Query(description=NEXT, max_length=2000)] = "/",  # noqa: A002
    ) -> Any:
        """A link that signs a browser in, once, within a minute."""
        if pages.safe_path(next) != next:
            raise UsageError(
                f"next: {next[:80]!r} is not a path of the console", hint="for example /experiments/e7k2m9"
            )
        more = "" if next == "/" else f"&next={quote(next)}"
        return {"url": f"{server.url}/sign-in?code={server.keys.new_code()}{more}"}

    @app.get(
        "/sign-in",
        tags=["sign-in"],
        status_code=303,
        openapi_extra=NO_TOKEN_NEEDED,
        **gives("text/html", "The link has been used or is too old", 403),
    )
    def sign_in(
        request: Request,
        code: Annotated[str, Query(description="From shoal open.", max_length=200)] = "",
        next: Annotated[str, Query(description=NEXT, max_length=2000)] = "/",  # noqa: A002
    ) -> Response:
        """Takes a one-time code, leaves a cookie, and shows the page; who has the cookie already needs no code."""
        answer = RedirectResponse(pages.safe_path(next), 303, {"cache-control": "no-store"})
        if server.keys.take_code(code):
            _keep(answer, server.keys.token, 30 * 86400)
        elif not server.keys.allows({"cookie": request.headers.get("cookie", "")}, "/"):
            return pages.used_link_page()
        return answer

    @app.post("/api/sign-out", status_code=204, tags=["sign-in"])
    def sign_out() -> Response:
        """Takes the cookie from this browser."""
        answer = Response(status_code=204)
        _keep(answer, "", 0)
        return answer

    def _keep(answer: Response, token: str, seconds: int) -> None:
        secure = server.url.startswith("https")
        answer.set_cookie(server.keys.cookie, token, httponly=True, samesite="strict", secure=secure, max_age=seconds)
