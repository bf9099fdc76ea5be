"""One browser for all tests; servers run what the wheel installs, not the checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.speaking import Served
from tests.benchmarks.console import filled
from tests.browser.browsing import Browser, Page, chromium, console
from tests.browser.serving import FromTheWheel
from tests.conftest import clear
from tests.environments import CannotMake
from tests.packaging import installed as environment


@pytest.fixture(scope="session")
def installed() -> Path:
    """An environment in which the wheel is installed."""
    try:
        chromium()
        console()
    except CannotMake as error:
        pytest.fail(str(error), pytrace=False)
    return environment()


@pytest.fixture(scope="session")
def browser(installed: Path) -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def served(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[FromTheWheel]:
    """A server for all tests of a module; with as many experiments as its EXPERIMENTS says."""
    place = tmp_path_factory.mktemp("served") / "home"
    count = getattr(request.module, "EXPERIMENTS", 0)
    if count:
        filled(place, count)
    try:
        yield FromTheWheel.of(place)
    finally:
        clear(place)


@pytest.fixture
def alone(installed: Path, home: Path) -> FromTheWheel:
    """A server for one test."""
    return FromTheWheel.of(home)


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """A page of a browser that has not signed in."""
    page = browser.page()
    yield page
    page.close()


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """A page of a browser that has signed in, at the list of experiments; it complained about nothing."""
    page = browser.page()
    assert page.goto(served.client.sign_in("/experiments")) == 200
    yield page
    complaints = page.heard()["console"]
    page.close()
    assert complaints == []
