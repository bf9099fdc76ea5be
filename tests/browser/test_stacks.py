"""Stacks in the browser, of a real deadlock: the rank that never entered the collective is named."""

from __future__ import annotations

import json

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.conftest import ROOT
from tests.environments import CannotMake, environment
from tests.running import until

FILE = """\
name: stuck
framework: pytorch
run: {{cmd: {command}}}
environment:
  env_vars: {{STUCK: '2', USES_SDK: '1', OMP_NUM_THREADS: '1'}}
  replicas: {{n_workers: 3, master: false}}
grace: {{stop: 0s}}
"""


@pytest.fixture(scope="module")
def word(served: FromTheWheel) -> str:
    return deadlocked(served)


def deadlocked(served: FromTheWheel) -> str:
    """Three ranks of gloo, of which worker-2 keeps the others waiting."""
    try:
        python = environment("pytorch")
    except CannotMake as error:
        pytest.fail(str(error), pytrace=False)
    command = json.dumps(f"{python} {ROOT / 'tests' / 'examples' / 'deadlock' / 'train.py'}")
    word = served.run(FILE.format(command=command), oversubscribe=True)
    lines = ["reached", "reached", "stuck"]
    until(lambda: sorted(line["text"] for line in served.client.logs(word)) == lines, "the deadlock")
    until(lambda: served.client.stacks(word)["odd"] == ["worker-2"], "that the others wait")
    return word


def test_the_rank_that_never_entered_the_collective_is_named(page: Page, served: FromTheWheel, word: str) -> None:
    page.goto(f"http://{served.host}/experiments/{word}/stacks")
    page.see("worker-2 has not entered all_reduce, where 2 other ranks wait")
    branches = page.run(
        "return page.getByRole('region', {name: 'stacks of all ranks'}).locator('li[data-odd]').allInnerTexts()"
    )
    assert len(branches) == 1
    assert branches[0].startswith("worker-2")
    assert "next_batch" in branches[0]
    whole = page.run("return page.getByRole('region', {name: 'stacks of all ranks'}).innerText()")
    assert whole.startswith("all 3 ranks")
    assert "worker-0, worker-1" in whole
    page.run("await page.getByRole('button', {name: 'Look again'}).click()")
    page.see("nobody has moved since the look before")
    page.run("await page.getByRole('link', {name: 'its log'}).click(); await page.waitForURL(/logs.*worker-2/)")
    page.see("stuck")
    assert served.client.show(word)["state"] == "running", "to look does no harm"


def test_only_the_ranks_that_are_meant_are_shown(page: Page, served: FromTheWheel, word: str) -> None:
    page.goto(f"http://{served.host}/experiments/{word}/stacks?replicas=worker-2&libraries=all")
    page.see("next_batch")
    whole = page.run("return page.getByRole('region', {name: 'stacks of all ranks'}).innerText()")
    assert "worker-0" not in whole
    assert "threading.py" in whole, "calls of libraries, with where they are"


def test_what_is_over_has_no_stacks(page: Page, served: FromTheWheel) -> None:
    word = deadlocked(served)  # its own: others look at that of the module
    page.goto(f"http://{served.host}/experiments/{word}/stacks")
    page.see("worker-2 has not entered all_reduce")
    served.client.stop(word, 0.0)
    served.finished(word)
    page.see("This experiment is over")
