"""Artifacts and models in the database: versions of content that scripts handed over. The content lies in blobs/.

A manifest is `[{path, size, hash}]` in the order of paths; its digest tells whether two versions are the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from shoal.errors import UsageError
from shoal.store.tables import artifacts, counters, model_aliases, models, records, streams

Row = Mapping[str, Any]
Manifest = Sequence[Mapping[str, Any]]

LATEST = "latest"
LONGEST_NAME = 256
ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


def digest_of(manifest: Manifest) -> str:
    """The same for the same paths with the same content, in whatever order they were handed over."""
    lines = sorted(json.dumps([entry["path"], entry["hash"]]) for entry in manifest)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def inside(path: str) -> str:
    """The path as a manifest has it: relative, nowhere above where it starts. ValueError when it is not."""
    pure = PurePosixPath(path)
    if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ValueError(f"{path[:200]!r} does not lie inside")
    return str(pure)


def keep_artifact(
    connection: Connection, record: Row, *, kind: str, manifest: Manifest, metadata: Mapping[str, Any]
) -> int:
    """The version that this content is; a new one when the experiment has none with the same content."""
    name, digest = record["name"][:LONGEST_NAME], digest_of(manifest)
    mine = (artifacts.c.uid == record["uid"], artifacts.c.name == name)
    known = connection.execute(select(artifacts.c.version).where(*mine, artifacts.c.digest == digest)).scalar()
    if known is not None:
        return int(known)
    version = 1 + (connection.execute(select(func.max(artifacts.c.version)).where(*mine)).scalar() or 0)
    connection.execute(
        insert(artifacts).values(
            **_writer(record),
            name=name,
            version=version,
            kind=kind[:64],
            digest=digest,
            manifest=list(manifest),
            metadata=dict(metadata),
            size=_size(manifest),
        )
    )
    return version


def keep_model(connection: Connection, record: Row, *, manifest: Manifest, metrics: Mapping[str, Any]) -> int:
    """The version that this model is; ranks that hand over the same content at the same step made one version.

    `record` tells the short id of its experiment as well: models outlive experiments.
    """
    name, digest = record["name"][:LONGEST_NAME], digest_of(manifest)
    same = (
        models.c.name == name,
        models.c.uid == record["uid"],
        models.c.digest == digest,
        models.c.step.is_not_distinct_from(record["step"]),
    )
    known = connection.execute(select(models.c.version).where(*same)).scalar()
    if known is not None:
        return int(known)
    version = _next_model_version(connection, name)
    connection.execute(
        insert(models).values(
            **_writer(record),
            name=name,
            version=version,
            experiment=record["id"],
            metrics=dict(metrics),
            digest=digest,
            manifest=list(manifest),
            size=_size(manifest),
        )
    )
    return version


def _writer(record: Row) -> dict[str, Any]:
    created = record["time"] or time.time()
    return {**{key: record[key] for key in ("uid", "attempt", "replica", "process", "step")}, "created": created}


def _size(manifest: Manifest) -> int:
    return sum(entry["size"] for entry in manifest)


def _next_model_version(connection: Connection, name: str) -> int:
    """Counts on, also over versions that were removed: a number means one content for ever."""
    highest = connection.execute(select(func.max(models.c.version)).where(models.c.name == name)).scalar() or 0
    counter = "m:" + hashlib.sha256(name.encode()).hexdigest()[:14]  # the column is short
    statement = upsert(counters).values(name=counter, value=highest + 1)
    larger = func.max(counters.c.value, highest) + 1
    statement = statement.on_conflict_do_update(index_elements=["name"], set_={"value": larger})
    return int(connection.execute(statement.returning(counters.c.value)).scalar_one())


def artifacts_of(connection: Connection, uid: str) -> list[dict[str, Any]]:
    """All versions in the order of name and version, each with `conflict` and `writers`.

    A conflict: two processes of one attempt gave different content to the same path of the same artifact. All of it is
    kept, as versions; `writers` are those who did, with their versions.
    """
    query = select(artifacts).where(artifacts.c.uid == uid).order_by(artifacts.c.name, artifacts.c.version)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["name"], row["attempt"]), []).append(row)
    for group in groups.values():
        disputed = _disputed(group)
        writers = [
            {key: row[key] for key in ("replica", "process", "version")} for row in group if _paths(row) & disputed
        ]
        for row in group:
            row["conflict"] = bool(_paths(row) & disputed)
            row["writers"] = writers if row["conflict"] else []
    return rows


def _disputed(rows: Sequence[Row]) -> set[str]:
    """The paths to which different writers gave different content."""
    writers: dict[str, set[tuple[str, int]]] = {}
    contents: dict[str, set[str]] = {}
    for row in rows:
        for entry in row["manifest"]:
            writers.setdefault(entry["path"], set()).add((row["replica"], row["process"]))
            contents.setdefault(entry["path"], set()).add(entry["hash"])
    return {path for path, who in writers.items() if len(who) > 1 and len(contents[path]) > 1}


def _paths(row: Row) -> set[str]:
    return {entry["path"] for entry in row["manifest"]}


def artifact(connection: Connection, number: int) -> dict[str, Any] | None:
    """One version by its number among all artifacts, with `conflict` and `writers`."""
    uid = connection.execute(select(artifacts.c.uid).where(artifacts.c.id == number)).scalar()
    if uid is None:
        return None
    return next((row for row in artifacts_of(connection, uid) if row["id"] == number), None)


def all_models(connection: Connection) -> list[dict[str, Any]]:
    """Every version of every model in the order of name and version, each with its `aliases`."""
    return _models(connection)


def versions_of(connection: Connection, name: str) -> list[dict[str, Any]]:
    return _models(connection, models.c.name == name)


def _models(connection: Connection, *conditions: Any) -> list[dict[str, Any]]:
    query = select(models).where(*conditions).order_by(models.c.name, models.c.version)
    aliases: dict[tuple[str, int], list[str]] = {}
    for name, alias, version in connection.execute(select(model_aliases).order_by(model_aliases.c.alias)):
        aliases.setdefault((name, version), []).append(alias)
    return [
        {**row, "aliases": aliases.get((row["name"], row["version"]), [])}
        for row in connection.execute(query).mappings()
    ]


def model(connection: Connection, name: str, word: str = LATEST) -> dict[str, Any] | None:
    """The version that is meant: its number (`3`, `v3`), an alias, or `latest`."""
    found = versions_of(connection, name)
    number = word.removeprefix("v")
    if word == LATEST or not word:
        return found[-1] if found else None
    if number.isascii() and number.isdigit():
        return next((row for row in found if str(row["version"]) == number.lstrip("0")), None)
    return next((row for row in found if word in row["aliases"]), None)


def with_alias(connection: Connection) -> set[str]:
    """The uids of experiments that made a version which has an alias."""
    same = (models.c.name == model_aliases.c.name) & (models.c.version == model_aliases.c.version)
    return set(connection.execute(select(models.c.uid).join(model_aliases, same)).scalars())


def set_alias(connection: Connection, name: str, alias: str, version: int) -> None:
    """From now on the alias means this version, and no other of the model."""
    statement = upsert(model_aliases).values(name=name, alias=alias, version=version)
    connection.execute(statement.on_conflict_do_update(index_elements=["name", "alias"], set_={"version": version}))


def check_alias(alias: str) -> str:
    number = alias.removeprefix("v")
    if not ALIAS.fullmatch(alias) or alias == LATEST or number.isdigit():
        raise UsageError(
            f"{alias[:80]!r} cannot be an alias",
            hint="a letter, then letters, digits, `.`, `_`, `-`; not `latest`, which is the newest version, nor `v3`",
        )
    return alias


def remove_alias(connection: Connection, name: str, alias: str) -> bool:
    """Whether there was one."""
    gone = delete(model_aliases).where(model_aliases.c.name == name, model_aliases.c.alias == alias)
    return connection.execute(gone).rowcount > 0


def remove_model(connection: Connection, name: str, version: int) -> None:
    """Forgets one version and the aliases that mean it; its blobs are collected by whoever calls this."""
    connection.execute(delete(models).where(models.c.name == name, models.c.version == version))
    connection.execute(delete(model_aliases).where(model_aliases.c.name == name, model_aliases.c.version == version))


def remove(connection: Connection, uid: str) -> None:
    """Forgets the artifacts of an experiment. Models outlive it: somebody may serve one."""
    connection.execute(delete(artifacts).where(artifacts.c.uid == uid))


def checkpoints_of(connection: Connection, uid: str) -> list[dict[str, Any]]:
    """What processes marked, in the order of time, each with the `rank` of the process."""
    query = (
        select(records, streams.c.rank)
        .join(streams, streams.c.stream == records.c.stream)
        .where(records.c.uid == uid, records.c.kind == "checkpoint")
        .order_by(records.c.time)
    )
    return [dict(row) for row in connection.execute(query).mappings()]
