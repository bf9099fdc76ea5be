"""Everything by keys, and tabs that nobody sees are quiet."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel
from tests.running import until


@pytest.fixture(scope="module")
def words(served: FromTheWheel) -> list[str]:
    """Three experiments, the newest first."""
    command = "echo step 1; echo RuntimeError: bad >&2; echo RuntimeError: worse >&2; echo step 2"
    found = [served.submit(f"keyed-{n}", command) for n in range(3)]
    for word in found:
        served.finished(word)
    return found[::-1]


def press(page: Page, *keys: str) -> None:
    page.run("for (const key of args.keys) await page.keyboard.press(key)", keys=keys)


def chord(page: Page, *keys: str) -> None:
    """Keys that are one word when they follow each other at once: the page's clock stands still meanwhile."""
    page.run("await page.evaluate(() => { const now = Date.now(); window.clock = Date.now; Date.now = () => now; })")
    press(page, *keys)
    page.run("await page.evaluate(() => { Date.now = window.clock; })")


def test_the_list_is_walked_ticked_and_compared_by_keys(page: Page, words: list[str]) -> None:
    for word in words:
        page.see(word)
    press(page, "j", "x", "j", "x", "c")
    page.run("await page.waitForURL(/compare/)")
    assert {*re.findall(r"e[a-z0-9]{5}", page.run("return page.url()"))} == {*words[:2]}
    chord(page, "g", "e")
    page.run("await page.waitForURL(/experiments/)")
    page.see(words[2])
    press(page, "j", "j", "k", "j", "j", "Enter")
    page.run("await page.waitForURL(new RegExp(args.word))", word=words[2])


def test_the_query_is_reached_by_a_key_and_narrows_the_list(page: Page, words: list[str]) -> None:
    page.see(words[0])
    press(page, "/")
    page.run("await page.keyboard.type('name:keyed-1'); await page.keyboard.press('Enter')")
    page.run("await page.getByText(args.word).waitFor({state: 'hidden'})", word=words[0])
    page.see(words[1])
    page.run("await page.keyboard.press('Escape')")
    page.see("1 experiment")
    assert "q=name:keyed-1" in page.run("return page.url()")


@pytest.mark.parametrize(
    ("key", "tab"),
    [
        ("l", "logs"),
        ("m", "metrics"),
        ("r", "resources"),
        ("a", "artifacts"),
        ("t", "timeline"),
        ("s", "stacks"),
        ("f", "config"),
    ],
)
def test_g_and_a_letter_open_a_tab(page: Page, served: FromTheWheel, words: list[str], key: str, tab: str) -> None:
    page.goto(f"http://{served.host}/experiments/{words[0]}?replicas=worker-0")
    page.see("keyed-2")
    chord(page, "g", key)
    page.run("await page.waitForURL(new RegExp('/' + args.tab + '.replicas=worker-0'))", tab=tab)


def test_g_and_a_letter_open_a_page(page: Page, served: FromTheWheel, words: list[str]) -> None:
    page.goto(f"http://{served.host}/experiments/{words[0]}/logs")
    page.see("step 2")
    chord(page, "g", "o")
    page.run("await page.waitForURL(new RegExp(args.word + '$'))", word=words[0])
    for key, path in (("c", "clusters"), ("n", "create"), ("e", "experiments")):
        chord(page, "g", key)
        page.run("await page.waitForURL(new RegExp('/' + args.path))", path=path)


def test_brackets_walk_from_replica_to_replica(page: Page, served: FromTheWheel, words: list[str]) -> None:
    page.goto(f"http://{served.host}/experiments/{words[0]}")
    page.see("keyed-2")
    for key, chosen in (("]", "master-0"), ("]", "worker-0"), ("[", "master-0")):
        press(page, key)
        page.run("await page.waitForURL(new RegExp('replicas=' + args.chosen))", chosen=chosen)


