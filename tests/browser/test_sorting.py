"""The list is put in order by its headings, with the mouse and by keys."""

from __future__ import annotations

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import until

# The first has neither params nor metrics; of the others `seed` is number % 7 and `loss` 1 / number.
EXPERIMENTS = 9
COLUMNS = "state,name,number,params.seed,metrics.loss"


@pytest.fixture
def listed(page: Page, served: FromTheWheel) -> Page:
    page.goto(f"http://{served.host}/experiments?columns={COLUMNS}")
    page.see("e00009")
    return page


def heading(name: str) -> str:
    return f"page.getByRole('columnheader', {{name: '{name}'}})"


def ordered(page: Page, sort: str, numbers: list[int]) -> None:
    """Waits until the address and the rows say it."""
    page.run("await page.waitForURL((url) => (url.searchParams.get('sort') ?? '') === args.sort)", sort=sort)
    wanted = [f"#{number}" for number in numbers]
    shown = "return page.getByRole('gridcell').filter({hasText: /^#[0-9]+$/}).allInnerTexts()"
    until(lambda: page.run(shown) == wanted, f"the order {wanted}")


def arrow(page: Page, name: str) -> str:
    """The way a heading says it is sorted: to those who see it, and to those who hear it."""
    drawn = page.run(f"return {heading(name)}.locator('svg').getAttribute('class')")
    said = page.run(f"return {heading(name)}.getAttribute('aria-sort')")
    assert ("arrow-down" in drawn) == (said == "descending")
    return str(said)


def test_a_press_on_a_heading_sorts_and_with_shift_another_too(listed: Page) -> None:
    listed.run(f"await {heading('loss')}.getByRole('button').click()")
    ordered(listed, "-metrics.loss", [2, 3, 4, 5, 6, 7, 8, 9, 1])
    assert arrow(listed, "loss") == "descending"
    listed.run(f"await {heading('seed')}.getByRole('button').click()")
    ordered(listed, "params.seed", [7, 8, 9, 2, 3, 4, 5, 6, 1])
    assert arrow(listed, "seed") == "ascending"
    listed.run(f"await {heading('seed')}.getByRole('button').click()")
    ordered(listed, "-params.seed", [6, 5, 4, 3, 9, 2, 8, 7, 1])
    listed.run(f"await {heading('#')}.getByRole('button').click({{modifiers: ['Shift']}})")
    listed.run(f"await {heading('#')}.getByRole('button').click({{modifiers: ['Shift']}})")
    ordered(listed, "-params.seed,number", [6, 5, 4, 3, 2, 9, 8, 7, 1])
    assert [arrow(listed, "seed"), arrow(listed, "#")] == ["descending", "ascending"]
    assert listed.run(f"return {heading('#')}.locator('sub').innerText()") == "2"
    listed.run("await page.reload()")
    ordered(listed, "-params.seed,number", [6, 5, 4, 3, 2, 9, 8, 7, 1])
    assert arrow(listed, "#") == "ascending"


def test_a_heading_is_pressed_by_keys(listed: Page) -> None:
    listed.run(f"await {heading('#')}.getByRole('button').focus(); await page.keyboard.press('Tab')")
    listed.run("await page.keyboard.press('Enter')")
    ordered(listed, "params.seed", [7, 8, 9, 2, 3, 4, 5, 6, 1])
    listed.run("await page.keyboard.press('Shift+Tab'); await page.keyboard.press('Shift+Enter')")
    ordered(listed, "params.seed,-number", [7, 8, 9, 2, 3, 4, 5, 6, 1])
    listed.run("await page.keyboard.press('Space')")
    ordered(listed, "number", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    listed.run("await page.keyboard.press('Space')")
    ordered(listed, "", [9, 8, 7, 6, 5, 4, 3, 2, 1])
    listed.run("await page.keyboard.press('j'); await page.keyboard.press('Enter')")
    listed.run("await page.waitForURL(/experiments.e00009/)")


def test_every_column_can_be_sorted_by(page: Page, served: FromTheWheel) -> None:
    columns = (
        "state,name,number,replicas,duration,created,started,finished,"
        "progress,framework,cluster,backend,attempt,tags,origin,reason,params.seed,metrics.loss.min"
    )
    for column in columns.split(","):
        page.goto(f"http://{served.host}/experiments?columns={column}")
        button = "page.locator('[role=columnheader] button')"
        page.run(f"await {button}.click()")
        page.run("await page.waitForURL(/sort=/)")
        page.settled()
        page.see("9 experiments")
