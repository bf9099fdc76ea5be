"""One real Slurm cluster for a run of tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.clusters.slurm.cluster import Slurm, running
from tests.environments import CannotMake


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(running())
        except CannotMake as error:
            pytest.skip(str(error))
        yield found
