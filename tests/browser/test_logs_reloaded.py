"""Logs after a reload: the hit and its count are there again. And what does not follow the end."""

from __future__ import annotations

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import until

LOG = "page.getByRole('log')"
FOLLOW = "page.getByRole('button', {name: 'End', exact: true})"
STATUS = "page.getByRole('status').filter({hasText: /of .* lines?$|not found/})"
PRINTS = (
    "for i in $(seq 1 5000); do case $i in"
    " *000) echo a needle in line $i;; 3333) echo ValueError: line $i is wrong;; 4444) echo KeyError: line $i;;"
    " *) echo line $i of many;; esac; done"
)


@pytest.fixture(scope="module")
def words(served: FromTheWheel) -> dict[str, str]:
    """A log of some length, and one of three lines of which one is wide."""
    words = {
        "long": served.submit("needles", PRINTS, workers=0),
        "wide": served.submit("wide", "echo first; printf 'wide %.0s' $(seq 1 400); echo; echo last", workers=0),
    }
    for word in words.values():
        served.finished(word)
    return words


def opened(page: Page, served: FromTheWheel, word: str, search: str = "") -> None:
    page.goto(f"http://{served.host}/experiments/{word}/logs{search}")
    page.run(f"await {LOG}.locator('[data-index]').first().waitFor()")


def found(page: Page) -> str:
    """The line that was found, once it is in the pane."""
    hit = f"{LOG}.locator('[data-state=found]')"
    page.run(f"await {hit}.waitFor()")
    inside = (
        f"return {hit}.evaluate((row) => {{ const [own, box] = [row, row.closest('[role=log]')]"
        ".map((one) => one.getBoundingClientRect()); return own.top >= box.top && own.bottom <= box.bottom; })"
    )
    until(lambda: page.run(inside), "the hit to be in the pane")
    return str(page.run(f"return {hit}.innerText()"))


def test_a_hit_and_its_count_are_there_again_after_a_reload(
    page: Page, served: FromTheWheel, words: dict[str, str]
) -> None:
    opened(page, served, words["long"])
    page.run("await page.getByLabel('find in all lines').fill('needle')")
    for _ in range(4):
        page.run("await page.keyboard.press('Enter')")
    page.run(f"await {STATUS}.getByText('4 of 5 lines').waitFor()")
    assert "a needle in line 4000" in found(page)
    page.run("await page.reload()")
    assert "a needle in line 4000" in found(page)
    assert page.run(f"return {STATUS}.innerText()") == "4 of 5 lines"
    page.run("await page.getByLabel('find in all lines').focus(); await page.keyboard.press('Enter')")
    page.run(f"await {STATUS}.getByText('5 of 5 lines').waitFor()")
    assert "a needle in line 5000" in found(page)
    page.run("await page.getByLabel('find in all lines').fill('')")
    page.run("await page.waitForURL((url) => !url.search.includes('hit'))")


def test_an_error_is_there_again_after_a_reload_and_the_next_comes_after_it(
    page: Page, served: FromTheWheel, words: dict[str, str]
) -> None:
    opened(page, served, words["long"], "?find=needle")
    page.run("await page.getByRole('button', {name: 'First error'}).click()")
    assert "ValueError: line 3333" in found(page)
    page.run("await page.waitForURL(/hit=/); await page.reload()")
    assert "ValueError: line 3333" in found(page)
    page.run("await page.keyboard.press('n')")
    page.run(f"await {LOG}.locator('[data-state=found]').getByText('KeyError').waitFor()")
    assert "line 4444" in found(page)


def test_chosen_lines_stay_beside_a_hit(page: Page, served: FromTheWheel, words: dict[str, str]) -> None:
    opened(page, served, words["long"], "?at=0:master-0:0:2&to=0:master-0:0:4&find=needle&hit=0:master-0:0:1999")
    assert "a needle in line 2000" in found(page)
    page.see("3 lines chosen")
    assert page.run(f"return {STATUS}.innerText()") == "2 of 5 lines"


def test_scrolling_sideways_follows_nothing(page: Page, served: FromTheWheel, words: dict[str, str]) -> None:
    opened(page, served, words["wide"])
    assert page.run(f"return {FOLLOW}.getAttribute('aria-pressed')") == "false"
    page.run(
        f"await {LOG}.evaluate((log) => new Promise((done) => {{ log.addEventListener('scroll', () =>"
        " requestAnimationFrame(() => requestAnimationFrame(done)), {once: true}); log.scrollLeft = 500; }))"
    )
    assert page.run(f"return {LOG}.evaluate((log) => log.scrollLeft)") == 500
    assert page.run(f"return {FOLLOW}.getAttribute('aria-pressed')") == "false"