def test_a_log_is_followed_by_a_key(page: Page, served: FromTheWheel, words: list[str]) -> None:
    page.goto(f"http://{served.host}/experiments/{words[0]}/logs")
    page.see("step 2")
    button = "page.getByRole('button', {name: 'End', exact: true})"
    before = page.run(f"return {button}.getAttribute('aria-pressed')")
    for now in ({"true": "false", "false": "true"}[before], before):
        press(page, "f")
        page.run(f"await {button}.and(page.locator(`[aria-pressed=${{args.now}}]`)).waitFor()", now=now)


def test_errors_in_a_log_are_walked_by_keys(page: Page, served: FromTheWheel, words: list[str]) -> None:
    page.goto(f"http://{served.host}/experiments/{words[0]}/logs?replicas=worker-0")
    page.see("step 2")
    found = "page.locator('[data-state=found]')"
    for key, error in (("n", "RuntimeError: bad"), ("n", "RuntimeError: worse"), ("p", "RuntimeError: bad")):
        press(page, key)
        page.run(f"await {found}.getByText(args.error).waitFor()", error=error)
        assert page.run(f"return {found}.count()") == 1


def test_the_palette_goes_anywhere_and_help_lists_the_keys(page: Page, words: list[str]) -> None:
    page.see(words[0])
    press(page, "?")
    page.run("await page.getByRole('dialog').getByText('next row').waitFor()")
    press(page, "Escape")
    page.run("await page.getByRole('dialog').waitFor({state: 'hidden'})")
    press(page, "Control+k")
    page.run("await page.getByPlaceholder(/experiment's name/).fill('keyed-0')")
    page.run("await page.getByRole('dialog').getByText('keyed-0').first().waitFor()")
    press(page, "Enter")
    page.run("await page.waitForURL(new RegExp(args.word))", word=words[2])


def test_the_palette_takes_a_name_that_is_typed_before_the_list_has_come(page: Page, words: list[str]) -> None:
    page.see(words[0])
    page.run(
        "let come; const held = new Promise((done) => { come = done; });"
        "await page.route('**/api/experiments?limit=200', async (route) => { await held; await route.continue(); });"
        "await page.keyboard.press('Control+k');"
        "await page.getByPlaceholder(/experiment's name/).fill('keyed-0'); come();"
        "await page.getByRole('dialog').getByText('keyed-0').first().waitFor();"
        "await page.keyboard.press('Enter'); await page.waitForURL(new RegExp(args.word))",
        word=words[2],
    )


@pytest.fixture
def hideable(browser: Browser, alone: FromTheWheel) -> Iterator[Page]:
    page = browser.page()
    page.goto(alone.client.sign_in("/experiments"))
    yield page
    page.close()


def test_a_tab_that_nobody_sees_is_quiet_and_catches_up(hideable: Page, alone: FromTheWheel) -> None:
    page = hideable
    alone.finished(alone.submit("seen", "echo a"))
    page.see("seen")
    page.run("await page.getByText('live', {exact: true}).waitFor()")
    assert len(streams(page)) == 1, "one stream for the whole page"
    show(page, False)
    page.run("await page.getByText('paused').waitFor()")
    until(lambda: [line for line in page.heard()["failures"] if "/api/events" in line], "the end of the stream")
    asked = len(page.heard()["requests"])
    alone.finished(alone.submit("unseen", "echo a; echo b"))
    assert page.heard()["requests"][asked:] == []
    show(page, True)
    page.see("unseen")
    assert len(streams(page)) == 2
    assert "cursor=" in streams(page)[1], "what was missed is asked for, and no more"


def streams(page: Page) -> list[str]:
    return [url for url in page.heard()["requests"] if "/api/events" in url]


def show(page: Page, seen: bool) -> None:
    """Tells the page that its tab is hidden, or seen again: a browser without windows hides none by itself."""
    page.run(
        "await page.evaluate((hidden) => {"
        " Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " const word = hidden ? 'hidden' : 'visible';"
        " Object.defineProperty(document, 'visibilityState', {value: word, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange', {bubbles: true})); }, args.hidden)",
        hidden=not seen,
    )
