"""Routes of data sets, of the blobs that managed ones are made of, and of where an experiment comes from."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import anyio.from_thread
from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.responses import FileResponse, Response
from pydantic import Field

from shoal.data import buckets, manifests
from shoal.data.manifests import Manifest
from shoal.engine import data, provenance
from shoal.errors import Problem, UsageError
from shoal.server.types import ApiModel, Text
from shoal.store import blobs, datasets
from shoal.store import experiments as store
from shoal.store.datasets import MANAGED, OBJECT, PATH

if TYPE_CHECKING:
    from shoal.server.context import Server

Named = Annotated[str, InPath(description="`cifar10@v1`; without a version the newest.", max_length=300)]
HashWord = Annotated[str, InPath(description="SHA-256 of the content.", pattern="^[0-9a-f]{64}$")]


class DatasetView(ApiModel):
    """One version of a data set."""

    name: str = Field(description="`cifar10`")
    version: int = Field(description="Counted from 1.")
    kind: str = Field(description="managed, path or object.")
    uri: str = Field(description="Where it is; empty for managed ones.")
    options: dict[str, Any] = Field(description="anonymous, endpoint and region of a bucket; single: one file.")
    created: float = Field(description="UTC seconds.")
    size: int = Field(description="Bytes.")
    files: int = Field(description="How many.")
    digest: str = Field(description="The same content has the same.")


class DatasetDetail(DatasetView):
    manifest: list[dict[str, Any]] = Field(description="{path, size, hash or etag} of every file.")


class NewDataset(ApiModel):
    """An external data set: files on the server's machine, or objects in a bucket."""

    name: Text = Field(description="Letters, digits, . - and _.", max_length=128)
    uri: Text = Field(description="s3://bucket/prefix, gs://bucket/prefix or a path.", min_length=1, max_length=4096)
    directory: Text = Field("/", description="What a path is relative to.", max_length=4096)
    anonymous: bool = Field(False, description="Read a public bucket without credentials.")
    endpoint: Text = Field("", description="Of a server that speaks the protocol of S3.", max_length=1000)
    region: Text = Field("", description="Of the bucket.", max_length=100)
    environment: dict[Text, Text] = Field(
        {}, description="Variables with credentials; they are not kept. Left out: those of whoever started the server."
    )


class ManagedFile(ApiModel):
    path: Text = Field(description="Relative, with /.", min_length=1, max_length=4096)
    size: int = Field(description="Bytes.", ge=0, le=2**60)
    hash: str = Field(description="SHA-256.", pattern="^[0-9a-f]{64}$")


class NewManaged(ApiModel):
    """A data set whose content was put into blobs before."""

    name: Text = Field(description="Letters, digits, . - and _.", max_length=128)
    files: list[ManagedFile] = Field(description="All of them.", min_length=1)
    single: bool = Field(False, description="It is one file, and not a directory with one file.")


class DatasetUser(ApiModel):
    """An experiment that was given a version."""

    id: str = Field(description="Of the experiment.")
    number: int = Field(description="Counted per home.")
    name: str | None = Field(description="From its file.")
    state: str = Field(description="Of the experiment.")
    created: float = Field(description="UTC seconds.")
    version: int = Field(description="Which version.")
    at: str = Field(description="Where it lay, below SHOAL_DATA.")


class Kept(ApiModel):
    """Content that was put."""

    hash: str = Field(description="SHA-256.")
    size: int = Field(description="Bytes.")


class Added(ApiModel):
    dataset: DatasetView | None = Field(description="The version; None while content is missing.")
    new: bool = Field(description="False: this content was a version before.")
    missing: list[str] = Field([], description="Hashes of blobs that have to be put first.")


def add_routes(app: FastAPI, server: Server) -> None:
    _datasets(app, server)
    _content(app, server)

    @app.get("/api/experiments/{word}/provenance", response_model=dict[str, Any], tags=["experiments"])
    def whence(
        word: Annotated[str, InPath(description="An experiment: its id, its number, its uid, or its name.")],
    ) -> Any:
        """Where an experiment comes from, with the diff to its commit."""
        row = server.find(word)
        return provenance.full(row["provenance"], server.directory(row))


def as_before(again: store.Row, known: dict[str, Any], *, exact: bool) -> list[Problem]:
    """A warning for everything that is not what it was when the experiment ran; with `exact`, an error."""
    from shoal.server.context import Conflict

    found = provenance.differences(again["provenance"], known, exact=exact)
    if found and exact:
        raise Conflict(
            f"{again['id']} cannot be run again exactly: {'; '.join(found)}",
            hint="bring back what it ran with, or leave out --exact",
        )
    hint = "--exact refuses instead"
    return [Problem(f"not as when {again['id']} ran: {text}", hint=hint) for text in found]


