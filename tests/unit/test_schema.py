"""Databases of older versions, and of newer ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

import shoal.store
from shoal.errors import Unavailable
from shoal.store import experiments as store
from shoal.store.database import Database, check, migrate
from shoal.store.tables import HEAD, metadata
from tests.fixtures import HERE
from tests.unit.test_store import create

SCHEMAS = sorted((HERE / "schemas").glob("*.sql"))
MIGRATIONS = Path(shoal.store.__file__).parent / "migrations"


def schema(path: Path) -> dict[str, Any]:
    """Everything a schema promises, in words that do not depend on who wrote it."""
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            found = inspect(connection)
            statements = dict(connection.execute(text("SELECT name, sql FROM sqlite_master")).all())
            return {
                table: {
                    "columns": [
                        (c["name"], str(c["type"]), c["nullable"], c["default"], c["primary_key"])
                        for c in found.get_columns(table)
                    ],
                    "primary key": found.get_pk_constraint(table)["constrained_columns"],
                    "indexes": sorted((i["name"], i["column_names"], i["unique"]) for i in found.get_indexes(table)),
                    "unique": sorted(u["column_names"] for u in found.get_unique_constraints(table)),
                    "foreign keys": found.get_foreign_keys(table),
                    "numbers are not used again": "AUTOINCREMENT" in statements[table].upper(),
                }
                for table in found.get_table_names()
            }
    finally:
        engine.dispose()


def rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')] for table in tables}


@pytest.fixture
def newest(tmp_path: Path) -> Mapping[str, Any]:
    """The schema as the tables say it."""
    engine = create_engine(f"sqlite:///{tmp_path / 'newest.db'}")
    metadata.create_all(engine)
    engine.dispose()
    return schema(tmp_path / "newest.db")


def load(dump: Path, path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return path


@pytest.mark.parametrize("dump", SCHEMAS, ids=lambda dump: dump.stem)
def test_a_released_schema_becomes_the_newest_and_keeps_its_rows(
    dump: Path, tmp_path: Path, newest: Mapping[str, Any]
) -> None:
    path = load(dump, tmp_path / "shoal.db")
    before = rows(path)
    assert all(before[table] for table in ("experiments", "replicas", "events", "allocations", "lease"))
    Database(path, exclusive=False).close()
    assert schema(path) == newest
    after = rows(path)
    assert after.pop("alembic_version") == [{"version_num": HEAD}]
    del before["alembic_version"]
    for table, kept in before.items():
        assert [{key: row[key] for key in old} for old, row in zip(kept, after[table], strict=True)] == kept


@pytest.mark.parametrize("dump", SCHEMAS, ids=lambda dump: dump.stem)
def test_a_released_database_can_be_worked_with(dump: Path, tmp_path: Path) -> None:
    database = Database(load(dump, tmp_path / "shoal.db"), exclusive=False)
    database.take_lease()
    with database.read() as connection:
        last = store.last_event(connection)
        assert store.find(connection, "digits") is not None
        assert [row["number"] for row in store.unfinished(connection)] == [2]
    assert create(database)["number"] == 3
    with database.read() as connection:
        assert store.last_event(connection) == last + 1
    assert check(database)
    database.close()


def test_all_revisions_from_the_beginning_give_the_newest_schema(tmp_path: Path, newest: Mapping[str, Any]) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shoal.db'}")
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()
    assert schema(tmp_path / "shoal.db") == newest
    assert rows(tmp_path / "shoal.db")["alembic_version"] == [{"version_num": HEAD}]


def test_a_new_database_has_the_newest_schema(tmp_path: Path, newest: Mapping[str, Any]) -> None:
    for _ in range(2):
        Database(tmp_path / "shoal.db", exclusive=False).close()
        assert schema(tmp_path / "shoal.db") == newest
        assert rows(tmp_path / "shoal.db")["alembic_version"] == [{"version_num": HEAD}]


def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shoal.db"
    Database(path, exclusive=False).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = rows(path), schema(path)
    with pytest.raises(Unavailable, match="a newer version of Shoal") as caught:
        Database(path, exclusive=True)
    assert "schema 9999" in str(caught.value)
    assert "update Shoal" in caught.value.problems[0].hint
    assert (rows(path), schema(path)) == before


def test_the_head_is_the_newest_revision_and_every_revision_has_a_dump() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    revisions = [revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()]
    files = sorted((MIGRATIONS / "versions").glob("[0-9]*.py"), reverse=True)
    assert revisions[0] == HEAD
    assert [path.name[:4] for path in files] == revisions, "a file is called after its revision, and there is one line"
    assert [dump.stem for dump in reversed(SCHEMAS)] == revisions
