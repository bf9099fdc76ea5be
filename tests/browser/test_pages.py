"""Every page, light and dark: it shows what there is, asks nobody else, and keeps nobody out."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.api.speaking import Served
from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel, start
from tests.commands import parsed
from tests.running import until

TWO = "name: {name}\nframework: none\nrun: {{cmd: '{command}'}}\nenvironment: {{replicas: {{n_workers: 1}}}}\n"
FAILS = "echo starting; if [ $SHOAL_REPLICA = worker-0 ]; then echo no such shard >&2; exit 7; fi; sleep 60"
TRACKS = """
import os, pathlib
import shoal
late = os.environ["SHOAL_ROLE"] == "worker"
for step in range(60):
    shoal.log(step=step, loss=1 / (1 + step), **{"shoal/step_busy": 0.2 if late else 0.1, "shoal/step_time": 0.2})
    print("step", step)
outputs = pathlib.Path(shoal.replica.outputs)
(outputs / "tables").mkdir()
(outputs / "tables" / "epochs.csv").write_text("epoch,loss\\n1,0.5\\n2,0.25\\n")
(outputs / "notes.txt").write_text("all went well")
shoal.text("summary", "it learned")
shoal.table("confusion", ["seen", "meant"], [[1, 7], [7, 7]])
shoal.artifact(outputs, name="everything")
shoal.model("seen/net", outputs / "notes.txt", metrics={"loss": 0.25})
"""


@pytest.fixture(scope="module")
def words(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An experiment that logs, writes and succeeds, one that failed, one that runs; and a data set."""
    place = tmp_path_factory.mktemp("tracks")
    (place / "tracks.py").write_text(TRACKS)
    text = {
        "bad": TWO.format(name="bad", command=FAILS),
        "running": TWO.format(name="running", command="echo up; sleep 1000"),
    }
    found = {"good": served.submit("good", f"{{python}} {place / 'tracks.py'}", more="tags: [seen]\n")}
    found |= {name: served.run(written, oversubscribe=True) for name, written in text.items()}
    assert served.finished(found["good"])["state"] == "succeeded"
    served.finished(found["bad"])
    until(lambda: served.client.show(found["running"])["state"] == "running", "the start")
    served.client.add_dataset("seen-set", str(place), "/", {})
    return found


# name -> the page, and what is to be seen on it: an empty page would keep nobody out.
PAGES = {
    "the list": ("/experiments", "running"),
    "an experiment": ("/experiments/{good}", "worker-0"),
    "a failed experiment": ("/experiments/{bad}", "no such shard"),
    "a running experiment": ("/experiments/{running}", "worker-0"),
    "logs": ("/experiments/{good}/logs", "step 59"),
    "metrics": ("/experiments/{good}/metrics", "loss"),
    "a heat map": ("/experiments/{good}/metrics?as=heat", "loss"),
    "a chart of lines, enlarged": ("/experiments/{good}/metrics?as=lines&large=loss", "loss"),
    "resources": ("/experiments/{good}/resources", "Memory"),
    "artifacts": ("/experiments/{good}/artifacts", "notes.txt"),
    "a file": ("/experiments/{good}/artifacts?file=o:worker-0/tables/epochs.csv", "0.25"),
    "a table of a script": ("/experiments/{good}/artifacts?file=r:table/confusion", "meant"),
    "timeline": ("/experiments/{bad}/timeline", "worker-0"),
    "stacks": ("/experiments/{running}/stacks", ""),
    "config": ("/experiments/{good}/config", "tracks.py"),
    "comparison": ("/compare?ids={good},{bad}", "exit"),
    "a comparison of curves": ("/compare?ids={good},{bad}&show=charts", "loss"),
    "a comparison of files": ("/compare?ids={good},{bad}&show=files", "tracks.py"),
    "create": ("/create", "Submit"),
    "data sets": ("/datasets", "seen-set"),
    "a data set": ("/datasets/seen-set", "tracks.py"),
    "models": ("/models", "seen/net"),
    "a model": ("/models/seen%2Fnet", "notes.txt"),
    "clusters": ("/clusters", "local"),
    "settings": ("/settings", "Server"),
    "an address that is none": ("/nowhere", ""),
}


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(request: pytest.FixtureRequest, browser: Browser, served: Served) -> Iterator[Page]:
    page = browser.page(colorScheme=request.param, reducedMotion="reduce")
    assert page.goto(served.client.sign_in("/experiments")) == 200
    yield page
    page.close()


