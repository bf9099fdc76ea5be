"""An experiment is written in the browser: fields and file say the same, the server judges it, and it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.api.speaking import Gate
from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.packaging import installed, outside
from tests.running import until

COMMENTED = """\
# Why this is here
name: commented   # a name
framework: none
params:
  lr: 2e-3   # small
  text: '08'
run:
  # how it starts
  cmd: echo "{{ lr }}"
environment:
  replicas: {n_workers: 1}   # and a master
"""


def write(page: Page, text: str) -> None:
    """Puts a text into the editor, in the place of what was there."""
    page.run("await page.getByRole('textbox', {name: 'experiment file'}).fill(args.text)", text=text)


def written(page: Page) -> str:
    """The text in the editor."""
    page.run("await page.locator('.cm-content').waitFor()")
    lines = page.run("return page.locator('.cm-line').evaluateAll((all) => all.map((line) => line.textContent))")
    return "\n".join(lines)


def fill(page: Page, label: str, value: str) -> None:
    page.run("await page.getByLabel(args.label, {exact: true}).fill(args.value)", label=label, value=value)


def field(page: Page, label: str) -> str:
    return str(page.run("return page.getByLabel(args.label, {exact: true}).inputValue()", label=label))


def opened(page: Page, served: FromTheWheel, path: str = "/create") -> None:
    assert page.goto(f"http://{served.host}{path}") == 200
    page.run("await page.locator('.cm-content').waitFor()")


def test_two_nodes_are_created_and_run(page: Page, served: FromTheWheel, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    opened(page, served)
    fill(page, "Name", "made-in-the-browser")
    fill(page, "Workers", "1")
    fill(page, "Command", f"echo here is $SHOAL_REPLICA\n{gate.wait}\necho over")
    plan = page.run(
        "await page.getByText('It can run').waitFor();"
        "return page.getByRole('grid', {name: 'plan'}).getByRole('row').allInnerTexts()"
    )
    assert [re.split(r"\s+", row)[:3] for row in plan[1:3]] == [
        ["master-0", "master", "0"],
        ["worker-0", "worker", "1"],
    ]
    page.run("await page.getByRole('button', {name: 'Submit'}).click(); await page.waitForURL('**/experiments/e*')")
    word = str(page.run("return page.url()")).rpartition("/")[2]
    page.run("await page.locator('header').getByText('running', {exact: true}).waitFor()")
    gate.open(2)
    page.run("await page.locator('header').getByText('succeeded', {exact: true}).waitFor()")
    found = served.client.show(word)
    assert (found["name"], [one["replica"] for one in found["replicas"]]) == (
        "made-in-the-browser",
        ["master-0", "worker-0"],
    )
    assert found["files"][0]["text"].startswith("# Two nodes."), "its comments are kept"
    page.run("await page.getByRole('tab', {name: 'Logs'}).or(page.getByRole('link', {name: 'Logs'})).first().click()")
    page.see("here is worker-0")


def test_what_is_wrong_is_said_with_its_place(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    text = "# one\nframework: pytroch # no such one\nrun: {cmd: a}\nx: 1\n"
    write(page, text)
    page.see("2 errors")
    told = served.ask("POST", "/api/check", {"files": [{"name": "experiment.yml", "text": text}]}).json()
    shown = page.run("return page.getByRole('list', {name: 'errors'}).getByRole('listitem').allInnerTexts()")
    assert len(shown) == len(told["errors"]) == 2
    for line, error in zip(shown, told["errors"], strict=True):
        assert error["where"].removeprefix("experiment.yml:") in line
        assert error["message"] in line
        assert error["hint"] in line
    marked = "return page.locator('.cm-lintRange-error').allInnerTexts()"
    until(lambda: page.run(marked) == ["pytroch", "x"], "both marks")
    assert page.run("return page.getByRole('button', {name: 'Submit'}).isDisabled()")
    page.run("await page.getByRole('button', {name: '2:12'}).click()")
    assert page.run("return page.evaluate(() => getSelection().toString())") == "pytroch"
    page.run("await page.keyboard.type('pytorch'); await page.getByText('1 error', {exact: true}).waitFor()")
    until(lambda: page.run(marked) == ["x"], "the mark that is left")


def test_a_file_that_is_no_yaml_leaves_the_fields_as_they_were(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    write(page, "name: kept\nrun: {cmd: a}\n")
    page.run("await page.getByLabel('Name', {exact: true}).and(page.locator('[value=kept]')).waitFor()")
    write(page, "name: kept\nrun: [\n")
    page.see("The file cannot be read as it is")
    assert page.run("return page.getByLabel('Name', {exact: true}).isDisabled()")
    assert field(page, "Name") == "kept"
    write(page, "name: mended\nrun: {cmd: a}\n")
    page.see("It can run")
    assert field(page, "Name") == "mended"


def test_a_clone_is_changed_by_fields_and_keeps_its_comments(page: Page, served: FromTheWheel, tmp_path: Path) -> None:
    word = served.run(COMMENTED, tmp_path, oversubscribe=True)
    served.finished(word)
    page.goto(f"http://{served.host}/experiments/{word}")
    page.run("await page.getByRole('link', {name: 'Clone'}).click(); await page.waitForURL('**/create?from=*')")
    assert written(page) == COMMENTED
    assert field(page, "Directory") == str(tmp_path)
    fill(page, "param lr", "0.5")
    fill(page, "Workers", "3")
    fill(page, "Parameter servers", "1")
    fill(page, "Name", "changed")
    fill(page, "Master, CPU cores, requests", "0.1")
    page.run("await page.getByRole('combobox', {name: 'Framework'}).click()")
    page.run("await page.getByRole('option', {name: 'tensorflow'}).click()")
    expected = (
        COMMENTED.replace("name: commented", "name: changed")
        .replace("framework: none", "framework: tensorflow")
        .replace("2e-3", "0.5")
        .replace("{n_workers: 1}", "{n_workers: 3, n_ps: 1}")
        .replace("# and a master\n", "# and a master\n  resources:\n    cpu:\n      requests: 0.1\n")
    )
    assert written(page) == expected
    page.run("await page.getByText('Plan (5)').waitFor()")
    page.run("await page.locator('.cm-content').click(); await page.keyboard.press('Control+z')")
    assert written(page) == expected.replace("framework: tensorflow", "framework: none"), "undo takes fields back, too"


def test_what_a_new_page_holds_runs_as_it_is(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    page.see("It can run")
    page.run("await page.getByRole('button', {name: 'Submit'}).click(); await page.waitForURL('**/experiments/e*')")
    word = str(page.run("return page.url()")).rpartition("/")[2]
    assert served.finished(word)["state"] == "succeeded"
    for replica in ("master-0", "worker-0"):
        (line,) = served.client.logs(word, replica=replica)
        name, _, others = line["text"].partition(" finds the others at ")
        assert (name, set(json.loads(others))) == (replica, {"master", "worker"})


def test_what_is_written_outlives_a_reload(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    write(page, "name: half-done\nrun: {cmd: a}\n")
    page.see("It can run")
    page.run("await page.reload()")
    assert written(page) == "name: half-done\nrun: {cmd: a}\n"
    page.see("your changes of last time")
    page.run("await page.getByRole('button', {name: 'Start over'}).click()")
    page.run("await page.locator('.cm-line').getByText('two-nodes').waitFor()")


def test_templates_can_run_where_they_are(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    page.run("await page.getByRole('button', {name: 'Templates'}).click()")
    page.run("await page.getByRole('menuitem', {name: /^quickstart/}).click()")
    page.run("await page.locator('.cm-line').getByText('quickstart').waitFor()")
    page.run("await page.getByText('Plan (5)').waitFor(); await page.getByText('It can run').waitFor()")
    place = Path(field(page, "Directory"))
    assert (place / "train.py").is_file()
    assert place.is_relative_to(installed().resolve()) or "SHOAL_TEST_INSTALLED" in os.environ, "of the wheel"


def test_keys_and_values_are_offered(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    write(page, "run: {cmd: a}\n")
    offered = "page.locator('.cm-tooltip-autocomplete')"
    taken = "await page.waitForTimeout(100)"  # the editor takes no key for an offer that has just appeared
    page.run("await page.locator('.cm-content').press('Control+End'); await page.keyboard.type('fram')")
    page.run(f"await {offered}.getByText('framework').waitFor()")
    page.run("await page.locator('.cm-completionInfo').getByText('Which variables').waitFor()")
    page.run(f"{taken}; await page.keyboard.press('Tab'); await page.keyboard.type('ja')")
    page.run(f"await {offered}.getByText('jax').waitFor(); {taken}; await page.keyboard.press('Enter')")
    assert written(page) == "run: {cmd: a}\nframework: jax"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("code: nowhere\nrun: {cmd: a}\n", "nowhere is no directory"),
        ("data: [{dataset: unheard-of}]\nrun: {cmd: a}\n", "unheard-of"),
    ],
    ids=["a directory that is not there", "a data set that nobody added"],
)
def test_what_only_the_server_can_know_is_said_before(page: Page, served: FromTheWheel, text: str, said: str) -> None:
    opened(page, served)
    write(page, text)
    page.run("await page.getByRole('list', {name: 'errors'}).getByText(args.said).waitFor()", said=said)


def test_more_than_the_machine_has_can_be_wanted(page: Page, served: FromTheWheel) -> None:
    opened(page, served)
    write(page, "environment: {resources: {cpu: {requests: 5000}}}\nrun: {cmd: a}\n")
    page.run("await page.getByRole('list', {name: 'errors'}).getByText('ask for 5000 cpu').waitFor()")
    page.run("await page.getByRole('switch', {name: /^Oversubscribe/}).check()")
    page.see("It can run")


def test_the_command_does_the_same(page: Page, served: FromTheWheel, tmp_path: Path) -> None:
    opened(page, served)
    write(page, '# by hand\nname: pasted\nrun:\n  cmd: pwd; echo "it\'s $SHOAL_REPLICA"\n')
    fill(page, "Directory", str(tmp_path))
    page.see("It can run")
    copied = page.run(
        "await context.grantPermissions(['clipboard-read', 'clipboard-write']);"
        "await Promise.all([page.getByText('Copied').waitFor(),"  # it says so for a moment only
        " page.getByRole('button', {name: 'Copy shoal run'}).click()]);"
        "return page.evaluate(() => navigator.clipboard.readText())"
    )
    path = f"{installed() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = outside(SHOAL_HOME=str(served.home), PATH=path)
    done = subprocess.run(["bash", "-c", copied], cwd="/", env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
    assert "it's master-0" in done.stdout
    assert served.client.show("pasted")["files"][0]["text"].startswith("# by hand\n")
