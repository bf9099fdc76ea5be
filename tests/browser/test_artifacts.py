"""What replicas wrote is shown as what it is, and none of it runs."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel

EVIL = (
    "document.title = 'taken over'; parent.document.title = 'taken over'; fetch('/api/server/stop', {method: 'POST'})"
)
FILES = {
    "page.html": f'<!doctype html><h1>a report</h1><script>{EVIL}</script><img src=x onerror="{EVIL}">',
    "drawing.svg": '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">'
    f'<script>{EVIL}</script><rect width="40" height="40" fill="green" onload="{EVIL}"/></svg>',
    "table.csv": "epoch,loss\n1,0.5\n2,0.25\n",
    "model.bin": bytes(range(256)).decode("latin-1") * 8,
    "epochs/1/notes.txt": "better",
    "data.txt": f"<script>{EVIL}</script>",
    "large.txt": "first line\n" + "x" * (3 << 20) + "\nlast line\n",
}
WRITES = """
import json, pathlib, sys
import shoal
for name, text in json.load(open(sys.argv[1])).items():
    file = pathlib.Path(shoal.replica.outputs, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("latin-1"))
for step in range(5):
    shoal.text("sample", f"said at step {step}", step=step)
"""


@pytest.fixture(scope="module")
def word(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("writes")
    (place / "writes.py").write_text(WRITES)
    (place / "files.json").write_text(json.dumps(FILES))
    command = f"if [ $SHOAL_ROLE = worker ]; then {{python}} {place}/writes.py {place}/files.json; fi"
    word = served.submit("writer", command)
    assert served.finished(word)["state"] == "succeeded"
    return word


def opened(page: Page, served: FromTheWheel, word: str, file: str) -> None:
    page.goto(f"http://{served.host}/experiments/{word}/artifacts")
    page.run("await page.getByRole('button', {name: new RegExp('^' + args.file)}).click()", file=file)


def test_a_page_is_shown_in_a_frame_of_its_own_without_its_scripts(
    browser: Browser, served: FromTheWheel, word: str
) -> None:
    page = browser.page()
    page.goto(served.client.sign_in("/experiments"))
    opened(page, served, word, "page.html")
    page.run("await page.frameLocator('iframe').getByText('a report').waitFor()")
    assert page.run("return page.locator('iframe').getAttribute('sandbox')") == ""
    assert page.run("return page.locator('iframe').evaluate((frame) => frame.contentDocument)") is None
    assert page.run("return page.title()") == "writer succeeded – Shoal"
    assert served.ask("GET", "/api/server").status == 200, "the server was not stopped"
    complaints = page.heard()["console"]
    page.close()
    others = [line for line in complaints if not re.search("sandbox|Content Security Policy", line)]
    assert others == [], "the browser tells what it refused, sooner or later, and nothing else"


def test_a_drawing_is_an_image(page: Page, served: FromTheWheel, word: str) -> None:
    opened(page, served, word, "drawing.svg")
    page.run("await page.getByRole('img', {name: 'drawing.svg'}).waitFor()")
    assert page.run("return page.locator('main svg rect[fill=green]').count()") == 0, "it is no part of the page"
    assert page.run("return page.title()") == "writer succeeded – Shoal"


@pytest.mark.parametrize(
    ("file", "seen"),
    [
        ("table.csv", "0.25"),
        ("model.bin", "000010  10 11 12 13"),
        ("data.txt", "<script>document.title"),
        ("large.txt", "The first 1.00 MiB of 3.00 MiB."),
    ],
)
def test_a_file_is_shown_by_its_content(page: Page, served: FromTheWheel, word: str, file: str, seen: str) -> None:
    opened(page, served, word, file)
    page.see(seen)
    assert page.run("return page.title()") == "writer succeeded – Shoal"


@pytest.mark.parametrize("file", ["page.html", "drawing.svg", "data.txt"])
def test_the_address_of_a_file_is_no_page_of_ours(page: Page, served: FromTheWheel, word: str, file: str) -> None:
    """Whoever opens it by itself gets a download, or a page in a sandbox."""
    found = served.ask("GET", f"/api/experiments/{word}/outputs/worker-0/{file}")
    assert found.status == 200
    assert found.headers["content-security-policy"].startswith("sandbox")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert not found.headers["content-type"].startswith(("text/html", "image/svg"))


def test_a_file_is_downloaded_as_it_is(page: Page, served: FromTheWheel, word: str, tmp_path: Path) -> None:
    opened(page, served, word, "model.bin")
    page.run(
        "const [file] = await Promise.all([page.waitForEvent('download'),"
        " page.getByRole('link', {name: 'Download', exact: true}).click()]); await file.saveAs(args.path)",
        path=str(tmp_path / "model.bin"),
    )
    assert (tmp_path / "model.bin").read_bytes() == bytes(range(256)) * 8


@pytest.mark.parametrize("folder", ["worker-0", "epochs"])
def test_a_folder_is_downloaded_whole(page: Page, served: FromTheWheel, word: str, tmp_path: Path, folder: str) -> None:
    page.goto(f"http://{served.host}/experiments/{word}/artifacts")
    page.run(
        "const [file] = await Promise.all([page.waitForEvent('download'),"
        " page.getByRole('link', {name: `download ${args.folder} as zip`}).click()]); await file.saveAs(args.path)",
        path=str(tmp_path / "all.zip"),
        folder=folder,
    )
    wanted = {f"worker-0/{name}" for name in FILES if folder == "worker-0" or name.startswith("epochs/")}
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == wanted
        assert archive.read("worker-0/epochs/1/notes.txt") == b"better"


def test_outputs_that_stay_on_a_cluster_are_told_of(page: Page, served: FromTheWheel) -> None:
    word = served.submit("away", "true")
    served.finished(word)
    place = served.home / "experiments" / word
    (place / "elsewhere.json").write_text(json.dumps({"where": f"{word}/ in shared-claim"}))
    page.goto(f"http://{served.host}/experiments/{word}/artifacts")
    page.see("The outputs are on the cluster")
    page.see(f"{word}/ in shared-claim")
    page.see(f"shoal outputs {word} ls")


def test_which_text_is_looked_at_is_part_of_the_address(page: Page, served: FromTheWheel, word: str) -> None:
    opened(page, served, word, "sample")
    page.see("said at step 4")
    page.run("for (const _ of [1, 2]) await page.getByRole('button', {name: 'the one before'}).click()")
    page.see("said at step 2")
    page.see("3 of 5")
    page.run("await page.reload()")
    page.see("said at step 2")
    page.see("3 of 5")
    page.run("await page.getByRole('slider', {name: 'which text'}).press('ArrowLeft')")
    page.see("2 of 5")
    page.run("await page.waitForURL(/nth=2/)")
    page.run("for (const _ of [1, 2, 3]) await page.getByRole('button', {name: 'the next one'}).click()")
    page.see("5 of 5")
    assert "nth" not in page.run("return page.url()"), "the newest is shown by itself"
