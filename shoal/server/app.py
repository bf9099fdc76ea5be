"""The routes. Thin: they read the store, put wishes into it, and wake the engine, which does the work."""

from __future__ import annotations

import fnmatch
import heapq
import json
import os
import re
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.security import HTTPBearer
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from shoal import __version__, home
from shoal.backends.backend import Launch
from shoal.engine.act import Engine
from shoal.engine.admission import Needs, needs_of
from shoal.engine.submission import Submission, policy_of, prepare
from shoal.errors import ShoalError, UsageError
from shoal.launcher.replica import write_json
from shoal.server import live, types, views
from shoal.server.trust import Guard, Keys
from shoal.spec import Source
from shoal.states import FINAL, QUEUED
from shoal.store import experiments as store
from shoal.store import logs
from shoal.store.database import Database, LeaseLost

STATUS_OF_EXIT_CODE = {2: 422, 3: 503}
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": types.ErrorBody, "description": text}
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
NO_TOKEN_NEEDED: dict[str, Any] = {"security": []}


def _gives(kind: str, text: str, status: int = 200) -> dict[str, Any]:
    """Describes a route whose answer is not JSON; its errors are."""
    return {"response_class": Response, "responses": {status: {"description": text, "content": {kind: {}}}}}


Word = Annotated[str, InPath(description="An experiment: its id, its number, its uid, or its name (the newest).")]


class Missing(ShoalError):
    """There is no such thing."""


class Conflict(ShoalError):
    """Not possible in this state."""


class Server:
    """What the routes need: the store, the engine, and when somebody last asked for something."""

    def __init__(self, place: Path, database: Database, engine: Engine, keys: Keys, *, kept: bool, url: str) -> None:
        self.home = place
        self.database = database
        self.engine = engine
        self.keys = keys
        self.kept = kept
        self.url = url
        self.started = time.time()
        self.last_request = time.monotonic()
        self.bell = live.Bell(engine)

    def touched(self) -> None:
        self.last_request = time.monotonic()

    def find(self, word: str) -> store.Row:
        with self.database.read() as connection:
            row = store.find(connection, word)
            if row is None:
                newest = [entry["id"] for entry in store.newest(connection, 5)]
        if row is None:
            hint = f"the newest are {', '.join(newest)}" if newest else "there are none yet"
            raise Missing(f"there is no experiment {word[:80]!r}", hint=hint)
        return row

    def directory(self, row: store.Row) -> Path:
        return self.home / "experiments" / str(row["id"])


