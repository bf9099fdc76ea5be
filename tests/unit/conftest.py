"""What several tests begin with: a database, experiments recorded in it without a server, processes that end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.store.database import Database
from tests.tracking import Recorded


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "shoal.db", exclusive=False)  # wherever temporary files lie
    opened.take_lease()
    yield opened
    opened.close()


@pytest.fixture(params=[False, True], ids=["shared", "exclusive, as on a network filesystem"])
def each_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "shoal.db", exclusive=request.param)
    opened.take_lease()
    yield opened
    opened.close()


@pytest.fixture
def recorded(database: Database) -> Recorded:
    return Recorded(database)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test puts here end with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
