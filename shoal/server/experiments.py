"""Experiments: create, show, why, stop, tag, rerun, remove."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import anyio.from_thread
from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from shoal import home
from shoal.backends.backend import LOCAL, Launch
from shoal.engine import provenance
from shoal.engine.data import Resolver, mounted
from shoal.engine.submission import Prepared, Submission, policy_of, prepare
from shoal.errors import UsageError
from shoal.launcher.checkpoints import RESUME
from shoal.launcher.replica import write_json
from shoal.server import datasets, files, housekeeping, reading, types, views
from shoal.server.context import Conflict, Server, Word
from shoal.spec import Source
from shoal.states import FINAL, LOST
from shoal.store import experiments as store
from shoal.store import streams


def add_routes(app: FastAPI, server: Server) -> None:
    @app.post("/api/experiments", status_code=201, response_model=types.Created, tags=["experiments"])
    def create(new: types.NewExperiment, caller: Request) -> Any:
        """Put an experiment into the queue. Everything that is wrong with its file is said at once."""
        check_directory(new.directory)
        sources = [Source(file.name, file.text) for file in new.files]
        submission = Submission(sources, new.params, new.directory, new.oversubscribe, cluster=new.cluster)
        return submit(caller, submission, new.environment, {"scale": new.scale.model_dump()} if new.scale else {})

    def submit(
        caller: Request,
        submission: Submission,
        given: dict[str, str] | None,
        more: Mapping[str, Any] = MappingProxyType({}),
        again: store.Row | None = None,
        exact: bool = False,
        resume: Mapping[str, Any] | None = None,
    ) -> Any:
        environment = _own_variables() if given is None else given
        secrets = home.secrets(server.home)
        before = again["provenance"] if again is not None else None
        resolver = Resolver(server.home, server.database, environment, before=before)
        prepared = prepare(submission, server.engine.site, secrets, resolver)
        check_cluster(server, submission.cluster, prepared)
        known, diff = provenance.at_submit(
            prepared.values["provenance"], prepared.values["cwd"], environment, server.engine.site, server.home
        )
        warnings = [*prepared.warnings]
        if again is not None:
            warnings += datasets.as_before(again, known, exact=exact)
        variables: dict[str, str] = {}
        if submission.cluster == LOCAL or known["datasets"] or known["code"]:  # pods do not get them: who fetches does
            variables = dict(environment)
            for name in prepared.secret_refs:
                variables.update(secrets.get(name, {}))  # another cluster may have it in place of this home
        _check_environment(variables)
        if anyio.from_thread.run(caller.is_disconnected):  # Ctrl-C, while a cluster or many files let it wait
            raise Conflict("who wanted the experiment has left, so it was not made", hint="submit it again")
        with server.database.write() as connection:
            row = store.create(connection, {**prepared.values, **more, "provenance": known})
            # Before the row is seen by anybody: an experiment without its environment must not start.
            directory = server.directory(row)
            directory.mkdir(mode=0o700, parents=True)
            try:
                write_json(str(directory / "environment.json"), variables)
                provenance.write_diff(directory, diff)
                if resume is not None:
                    write_json(str(directory / RESUME), resume)
            except OSError:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            if known["code"]:
                store.change(connection, row, row["state"], row["reason"], cwd=str(directory / "code"))
                row = store.get(connection, row["uid"])
            shown = views.detail(connection, row)
        server.engine.wake()
        server.recorder.add(row["uid"], variables)
        return {"experiment": shown, "warnings": [views.note(problem) for problem in warnings]}

    @app.get("/api/experiments/{word}", response_model=types.ExperimentDetail, tags=["experiments"])
    def show(word: Word) -> Any:
        """One experiment, by id, number or name."""
        row = reading.caught_up(server, server.find(word))
        with server.database.read() as connection:
            return views.detail(connection, row, reading.current_metrics(server, connection, row))

    @app.get("/api/experiments/{word}/why", response_model=types.Why, tags=["experiments"])
    def why(
        word: Word,
        attempt: Annotated[
            int | None, Query(description="Ranks as this attempt left them; default: the newest.", ge=0, le=2**31)
        ] = None,
    ) -> Any:
        """Why it is in its state: the first failure, and what every rank did last."""
        row = reading.caught_up(server, server.find(word))
        which = row["attempt"] if attempt is None else min(attempt, row["attempt"])
        with server.database.read() as connection:
            shown = views.newest_tries(row, store.replicas_of(connection, row["uid"]), which)
            lost = views.losses(connection, row["uid"])
            signs = streams.signs_of_life(connection, row["uid"], which)
        held_up = reading.straggler_report(server, row) if which == row["attempt"] else {"ranks": []}
        return {
            **{key: row[key] for key in ("id", "state", "reason", "first_failure")},
            "ranks": views.ranks(server.directory(row), shown, signs),
            "stragglers": held_up if len(held_up["ranks"]) > 1 else None,
            "losses": lost,
        }

    @app.post("/api/experiments/{word}/stop", response_model=types.ExperimentDetail, tags=["experiments"])
    def stop(word: Word, request: types.StopRequest) -> Any:
        """Stop it: SIGTERM, the grace, SIGKILL. A second wish with a shorter grace hurries; what is over stays over."""
        row = server.find(word)
        _ours(row, "stopped", "end its processes where they run")
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

    @app.post("/api/experiments/{word}/tags", response_model=types.ExperimentDetail, tags=["experiments"])
    def tag(word: Word, request: types.TagRequest) -> Any:
        """Add tags to it and remove others, in whatever state it is. A script that says a tag again brings it back."""
        row = reading.caught_up(server, server.find(word))  # a tag that its script has said already can be removed
        with server.database.write() as connection:
            store.retag(connection, row["uid"], request.add, request.remove)
        server.changes.note(row["uid"], "records")
        server.bell.ring()
        with server.database.read() as connection:
            row = store.get(connection, row["uid"])
            return views.detail(connection, row, reading.current_metrics(server, connection, row))

    @app.post("/api/experiments/{word}/rerun", status_code=201, response_model=types.Created, tags=["experiments"])
    def rerun(word: Word, request: types.RerunRequest, caller: Request) -> Any:
        """Run the same files again as a new experiment."""
        row = server.find(word)
        _ours(row, "run again", "start its script as you did before")
        kept = row["sources"]
        submission = Submission(
            [Source(file["name"], file["text"]) for file in kept["files"]],
            [*kept["params"], *request.params],
            kept["directory"],
            row["oversubscribe"] or request.oversubscribe,
            row["uid"],
            row["cluster"],
        )
        resume = files.checkpoint_of(server, row) if request.resume else None
        return submit(caller, submission, request.environment, again=row, exact=request.exact, resume=resume)

    @app.delete("/api/experiments/{word}", status_code=204, tags=["experiments"])
    def remove(word: Word) -> Response:
        """Forget a finished experiment and free its space."""
        row = server.find(word)
        if not housekeeping.is_over(row):
            now = " --now" if row["state"] == LOST else ""  # else it waits for the cluster to come back
            hint = f"shoal stop{now} {row['id']} first" if row["origin"] == "run" else "end its processes first"
            raise Conflict(f"{row['id']} is {row['state']}", hint=hint)
        housekeeping.forget(server, row)
        server.keeper.collect()
        return Response(status_code=204)


def _ours(row: store.Row, what: str, hint: str) -> None:
    if row["origin"] != "run":
        raise Conflict(f"{row['id']} was not started by Shoal: it cannot be {what} here", hint=hint)


def check_cluster(server: Server, cluster: str, prepared: Prepared) -> str:
    """What would be applied there; what the cluster will not take is said now and not when it starts."""
    backend = server.engine.backend_of(cluster)
    cwd = prepared.values["cwd"]
    data = mounted(prepared.values["provenance"])
    launch = Launch("planned", "uid", 0, prepared.plan, policy_of(prepared.plan), cwd, data=data)
    return "" if cluster == LOCAL else str(backend.render(launch, server.engine.site))


def rendered(server: Server, cluster: str, prepared: Prepared) -> str:
    """What the cluster would be asked for, as a person would read it."""
    if cluster != LOCAL:
        return check_cluster(server, cluster, prepared)
    cwd = prepared.values["cwd"] or "<code>"
    launch = Launch("<experiment>", "<uid>", 0, prepared.plan, policy_of(prepared.plan), cwd)
    return str(server.engine.backend_of(cluster).render(launch, server.engine.site))


def _own_variables() -> dict[str, str]:
    """Those of who started this server: what a browser submits finds the same programs as what a terminal submits."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}


def check_directory(directory: str) -> None:
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
