"""Experiments that run while somebody looks: they are watched, a worker is killed, they are stopped."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.api.speaking import Gate
from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import command_of, kill, until

HOLDS = (
    "name: {name}\nframework: none\nrun: {{cmd: sleep 1000}}\n"
    "environment: {{resources: {{cpu: {{requests: {cpu}}}}}}}\ngrace: {{stop: 0s}}\n"
)
TRAINS = "; ".join(
    [
        "echo $SHOAL_REPLICA is up",
        "{wait}",
        "{{python}} -c 'import shoal; [shoal.log(loss=1 / (step + 1), step=step) for step in range(50)]'",
        "echo $SHOAL_REPLICA is done",
    ]
)


def open_experiment(page: Page, served: FromTheWheel, word: str, tab: str = "", search: str = "") -> None:
    page.goto(f"http://{served.host}/experiments/{word}{'/' + tab if tab else ''}{search}")


def test_a_run_is_watched_to_its_end(page: Page, served: FromTheWheel, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    word = served.submit("watched", TRAINS.format(wait=gate.wait), workers=2)
    open_experiment(page, served, word)
    for replica in ("master-0", "worker-0", "worker-1"):
        page.run("await page.getByRole('button', {name: args.name}).waitFor()", name=f"{replica} running")
    page.see("worker-1 is up")
    gate.open(3)
    for replica in ("master-0", "worker-0", "worker-1"):
        page.run("await page.getByRole('button', {name: args.name}).waitFor()", name=f"{replica} succeeded")
    page.see("worker-1 is done")
    page.run("await page.getByRole('link', {name: 'Metrics'}).click()")
    page.run("await page.getByRole('img', {name: /^loss of 3 ranks, from 0 to 49/}).waitFor()")
    assert served.client.show(word)["state"] == "succeeded"


def test_a_worker_that_is_killed_is_named_with_its_last_words(page: Page, served: FromTheWheel) -> None:
    word = served.submit("killed", "echo $SHOAL_REPLICA waits for all_reduce; sleep 1000", workers=3)
    open_experiment(page, served, word)
    page.run("await page.getByRole('button', {name: 'worker-2 running'}).waitFor()")
    page.see("worker-1 waits for all_reduce")
    kill(command_of(served.home, word, "worker-1"))
    banner = "page.getByRole('region', {name: 'first failure'})"
    page.run(f"await {banner}.waitFor()")
    page.run(f"await {banner}.getByText('3 others stopped by Shoal').waitFor()")
    said = page.run(f"return {banner}.innerText()")
    assert re.search(r"worker-1 failed first: SIGKILL \(137\)", said), said
    assert "worker-1 waits for all_reduce" in said
    page.run("await page.getByRole('button', {name: 'worker-1 failed'}).waitFor()")
    page.run("await page.getByRole('link', {name: 'Its log'}).click(); await page.waitForURL(/logs/)")
    page.run("await page.getByRole('log', {name: 'log of worker-1'}).getByText('waits for all_reduce').waitFor()")
    page.run("await page.getByRole('link', {name: 'Timeline'}).first().click(); await page.waitForURL(/timeline/)")
    page.run("await page.getByRole('region', {name: 'states over time'}).getByText('failed').first().waitFor()")


def test_a_click_on_a_rank_shows_its_log_and_another_key_the_next(
    page: Page, served: FromTheWheel, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    word = served.submit("spoken", f"echo only $SHOAL_REPLICA says this; {gate.wait}; echo all say this", workers=2)
    open_experiment(page, served, word, "logs")
    for replica in ("master-0", "worker-0", "worker-1"):
        page.see(f"only {replica} says this")
    gate.open(3)
    served.finished(word)
    lines = "await page.getByRole('log').locator('[data-index]').allInnerTexts()"
    page.see("3 ranks")
    together = page.run(f"return {lines}")
    assert sum("says this" in line for line in together) == 3
    assert sum("3 ranks" in line for line in together) == 1, "what all ranks print is one line"
    page.run("await page.getByRole('button', {name: 'worker-0 succeeded'}).click()")
    page.run("await page.getByRole('log', {name: 'log of worker-0'}).waitFor()")
    page.run("await page.getByText('only worker-1 says this').waitFor({state: 'hidden'})")
    assert [line.splitlines()[-1] for line in page.run(f"return {lines}")] == [
        "only worker-0 says this",
        "all say this",
    ]
    assert "replicas=worker-0" in page.run("return page.url()")
    page.run("await page.keyboard.press(']')")
    page.see("only worker-1 says this")
    page.run("await page.getByRole('link', {name: 'Timeline'}).click(); await page.waitForURL(/timeline/)")
    assert "replicas=worker-1" in page.run("return page.url()"), "all tabs are about the same replicas"
    page.run("await page.goBack(); await page.getByRole('log', {name: 'log of worker-1'}).waitFor()")


def test_ranks_stand_side_by_side(page: Page, served: FromTheWheel) -> None:
    word = served.submit("beside", "echo $SHOAL_REPLICA prints", workers=2)
    served.finished(word)
    open_experiment(page, served, word, "logs")
    page.run("await page.getByText('Side by side').click()")
    for replica in ("master-0", "worker-0", "worker-1"):
        page.run(
            "await page.getByRole('log', {name: 'log of ' + args.one}).getByText(args.one + ' prints').waitFor()",
            one=replica,
        )


def test_an_experiment_is_stopped(page: Page, served: FromTheWheel) -> None:
    word = served.submit("stopped", "echo up; exec sleep 1000", more="grace: {stop: 1s}\n")
    until(lambda: served.client.show(word)["replicas"][1]["state"] == "running", "the start")
    open_experiment(page, served, word)
    page.run("await page.getByRole('button', {name: 'Stop', exact: true}).click()")
    dialog = "page.getByRole('dialog')"
    page.run(f"await {dialog}.getByRole('button', {{name: 'Stop', exact: true}}).click()")
    page.run("await page.getByRole('button', {name: 'worker-0 stopped'}).waitFor()")
    assert served.finished(word)["state"] == "stopped"


def test_what_has_not_started_is_said_to_wait_and_then_that_it_never_did(page: Page, served: FromTheWheel) -> None:
    cores = len(os.sched_getaffinity(0))
    holder = served.run(HOLDS.format(name="holds", cpu=cores))
    until(lambda: served.client.show(holder)["state"] == "running", "the start")
    word = served.run(HOLDS.format(name="queues", cpu=1))
    until(lambda: served.client.show(word)["reason"].startswith("waits"), "the reason")
    open_experiment(page, served, word)
    facts = "page.locator('header').nth(1)"
    page.run(f"await {facts}.getByText(/^waits [0-9]/).waitFor()")
    assert "running for" not in page.run(f"return {facts}.innerText()")
    page.see("Waits for 1 cpu")
    assert "Waits: " not in page.text()
    served.client.stop(word, 0.0)
    page.run(f"await {facts}.getByText('never started', {{exact: true}}).waitFor()")
    assert "waits" not in page.run(f"return {facts}.innerText()")
    served.client.stop(holder, 0.0)
    served.finished(holder)
