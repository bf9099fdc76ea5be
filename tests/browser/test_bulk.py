"""What is done to several experiments at once: tags are given and taken, and every list hears of it."""

from __future__ import annotations

import pytest

from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel


@pytest.fixture(scope="module")
def words(served: FromTheWheel) -> list[str]:
    found = [served.submit(f"many-{n}", "true", more="tags: [given]\n" if n == 0 else "") for n in range(3)]
    for word in found:
        served.finished(word)
    return found


def tick(page: Page, *words: str) -> None:
    for word in words:
        page.run("await page.getByRole('checkbox', {name: `select ${args.word}`}).check()", word=word)


def tagged(page: Page, add: str = "", remove: str = "") -> None:
    """By the dialog of the bar."""
    page.run("await page.getByRole('toolbar').getByRole('button', {name: 'Tag', exact: true}).click()")
    if add:
        page.run("await page.getByRole('textbox', {name: 'Add'}).fill(args.add)", add=add)
    if remove:
        page.run("await page.getByRole('checkbox', {name: args.remove}).check()", remove=remove)
    page.run("await page.getByRole('button', {name: 'Change tags'}).click()")
    page.run("await page.getByRole('dialog').waitFor({state: 'hidden'})")


def row(page: Page, word: str, text: str, seen: bool = True) -> None:
    page.run(
        "await page.getByRole('row').filter({has: page.getByText(args.word, {exact: true})})"
        ".getByText(args.text, {exact: true}).waitFor({state: args.seen ? 'visible' : 'hidden'})",
        word=word,
        text=text,
        seen=seen,
    )


def test_tags_are_given_and_taken_and_others_see_it(
    page: Page, browser: Browser, served: FromTheWheel, words: list[str]
) -> None:
    other = browser.page()
    other.goto(served.client.sign_in("/experiments"))
    other.see(words[0])
    page.see(words[0])
    tick(page, *words[:2])
    tagged(page, add="sweep, lr: high")
    for word in words[:2]:
        row(page, word, "sweep")
        row(other, word, "sweep")
    assert [served.client.show(word)["tags"] for word in words] == [
        ["given", "sweep", "lr: high"],
        ["sweep", "lr: high"],
        [],
    ]

    tagged(page, remove="given (1 of 2)")
    row(page, words[0], "given", seen=False)
    row(other, words[0], "given", seen=False)
    assert served.client.show(words[0])["tags"] == ["sweep", "lr: high"]
    other.close()

    page.goto(f"http://{served.host}/experiments/{words[1]}")
    page.run("await page.getByRole('link', {name: 'lr: high'}).click(); await page.waitForURL(/experiments\\?q=/)")
    page.see("2 experiments")
    row(page, words[1], "sweep")


def test_a_column_is_pinned_and_stays_so(page: Page, served: FromTheWheel, words: list[str]) -> None:
    page.see(words[0])
    held = "return page.locator('[role=row]').first().locator('[role=none] [role=columnheader]').allInnerTexts()"
    assert [name for name in page.run(held) if name] == ["State", "Name"]
    page.run("await page.getByRole('button', {name: 'Columns'}).click()")
    page.run("await page.getByRole('button', {name: 'pin Ran', exact: true}).click()")
    page.run("await page.getByRole('button', {name: 'unpin State', exact: true}).click()")
    page.run("await page.keyboard.press('Escape')")
    assert [name for name in page.run(held) if name] == ["Name", "Ran"]
    page.run("await page.reload()")
    page.see(words[0])
    assert [name for name in page.run(held) if name] == ["Name", "Ran"]
