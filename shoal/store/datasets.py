"""Data sets and their versions. A version is content: the same content again is the same version.

A version that is removed leaves its number and its digest behind: numbers are given once, and an experiment of last
year can still be told from another. Adding the same content again brings it back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from shoal.errors import UsageError
from shoal.store.tables import datasets

MANAGED, PATH, OBJECT = "managed", "path", "object"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Row = Mapping[str, Any]


def split(word: str) -> tuple[str, int | None]:
    """`cifar10@v1` -> ("cifar10", 1); without a version None, which means the newest."""
    name, at, version = word.partition("@")
    check_name(name)
    if not at:
        return name, None
    match = re.fullmatch(r"v?([1-9][0-9]{0,8})", version, re.ASCII)
    if match is None:
        raise UsageError(f"{word[:200]}: {version[:80]!r} is no version", hint=f"versions are counted: {name}@v1")
    return name, int(match.group(1))


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name[:200]!r} cannot be the name of a data set",
            hint="letters, digits, . - and _, a letter or digit first",
        )


def add(
    connection: Connection,
    name: str,
    kind: str,
    uri: str,
    options: Mapping[str, Any],
    manifest: Sequence[Mapping[str, Any]],
    digest: str,
) -> tuple[Row, bool]:
    """The version with this content, and whether it is a new one."""
    check_name(name)
    size = sum(entry["size"] for entry in manifest)
    values = {"options": dict(options), "size": size, "files": len(manifest), "manifest": list(manifest)}
    same = (datasets.c.name == name, datasets.c.kind == kind, datasets.c.uri == uri, datasets.c.digest == digest)
    found = connection.execute(select(datasets.c.version).where(*same)).scalar()
    if found is not None:
        where = (datasets.c.name == name, datasets.c.version == found)
        connection.execute(update(datasets).where(*where).values(**values))
        return _get(connection, name, found), False
    newest = connection.execute(select(func.max(datasets.c.version)).where(datasets.c.name == name)).scalar() or 0
    row = {"name": name, "version": newest + 1, "kind": kind, "uri": uri, "digest": digest, "created": time.time()}
    connection.execute(insert(datasets).values(**row, **values))
    return _get(connection, name, newest + 1), True


def find(connection: Connection, name: str, version: int | None) -> Row | None:
    """One version, the newest when none is named; None when there is none, or it was removed."""
    if version is None:
        rows = [row for row in versions(connection, name) if not removed(row)]
        return _get(connection, name, rows[-1]["version"]) if rows else None
    row = _get_or_none(connection, name, version)
    return None if row is None or removed(row) else row


def versions(connection: Connection, name: str | None = None) -> list[Row]:
    """All versions without their manifests, also the removed ones, by name and number."""
    query = select(*(column for column in datasets.c if column.name != "manifest"))
    if name is not None:
        query = query.where(datasets.c.name == name)
    return [dict(row) for row in connection.execute(query.order_by(datasets.c.name, datasets.c.version)).mappings()]


def removed(row: Row) -> bool:
    return bool(row["options"].get("removed"))


def remove(connection: Connection, name: str, version: int) -> None:
    """Forgets what is in a version; its number stays taken."""
    row = _get(connection, name, version)
    connection.execute(
        update(datasets)
        .where(datasets.c.name == name, datasets.c.version == version)
        .values(options={**row["options"], "removed": True}, manifest=[])
    )


def refresh(connection: Connection, name: str, version: int, manifest: Sequence[Mapping[str, Any]]) -> None:
    """The same content with the times its files have now."""
    where = (datasets.c.name == name, datasets.c.version == version)
    connection.execute(update(datasets).where(*where).values(manifest=list(manifest)))


def _get(connection: Connection, name: str, version: int) -> Row:
    row = _get_or_none(connection, name, version)
    assert row is not None
    return row


def _get_or_none(connection: Connection, name: str, version: int) -> Row | None:
    query = select(datasets).where(datasets.c.name == name, datasets.c.version == version)
    found = connection.execute(query).mappings().first()
    return dict(found) if found is not None else None
