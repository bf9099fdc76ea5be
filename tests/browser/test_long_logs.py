"""A million lines: what is sought is found wherever it lies, and the count is that of grep on the raw download."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel

LINES = 1_000_000
EVERY = 130_013  # so that hits lie far from both ends and from each other
PRINTS = (
    "print('\\n'.join(f'shard {n} has a Bad checksum' if n % EVERY == 0 else f'step {n} loss {1 / n:.6f}'"
    " for n in range(1, LINES + 1)))"
)
STATUS = "page.getByRole('status').filter({hasText: /of .* lines?$|not found/})"


@pytest.fixture(scope="module")
def word(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A worker that prints a million lines; the master says little."""
    script = tmp_path_factory.mktemp("long") / "prints.py"
    script.write_text(PRINTS.replace("EVERY", str(EVERY)).replace("LINES", str(LINES)))
    command = f"if [ $SHOAL_ROLE = worker ]; then {{python}} {script}; else echo the master has nothing to say; fi"
    word = served.submit("talkative", command)
    served.finished(word)
    return word


@pytest.fixture
def log(page: Page, served: FromTheWheel, word: str) -> Page:
    page.goto(f"http://{served.host}/experiments/{word}/logs?replicas=worker-0")
    page.run("await page.getByRole('log').locator('[data-index]').first().waitFor()")
    return page


def test_a_hit_outside_of_everything_loaded_is_found_and_counted_as_grep_does(
    log: Page, served: FromTheWheel, word: str, tmp_path: Path
) -> None:
    assert log.run("return page.getByText('checksum').count()") == 0, "no hit is near what is loaded"
    log.run("await page.keyboard.press('/')")
    log.run("await page.keyboard.type('bad CHECKSUM'); await page.keyboard.press('Enter')")
    log.see(f"shard {EVERY} has a Bad checksum")
    assert log.run(f"return {STATUS}.innerText()") == "1 of 7 lines"
    log.run("await page.keyboard.press('Enter')")
    log.see(f"shard {2 * EVERY} has a Bad checksum")
    log.run("await page.keyboard.press('Shift+Enter'); await page.keyboard.press('Shift+Enter')")
    log.see(f"shard {7 * EVERY} has a Bad checksum")
    assert log.run(f"return {STATUS}.innerText()") == "7 of 7 lines", "before the first comes the last"
    assert log.run("return page.locator('[data-index]').count()") <= 400, "only a few of the lines exist in the page"

    log.run("await page.getByRole('button', {name: 'download raw logs'}).click()")
    log.run(
        "const [file] = await Promise.all([page.waitForEvent('download'),"
        " page.getByRole('menuitem', {name: 'worker-0'}).click()]); await file.saveAs(args.path)",
        path=str(tmp_path / "raw.log"),
    )
    grep = subprocess.run(["grep", "-ci", "bad checksum", tmp_path / "raw.log"], capture_output=True, text=True)
    assert grep.stdout == "7\n"
    assert sum(chunk.count(b"\n") for chunk in (tmp_path / "raw.log").open("rb")) == LINES


def test_a_regular_expression_counts_lines_and_a_filter_shows_only_those(log: Page) -> None:
    log.run("await page.getByRole('button', {name: 'regular expressions'}).click()")
    log.run(
        "await page.getByLabel('find in all lines').fill('^step 9999\\\\d\\\\d '); await page.keyboard.press('Enter')"
    )
    log.see("step 999900 loss")
    assert log.run(f"return {STATUS}.innerText()") == "1 of 100 lines"
    log.run("await page.getByLabel('filter lines').fill('checksum'); await page.keyboard.press('Enter')")
    log.see(f"shard {7 * EVERY} has a Bad checksum")
    assert log.run("return page.getByRole('log').locator('[data-index]').count()") == 7
    assert "filter=checksum" in log.run("return page.url()")


def test_the_bar_leads_anywhere_and_the_address_names_a_line(log: Page) -> None:
    bar = "const box = await page.getByRole('scrollbar').boundingBox();"
    log.run(f"{bar} await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2)")
    near = "page.getByRole('log').locator('[data-index]').filter({hasText: /step (49|50)\\d{4} /}).first()"
    log.run(f"await {near}.waitFor()")
    log.run("await page.getByRole('log').focus(); await page.keyboard.press('End')")
    log.see(f"step {LINES} loss")
    log.run("await page.keyboard.press('Home')")
    log.see("step 1 loss")
    log.run("await page.getByRole('button', {name: 'line 3 of worker-0', exact: true}).click()")
    log.run("await page.getByRole('button', {name: 'line 5 of worker-0', exact: true}).click({modifiers: ['Shift']})")
    log.see("3 lines chosen")
    address = log.run("return page.url()")
    assert "at=0:worker-0:0:2" in address
    log.run("await page.goto(args.address)", address=address.replace("0:2", "0:777776").replace("0:4", "0:777778"))
    log.see("step 777777 loss")
    log.see("3 lines chosen")