def _datasets(app: FastAPI, server: Server) -> None:
    @app.get("/api/datasets", response_model=list[DatasetView], tags=["data sets"])
    def listing() -> Any:
        """All versions of all data sets."""
        with server.database.read() as connection:
            return [row for row in datasets.versions(connection) if not datasets.removed(row)]

    @app.post("/api/datasets", status_code=201, response_model=Added, tags=["data sets"])
    def add(new: NewDataset) -> Any:
        """Write down what is at a path or in a bucket now. The same content again is the same version."""
        datasets.check_name(new.name)
        options: dict[str, Any] = {}
        variables = new.environment
        if "environment" not in new.model_fields_set:  # a browser has none
            variables = buckets.only_for_buckets(os.environ)
        if buckets.is_bucket(new.uri):
            said = {"anonymous": new.anonymous, "endpoint": new.endpoint, "region": new.region}
            address = buckets.address_of(new.uri, said, variables)
            manifest = buckets.Bucket(address, variables).listing()
            kind, uri, options = OBJECT, new.uri.rstrip("/"), data.options_of(address)
            digest = manifest.digest(address.origin)
        else:
            place = data.path_of(new.uri, new.directory, variables)
            manifest = manifests.of_path(place, _known(new.name, str(place)))
            kind, uri, digest = PATH, str(place), manifest.digest()
        return _added(new.name, kind, uri, options, manifest, digest)

    def _known(name: str, uri: str) -> list[dict[str, Any]]:
        """Files that were hashed before."""
        with server.database.read() as connection:
            row = datasets.find(connection, name, None)
        return list(row["manifest"]) if row is not None and (row["kind"], row["uri"]) == (PATH, uri) else []

    def _added(
        name: str, kind: str, uri: str, options: dict[str, Any], manifest: Manifest, digest: str
    ) -> dict[str, Any]:
        options = {**options, "single": True} if manifest.single else options
        with server.database.write() as connection:
            row, is_new = datasets.add(connection, name, kind, uri, options, manifest.entries, digest)
        return {"dataset": _view(row), "new": is_new}

    @app.post("/api/datasets/managed", status_code=201, response_model=Added, tags=["data sets"])
    def add_managed(new: NewManaged) -> Any:
        """Make a version of content that is here. What is missing is said, and is to be put before asking again."""
        datasets.check_name(new.name)
        entries = tuple(sorted((file.model_dump() for file in new.files), key=lambda entry: str(entry["path"])))
        _check_paths([entry["path"] for entry in entries])
        if new.single and len(entries) > 1:
            raise UsageError(f"single, and {len(entries)} files", hint="leave single out")
        kept = blobs.Blobs(server.home)
        with kept.holding() as hold:
            missing = [e["hash"] for e in entries if not hold.keep(e["hash"]) or kept.size(e["hash"]) != e["size"]]
            if missing:
                return {"dataset": None, "new": False, "missing": sorted(set(missing))}
            manifest = Manifest(entries, new.single)
            return _added(new.name, MANAGED, "", {}, manifest, manifest.digest())

    @app.get("/api/datasets/{word}", response_model=DatasetDetail, tags=["data sets"])
    def show(word: Named) -> Any:
        """One version with its files."""
        return _find(server, word)

    @app.get("/api/datasets/{word}/users", response_model=list[DatasetUser], tags=["data sets"])
    def users(word: Named) -> Any:
        """The experiments that used a version, or any version when none is named; the newest first."""
        name, version = datasets.split(word)
        _find(server, word)
        with server.database.read() as connection:
            meant = [row for row in datasets.versions(connection, name) if version in (None, row["version"])]
            rows = store.users_of(connection, {row["digest"] for row in meant})
        return [
            {
                **{key: row[key] for key in ("id", "number", "state", "created")},
                "name": row["name"] or None,
                "version": mount["version"],
                "at": mount["at"],
            }
            for row in rows
            for mount in _mounts(row)
            if mount["name"] == name and version in (None, mount["version"])
        ]

    @app.delete("/api/datasets/{word}", status_code=204, tags=["data sets"])
    def remove(word: Named) -> Response:
        """Forget a version, or all of them when none is named, and free what Shoal keeps of it."""
        from shoal.server.context import Conflict

        name, version = datasets.split(word)
        _find(server, word)
        with server.database.write() as connection:
            users = {mount["digest"]: row["id"] for row in store.unfinished(connection) for mount in _mounts(row)}
            going = [
                row
                for row in datasets.versions(connection, name)
                if not datasets.removed(row) and version in (None, row["version"])
            ]
            for row in going:
                if row["digest"] in users:
                    user = users[row["digest"]]
                    raise Conflict(f"{name}@v{row['version']} is used by {user}", hint=f"shoal stop {user} first")
            for row in going:
                datasets.remove(connection, name, row["version"])
            left = {row["digest"] for row in datasets.versions(connection) if not datasets.removed(row)}
        for row in going:
            if row["digest"] not in left:
                _free(server.home, row["digest"])
        blobs.collect(blobs.Blobs(server.home), server.database.read)
        return Response(status_code=204)


