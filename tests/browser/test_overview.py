"""What a page tells of each rank, while it runs and afterwards: it is true, and all of it fits on the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.speaking import Gate
from tests.browser.browsing import Browser, Page
from tests.browser.serving import FromTheWheel
from tests.running import until

LARGE = 96 << 20  # bytes that worker-1 holds more than the others
STEPS = 60
TRAINS = f"""
import os, sys
import shoal
late = os.environ["SHOAL_REPLICA"] == "worker-1"
held = b"x" * ({LARGE} if late else 1)
for step in range({STEPS}):
    times = {{"shoal/step_busy": 0.4 if late else 0.1, "shoal/step_time": 0.4}}
    shoal.log(step=step, loss=1 / (1 + step), **times)
print("all steps are done", flush=True)
os.read(os.open(sys.argv[1], os.O_RDONLY), 1)
"""
FAILS = "if [ $SHOAL_REPLICA = worker-0 ]; then exit 3; fi; exec sleep 1000"
REPLICAS = ("master-0", "worker-0", "worker-1")
TABLE = "page.getByRole('grid', {name: 'replicas'})"
TIPS = "page.getByRole('tooltip')"
MEASURED = """(table) => {
  const cells = [...table.querySelectorAll('[role=columnheader], [role=gridcell]:not(:last-child)')];
  const clipped = cells.filter((cell) => {
    const { paddingLeft, paddingRight } = getComputedStyle(cell);
    const words = document.createRange();
    words.selectNodeContents(cell);
    const room = cell.getBoundingClientRect().width - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return words.getBoundingClientRect().width > room + 0.5;
  });
  return {
    room: table.clientWidth,
    needed: table.scrollWidth,
    page: document.documentElement.scrollWidth,
    height: table.querySelectorAll('[role=row]')[1].offsetHeight,
    clipped: clipped.map((cell) => cell.innerText),
  };
}"""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(scope="module")
def words(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two trainings that have done all their steps, of which one goes on to wait; and one that failed."""
    place = tmp_path_factory.mktemp("trains")
    (place / "train.py").write_text(TRAINS)
    gates = {name: Gate(place / name) for name in ("running", "over")}
    found = {
        name: served.submit(
            name, f"{{python}} {place / 'train.py'} {place / name}", workers=2, more="grace: {stop: 1s}\n"
        )
        for name in gates
    }
    for word in found.values():
        until(lambda word=word: sampled(served, word), "samples and signs of life of all ranks")
    found["failed"] = served.submit("failed", FAILS, workers=2)
    served.finished(found["failed"])
    gates["over"].open(len(REPLICAS))
    assert served.finished(found["over"])["state"] == "succeeded"
    yield found
    gates["running"].open(len(REPLICAS))


def sampled(served: FromTheWheel, word: str) -> bool:
    ages = [rank[key] for rank in served.client.why(word)["ranks"] for key in ("last_metric_age", "heartbeat_age")]
    largest = peaks(served, word, "memory").get("worker-1", 0)
    return None not in ages and len(peaks(served, word, "memory")) == len(REPLICAS) and largest > LARGE


def peaks(served: FromTheWheel, word: str, name: str) -> dict[str, float]:
    return {row["replica"]: row["max"] for row in served.client.series(word, kind="resource", name=name)}


def ranks(served: FromTheWheel, word: str) -> dict[str, dict[str, Any]]:
    return {rank["replica"]: rank for rank in served.client.why(word)["ranks"]}


def rows(page: Page) -> dict[str, dict[str, str]]:
    """replica -> header -> what stands there."""
    heads = page.run(f"return {TABLE}.getByRole('columnheader').allInnerTexts()")
    lines = page.run(
        f"return {TABLE}.getByRole('row').evaluateAll((rows) => rows.slice(1)"
        ".map((row) => [...row.querySelectorAll('[role=gridcell]')].map((cell) => cell.innerText.trim())))"
    )
    found = [dict(zip(heads, line, strict=True)) for line in lines]
    return {line["Replica"].split()[0]: line for line in found}


