"""Ranks that print the same lines: each appears once, everything can be reached, and whoever follows sees the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import until

RANKS = 64
STEPS = 60
LOG = "page.getByRole('log')"
ROWS = (
    f"await {LOG}.evaluate((log) => {{ const box = log.getBoundingClientRect();"
    " return [...log.querySelectorAll('[data-index]')].filter((row) => { const own = row.getBoundingClientRect();"
    " return own.bottom > box.top && own.top < box.bottom; }).map((row) => row.innerText); })"
)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate")


def started(served: FromTheWheel, name: str, gate: Path, then: str, ranks: int = RANKS) -> str:
    """Ranks that begin to print when all of them are there."""
    here, go = gate / name, gate / f"{name}.go"
    here.mkdir()
    wait = f"touch {here}/$SHOAL_REPLICA; while [ ! -e {go} ]; do sleep 0.2; done"
    word = served.submit(name, f"{wait}; {then}", workers=ranks - 1)
    until(lambda: len(list(here.iterdir())) == ranks, f"{ranks} ranks of {name}", 120)
    go.touch()
    return word


@pytest.fixture(scope="module")
def printed(served: FromTheWheel, gate: Path) -> str:
    steps = f"for i in $(seq 1 {STEPS}); do echo epoch 1 step $i loss 0.5; sleep 0.2; done"
    word = started(served, "equal", gate, steps)
    served.finished(word)
    return word


@pytest.fixture(scope="module")
def printing(served: FromTheWheel, gate: Path) -> Iterator[str]:
    """Two lines a second of each rank, until the tests are over."""
    end = gate / "end"
    word = started(
        served, "alive", gate, f"i=0; while [ ! -e {end} ]; do i=$((i+1)); echo round $i went well; sleep 0.5; done"
    )
    yield word
    end.touch()


def opened(page: Page, served: FromTheWheel, word: str, search: str = "") -> Page:
    page.goto(f"http://{served.host}/experiments/{word}/logs{search}")
    page.run(f"await {LOG}.locator('[data-index]').first().waitFor()")
    return page


def rows(page: Page) -> list[str]:
    """The rows that are seen."""
    return [" ".join(text.split()) for text in page.run(f"return {ROWS}")]


def turned(page: Page, down: int, wanted: str) -> dict[str, str]:
    """Turns the wheel until a text is seen; every step that was seen on the way, once at a time, and who printed it.

    The last row of what is loaded lacks those who print it later: what counts is how it was seen last.
    """
    page.run(f"await {LOG}.hover()")
    seen: dict[str, str] = {}

    def arrived() -> bool:
        shown = rows(page)
        found = [re.search(r"(\d+ ranks?|\w+-\d+) epoch 1 (step \d+) ", text) for text in shown]
        steps = [one[2] if one else text for one, text in zip(found, shown, strict=True)]
        assert len(steps) == len(set(steps)), steps
        seen.update({one[2]: one[1] for one in found if one})
        if any(wanted in text for text in shown):
            return True
        page.run("await page.mouse.wheel(0, args.down)", down=down)
        return False

    until(arrived, f"{wanted!r} to be seen", 60)
    return seen


def test_the_wheel_reaches_every_line_and_each_appears_once(page: Page, served: FromTheWheel, printed: str) -> None:
    opened(page, served, printed)
    until(lambda: "step 1 " in "".join(rows(page)[:1]), "the first line")
    assert f"step {STEPS} " not in rows(page)[-1], "there is more than fits"
    seen = turned(page, 120, f"step {STEPS} ")
    assert seen == {f"step {number}": f"{RANKS} ranks" for number in range(1, STEPS + 1)}
    page.run(f"await {LOG}.focus(); await page.keyboard.press('End')")
    assert turned(page, -120, "step 1 ").keys() == seen.keys()


def test_the_thumb_is_as_long_as_what_is_seen(page: Page, served: FromTheWheel, printed: str) -> None:
    opened(page, served, printed, "?filter=step+7+")
    until(lambda: len(rows(page)) == 1, "the one row of all lines that match")
    assert page.run("return page.getByRole('scrollbar').locator('*').count()") == 0, "there is nowhere to go"


def test_who_follows_always_sees_the_newest_lines(page: Page, served: FromTheWheel, printing: str) -> None:
    opened(page, served, printing)
    looks: list[list[str]] = []

    def enough() -> bool:
        looks.append(rows(page))
        return len(looks) >= 30 and rounds(looks[-1])[-1] > rounds(looks[0])[-1] + 10

    until(enough, "ten more rounds to be seen", 60)
    assert [look for look in looks if not look] == [], "never blank"
    newest = [rounds(look)[-1] for look in looks]
    assert newest == sorted(newest), "and never back"


def test_the_first_line_stays_while_others_come(page: Page, served: FromTheWheel, printing: str) -> None:
    opened(page, served, printing)
    page.run(f"await {LOG}.focus(); await page.keyboard.press('Home')")
    until(lambda: any("round 1 " in text for text in rows(page)[:1]), "the first line")
    fresh = "page.getByRole('button', {name: / new$/})"
    page.run(f"await {fresh}.waitFor()")

    def new() -> int:
        return int(str(page.run(f"return {fresh}.innerText()")).split()[0].replace(",", ""))

    until(lambda: new() > 5 * RANKS, "five rounds more", 60)
    assert "round 1 " in rows(page)[0]
    until(lambda: rounds(rows(page))[:20] == list(range(1, 21)), "all rounds of a pane, from the first on")


def rounds(shown: list[str]) -> list[int]:
    found: list[Any] = [re.search(r"round (\d+) ", text) for text in shown]
    return [int(one[1]) for one in found]


def test_ranks_stay_together_over_the_borders_of_pages(page: Page, served: FromTheWheel, printing: str) -> None:
    """In the middle of the list, where nobody has seen what was before."""
    opened(page, served, printing)
    until(lambda: rounds(rows(page))[-1:] > [30], "enough rounds", 90)
    until(lambda: any(f"{RANKS} ranks" in text for text in rows(page)), "a line of all ranks")
    shown = rounds(rows(page))  # the newest lack ranks that are behind
    assert shown == sorted(set(shown)), "none is split"
