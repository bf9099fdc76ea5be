"""Routes of files: outputs as they lie on disk, artifacts, models, and the blobs that hold their content.

A file is sent as it is when it is opened, with ranges, so that a download can be continued. What scripts wrote is never
shown as a page of this server: it could use the console's cookie.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import FastAPI, Header, Query
from fastapi import Path as InPath
from fastapi.responses import Response
from starlette.responses import StreamingResponse

from shoal.backends.backend import LOCAL
from shoal.backends.kubernetes import carried
from shoal.errors import UsageError
from shoal.launcher import checkpoints, processes
from shoal.launcher.replica import read_json
from shoal.server import archives, filetypes, live
from shoal.server.reading import caught_up
from shoal.states import FINAL
from shoal.store import experiments as experiments_store
from shoal.store import files, outputs
from shoal.store.blobs import HASH, Blobs

if TYPE_CHECKING:
    from shoal.server.context import Server

CHUNK = 1 << 18
MOST_FILES = 10_000
SHOWN_AS_THEY_ARE = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8", ".json": "application/json",
    ".csv": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".yml": "text/plain; charset=utf-8",
}  # fmt: skip
ANYTHING = "application/octet-stream"
ANEW = "leave out --resume to begin anew"
HARMLESS = {
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "accept-ranges": "bytes",
}
Word = Annotated[str, InPath(description="An experiment: its id, its number, its uid, or its name (the newest).")]
Number = Annotated[int, InPath(description="`id` in the list of artifacts.", ge=1, le=2**53)]
Model = Annotated[str, InPath(description="The name of a model.")]
Version = Annotated[str, InPath(description="A number, an alias, or `latest`.")]
FilePath = Annotated[str, InPath(description="A file, as the list has it.")]
Alias = Annotated[str, InPath(description="A word that means one version of a model.")]
Range = Annotated[str, Header(alias="range", description="`bytes=100-`: only a part of the file.")]
IfRange = Annotated[str, Header(alias="if-range", description="The ETag that the range belongs to.")]


def add_routes(app: FastAPI, server: Server) -> None:
    _outputs(app, server)
    _artifacts(app, server)
    _models(app, server)
    _blobs(app, server)


def checkpoint_of(server: Server, row: Mapping[str, Any]) -> dict[str, Any]:
    """The newest complete checkpoint of an experiment, as the next one is told of it (resume.json)."""
    row = caught_up(server, row)
    with server.database.read() as connection:
        found = files.checkpoints_of(connection, row["uid"])
    marks = [
        checkpoints.Mark(
            mark["attempt"], mark["replica"], mark["process"], mark["rank"], mark["time"], mark["step"],
            mark["data"]["path"],
        )
        for mark in found
        if mark["step"] is not None and isinstance(mark["data"].get("path"), str)
    ]  # fmt: skip
    if not marks:
        raise UsageError(f"{row['id']}: it marked no checkpoint", hint=f"{ANEW}; scripts mark with shoal.checkpoint")
    lacks = server.engine.backend_of(row["cluster"]).lacks
    chosen = checkpoints.choose(marks, lambda path: not lacks(path, row["id"]))
    if chosen is not None:
        return chosen._asdict()
    marked = checkpoints.choose(marks, lambda path: True)
    if marked is None:
        raise UsageError(f"{row['id']}: not all ranks marked the same step, so no checkpoint is complete", hint=ANEW)
    why = next(filter(None, (lacks(path, row["id"]) for path in (*marked.paths.values(), marked.otherwise))), "")
    hint = ANEW
    if row["cluster"] != LOCAL:
        hint += f"; with outputs_claim in [clusters.{row['cluster']}] what scripts write below $SHOAL_OUTPUTS stays"
    raise UsageError(f"{row['id']}: its checkpoint of step {marked.step} cannot be used: {why}", hint=hint)


def _gives_bytes(text: str) -> dict[str, Any]:
    part = {"description": "A part of it", "content": {ANYTHING: {}}}
    whole = {"description": text, "content": {ANYTHING: {}}}
    return {"response_class": Response, "responses": {200: whole, 206: part, 416: {"description": "No such part"}}}


ZIP, TAR = ("zip", "application/zip", archives.zipped), ("tar", "application/x-tar", archives.tarred)


def _gives(form: Any) -> dict[str, Any]:
    content = {"description": f"All files, as a {form[0]} archive", "content": {form[1]: {}}}
    return {"response_class": Response, "responses": {200: content}}


def _outputs(app: FastAPI, server: Server) -> None:
    hashes = outputs.Hashes()

    @app.get("/api/experiments/{word}/outputs", response_model=filetypes.Outputs, tags=["files"])
    def listing(
        word: Word,
        replica: Annotated[str | None, Query(description="Only its own directory: `worker-2`, or a pattern.")] = None,
        under: Annotated[str, Query(description="Only this file, or what lies below this directory.")] = "",
        after: Annotated[str, Query(description="Only what comes after this path.")] = "",
        limit: Annotated[int, Query(description="How many at most.", ge=1, le=MOST_FILES)] = MOST_FILES,
        hash_: Annotated[bool, Query(alias="hash", description="Read all files and tell their SHA-256.")] = False,
    ) -> Any:
        """The files that replicas wrote into their outputs, as they are now."""
        row = server.find(word)
        root = server.directory(row) / "outputs"
        own = [entry["replica"] for entry in row["plan"].get("replicas", ())]
        found: list[dict[str, Any]] = []
        more = False
        writers = _writers(root, row)
        brought = carried.writers(str(root))
        for output in outputs.listing(root, own, under):
            if output.path <= after or not _wanted(output, replica):
                continue
            if len(found) == limit:
                more = True
                break
            who = sorted({*writers.get(os.path.realpath(root / output.path), ()), *brought.get(output.path, ())})
            sha = hashes.of(root, output.path) if hash_ and not output.outside else None
            found.append({**_view(output), "hash": sha, "writers": who, "conflict": len(who) > 1})
        elsewhere = (read_json(str(server.directory(row) / carried.ELSEWHERE)) or {}).get("where")
        return {"experiment": row["id"], "files": found, "more": more, "elsewhere": elsewhere}

    @app.get("/api/experiments/{word}/outputs-zip", tags=["files"], **_gives(ZIP))
    def archive(
        word: Word, under: Annotated[str, Query(description="Only what lies below this directory.")] = ""
    ) -> Response:
        """All files of the outputs, or of one directory of them, as a zip archive."""
        row = server.find(word)
        root = server.directory(row) / "outputs"
        paths = [output.path for output in outputs.listing(root, (), under) if not output.outside]
        if not paths:
            raise _missing(f"{row['id']} has no outputs below {under[:200]!r}", f"shoal outputs {row['id']} ls")
        name = "-".join([row["id"], *under.strip("/").split("/")]) if under.strip("/") else f"{row['id']}-outputs"
        return _archive(ZIP, name, [archives.Member(path, partial(outputs.open_output, root, path)) for path in paths])

    @app.get("/api/experiments/{word}/outputs/{path:path}", tags=["files"], **_gives_bytes("The file"))
    def content(word: Word, path: FilePath, range_: Range = "", if_range: IfRange = "") -> Response:
        """One file of the outputs, or a part of it."""
        row = server.find(word)
        try:
            file = outputs.open_output(server.directory(row) / "outputs", path)
        except (FileNotFoundError, ValueError):
            raise _missing(f"{row['id']} has no output {path[:200]!r}", f"shoal outputs {row['id']} ls") from None
        found = os.fstat(file.fileno())
        return _sent(file, path, f'"{found.st_mtime_ns:x}-{found.st_size:x}"', range_, if_range)


def _wanted(output: outputs.Output, replica: str | None) -> bool:
    return replica is None or (output.replica is not None and fnmatch.fnmatchcase(output.replica, replica))


def _view(output: outputs.Output) -> dict[str, Any]:
    path = os.fsencode(output.path).decode("utf-8", "backslashreplace")  # a name need not be text
    link = os.fsencode(output.link).decode("utf-8", "backslashreplace") if output.link is not None else None
    return {**output.__dict__, "path": path, "link": link}


def _writers(root: Path, row: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
    """Real path -> the replicas that have it open for writing at this moment.

    Best effort: the kernel tells who holds a file, not who wrote it before, and only that of this machine can be asked.
    """
    if row["state"] in FINAL or row["cluster"] != "local":
        return {}
    found: dict[str, set[str]] = {}
    prefix = f"{row['uid']}-{row['attempt']}-"
    within = os.path.realpath(root) + os.sep
    for pid, uid in processes.marked_all(prefix).items():
        for path in _open_for_writing(pid):
            if path.startswith(within):
                found.setdefault(path, set()).add(uid.removeprefix(prefix))
    return found


def _open_for_writing(pid: int) -> Generator[str]:
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for descriptor in descriptors:
        try:
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            flags = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().partition("flags:")[2].split()[0]
        except (OSError, IndexError):
            continue
        if path.startswith("/") and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            yield path


def _artifacts(app: FastAPI, server: Server) -> None:
    def find(number: int) -> dict[str, Any]:
        with server.database.read() as connection:
            row = files.artifact(connection, number)
        if row is None:
            raise _missing(f"there is no artifact {number}", "/api/experiments/{word}/artifacts lists them")
        return row

    def shown(row: Mapping[str, Any]) -> dict[str, Any]:
        with server.database.read() as connection:
            experiment = experiments_store.get(connection, row["uid"])["id"]
        return _artifact_view({**row, "experiment": experiment})

    @app.get("/api/experiments/{word}/artifacts", response_model=list[filetypes.Artifact], tags=["files"])
    def listing(word: Word) -> Any:
        """Every version of every artifact, in the order of names and versions."""
        row = caught_up(server, server.find(word))
        server.keeper.settle()
        with server.database.read() as connection:
            found = files.artifacts_of(connection, row["uid"])
        return [_artifact_view({**entry, "experiment": row["id"]}) for entry in found]

    @app.get("/api/artifacts/{number}", response_model=filetypes.ArtifactDetail, tags=["files"])
    def show(number: Number) -> Any:
        """One version with its files."""
        row = find(number)
        return {**shown(row), "files": row["manifest"]}

    @app.get("/api/artifacts/{number}/files/{path:path}", tags=["files"], **_gives_bytes("The file"))
    def content(number: Number, path: FilePath, range_: Range = "", if_range: IfRange = "") -> Response:
        """One file of an artifact, or a part of it."""
        return _sent_blob(server, find(number)["manifest"], path, range_, if_range)

    @app.get("/api/artifacts/{number}/tar", tags=["files"], **_gives(TAR))
    def tar(number: Number) -> Response:
        """All files of an artifact, as a tar archive."""
        return _of_version(server, find(number), TAR)

    @app.get("/api/artifacts/{number}/zip", tags=["files"], **_gives(ZIP))
    def zip_(number: Number) -> Response:
        """All files of an artifact, as a zip archive."""
        return _of_version(server, find(number), ZIP)


def _artifact_view(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: row[key] for key in filetypes.ARTIFACT}, "count": len(row["manifest"])}


def _models(app: FastAPI, server: Server) -> None:
    def find(name: str, version: str) -> dict[str, Any]:
        with server.database.read() as connection:
            row = files.model(connection, name, version)
            known = files.versions_of(connection, name) if row is None else []
        if row is not None:
            return row
        if not known:
            raise _missing(f"there is no model {name[:200]!r}", "shoal model ls")
        words = [str(entry["version"]) for entry in known] + [word for entry in known for word in entry["aliases"]]
        raise _missing(f"{name[:200]} has no version {version[:80]!r}", f"there are {', '.join(words[-20:])}")

    @app.get("/api/models", response_model=list[filetypes.Model], tags=["models"])
    def listing(name: Annotated[str | None, Query(description="Only this one, or a pattern.")] = None) -> Any:
        """Every version of every model, in the order of names and versions."""
        server.keeper.settle()
        with server.database.read() as connection:
            found = files.all_models(connection)
        return [_model_view(row) for row in found if name is None or fnmatch.fnmatchcase(row["name"], name)]

    @app.get("/api/models/{name:path}/versions/{version}", response_model=filetypes.ModelDetail, tags=["models"])
    def show(name: Model, version: Version) -> Any:
        """One version with its files."""
        row = find(name, version)
        return {**_model_view(row), "files": row["manifest"]}

    @app.get("/api/models/{name:path}/versions/{version}/tar", tags=["models"], **_gives(TAR))
    def tar(name: Model, version: Version) -> Response:
        """All files of one version, as a tar archive."""
        return _of_version(server, find(name, version), TAR)

    @app.get("/api/models/{name:path}/versions/{version}/zip", tags=["models"], **_gives(ZIP))
    def zip_(name: Model, version: Version) -> Response:
        """All files of one version, as a zip archive."""
        return _of_version(server, find(name, version), ZIP)

    @app.get(
        "/api/models/{name:path}/versions/{version}/files/{path:path}", tags=["models"], **_gives_bytes("The file")
    )
    def content(name: Model, version: Version, path: FilePath, range_: Range = "", if_range: IfRange = "") -> Response:
        """One file of one version, or a part of it."""
        return _sent_blob(server, find(name, version)["manifest"], path, range_, if_range)

    @app.put("/api/models/{name:path}/aliases/{alias}", response_model=filetypes.ModelDetail, tags=["models"])
    def promote(name: Model, alias: Alias, wish: filetypes.AliasRequest) -> Any:
        """From now on the alias means this version, and no other."""
        files.check_alias(alias)
        row = find(name, wish.version)
        with server.database.write() as connection:
            files.set_alias(connection, name, alias, row["version"])
        row = find(name, str(row["version"]))
        return {**_model_view(row), "files": row["manifest"]}

    @app.delete("/api/models/{name:path}/aliases/{alias}", status_code=204, tags=["models"])
    def demote(name: Model, alias: Alias) -> Response:
        """The alias means nothing any more."""
        with server.database.write() as connection:
            there = files.remove_alias(connection, name, alias)
        if not there:
            raise _missing(f"{name[:200]} has no alias {alias[:80]!r}", f"shoal model show {name[:200]}")
        return Response(status_code=204)

    @app.delete("/api/models/{name:path}/versions/{version}", status_code=204, tags=["models"])
    def remove(name: Model, version: Version) -> Response:
        """Forget one version and free its space. Its number is not given again."""
        row = find(name, version)
        with server.database.write() as connection:
            files.remove_model(connection, name, row["version"])
        server.keeper.collect()
        return Response(status_code=204)


def _model_view(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: row[key] for key in filetypes.MODEL}, "count": len(row["manifest"])}


def _blobs(app: FastAPI, server: Server) -> None:
    @app.get("/api/blobs/{hash_}", tags=["files"], **_gives_bytes("The content"))
    def content(
        hash_: Annotated[str, InPath(alias="hash_", description="SHA-256, as manifests and images have it.")],
        range_: Range = "",
        if_range: IfRange = "",
    ) -> Response:
        """Content by its hash."""
        return _sent_blob(server, [{"path": hash_, "hash": hash_}], hash_, range_, if_range)


def _missing(what: str, hint: str) -> Exception:
    from shoal.server.context import Missing

    return Missing(what, hint=hint)


def _sent_blob(server: Server, manifest: files.Manifest, path: FilePath, range_: str, if_range: str) -> Response:
    entry = next((entry for entry in manifest if entry["path"] == path), None)
    if entry is None or not HASH.fullmatch(entry["hash"]):
        raise _missing(f"there is no file {path[:200]!r} in it", "its manifest lists the files")
    try:
        file = Blobs(server.home).open(entry["hash"])
    except FileNotFoundError:
        raise _missing(f"the content of {path[:200]!r} is gone", "was it removed by hand from blobs/?") from None
    return _sent(file, path, f'"{entry["hash"]}"', range_, if_range)


def _sent(file: BinaryIO, path: str, tag: str, range_: str, if_range: str) -> Response:
    """The file, or the part that is wanted. Closed when all is sent, or nobody reads any more."""
    size = os.fstat(file.fileno()).st_size
    part = _part(range_, size) if not if_range or if_range == tag else None
    kind = SHOWN_AS_THEY_ARE.get(os.path.splitext(path)[1].lower(), ANYTHING)
    headers = {**HARMLESS, "etag": tag, "content-disposition": _called(os.path.basename(path), kind)}
    if part == (0, 0) and size:
        file.close()
        return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
    start, end = part or (0, size)
    headers["content-length"] = str(end - start)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return _Parts(archives.pieces_of(file, start, end), 206 if part is not None else 200, headers, kind)


class _Parts(StreamingResponse):
    """Whoever leaves early closes the file at once."""

    def __init__(self, parts: Generator[bytes], status: int, headers: dict[str, str], kind: str) -> None:
        self.parts = live.batches(parts)
        super().__init__(self.parts, status, headers, media_type=kind)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.parts.aclose()


def _part(text: str, size: int) -> tuple[int, int] | None:
    """`bytes=10-` -> (10, size); None: all of it, also for what is not understood; (0, 0): there is no such part."""
    match = re.fullmatch(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", text, re.ASCII)
    if match is None or match.group(1) == match.group(2) == "" or size == 0:
        return None
    first, last = match.groups()
    if not first:
        return (max(0, size - int(last)), size) if int(last) else (0, 0)
    start, end = int(first), min(size, int(last) + 1) if last else size
    if last and int(last) < start:
        return None
    return (start, end) if start < size else (0, 0)


def _called(name: str, kind: str) -> str:
    shown = "inline" if kind != ANYTHING else "attachment"
    return f"{shown}; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


def _of_version(server: Server, row: Mapping[str, Any], form: Any) -> Response:
    """The files of a version of an artifact or a model."""
    blobs = Blobs(server.home)
    manifest: files.Manifest = row["manifest"]
    gone = [entry["path"] for entry in manifest if not blobs.exists(entry["hash"])]
    if gone:
        raise _missing(f"the content of {gone[0]!r} is gone", "was it removed by hand from blobs/?")
    opened = [archives.Member(one["path"], partial(blobs.open, one["hash"]), row["created"]) for one in manifest]
    return _archive(form, f"{row['name']}-v{row['version']}", opened)


def _archive(form: Any, name: str, members: list[archives.Member]) -> Response:
    ending, kind, made = form
    headers = {**HARMLESS, "content-disposition": _called(f"{name.replace('/', '-')}.{ending}", ANYTHING)}
    return _Parts(made(members), 200, headers, kind)
