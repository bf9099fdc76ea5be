"""A list that is longer than what a browser holds of it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import until

EXPERIMENTS = 1200
LAST = "e00002"  # the oldest but one


def to_the_end(page: Page) -> None:
    page.see("e01200")
    page.run("await page.getByRole('grid', {name: 'experiments'}).focus(); await page.keyboard.press('End')")
    page.see(LAST)


def test_its_end_is_reached_without_what_lies_between(page: Page) -> None:
    to_the_end(page)
    asked = [urlsplit(url) for url in page.heard()["requests"]]
    parts = [parse_qs(url.query) for url in asked if url.path == "/api/experiments"]
    assert {int(part["limit"][0]) for part in parts} == {300}
    assert {int(part["offset"][0]) for part in parts} == {0, EXPERIMENTS - 300}
    rows = "page.getByRole('grid').getByRole('row')"
    assert page.run(f"return {rows}.count()") < 100
    place = page.run("return page.getByRole('row', {name: args.word}).getAttribute('aria-rowindex')", word=LAST)
    assert int(place) == EXPERIMENTS, "the header is the first row, and one experiment is older"


def test_all_of_it_is_ticked_at_once(page: Page) -> None:
    page.see("e01200")
    page.run("await page.getByRole('checkbox', {name: 'select all 1200'}).click()")
    page.run("await page.getByRole('toolbar').getByText('1,200 experiments').waitFor()")


def test_a_row_far_away_stays_pinned_above(page: Page) -> None:
    to_the_end(page)
    page.run("await page.getByRole('checkbox', {name: args.label}).check()", label=f"select {LAST}")
    page.run("await page.getByRole('button', {name: 'Pin'}).click()")
    page.run("await page.reload()")
    row = "page.getByRole('row', {name: args.word})"
    page.run(f"await {row}.getByLabel('pinned').waitFor()", word=LAST)
    page.see("e01200")
    until(lambda: page.run(f"return {row}.getAttribute('aria-rowindex')", word=LAST) == "2", "its place above all")


def test_who_comes_to_match_a_query_is_announced_and_nobody_else(page: Page, served: FromTheWheel) -> None:
    page.goto(f"http://{served.host}/experiments?q=tags:wanted")
    page.see("No experiment matches")
    old = served.client.tag(LAST, "unwanted")["id"]  # no newcomer, and it does not match
    served.client.tag("e00003", "wanted")  # an old one begins to
    page.run("await page.getByRole('button', {name: '1 new experiment'}).click()")
    page.see("e00003")
    assert old not in page.text()
