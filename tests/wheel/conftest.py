"""A wheel holds the console, so it is built first."""

from __future__ import annotations

import pytest

from tests.browser.browsing import console
from tests.environments import CannotMake


@pytest.fixture(autouse=True, scope="session")
def built() -> None:
    try:
        console()
    except CannotMake as error:
        pytest.fail(str(error), pytrace=False)
