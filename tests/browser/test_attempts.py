"""An attempt that was not the last: what is told of it is of it, and links stay with it."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.api.speaking import Gate
from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel
from tests.running import until

WORKERS = 11
STEPS = 10  # of the first attempt; the second begins at half of them and goes on to twice as many
SAYS = "Learns nothing: two attempts of twelve ranks."
TRAINS = f"""
import os, sys
import shoal
attempt, replica = int(os.environ["SHOAL_ATTEMPT"]), os.environ["SHOAL_REPLICA"]
rank = int(replica.split("-")[1])
for step in range({STEPS}) if attempt == 0 else range({STEPS} // 2, 2 * {STEPS}):
    shoal.log(loss=1000 * attempt + step + rank / 100, step=step)
shoal.finish()
print(replica, "ends attempt", attempt, flush=True)
done = os.open(sys.argv[1], os.O_RDWR)
if replica != "master-0":
    os.write(done, b".")
elif attempt == 0:
    for _ in range({WORKERS}):
        os.read(done, 1)  # nobody is stopped before it has said everything
    sys.exit(1)
"""
MORE = f"description: '{SAYS}'\nrestart: {{policy: experiment, max: 1}}\n"
TABLE = "page.getByRole('grid', {name: 'replicas'})"
SELECTOR = "page.getByRole('combobox', {name: 'replicas'})"


@pytest.fixture(scope="module")
def word(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("attempts")
    (place / "train.py").write_text(TRAINS)
    Gate(place / "done")
    word = served.submit("twice", f"{{python}} {place / 'train.py'} {place / 'done'}", workers=WORKERS, more=MORE)
    shown = served.finished(word)
    assert (shown["state"], shown["attempt"]) == ("succeeded", 1)
    return word


def opened(page: Page, served: FromTheWheel, word: str, rest: str = "") -> None:
    page.goto(f"http://{served.host}/experiments/{word}{rest}")
    page.settled()


def searched(page: Page) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(page.run("return page.url()")).query).items()}


def test_metrics_and_last_lines_are_those_of_the_attempt(page: Page, served: FromTheWheel, word: str) -> None:
    row = "page.getByRole('row').filter({has: page.getByRole('link', {name: 'loss', exact: true})})"
    opened(page, served, word)
    until(lambda: page.run(f"return {row}.innerText()").split()[-1] == str(2 * STEPS - 1), "the newest step")
    opened(page, served, word, "?attempt=0")
    page.see("of attempt 0: last of the lowest rank")
    name, last, least, largest, step = page.run(f"return {row}.innerText()").split()
    assert (name, float(last), float(least), step) == ("loss", STEPS - 1, 0, str(STEPS - 1))
    assert STEPS - 1 < float(largest) < STEPS

    def said() -> list[str]:
        return re.findall(r"ends attempt ([01])", page.run(f"return {TABLE}.innerText()"))

    until(lambda: len(said()) == WORKERS + 1, "the last lines of all")
    assert said() == ["0"] * (WORKERS + 1)


@pytest.mark.parametrize(
    ("link", "tab"),
    [
        (
            "page.getByRole('banner').or(page.locator('header')).getByRole('link', {name: /experiment.yml|e.yml/})",
            "config",
        ),
        ("page.getByRole('region', {name: 'first failure'}).getByRole('link', {name: 'Timeline'})", "timeline"),
        ("page.getByRole('link', {name: 'loss', exact: true})", "metrics"),
        ("page.getByRole('link', {name: 'all of it'})", "config"),
        ("page.getByRole('navigation', {name: 'tabs'}).getByRole('link', {name: 'Resources'})", "resources"),
    ],
    ids=["file", "timeline", "metric", "provenance", "tab"],
)
def test_links_stay_with_the_attempt_and_the_replicas(
    page: Page, served: FromTheWheel, word: str, link: str, tab: str
) -> None:
    opened(page, served, word, "?attempt=0&replicas=worker-*")
    page.run(f"await {link}.first().click(); await page.waitForURL(new RegExp(args.tab))", tab=f"{word}/{tab}")
    kept = searched(page)
    assert (kept["attempt"], kept["replicas"]) == ("0", "worker-*")


@pytest.mark.parametrize("typed", ["worker-1", "worker-1*", "worker"])
def test_replicas_are_typed(page: Page, served: FromTheWheel, word: str, typed: str) -> None:
    """With Enter, and without a look at what the list offers."""
    opened(page, served, word)
    page.run(f"await {SELECTOR}.fill(args.typed); await page.keyboard.press('Enter')", typed=typed)
    page.run("await page.waitForURL((url) => url.searchParams.get('replicas') === args.typed)", typed=typed)


def test_what_the_file_says_of_itself_is_below_the_name(page: Page, served: FromTheWheel, word: str) -> None:
    opened(page, served, word)
    assert SAYS in page.run("return page.locator('header').nth(1).innerText()")


def test_what_charts_tell_of_many_ranks_is_not_cut(page: Page, served: FromTheWheel, word: str) -> None:
    opened(page, served, word, "/metrics?as=lines")
    over = "page.locator('section[aria-label=loss] .u-over')"
    page.run(
        f"await {over}.waitFor(); const box = await {over}.boundingBox();"
        f"await {over}.hover({{position: {{x: box.width * 0.3, y: box.height * 0.75}}}})"
    )
    tip = "page.getByText('largest and least of 12').locator('..')"
    page.run(f"await {tip}.waitFor()")
    bottom = f"(box => box.y + box.height)(await {tip}.boundingBox())"
    assert page.run(f"return {bottom}") <= page.run(
        "const box = await page.locator('section[aria-label=loss]').boundingBox(); return box.y + box.height"
    )


def test_the_bar_of_a_narrow_window_holds_all_its_words(browser: Browser, served: FromTheWheel) -> None:
    page = browser.page(viewport={"width": 900, "height": 700})
    page.goto(served.client.sign_in("/clusters"))
    page.settled()
    bar = "page.locator('header').first()"
    assert page.run(f"return {bar}.evaluate((bar) => bar.scrollWidth - bar.clientWidth)") == 0
    lines = page.run(
        f"return {bar}.locator('a, button, [role=status]').evaluateAll((all) => all.map((one) => {{"
        "  const words = document.createRange(); words.selectNodeContents(one);"
        "  const [box, text] = [one.getBoundingClientRect(), words.getBoundingClientRect()];"
        "  return [one.innerText, text.width <= box.width + 0.5 && text.height < 40 && box.right <= innerWidth]; }))"
    )
    assert [word for word, fits in lines if not fits] == []
    assert {"Data sets", "New"} <= {word.strip() for word, _ in lines}
    page.run("await page.getByRole('button', {name: 'Go to'}).click()")
    page.run("await page.getByRole('dialog').waitFor()")
    page.close()