@pytest.mark.parametrize(("path", "seen"), PAGES.values(), ids=PAGES)
def test_a_page_keeps_nobody_out_and_asks_nobody_else(
    themed: Page, served: Served, words: dict[str, str], path: str, seen: str
) -> None:
    before = len(themed.heard()["console"])
    assert themed.goto(f"http://{served.host}{path.format(**words)}") == 200
    themed.settled()
    if seen:
        themed.run(
            "await page.locator('main').getByText(args.seen).filter({visible: true}).first().waitFor()", seen=seen
        )
    assert themed.run("return page.locator('main').innerText()").strip()
    assert themed.axe() == []
    heard = themed.heard()
    assert heard["console"][before:] == []
    assert {urlsplit(url).netloc for url in heard["requests"] if not url.startswith(("data:", "blob:"))} == {
        served.host
    }
    for command in themed.run("return page.locator('code[title^=\"shoal \"]').allInnerTexts()"):
        assert parsed(command), "what it offers to type is a command"


# name -> the page, and what opens the dialog
DIALOGS = {
    "tags": ("/experiments", "ticked", "Tag"),
    "deleting several": ("/experiments", "ticked", "Delete 2"),
    "a new data set": ("/datasets", "", "Add"),
    "keys": ("/experiments", "", "?"),
}


@pytest.mark.parametrize(("path", "first", "button"), DIALOGS.values(), ids=DIALOGS)
def test_a_dialog_keeps_nobody_out(
    themed: Page, served: Served, words: dict[str, str], path: str, first: str, button: str
) -> None:
    assert themed.goto(f"http://{served.host}{path}") == 200
    themed.settled()
    if first:
        for word in ("good", "bad"):
            themed.run("await page.getByRole('checkbox', {name: `select ${args.word}`}).check()", word=words[word])
    if button == "?":
        themed.run("await page.keyboard.press('?')")
    else:
        themed.run("await page.getByRole('button', {name: args.button, exact: true}).click()", button=button)
    themed.run("await page.getByRole('dialog').waitFor()")
    assert themed.run("return page.getByRole('dialog').getAttribute('aria-modal')") == "true"
    assert themed.axe() == []
    themed.run("await page.keyboard.press('Escape'); await page.getByRole('dialog').waitFor({state: 'hidden'})")


@pytest.mark.parametrize(("wish", "moves"), [("reduce", False), ("no-preference", True)])
def test_who_wants_no_motion_sees_none(
    browser: Browser, served: Served, words: dict[str, str], wish: str, moves: bool
) -> None:
    page = browser.page(reducedMotion=wish)
    page.goto(served.client.sign_in(f"/experiments/{words['running']}"))
    found = page.run(
        "const pulse = page.locator('main .pulse').first(); await pulse.waitFor({state: 'attached'});"
        "return pulse.evaluate((mark) => ({name: getComputedStyle(mark).animationName,"
        " running: mark.getAnimations().length}))"
    )
    page.close()
    assert found == ({"name": "pulse", "running": 1} if moves else {"name": "none", "running": 0})


def test_the_list_shows_experiments_and_leads_to_them(page: Page, words: dict[str, str]) -> None:
    for name in words:
        page.see(name)
    page.run("await page.getByRole('link', {name: 'bad'}).first().click(); await page.waitForURL('**/experiments/e*')")
    page.see("worker-0")


def test_a_failure_names_the_replica_and_shows_its_last_lines(
    page: Page, served: Served, words: dict[str, str]
) -> None:
    page.goto(f"http://{served.host}/experiments/{words['bad']}")
    page.see("no such shard")
    assert "worker-0" in page.text()


def test_new_experiments_appear_by_themselves(page: Page, served: Served) -> None:
    served.run(TWO.format(name="latecomer", command="true"), oversubscribe=True)
    page.see("latecomer")


def test_a_reload_keeps_the_view(page: Page, served: Served, words: dict[str, str]) -> None:
    address = f"http://{served.host}/experiments/{words['good']}/logs?replicas=worker-*"
    page.goto(address)
    page.see("step 59")
    before = page.run("return page.url()")
    page.run("await page.reload()")
    page.see("step 59")
    assert page.run("return page.url()") == before
    assert page.run("return page.getByText('step 59').count()") == 1, "of the worker and not of the master"


def test_a_restart_of_the_server_shows_and_heals(alone: FromTheWheel, browser: Browser) -> None:
    page = browser.page()
    page.goto(alone.client.sign_in("/experiments"))
    alone.run(TWO.format(name="before", command="true"), oversubscribe=True)
    page.see("before")
    alone.client.end_server()
    page.run("await page.getByText(/^connection lost, as of [0-9]{2}:[0-9]{2}:[0-9]{2}$/).waitFor()")
    start(alone.home)  # the next command starts another, on the same port
    alone.run(TWO.format(name="after-the-restart", command="true"), oversubscribe=True)
    page.see("after-the-restart")
    page.close()
