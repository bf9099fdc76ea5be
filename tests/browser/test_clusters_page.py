"""Clusters in the browser: who occupies what, what waits and for what, live; and what a check finds."""

from __future__ import annotations

import os

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import until

HOLDS = """\
name: {name}
framework: none
run: {{cmd: sleep 1000}}
environment: {{resources: {{cpu: {{requests: {cpu}}}}}}}
grace: {{stop: 0s}}
"""


def row(page: Page, table: str, name: str, says: str = "") -> str:
    """What a row says, once it says this."""
    found = "page.getByRole('grid', {name: args.table}).getByRole('row').filter({hasText: args.name})"
    found += ".filter({hasText: args.says})"
    return str(page.run(f"await {found}.waitFor(); return {found}.innerText()", table=table, name=name, says=says))


def test_who_holds_the_machine_and_who_waits_for_it(page: Page, served: FromTheWheel) -> None:
    cores = len(os.sched_getaffinity(0))
    holder = served.run(HOLDS.format(name="the-holder", cpu=cores))
    until(lambda: served.client.show(holder)["state"] == "running", "the start")
    waits, behind = (served.run(HOLDS.format(name=name, cpu=1)) for name in ("the-first", "the-second"))
    until(lambda: served.client.show(behind)["reason"].startswith("behind"), "the queue")
    page.goto(f"http://{served.host}/clusters")

    row(page, "experiments on local", "the-holder", "running")
    said = f"Cores: {cores} cores of {cores} cores requested: the-holder {cores} cores"
    page.run("await page.getByRole('img', {name: args.said}).waitFor()", said=said.replace("1 cores", "1 core"))
    page.run("await page.getByRole('link', {name: /^the-holder, master-0 running: /}).waitFor()")
    first = row(page, "queue of local", "the-first")
    assert first.split()[0] == "1"
    assert "1 of 0 free" in first.replace("\n", " ")
    assert "resources" in first
    assert f"It waits for 1 cpu (0 of {cores} free)." in first
    second = row(page, "queue of local", "the-second")
    assert second.split()[0] == "2"
    assert "order" in second
    assert f"It is behind #{served.client.show(waits)['number']} in the queue" in second

    served.client.stop(holder, 0.0)
    row(page, "experiments on local", "the-first", "running")  # it moves up by itself
    page.run("await page.getByRole('link', {name: /the-first #/}).click(); await page.waitForURL('**/experiments/e*')")
    for word in (waits, behind):
        served.client.stop(word, 0.0)
        served.finished(word)


def test_a_cluster_is_checked_when_somebody_asks(page: Page, served: FromTheWheel) -> None:
    page.goto(f"http://{served.host}/clusters")
    page.see("shoal cluster check local")
    page.run("await page.getByRole('button', {name: 'Check it'}).click()")
    found = page.run(
        "const f = page.getByRole('list', {name: 'findings on local'}); await f.waitFor(); return f.innerText()"
    )
    assert found.split()[:2] == ["ok", "capacity"]
