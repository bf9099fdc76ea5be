"""What launchers far from the home fetch: the code of an attempt, and its data.

The token with which they write reads here what its own experiment was given to read, and nothing else. Whatever is
given, its bytes are the same each time: after a broken connection a launcher asks for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse

from shoal.data import manifests
from shoal.engine.data import label, read_manifest
from shoal.server.archives import Laid, laid_out, pieces_of
from shoal.server.receiving import Attempt, Uid, experiment_of
from shoal.store import experiments as store
from shoal.store.datasets import PATH

if TYPE_CHECKING:
    from shoal.server.context import Server

Offset = Annotated[int, Query(description="From which byte on.", ge=0, le=2**63 - 1)]


def add_routes(app: FastAPI, server: Server) -> None:
    """Before those of tries, whose form they have."""

    @app.get(
        "/api/ingest/{uid}/{attempt}/code/{sha256}",
        response_class=StreamingResponse,
        responses={200: {"description": "A tar archive, packed with gzip", "content": {"application/gzip": {}}}},
        tags=["ingest"],
    )
    def code(
        uid: Uid,
        attempt: Attempt,
        sha256: Annotated[str, InPath(description="Which archive.", pattern="^[0-9a-f]{64}$")],
        offset: Offset = 0,
    ) -> StreamingResponse:
        """The code of an attempt whose replicas are far away."""
        from shoal.server.context import Missing

        row = _in_attempt(server, uid, attempt)
        file = server.directory(row) / f"attempt-{attempt}" / f"code-{sha256}.tar.gz"
        try:
            opened = file.open("rb")
        except FileNotFoundError:
            hint = "is the attempt over?"
            raise Missing(f"{row['id']} has no such code for attempt {attempt}", hint=hint) from None
        size = os.fstat(opened.fileno()).st_size
        return _stream(pieces_of(opened, offset, size), size - offset, "application/gzip")

    @app.get(
        "/api/ingest/{uid}/{attempt}/data/{number}",
        response_class=StreamingResponse,
        responses={200: {"description": "A tar archive", "content": {"application/x-tar": {}}}},
        tags=["ingest"],
    )
    def data(
        uid: Uid,
        attempt: Attempt,
        number: Annotated[int, InPath(description="Which entry of `data`, from 0.", ge=0, le=2**31 - 1)],
        offset: Offset = 0,
    ) -> StreamingResponse:
        """A data set of an attempt whose replicas are far away."""
        from shoal.server.context import Missing

        row = _in_attempt(server, uid, attempt)
        mounts = (row["provenance"] or {}).get("datasets") or ()
        if number >= len(mounts):
            raise Missing(f"{row['id']} has {len(mounts)} data sets", hint="they are counted from 0")
        archive = Laid(tuple(_members(server, row, mounts[number])))
        return _stream(laid_out(archive, offset), archive.size - offset, "application/x-tar")


def _in_attempt(server: Server, uid: str, attempt: int) -> store.Row:
    from shoal.server.context import Missing

    row = experiment_of(server, uid)
    if attempt > row["attempt"]:
        raise Missing(f"{row['id']} has no attempt {attempt}", hint=f"0 to {row['attempt']}")
    return row


def _members(server: Server, row: store.Row, mount: dict[str, Any]) -> Iterator[tuple[str, Path, int, str]]:
    """(name, file, size, hash where it is known) of what was staged."""
    from shoal.server.context import Conflict

    place = server.directory(row) / "data" / mount["at"]
    if mount["kind"] == PATH and not mount["name"]:
        listing = manifests.listing_of(Path(mount["uri"]))
        entries: Any = listing.entries
        if listing.digest(mount["uri"]) != mount["digest"]:
            raise Conflict(f"{label(mount)} has changed since this was submitted", hint="run it again")
    else:
        entries = read_manifest(server.home, server.database, mount)
    for entry in entries:
        file = place if mount["file"] else place / entry["path"]
        if not file.is_file() or file.stat().st_size != entry["size"]:
            raise Conflict(f"{label(mount)}: {entry['path']} has changed since this was submitted", hint="run it again")
        yield entry["path"], file, entry["size"], entry.get("hash") or ""


def _stream(pieces: Iterator[bytes], size: int, kind: str) -> StreamingResponse:
    return StreamingResponse(pieces, media_type=kind, headers={"Content-Length": str(max(0, size))})