def seconds(words: str) -> float:
    parts = re.findall(r"([0-9.]+)([smhd])", words)
    assert parts, words
    return sum(float(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for number, unit in parts)


def opened(page: Page, served: FromTheWheel, word: str, tab: str = "") -> None:
    page.goto(f"http://{served.host}/experiments/{word}{tab}")
    page.settled()


def told(page: Page) -> str:
    """What the tip says, once it has been heard how far its replica is and what it has printed."""
    said = str(page.run(f"return {TIPS}.innerText()"))
    return said if re.search("^at step", said, re.MULTILINE) and "last printed" in said else ""


def test_a_cell_of_the_strip_tells_where_its_replica_is_and_how_far(
    page: Page, served: FromTheWheel, words: dict[str, str]
) -> None:
    opened(page, served, words["running"])
    known = ranks(served, words["running"])
    nodes = {one["replica"]: one["node"] for one in served.client.show(words["running"])["replicas"]}
    for number, replica in enumerate(REPLICAS):
        page.run("await page.getByRole('button', {name: args.name}).hover()", name=f"{replica} running")
        page.run(f"await {TIPS}.getByText(args.replica, {{exact: true}}).waitFor()", replica=replica)
        said = until(lambda: told(page), "all that is known of it")
        assert f"rank {number} on {nodes[replica]}, pid {known[replica]['pid']}, " in said
        assert re.search(rf"^at step {STEPS - 1}, \S.* ago$", said, re.MULTILINE), said
        for sign in ("last printed", "last tracked", "its launcher was heard"):
            assert re.search(rf"^{sign} \S.* ago$", said, re.MULTILINE), said
        assert ("the others wait for it" in said) is (replica == "worker-1"), said
    page.run("await page.mouse.move(0, 0)")
    page.run(f"await {TIPS}.waitFor({{state: 'hidden'}})")


def test_a_row_tells_how_fast_a_rank_is_and_when_it_was_heard(
    page: Page, served: FromTheWheel, words: dict[str, str]
) -> None:
    opened(page, served, words["running"])
    for column in ("Score", "At step", "Own part", "Tracked", "Heartbeat"):
        page.run(f"await {TABLE}.getByRole('columnheader', {{name: args.column}}).waitFor()", column=column)
    until(lambda: all("all steps are done" in row["Last line"] for row in rows(page).values()), "all last lines")
    shown, known = rows(page), ranks(served, words["running"])
    scores = {rank["replica"]: rank["score"] for rank in served.client.stragglers(words["running"])["ranks"]}
    assert list(shown) == list(REPLICAS)
    for replica, row in shown.items():
        assert row["Score"] == ("0.25 chronic" if replica == "worker-1" else "1.00")
        assert float(row["Score"].split()[0]) == pytest.approx(scores[replica]["relative"], abs=0.01)
        assert row["At step"] == str(STEPS - 1)
        assert row["Own part"] == ("400.0 ms" if replica == "worker-1" else "100.0 ms")
        tracked, heartbeat = seconds(row["Tracked"]), seconds(row["Heartbeat"])
        assert 0 <= tracked <= known[replica]["last_metric_age"] + 1, "nobody tracks any more, and so it only grows"
        assert heartbeat >= 0
        assert "all steps are done" in row["Last line"]
    assert shown["worker-1"]["Replica"].split() == ["worker-1", "slowest"]

    def told_apart() -> bool:
        row = rows(page)["worker-0"]
        return seconds(row["Tracked"]) > seconds(row["Heartbeat"])

    until(told_apart, "that a launcher is heard while its script tracks nothing")


@pytest.mark.parametrize("density", ["Roomy", "Compact"])
@pytest.mark.parametrize(
    ("which", "columns"),
    [("running", ["Score", "Heartbeat"]), ("over", ["Score", "Mem. peak"]), ("failed", ["Ended with"])],
    ids=["running", "over", "failed"],
)
def test_all_that_is_known_of_ranks_fits_into_a_small_window(
    browser: Browser, served: FromTheWheel, words: dict[str, str], which: str, columns: list[str], density: str
) -> None:
    page = browser.page(viewport={"width": 1280, "height": 800})
    page.goto(served.client.sign_in("/settings"))
    page.run("await page.getByText(args.density, {exact: true}).click()", density=density)
    opened(page, served, words[which])
    for column in columns:
        page.run(f"await {TABLE}.getByRole('columnheader', {{name: args.column}}).waitFor()", column=column)
    found = page.run(f"return {TABLE}.evaluate({MEASURED})")
    page.close()
    assert found["needed"] <= found["room"], "it does not scroll sideways"
    assert found["page"] == 1280
    assert found["clipped"] == [], "everything but the last lines can be read whole"
    assert found["height"] == (26 if density == "Compact" else 30)


def test_a_tile_shows_the_least_and_the_largest_of_all_ranks(
    page: Page, served: FromTheWheel, words: dict[str, str]
) -> None:
    opened(page, served, words["over"], "/resources")
    tiles = page.run(
        "await page.getByText('peaks of the ranks').first().waitFor();"
        "return page.locator('main [tabindex=\"0\"]').filter({hasText: 'peaks of the ranks'}).allInnerTexts()"
    )
    said = {lines[0]: lines[1] for lines in (tile.splitlines() for tile in tiles)}
    low, high, unit = re.fullmatch(r"([0-9.]+)(?: \w+)? – ([0-9.]+) (\w+)", said["Memory"]).groups()  # type: ignore[union-attr]
    found = peaks(served, words["over"], "memory").values()
    assert float(high) * UNITS[unit] == pytest.approx(max(found), rel=0.01)
    least = re.match(r"[0-9.]+ (\wiB)", said["Memory"])
    assert float(low) * UNITS[least[1] if least else unit] == pytest.approx(min(found), rel=0.01)
    assert float(high) * UNITS[unit] > LARGE
    cores = peaks(served, words["over"], "cpu").values()
    span = [f"{value:.2f}" for value in sorted({min(cores), max(cores)})]
    assert said["CPU"] == " – ".join(span) + " cores"
