"""Servers for these tests: one for a module that only asks, one for a test that changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from tests.api.speaking import Served
from tests.conftest import clear


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for all tests of a module."""
    place = tmp_path_factory.mktemp("served") / "home"
    try:
        yield Served(place, Client(place))
    finally:
        clear(place)


@pytest.fixture
def alone(home: Path) -> Served:
    """A server for one test."""
    return Served(home, Client(home))
