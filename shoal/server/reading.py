"""Routes that read over experiments: lists by query, and which rank holds the others up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi import Path as InPath
from sqlalchemy.exc import OperationalError

from shoal.backends.backend import Launch
from shoal.engine.data import mounted
from shoal.engine.submission import policy_of
from shoal.errors import ShoalError
from shoal.server import types
from shoal.states import QUEUED
from shoal.store import experiments as store
from shoal.store import query
from shoal.store.listing import Listing

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from shoal.server.context import Server

MOST = 10_000
WORD = "An experiment: its id, its number, its uid, or its name (the newest)."


def add_routes(app: FastAPI, server: Server) -> None:
    lists = Listing()

    @app.get("/api/experiments", response_model=list[types.ExperimentView], tags=["experiments"])
    def listing(
        q: Annotated[
            str, Query(description="Conditions: `state:failed, params.lr:>0.01, metrics.loss:<0.3`.", max_length=4096)
        ] = "",
        sort: Annotated[
            str, Query(description="Fields: `-metrics.acc,created`; default: newest first.", max_length=1024)
        ] = "",
        limit: Annotated[int, Query(ge=1, le=MOST, description="How many at most.")] = 100,
        offset: Annotated[int, Query(ge=0, le=2**53, description="How many of the first to leave out.")] = 0,
        before: Annotated[int | None, Query(description="Only those with a smaller number.", ge=0, le=2**53)] = None,
        state: Annotated[list[str] | None, Query(description="Only those in one of these states.")] = None,
        roles: Annotated[bool, Query(description="Tell in which states the replicas of each role are.")] = False,
    ) -> Response:
        """The experiments that a query finds, newest first, with the last values of their metrics.

        How many it finds in all is in the header `x-total-count`.
        """
        now = time.time()
        query.check_states(state or ())
        wanted, keys = query.conditions(q, now), query.order(sort)
        with server.database.read() as connection:
            text, total = lists.page(
                connection,
                now=now,
                live=lambda uid: live_metrics(server, connection, uid),
                limit=limit,
                offset=offset,
                before=before,
                states=state or (),
                wanted=wanted,
                keys=keys,
                roles=roles,
            )
        return Response(text, media_type="application/json", headers={"x-total-count": str(total)})

    @app.get("/api/experiments/{word}/events", response_model=list[types.EventView], tags=["events"])
    def events(
        word: Annotated[str, InPath(description=WORD)],
        after: Annotated[int, Query(description="Only those with a larger number.", ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(description="How many at most.", ge=1, le=MOST)] = MOST,
    ) -> Any:
        """What happened to one experiment: every change of its state and of its replicas', the oldest first."""
        row = server.find(word)
        with server.database.read() as connection:
            found = store.events_after(connection, after, limit, row["uid"])
        return [{key: value for key, value in event.items() if key != "uid"} for event in found]

    @app.get("/api/experiments/{word}/plan", response_model=types.Planned, tags=["experiments"])
    def planned(word: Annotated[str, InPath(description=WORD)]) -> Any:
        """The replicas as they were planned, and what was asked of the cluster for them."""
        row = server.find(word)
        plan, sources = row["plan"], row["sources"]
        return {
            "replicas": plan["replicas"],
            "policy": row["policy"],
            "params": sources.get("params", []),
            "directory": sources.get("directory", ""),
            "request": _request(server, row),
        }

    @app.get("/api/experiments/{word}/stragglers", response_model=types.Stragglers, tags=["experiments"])
    def stragglers(word: Annotated[str, InPath(description=WORD)]) -> Any:
        """Which rank the others wait for: step times and own times per rank, the spread, the slowest."""
        return straggler_report(server, caught_up(server, server.find(word)))


def _request(server: Server, row: Mapping[str, Any]) -> str | None:
    """As a person would read it; none for what Shoal did not start, or whose cluster is not known any more."""
    if row["origin"] != "run":
        return None
    plan = server.engine.plan_of(row)
    launch = Launch(
        row["id"], row["uid"], row["attempt"], plan, policy_of(plan), row["cwd"], data=mounted(row["provenance"])
    )
    try:
        return str(server.engine.backend_of(row["cluster"]).render(launch, server.engine.site))
    except ShoalError:
        return None


def straggler_report(server: Server, row: Mapping[str, Any]) -> dict[str, Any]:
    from shoal.store import ranks, stragglers  # numpy: not before it is needed

    uid = str(row["uid"])

    def made() -> dict[str, Any]:
        with server.database.read() as connection:
            return stragglers.report(ranks.processes(connection, uid, server.ingest.known, server.memory.heads))

    return server.memory.report((uid, int(row["revision"])), made) if row["tracked"] else made()


def caught_up(server: Server, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row, after everything that its scripts wrote has been read; as it is when the home cannot be written."""
    if row["tracked"] or row["state"] == QUEUED:
        return row
    with suppress(OSError, OperationalError):
        server.ingest.catch_up(row["uid"])
    return server.find(str(row["uid"]))  # it may have been removed meanwhile


def current_metrics(server: Server, connection: Connection, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """None when the row has them all."""
    return None if row["tracked"] or row["state"] == QUEUED else live_metrics(server, connection, row["uid"])


def live_metrics(server: Server, connection: Connection, uid: str) -> Mapping[str, Any] | None:
    """The metrics of an experiment that is not over, as far as they are read."""
    from shoal.store.series import metrics_of  # numpy: not before it is needed

    # Not `summaries`: that waits for who writes, who may wait for this connection.
    found: Mapping[str, Any] = metrics_of(connection, uid, server.ingest.known)
    return found
