"""Data sets in the browser: files are uploaded and trained on, a bucket is written down, a version is removed."""

from __future__ import annotations

from pathlib import Path

from shoal.data import manifests
from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel
from tests.running import until
from tests.s3 import signed_s3


def opened(page: Page, served: FromTheWheel, path: str = "/datasets") -> None:
    assert page.goto(f"http://{served.host}{path}") == 200
    page.settled()


def fill(page: Page, label: str, value: str) -> None:
    source = "await page.getByRole('textbox', {name: args.label, exact: true}).fill(args.value)"
    page.run(source, label=label, value=value)


def press(page: Page, name: str, within: str = "main") -> None:
    """A button of the page, or of the dialog over it."""
    source = "await page.getByRole(args.within).getByRole('button', {name: args.name, exact: true}).click()"
    page.run(source, name=name, within=within)


def choose(page: Page, place: Path) -> None:
    """Files or a directory, in the window that the browser would open."""
    which = "a directory" if place.is_dir() else "files"
    page.run(
        "await page.locator(`input[aria-label='${args.which}']`).setInputFiles(args.place)",
        which=which,
        place=str(place),
    )


def made(place: Path, text: str) -> Path:
    """A directory with a table and, deeper, a large file."""
    (place / "deep").mkdir(parents=True, exist_ok=True)
    (place / "labels.csv").write_text(text)
    (place / "deep" / "numbers.bin").write_bytes(bytes(range(256)) * 8192)
    return place


def test_a_directory_is_uploaded_and_trained_on(page: Page, served: FromTheWheel, tmp_path: Path) -> None:
    place = made(tmp_path / "digits", "image,label\none,1\n")
    opened(page, served)
    press(page, "Add")
    choose(page, place)
    page.see("deep/numbers.bin")
    name = "return page.getByRole('textbox', {name: 'Name', exact: true}).inputValue()"
    assert page.run(name) == "digits", "suggested"
    press(page, "Upload", "dialog")
    page.run("await page.waitForURL('**/datasets/digits?version=1')")
    page.run("await page.getByRole('row', {name: /labels.csv/}).click()")
    page.run("await page.getByRole('columnheader', {name: 'image'}).waitFor()")
    known = served.client.dataset("digits@v1")
    assert (known["kind"], known["digest"]) == ("managed", manifests.of_path(place).digest()), "the same as by the CLI"

    lines = page.run("return page.locator('pre').first().innerText()")
    page.goto(f"http://{served.host}/create")
    file = f"name: trains\nframework: none\nrun: {{cmd: 'grep -c one $SHOAL_DATA/digits/labels.csv'}}\n{lines}\n"
    page.run("await page.getByRole('textbox', {name: 'experiment file'}).fill(args.file)", file=file)
    page.see("It can run")
    press(page, "Submit")
    page.run("await page.waitForURL('**/experiments/e*')")
    page.run("await page.locator('header').getByText('succeeded', {exact: true}).waitFor()")
    word = str(page.run("return page.url()")).rpartition("/")[2]
    assert [line["text"] for line in served.client.logs(word)] == ["1"]

    opened(page, served, "/datasets/digits")
    row = page.run(
        "return page.getByRole('grid', {name: 'experiments that used it'}).getByRole('row').nth(1).innerText()"
    )
    assert row.split()[:3] == ["trains", f"#{served.client.show(word)['number']}", "v1"]


def test_the_same_content_is_the_same_version_and_other_content_another(
    page: Page, served: FromTheWheel, tmp_path: Path
) -> None:
    place = made(tmp_path / "again", "a\n")
    for text, version, versions in (("a\n", 1, 1), ("a\n", 1, 1), ("b\n", 2, 2)):
        made(place, text)
        opened(page, served, "/datasets?add=upload" if version == versions == 1 else "/datasets/again?add=upload")
        choose(page, place)
        press(page, "Upload", "dialog")
        page.run("await page.waitForURL(`**/datasets/again?version=${args.version}`)", version=version)
        page.run("await page.getByRole('dialog').waitFor({state: 'detached'})")
        assert len([one for one in served.client.datasets() if one["name"] == "again"]) == versions
    page.run("await page.getByRole('row', {name: /^v1/}).click(); await page.waitForURL('**version=1')")
    page.see("again@v1")


def test_one_file_by_itself_is_a_file(page: Page, served: FromTheWheel, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a few\n")
    opened(page, served, "/datasets?add=upload")
    choose(page, tmp_path / "words.txt")
    press(page, "Upload", "dialog")
    page.run("await page.waitForURL('**/datasets/words?version=1')")
    assert served.client.dataset("words")["options"] == {"single": True}


def test_what_lies_in_a_bucket_is_added_by_its_address(page: Page, served: FromTheWheel) -> None:
    with signed_s3({f"cats/{number}.txt": b"x" * (number + 1) for number in range(3)}) as s3:
        opened(page, served, "/datasets?add=uri")
        fill(page, "Where", "s3://private/cats")
        fill(page, "Name", "cats")
        fill(page, "Endpoint", s3.url)
        fill(page, "Access key", s3.key)
        page.run("await page.getByLabel('Secret key').fill(args.secret)", secret=s3.secret)
        press(page, "Add", "dialog")
        page.run("await page.waitForURL('**/datasets/cats?version=1')")
        page.see("s3://private/cats")
        page.see("6 B in 3 files")
        opened(page, served)
        row = page.run("return page.getByRole('row', {name: /cats/}).innerText()")
        assert "s3://private/cats" in row
        assert s3.secret not in str(served.client.dataset("cats")), "credentials are not kept"


def test_a_version_that_is_used_is_not_removed_and_a_free_one_is(
    served: FromTheWheel, browser: Browser, tmp_path: Path
) -> None:
    place = made(tmp_path / "used", "a\n")
    page = browser.page()
    page.goto(served.client.sign_in("/datasets?add=upload"))
    choose(page, place)
    press(page, "Upload", "dialog")
    page.run("await page.waitForURL('**/datasets/used?version=1')")
    word = served.submit("uses", "sleep 1000", workers=0, more="data: [{dataset: used, at: used}]\ngrace: {stop: 0s}\n")
    until(lambda: served.client.show(word)["state"] == "running", "the start")
    press(page, "Remove …")
    press(page, "Remove used@v1", "dialog")
    page.see(f"used@v1 is used by {word}")
    served.client.stop(word, 0.0)
    served.finished(word)
    press(page, "Remove used@v1", "dialog")
    page.run("await page.waitForURL(/datasets$/)")
    assert "used" not in [one["name"] for one in served.client.datasets()]
    page.close()
