"""How much a browser has to load, packed: the first page, the parts that come later, and all of it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from tests.browser.browsing import Page

KB = 1000


def packed(file: Path) -> int:
    beside = file.with_name(file.name + ".gz")
    return beside.stat().st_size if beside.exists() else len(gzip.compress(file.read_bytes()))


def place(installed: Path) -> Path:
    """Where the wheel put the console."""
    (found,) = installed.glob("lib/python*/site-packages/shoal/server/console")
    return found


@pytest.fixture(scope="module")
def files(installed: Path) -> dict[str, int]:
    """name -> packed size of everything that the console is made of."""
    root = place(installed)
    return {
        str(file.relative_to(root)): packed(file)
        for file in root.rglob("*")
        if file.is_file() and file.suffix != ".gz"
    }  # fmt: skip


def test_the_first_page_is_light(page: Page, files: dict[str, int]) -> None:
    page.settled()
    loaded = {re.sub(r"^https?://[^/]+/", "", url).partition("?")[0] for url in page.heard()["requests"]}
    scripts = {name: files[name] for name in loaded if name.endswith(".js")}
    styles = {name: files[name] for name in loaded if name.endswith(".css")}
    assert 0 < sum(scripts.values()) <= 360 * KB, scripts
    assert 0 < sum(styles.values()) <= 45 * KB, styles


def test_all_of_it_is_light(files: dict[str, int]) -> None:
    assert sum(files.values()) <= 650 * KB, dict(sorted(files.items(), key=lambda item: -item[1])[:10])


@pytest.mark.parametrize(("marks", "most"), [(["u-cursor-pt"], 40), (["codemirror", "cm-editor", "cm-content"], 180)])
def test_what_comes_later_is_light(installed: Path, files: dict[str, int], marks: list[str], most: int) -> None:
    """The chunk that holds a library is found by what the library says of itself."""
    root = place(installed)
    holders = [
        name for name in files if name.endswith(".js") and any(mark in (root / name).read_text() for mark in marks)
    ]
    assert holders
    largest = max(holders, key=lambda name: files[name])
    assert files[largest] <= most * KB, (largest, files[largest])


def test_there_are_no_source_maps_and_no_addresses_of_others(installed: Path) -> None:
    root = place(installed)
    assert not list(root.rglob("*.map"))
    assert "//" not in re.sub(r"xmlns=.http://www\.w3\.org/2000/svg.", "", (root / "index.html").read_text())
