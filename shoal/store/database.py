"""Opens the database: SQLite in WAL mode, one writer at a time, the schema up to date.

A home on a network filesystem cannot share memory between processes, which WAL's index needs; there the database is
opened exclusively, and then one connection serves readers too. The server is the only opener anyway.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, insert, inspect, select, text, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool, QueuePool

from shoal.errors import ShoalError, Unavailable
from shoal.store.tables import HEAD, alembic_version, lease, metadata

BUSY = 10_000  # ms to wait for another process that has the database
PAGES_AT_ONCE = 2000  # that are given back while nobody else can write
TURN = 0.02  # seconds between two such steps: a lock that is taken again at once is got by nobody else
NETWORK_FILESYSTEMS = (
    "nfs",
    "lustre",
    "cifs",
    "smb",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "wekafs",
    "afs",
    "9p",
    "fuse",
)


class LeaseLost(ShoalError):
    """Another server has taken over this home."""


class Database:
    """The one place that talks to SQLite. `write` is a transaction that excludes other writers, `read` a snapshot."""

    def __init__(self, path: Path, *, exclusive: bool | None = None) -> None:
        self.path = path
        self.exclusive = on_network_filesystem(path.parent) if exclusive is None else exclusive
        self.token = secrets.token_hex(16)
        self._writing = threading.RLock()
        self._engine = create_engine(f"sqlite:///{path}", poolclass=NullPool if self.exclusive else QueuePool)
        event.listen(self._engine, "connect", self._prepare)
        try:
            self._writer = self._engine.connect()
        except DatabaseError as error:
            raise self._unusable(error) from None
        try:
            self._upgrade()
        except DatabaseError as error:
            self.close()
            raise self._unusable(error) from None
        except BaseException:
            self.close()
            raise

    def _unusable(self, error: DatabaseError) -> Unavailable:
        return Unavailable(
            f"{self.path}: the database cannot be opened: {error.orig}",
            hint="is the disk full or read-only, the file damaged, or in use by another server?",
        )

    def _prepare(self, connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun by hand, so that writers can say IMMEDIATE
        if self.exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        if not self.path.stat().st_size:  # it must be said before anything else is
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA busy_timeout = {BUSY}")

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One short transaction; it fails when another server holds the lease."""
        with self._writing, self._transaction(self._writer, "BEGIN IMMEDIATE") as connection:
            renewed = connection.execute(
                update(lease).where(lease.c.name == "server", lease.c.token == self.token).values(renewed=time.time())
            )
            if renewed.rowcount == 0:
                raise LeaseLost("another server has taken over this home")
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        if self.exclusive:
            with self._writing, self._transaction(self._writer, "BEGIN") as connection:
                yield connection
            return
        with self._engine.connect() as reader, self._transaction(reader, "BEGIN") as connection:
            yield connection

    @contextmanager
    def _transaction(self, connection: Connection, begin: str) -> Iterator[Connection]:
        connection.exec_driver_sql(begin)
        try:
            yield connection
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already, or have made its commit fail and left it open.
            driver: Any = connection.connection.driver_connection
            if driver.in_transaction:
                connection.exec_driver_sql("ROLLBACK")
            raise
        finally:
            connection.rollback()

    def take_lease(self) -> None:
        """From now on only this server writes."""
        with self._writing, self._transaction(self._writer, "BEGIN IMMEDIATE") as connection:
            row = {"name": "server", "token": self.token, "renewed": time.time()}
            statement = upsert(lease).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=row))

    def _upgrade(self) -> None:
        """Alembic is loaded only when there is something to migrate: it takes longer than all the rest."""
        with self._transaction(self._writer, "BEGIN IMMEDIATE") as connection:  # two may open a new home at once
            if not inspect(connection).has_table("alembic_version"):
                metadata.create_all(connection)
                connection.execute(insert(alembic_version).values(version_num=HEAD))
                return
            version = connection.execute(select(alembic_version.c.version_num)).scalar()
            if version is None or version > HEAD:
                raise Unavailable(
                    f"{self.path}: written by a newer version of Shoal (schema {version}, this one knows {HEAD})",
                    hint="update Shoal, or use another SHOAL_HOME",
                )
            if version < HEAD:
                migrate(connection)

    def give_back(self) -> None:
        """Returns the space of what was removed to the disk. A database of the first schema has to be copied for it."""
        free = 1
        while free:
            with self._writing:
                driver: Any = self._writer.connection.driver_connection
                if driver.execute("PRAGMA auto_vacuum").fetchone()[0]:
                    # As a script: `execute` would stop after the first page.
                    driver.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
                else:
                    driver.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    driver.execute("VACUUM")
                before, free = free, driver.execute("PRAGMA freelist_count").fetchone()[0]
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # waits for nobody who reads
                self._writer.rollback()
            if free == before:
                break  # somebody reads what is there
            time.sleep(TURN)
        with self._writing:
            driver = self._writer.connection.driver_connection
            driver.execute("PRAGMA busy_timeout = 0")
            try:
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                driver.execute(f"PRAGMA busy_timeout = {BUSY}")
                self._writer.rollback()

    def close(self) -> None:
        with self._writing:
            self._writer.close()
            self._engine.dispose()


def migrate(connection: Connection) -> None:
    """Runs the revisions that the database does not have yet."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def check(database: Database) -> bool:
    """Whether SQLite finds the file sound."""
    with database.read() as connection:
        return connection.execute(text("PRAGMA quick_check")).scalar() == "ok"


def on_network_filesystem(directory: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether the directory lies on a filesystem that is shared between machines."""
    best, kind = "", ""
    try:
        lines = [line.split(b" ") for line in mounts.read_bytes().split(b"\n") if line]
    except OSError:
        return False
    place = str(directory.resolve())
    for line in lines:
        point, filesystem = _unescaped(line[1]), line[2].decode()
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, filesystem
    return kind.startswith(NETWORK_FILESYSTEMS)


def _unescaped(field: bytes) -> str:
    """A field of the mount table, in which the kernel writes `\\040` for a space; its names need not be UTF-8."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), field))
