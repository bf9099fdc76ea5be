"""The application: its routes are in the files beside this one, thin; its errors are here.

Routes read the store, put wishes into it, and wake the engine, which does the work.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from shoal import __version__
from shoal.errors import ShoalError
from shoal.server import (
    about,
    checking,
    clusters,
    datasets,
    experiments,
    files,
    giving,
    loglines,
    logs,
    pages,
    reading,
    receiving,
    stacks,
    tracking,
    types,
)
from shoal.server.context import Conflict, Missing, Server
from shoal.server.trust import Guard
from shoal.store.database import LeaseLost

STATUS_OF_EXIT_CODE = {2: 422, 3: 503}
# By reference: with a model in its place, every route would build eight validators of its own for answers that nobody
# validates, which is a tenth of a second of each cold start.
ERROR_BODY = {"application/json": {"schema": {"$ref": f"#/components/schemas/{types.ErrorBody.__name__}"}}}
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": ERROR_BODY}
    for code, text in (
        (400, "Not JSON"),
        (401, "No token, or a wrong one"),
        (403, "A page of another site asks, or a link for signing in has been used or is too old"),
        (404, "No such experiment"),
        (409, "Not in this state"),
        (421, "This server is not called so: the Host header"),
        (422, "Wrong use, or a bad file"),
        (503, "Something that is needed cannot be reached; the disk is full"),
    )
}


def create_app(server: Server) -> Any:
    """The application, guarded."""
    return Guard(pages.Pages(routes(server), server), server.keys, server.touched, pages.sign_in_page)


def routes(server: Server) -> FastAPI:
    """Everything that the API offers."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        server.bell.start()
        server.recorder.start()
        yield

    app = FastAPI(
        title="Shoal",
        version=__version__,
        description="Runs distributed training experiments and tracks every rank of them.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        dependencies=[Depends(HTTPBearer(auto_error=False, description="From server.json"))],  # the Guard checks it
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _errors(app)
    reading.add_routes(app, server)
    files.add_routes(app, server)
    tracking.add_routes(app, server)
    experiments.add_routes(app, server)
    logs.add_routes(app, server)
    loglines.add_routes(app, server)
    checking.add_routes(app, server)
    stacks.add_routes(app, server)
    about.add_routes(app, server)
    datasets.add_routes(app, server)
    giving.add_routes(app, server)
    receiving.add_routes(app, server)
    clusters.add_routes(app, server)
    return app


def _errors(app: FastAPI) -> None:
    def body(status: int, what: str, hint: str = "", where: str | None = None, problems: Any = ()) -> JSONResponse:
        content = {"what": what, "where": where, "hint": hint or None, "problems": list(problems)}
        return JSONResponse(content, status)

    @app.exception_handler(ShoalError)
    async def of_shoal(request: Request, error: ShoalError) -> JSONResponse:
        first = error.problems[0]
        if isinstance(error, LeaseLost):
            os._exit(3)  # another server has taken over: this one must not answer any more
        status = 404 if isinstance(error, Missing) else 409 if isinstance(error, Conflict) else None
        status = status or STATUS_OF_EXIT_CODE.get(error.exit_code, 500)
        notes = [problem.json() for problem in error.problems]
        where = str(first.where) if first.where else None
        return body(status, first.line() if first.path else first.message, first.hint, where, notes)

    @app.exception_handler(RequestValidationError)
    async def of_request(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        return body(422, f"{place}: {first['msg']}", "see /api/openapi.json")

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        what = f"{request.method} {request.url.path}: {error.detail}"
        answer = body(error.status_code, what, "see /api/openapi.json")
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(OSError)
    @app.exception_handler(OperationalError)
    async def of_disk(request: Request, error: OSError | OperationalError) -> JSONResponse:
        said = error.orig if isinstance(error, OperationalError) else error
        return body(503, f"the home cannot be written: {said}", "is the disk full or read-only?")

    @app.exception_handler(Exception)
    async def of_a_mistake(request: Request, error: Exception) -> JSONResponse:
        return body(500, f"a mistake in Shoal: {type(error).__name__}", "server.log in the home tells more")
