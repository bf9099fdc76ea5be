"""Two runs side by side: only what differs, their curves over each other, their files."""

from __future__ import annotations

import json
import subprocess
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.packaging import installed, outside
from tests.running import until

SCRIPT = """\
import json, os, shoal
lr = json.loads(os.environ["SHOAL_PARAMS"])["lr"]
rank = int(os.environ["SHOAL_REPLICA"] == "worker-0")
for step in range(40):
    shoal.log(step=step, loss=1 / (1 + lr * step) + rank * 0.01)
"""
FILE = """\
# The learning rate is what matters
name: {name}
framework: none
params: {{lr: {lr}, same: 3, model: {{depth: {depth}}}}}
run: {{cmd: {python} train.py}}
environment: {{replicas: {{n_workers: 1}}}}
"""


@pytest.fixture(scope="module")
def words(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("code")
    (place / "train.py").write_text(SCRIPT)
    python = installed() / "bin" / "python"
    found = [
        served.run(FILE.format(name=name, lr=lr, depth=2, python=python), place, oversubscribe=True)
        for name, lr in (("slow", 0.1), ("fast", 0.9))
    ]
    for word in found:
        assert served.finished(word)["state"] == "succeeded"
    return found


def opened(page: Page, served: FromTheWheel, words: list[str], more: str = "") -> None:
    assert page.goto(f"http://{served.host}/compare?ids={','.join(words)}{more}") == 200
    page.run("await page.getByRole('group', {name: 'compared experiments'}).waitFor()")


def rows(page: Page) -> dict[str, list[str]]:
    """name -> what each experiment has; when all that are ticked are here."""
    page.run("await page.getByRole('region', {name: 'comparison'}).locator('tbody th[scope=row]').first().waitFor()")
    page.run(
        "await page.waitForFunction(() => document.querySelectorAll('thead th[scope=col]').length - 1 ==="
        " document.querySelectorAll('[aria-label=\"compared experiments\"] input[type=checkbox]:checked').length)"
    )
    found = page.run(
        "return page.locator('table tbody tr:has(th[scope=row])').evaluateAll((all) => all.map((row) =>"
        " [...row.children].map((cell) => cell.innerText.trim())))"
    )
    return {name: values for name, *values in found}


def test_only_what_differs_is_shown(page: Page, served: FromTheWheel, words: list[str]) -> None:
    opened(page, served, words)
    shown = rows(page)
    assert shown["lr"] == ["0.1", "0.9"]
    assert "same" not in shown
    assert "model.depth" not in shown
    assert "framework" not in shown
    page.run("await page.getByRole('switch', {name: /rows that are equal/}).check()")
    everything = rows(page)
    assert (everything["same"], everything["model.depth"]) == (["3", "3"], ["2", "2"])
    assert set(shown) < set(everything)
    page.run("await page.getByLabel('find rows').fill('params')")
    page.run("await page.locator('th[scope=row]', {hasText: 'framework'}).waitFor({state: 'detached'})")
    assert set(rows(page)) == {"lr", "same", "model.depth"}


@pytest.mark.parametrize("statistic", ["last", "min", "max"])
def test_metrics_are_those_of_the_command(page: Page, served: FromTheWheel, words: list[str], statistic: str) -> None:
    command = [installed() / "bin" / "shoal", "compare", *words, "--json"]
    told = subprocess.run(
        command, env=outside(SHOAL_HOME=str(served.home)), capture_output=True, text=True, check=True, cwd="/"
    )
    expected = json.loads(told.stdout)["metrics"]["loss"][statistic]
    opened(page, served, words, "&all=yes")
    page.run("await page.getByText(args.word, {exact: true}).click()", word=statistic.capitalize())
    cells = "return page.locator('tr:has(> th[title=loss]) td').evaluateAll((all) => all.map((one) => one.innerText))"
    wanted = pytest.approx(expected, abs=1e-3)
    until(lambda: [float(cell) for cell in page.run(cells)] == wanted, f"{statistic} as {expected}")


def test_only_ticked_experiments_are_shown_and_the_address_says_so(
    page: Page, served: FromTheWheel, words: list[str]
) -> None:
    opened(page, served, words, "&all=yes")
    assert len(rows(page)["lr"]) == 2
    page.run("await page.getByRole('checkbox', {name: 'slow'}).uncheck()")
    page.run("await page.locator('thead').getByText('slow').waitFor({state: 'detached'})")
    assert rows(page)["lr"] == ["0.9"]
    assert parse_qs(urlsplit(page.run("return page.url()")).query)["off"] == [words[0]]
    page.run("await page.reload()")
    assert rows(page)["lr"] == ["0.9"]
    page.run("await page.getByRole('button', {name: 'Untick all'}).click()")
    page.see("No experiment is ticked")
    page.run("await page.getByRole('button', {name: 'Tick all'}).click()")
    assert rows(page)["lr"] == ["0.1", "0.9"]


def test_a_baseline_shows_distances(page: Page, served: FromTheWheel, words: list[str]) -> None:
    opened(page, served, words)
    page.run("await page.getByRole('button', {name: 'baseline'}).first().click()")
    page.run("await page.locator('tr:has(> th[title=loss])').getByText(/^−/).waitFor()")


def test_curves_lie_over_each_other(page: Page, served: FromTheWheel, words: list[str]) -> None:
    opened(page, served, words, "&show=charts")
    card = "page.getByRole('region', {name: 'loss', exact: true})"
    page.run(f"await {card}.locator('[data-points=\"80 80\"]').waitFor()")  # two ranks, forty steps each
    described = page.run(f"return {card}.getByRole('img').getAttribute('aria-label')")
    assert "slow: last mean" in described
    assert "fast: last mean" in described
    assert described.count("of 2 ranks") == 2
    page.run("await page.getByRole('checkbox', {name: 'fast'}).uncheck()")
    page.run(f"await {card}.locator('[data-points=\"80\"]').waitFor()")
    box = page.run(f"return {card}.locator('.u-over').boundingBox()")
    page.run(
        "await page.mouse.move(args.x, args.y); await page.mouse.down();"
        "await page.mouse.move(args.x + args.width / 4, args.y, {steps: 4}); await page.mouse.up();"
        "await page.getByRole('button', {name: 'Whole range'}).waitFor()",
        x=box["x"] + 2, y=box["y"] + 50, width=box["width"],
    )  # fmt: skip
    query = parse_qs(urlsplit(page.run("return page.url()")).query)
    assert float(query["until"][0]) < 20


def test_files_are_shown_with_what_differs(page: Page, served: FromTheWheel, words: list[str]) -> None:
    opened(page, served, words, "&show=files")
    page.see("2 lines differ")
    marks = "return page.getByRole('region', {name: 'difference of the files'}).locator('mark').allInnerTexts()"
    assert page.run(marks) == ["slow", "fast", "1", "9"]
    page.see(f"shoal diff {words[0]} {words[1]}")
    page.run("await page.getByRole('button', {name: 'swap sides'}).click()")
    page.see(f"shoal diff {words[1]} {words[0]}")
    assert page.run(marks) == ["fast", "slow", "9", "1"]
    page.run("await page.getByText('Resolved', {exact: true}).click()")
    page.run("await page.getByRole('region', {name: 'difference of the files'}).getByText('lr: 0.9').waitFor()")


def test_an_experiment_is_added_and_taken_away(page: Page, served: FromTheWheel, words: list[str]) -> None:
    opened(page, served, words[:1], "&all=yes")
    assert rows(page)["lr"] == ["0.1"]
    page.run("await page.getByRole('combobox', {name: 'add an experiment'}).click()")
    page.run("await page.getByRole('option', {name: /^fast/}).click()")
    page.run("await page.locator('thead').getByText('fast').waitFor()")
    assert rows(page)["lr"] == ["0.1", "0.9"]
    page.run("await page.getByRole('button', {name: args.label}).click()", label=f"take {words[0]} away")
    page.run("await page.locator('thead').getByText('slow').waitFor({state: 'detached'})")
    assert parse_qs(urlsplit(page.run("return page.url()")).query)["ids"] == [words[1]]


def test_more_than_twenty_are_not_compared(page: Page, served: FromTheWheel, words: list[str]) -> None:
    more = [*words, *(served.submit(f"one-of-many-{n}", "true") for n in range(19))]
    page.goto(f"http://{served.host}/experiments")
    page.see("one-of-many-18")
    page.run("await page.getByRole('checkbox', {name: /^select all/}).check()")
    button = "page.getByRole('toolbar').getByRole('button', {name: 'Compare'})"
    page.run(f"await {button}.waitFor()")
    assert page.run(f"return [await {button}.isDisabled(), await {button}.getAttribute('title')]") == [
        True,
        "at most 20",
    ]
    page.run("await page.getByRole('checkbox', {name: args.label}).uncheck()", label=f"select {more[-1]}")
    assert page.run(f"return {button}.isEnabled()")
    opened(page, served, more)
    page.see("20 of 21: more cannot be compared")
    group = "page.getByRole('group', {name: 'compared experiments'})"
    assert page.run(f"return {group}.getByRole('checkbox').count()") == 20
    assert page.run("return page.getByRole('combobox', {name: 'add an experiment'}).count()") == 0
    page.run("await page.getByRole('button', {name: args.label}).click()", label=f"take {more[0]} away")
    page.run("await page.getByRole('combobox', {name: 'add an experiment'}).waitFor()")