def _content(app: FastAPI, server: Server) -> None:
    @app.get(
        "/api/datasets/{word}/content",
        tags=["data sets"],
        response_class=Response,
        responses={200: {"description": "The bytes of the file", "content": {"application/octet-stream": {}}}},
    )
    def content(word: Named, path: Annotated[str, Query(description="From the manifest.", max_length=4096)]) -> Any:
        """One file of a data set. Objects are read from their bucket, which needs no server in between."""
        row = _find(server, word)
        entry = next((entry for entry in row["manifest"] if entry["path"] == path), None)
        if entry is None:
            raise _missing(f"{word} has no file {path[:200]!r}", "shoal dataset show lists them")
        if row["kind"] == OBJECT:
            raise UsageError(f"{word} lies in {row['uri']}", hint="shoal dataset get reads it from there")
        file = Path(row["uri"]) if row["options"].get("single") else Path(row["uri"], path)
        if row["kind"] == MANAGED:
            file = blobs.Blobs(server.home).path(entry["hash"])
        if not file.is_file():
            raise _missing(f"{word}: {path[:200]!r} is gone", "add it again")
        return FileResponse(file, media_type="application/octet-stream")

    bytes_taken = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}}

    @app.post("/api/blobs", status_code=201, response_model=Kept, tags=["data sets"], openapi_extra=bytes_taken)
    def keep(request: Request) -> Any:
        """Keep content whose hash the caller does not know. What no data set names soon may be collected."""
        with blobs.Blobs(server.home).holding() as hold:
            blob = hold.put(cast(BinaryIO, _Body(request)))
        return {"hash": blob.hash, "size": blob.size}

    @app.put("/api/blobs/{hash_}", status_code=204, tags=["data sets"], openapi_extra=bytes_taken)
    def put(hash_: HashWord, request: Request) -> Response:
        """Keep content under its hash; what is there already is not kept twice."""
        with blobs.Blobs(server.home).holding() as hold:
            blob = hold.put(cast(BinaryIO, _Body(request)))
        if blob.hash != hash_:
            raise UsageError(f"the content has the hash {blob.hash}, not {hash_}", hint="did it change meanwhile?")
        return Response(status_code=204)


class _Body:
    """The body of a request, read by a thread while it arrives."""

    def __init__(self, request: Request) -> None:
        self._chunks: AsyncIterator[bytes] = request.stream()

    def read(self, size: int = -1) -> bytes:
        while True:
            chunk = anyio.from_thread.run(self._next)
            if chunk is None:
                return b""
            if chunk:
                return chunk

    async def _next(self) -> bytes | None:
        return await anext(self._chunks, None)


def _find(server: Server, word: str) -> datasets.Row:
    name, version = datasets.split(word)
    with server.database.read() as connection:
        row = datasets.find(connection, name, version)
        if row is not None:
            return row
        known = datasets.versions(connection)
    first = data.missing(name, version, known).problems[0]
    raise _missing(first.message, first.hint)


def _missing(what: str, hint: str) -> Exception:
    from shoal.server.context import Missing

    return Missing(what, hint=hint)


def _view(row: datasets.Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "manifest"}


def _mounts(row: store.Row) -> list[dict[str, Any]]:
    return (row["provenance"] or {}).get("datasets") or []


def _check_paths(paths: list[str]) -> None:
    known = set(paths)
    for path in paths:
        if not manifests.safe(path):
            raise UsageError(f"{path[:200]!r} is no path below a directory", hint="relative, with /, without ..")
        above = path.rpartition("/")[0]
        while above:
            if above in known:
                raise UsageError(f"{above[:200]!r} is a file and a directory", hint="rename one of them")
            above = above.rpartition("/")[0]
    if len(known) < len(paths):
        raise UsageError("a path stands twice in the manifest", hint="name each file once")


def _free(home: Path, digest: str) -> None:
    """What was fetched of it."""
    for suffix in ("", ".part", ".work"):
        shutil.rmtree(home / "cache" / f"{digest}{suffix}", ignore_errors=True)
    with suppress(OSError):
        data.manifest_file(home, digest).unlink()
