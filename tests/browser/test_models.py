"""Models in the browser: what each version was worth, what it comes from, and what aliases mean."""

from __future__ import annotations

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel

REGISTERS = (
    "echo weights {accuracy} > model.txt; {{python}} -c 'import shoal; "
    'shoal.model("{name}", "model.txt", step=40, metrics=dict(accuracy={accuracy}, loss=0.5))\''
)
WORTH = {1: 0.81, 2: 0.93, 3: 0.87}


@pytest.fixture(scope="module")
def words(served: FromTheWheel) -> dict[int, str]:
    """version -> the experiment that made it."""
    found = {}
    for version, accuracy in WORTH.items():
        command = REGISTERS.format(name="team/net", accuracy=accuracy)
        found[version] = served.submit(f"train-{version}", command, workers=0)
        assert served.finished(found[version])["state"] == "succeeded"
    return found


def opened(page: Page, served: FromTheWheel, path: str) -> None:
    assert page.goto(f"http://{served.host}{path}") == 200
    page.settled()


def aliases(served: FromTheWheel) -> dict[str, int]:
    return {alias: entry["version"] for entry in served.client.models() for alias in entry["aliases"]}


def promote(page: Page, alias: str) -> None:
    page.run("await page.getByRole('combobox', {name: 'alias'}).fill(args.alias)", alias=alias)
    page.run("await page.keyboard.press('Escape'); await page.getByRole('button', {name: 'Promote'}).click()")


def test_versions_are_told_with_where_they_come_from(page: Page, served: FromTheWheel, words: dict[int, str]) -> None:
    opened(page, served, "/models")
    row = page.run("return page.getByRole('row', {name: /team\\/net/}).innerText()").split()
    assert row[:4] == ["team/net", "v3", "of", "3"]
    assert words[3] in row
    page.run("await page.getByRole('link', {name: 'team/net'}).click(); await page.waitForURL('**/models/team%2Fnet')")
    told = "accuracy over 3 versions: lowest 0.81 in v1, highest 0.93 in v2, newest 0.87 in v3"
    page.run("await page.getByRole('img', {name: args.told}).waitFor()", told=told)
    page.run("await page.getByRole('row', {name: /^v2/}).click(); await page.waitForURL('**version=2')")
    page.run("await page.getByRole('region', {name: 'team/net@2'}).waitFor()")
    page.run("await page.reload(); await page.getByRole('region', {name: 'team/net@2'}).waitFor()")
    page.run("await page.getByRole('link', {name: 'model.txt'}).click()")
    page.see("weights 0.93")
    link = "page.getByRole('region', {name: 'team/net@2'}).getByRole('link', {name: args.word})"
    page.run(f"await {link}.click(); await page.waitForURL(`**/experiments/${{args.word}}`)", word=words[2])
    page.see("train-2")


def test_an_alias_is_given_moved_and_taken_away(page: Page, served: FromTheWheel, words: dict[int, str]) -> None:
    opened(page, served, "/models/team%2Fnet?version=1")
    promote(page, "production")
    page.run("await page.getByRole('button', {name: 'take production away'}).waitFor()")
    assert aliases(served) == {"production": 1}
    opened(page, served, "/models/team%2Fnet?version=2")
    page.run("await page.getByRole('combobox', {name: 'alias'}).fill('production')")
    page.see("production means version 1 now; it will mean 2.")
    promote(page, "production")
    page.run("await page.getByRole('button', {name: 'take production away'}).waitFor()")
    assert aliases(served) == {"production": 2}
    page.run("await page.getByRole('combobox', {name: 'alias'}).fill('v3')")
    page.see("a number would be read as a version")
    assert page.run("return page.getByRole('button', {name: 'Promote'}).isDisabled()")
    page.run("await page.getByRole('button', {name: 'take production away'}).click()")
    page.see("no alias means this version")
    assert aliases(served) == {}


def test_a_version_is_removed(page: Page, served: FromTheWheel, words: dict[int, str]) -> None:
    command = REGISTERS.format(name="short-lived", accuracy=0.5)
    assert served.finished(served.submit("short", command, workers=0))["state"] == "succeeded"
    opened(page, served, "/models/short-lived")
    page.run("await page.getByRole('button', {name: 'Remove …'}).click()")
    page.run("await page.getByRole('dialog').getByRole('button', {name: 'Remove short-lived@1', exact: true}).click()")
    page.run("await page.waitForURL(/models$/)")
    page.run("await page.getByText('short-lived').waitFor({state: 'detached'})")
    assert "short-lived" not in [entry["name"] for entry in served.client.models()]