def create_app(server: Server) -> Any:
    """The application, guarded."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        server.bell.start()
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
    _experiments(app, server)
    _logs(app, server)
    _rest(app, server)
    return Guard(app, server.keys, server.touched)


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


def _experiments(app: FastAPI, server: Server) -> None:
    @app.post("/api/experiments", status_code=201, response_model=types.Created, tags=["experiments"])
    def create(new: types.NewExperiment) -> Any:
        """Put an experiment into the queue. Everything that is wrong with its file is said at once."""
        _check_directory(new.directory)
        sources = [Source(file.name, file.text) for file in new.files]
        submission = Submission(sources, new.params, new.directory, new.oversubscribe)
        return submit(submission, new.environment)

    def submit(submission: Submission, environment: dict[str, str]) -> Any:
        secrets = home.secrets(server.home)
        prepared = prepare(submission, server.engine.site, secrets)
        variables = dict(environment)
        for name in prepared.secret_refs:
            variables.update(secrets[name])
        _check_environment(variables)
        with server.database.write() as connection:
            row = store.create(connection, prepared.values)
            # Before the row is seen by anybody: an experiment without its environment must not start.
            directory = server.directory(row)
            directory.mkdir(mode=0o700, parents=True)
            try:
                write_json(str(directory / "environment.json"), variables)
            except OSError:
                directory.rmdir()
                raise
            shown = views.detail(connection, row)
        server.engine.wake()
        return {"experiment": shown, "warnings": [views.note(problem) for problem in prepared.warnings]}

    @app.get("/api/experiments", response_model=list[types.ExperimentView], tags=["experiments"])
    def listing(
        limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 100,
        before: Annotated[int | None, Query(description="Only those with a smaller number.", ge=0, le=2**53)] = None,
        state: Annotated[list[str] | None, Query(description="Only those in one of these states.")] = None,
    ) -> Any:
        """The experiments, newest first."""
        with server.database.read() as connection:
            return [views.experiment(row) for row in store.newest(connection, limit, before, state or ())]

    @app.get("/api/experiments/{word}", response_model=types.ExperimentDetail, tags=["experiments"])
    def show(word: Word) -> Any:
        """One experiment, by id, number or name."""
        row = server.find(word)
        with server.database.read() as connection:
            return views.detail(connection, row)

    @app.get("/api/experiments/{word}/why", response_model=types.Why, tags=["experiments"])
    def why(word: Word) -> Any:
        """Why it is in its state: the first failure, and what every rank did last."""
        row = server.find(word)
        with server.database.read() as connection:
            shown = views.newest_tries(row, store.replicas_of(connection, row["uid"]))
        return {
            **{key: row[key] for key in ("id", "state", "reason", "first_failure")},
            "ranks": views.ranks(server.directory(row), shown),
        }

    @app.post("/api/experiments/{word}/stop", response_model=types.ExperimentDetail, tags=["experiments"])
    def stop(word: Word, request: types.StopRequest) -> Any:
        """Stop it: SIGTERM, the grace, SIGKILL. A second wish with a shorter grace hurries; what is over stays over."""
        row = server.find(word)
        with server.database.write() as connection:
            row = store.get(connection, row["uid"])
            if row["state"] not in FINAL:
                grace = row["policy"]["grace_stop"] if request.grace is None else request.grace
                if row["stop"]:  # two wishes may overtake each other on their way: the shorter grace stays
                    grace = min(grace, row["stop"]["grace"])
                wish = {"reason": "stopped by the user", "grace": grace}
                store.change(connection, row, row["state"], row["reason"], stop=wish)
        server.engine.wake()
        with server.database.read() as connection:
            return views.detail(connection, store.get(connection, row["uid"]))

    @app.post("/api/experiments/{word}/rerun", status_code=201, response_model=types.Created, tags=["experiments"])
    def rerun(word: Word, request: types.RerunRequest) -> Any:
        """Run the same files again as a new experiment."""
        row = server.find(word)
        kept = row["sources"]
        submission = Submission(
            [Source(file["name"], file["text"]) for file in kept["files"]],
            [*kept["params"], *request.params],
            kept["directory"],
            row["oversubscribe"] or request.oversubscribe,
            row["uid"],
        )
        return submit(submission, request.environment)

    @app.delete("/api/experiments/{word}", status_code=204, tags=["experiments"])
    def remove(word: Word) -> Response:
        """Forget a finished experiment and free its space."""
        row = server.find(word)
        if row["state"] not in FINAL:
            raise Conflict(f"{row['id']} is {row['state']}", hint=f"shoal stop {row['id']} first")
        server.engine.remove(row)
        return Response(status_code=204)


def _logs(app: FastAPI, server: Server) -> None:
    @app.get("/api/experiments/{word}/logs", tags=["logs"], **_gives("application/x-ndjson", "One object a line"))
    def lines(
        word: Word,
        replica: Annotated[str | None, Query(description="`worker-2`, or a pattern: `worker-*`.")] = None,
        attempt: Annotated[int | None, Query(description="Only this attempt; default: all.", ge=0, le=2**31)] = None,
        tail: Annotated[int | None, Query(description="Only the last lines of each replica.", ge=0, le=100_000)] = None,
        since: Annotated[float | None, Query(description="Only lines from this time on, UTC seconds.")] = None,
        until: Annotated[float | None, Query(description="Only lines up to this time, UTC seconds.")] = None,
        text: Annotated[str | None, Query(description="Only lines that hold this text.", max_length=1000)] = None,
        stream: Annotated[int | None, Query(description="1 stdout, 2 stderr; default: both.", ge=1, le=2)] = None,
    ) -> Any:
        """Lines, one JSON object each, of all replicas in the order of time; a gap is a line that has `gap`."""
        row = server.find(word)
        with server.database.read() as connection:
            tries = store.replicas_of(connection, row["uid"], attempt)
        wanted = [entry for entry in tries if replica is None or fnmatch.fnmatchcase(entry["replica"], replica)]

        def lines_of(entry: store.Row) -> Iterator[tuple[float, int, dict[str, Any]]]:
            place = live.try_directory(server.directory(row), entry["attempt"], entry["replica"], entry["try"])
            who = {key: entry[key] for key in ("replica", "attempt", "try")}
            time_of_gap = 0.0  # a gap has no time of its own: it stands after the line before it
            for found in _chosen(place / "log", tail, since, until, text, stream):
                if isinstance(found, logs.Gap):
                    what = f"… {found.length:,} bytes are missing here ({found.reason}) …"
                    said: dict[str, Any] = {
                        "time": time_of_gap,
                        "stream": 0,
                        "offset": found.offset,
                        "text": what,
                        "gap": found.length,
                    }
                else:
                    time_of_gap = found.time
                    said = {
                        "time": found.time,
                        "stream": found.stream,
                        "offset": found.offset,
                        "text": found.text.decode("utf-8", "replace").rstrip("\n"),
                    }
                yield said["time"], entry["rank"], {**who, **said}

        def produce() -> Generator[bytes]:
            for _, _, shown in heapq.merge(*[lines_of(entry) for entry in wanted], key=lambda item: item[:2]):
                yield json.dumps(shown).encode() + b"\n"

        return live.Stream(live.batches(produce()), "application/x-ndjson")

    @app.get("/api/experiments/{word}/follow", tags=["logs"], **_gives("application/x-ndjson", "One object a line"))
    def follow(
        word: Word,
        replica: Annotated[str | None, Query(description="`worker-2`, or a pattern: `worker-*`.")] = None,
        start: Annotated[
            list[str] | None,
            Query(
                description="`attempt:replica:try:end` of what is known already, to continue there.", max_length=10_000
            ),
        ] = None,
    ) -> Any:
        """Logs and changes of state as they happen, one JSON object a line, until the experiment is over."""
        row = server.find(word)
        offsets = dict(_known(text) for text in start or ())

        def wanted(name: str) -> bool:
            return replica is None or fnmatch.fnmatchcase(name, replica)

        frames = live.follow(
            server.database, server.bell, server.directory(row), row["uid"], wanted, views.summary, offsets
        )
        return live.Stream(frames, "application/x-ndjson")

    @app.get("/api/events", tags=["events"], **_gives("text/event-stream", "The data of each is an EventView"))
    def stream_of_events(
        after: Annotated[
            int | None, Query(description="The cursor; default: only what comes now.", ge=0, le=2**53)
        ] = None,
        experiment: Annotated[str | None, Query(description="Only this experiment.")] = None,
        last_event_id: Annotated[str, Header(description="The cursor, as browsers send it; goes before `after`.")] = "",
    ) -> Any:
        """Changes of states as server-sent events; `Last-Event-ID` continues where a connection broke."""
        with server.database.read() as connection:
            newest = store.last_event(connection)
        readable = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 16
        cursor = int(last_event_id) if readable else after
        uid = server.find(experiment)["uid"] if experiment else None
        frames = live.events(server.database, server.bell, newest if cursor is None else cursor, uid)
        return live.Stream(frames, "text/event-stream")


def _check_directory(directory: str) -> None:
    if not os.path.isabs(directory) or not os.path.isdir(directory):
        raise UsageError(
            f"directory: {directory[:80]!r} is not the absolute path of a directory here",
            hint="the directory of the file, on the server's machine",
        )


def _check_environment(variables: dict[str, str]) -> None:
    """What no system can give to a process is refused before anything starts."""
    for name, value in variables.items():
        try:
            said = os.fsencode(name) + os.fsencode(value)  # bytes that are no text travel as Python writes them
        except UnicodeEncodeError:
            said = b"\0"
        if not name or "=" in name or b"\0" in said:
            raise UsageError(
                f"environment: {name[:80]!a} cannot be a variable",
                hint="a name is not empty and holds no =; neither it nor its value holds a zero byte",
            )


def _known(text: str) -> tuple[live.TryKey, int]:
    """`0:worker-2:1:4096` -> ((0, "worker-2", 1), 4096)"""
    match = re.fullmatch(r"(\d{1,9}):([\w-]{1,64}):(\d{1,9}):(\d{1,18})", text, re.ASCII)
    if match is None:
        raise UsageError(f"start: {text[:80]!r} is not attempt:replica:try:end", hint="for example 0:worker-2:0:4096")
    attempt, replica, try_, end = match.groups()
    return (int(attempt), replica, int(try_)), int(end)


def _chosen(
    place: Path, tail: int | None, since: float | None, until: float | None, text: str | None, stream: int | None
) -> Iterator[logs.Line | logs.Gap]:
    """The lines of one log that are wanted, and the gaps between them unless a text is looked for."""
    if tail is not None and since is None and until is None and text is None and stream is None:
        yield from logs.tail(place, tail)
        return
    choice: dict[str, Any] = {"since": since, "until": until, "stream": stream}
    kept: Iterator[logs.Line | logs.Gap] = logs.entries(place, **choice)
    if text:
        kept = (line for line in logs.lines(place, **choice) if text.encode() in line.text)
    yield from kept if tail is None else deque(kept, maxlen=tail)


def _rest(app: FastAPI, server: Server) -> None:
    @app.post("/api/plan", response_model=types.Rendered, tags=["files"])
    def render(new: types.CheckFiles) -> Any:
        """What would be applied on the local cluster, as a person would read it."""
        _check_directory(new.directory)
        sources = [Source(file.name, file.text) for file in new.files]
        submission = Submission(sources, new.params, new.directory, oversubscribe=True)
        prepared = prepare(submission, server.engine.site, home.secrets(server.home))
        launch = Launch("<experiment>", "<uid>", 0, prepared.plan, policy_of(prepared.plan), prepared.values["cwd"])
        request = server.engine.backend.render(launch, server.engine.site)
        return {"text": str(request), "warnings": [views.note(problem) for problem in prepared.warnings]}

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
            "engine": server.engine.failure.strip().rpartition("\n")[2],
        }

    @app.post("/api/server/stop", status_code=202, tags=["server"])
    def end() -> Response:
        """End the server. Experiments go on: they belong to their shepherds."""
        os.kill(os.getpid(), signal.SIGTERM)  # this answer is still given
        return Response(status_code=202)

    @app.get("/api/clusters", response_model=list[types.ClusterView], tags=["clusters"])
    def clusters() -> Any:
        """What the clusters have, and what is taken."""
        site = server.engine.site
        with server.database.read() as connection:
            rows = [row for row in store.unfinished(connection) if row["state"] != QUEUED and not row["oversubscribe"]]
            gpus = [entry["unit"] for entry in store.allocated(connection, "gpu")]
        used = sum((needs_of(server.engine.plan_of(row)) for row in rows), Needs())
        return [
            {
                "name": "local",
                "cpu": site.cpu,
                "memory": round(site.memory),
                "gpus": list(site.gpus),
                "used_cpu": used.cpu,
                "used_memory": used.memory,
                "used_gpus": gpus,
            }
        ]

    @app.post("/api/sign-in", response_model=types.SignInCode, tags=["sign-in"])
    def sign_in_code() -> Any:
        """A link that signs a browser in, once, within a minute."""
        return {"url": f"{server.url}/sign-in?code={server.keys.new_code()}"}

    @app.get(
        "/sign-in",
        tags=["sign-in"],
        status_code=303,
        openapi_extra=NO_TOKEN_NEEDED,
        **_gives("text/html", "The link has been used or is too old", 403),
    )
    def sign_in(code: Annotated[str, Query(description="From shoal open.", max_length=200)] = "") -> Response:
        """Takes a one-time code and leaves a cookie."""
        if not server.keys.take_code(code):
            return HTMLResponse(
                _page("This link has been used or is too old.", "<p>Run <code>shoal open</code>.</p>"), 403
            )
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            server.keys.cookie,
            server.keys.token,
            httponly=True,
            samesite="strict",
            secure=server.url.startswith("https"),
            max_age=30 * 86400,
        )
        return answer

    @app.get("/", tags=["pages"], **_gives("text/html", "A page"))
    def page() -> Response:
        """A plain page of what runs, until there is a console."""
        with server.database.read() as connection:
            rows = [views.experiment(row) for row in store.newest(connection, 50)]
        return HTMLResponse(_status_page(rows), headers=_PAGE_HEADERS)


_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def _status_page(rows: list[dict[str, Any]]) -> str:
    from html import escape

    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in
        (row["id"], f"#{row['number']}", row["name"] or "", row["state"], row["reason"], row["framework"])) + "</tr>"
        for row in rows
    )  # fmt: skip
    table = f"<table><tr><th>id<th>#<th>name<th>state<th>reason<th>framework</tr>{cells}</table>"
    return _page("Experiments", table if rows else "<p>None yet: <code>shoal run examples/quickstart</code></p>")


def _page(title: str, body: str) -> str:
    style = "body{font:14px system-ui;margin:2em}td,th{text-align:left;padding:.2em 1em .2em 0}code{background:#8882}"
    return f"<!doctype html><meta charset=utf-8><title>Shoal</title><style>{style}</style><h1>{title}</h1>{body}"
