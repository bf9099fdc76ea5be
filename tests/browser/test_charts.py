"""A million points: sampling hides no spike, and zooming leads to the very point."""

from __future__ import annotations

import re

import pytest

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel
from tests.running import until

POINTS = 1_000_000
SPIKE = 567_891
LOGS = f"""
import shoal
for step in range({POINTS}):
    shoal.log(loss=1000.0 if step == {SPIKE} else 1 + (step % 7) / 10, step=step)
"""
CHART = "page.getByRole('img', {name: /^loss of one rank/})"
OVER = "page.locator('section[aria-label=loss] .u-over')"


@pytest.fixture(scope="module")
def word(served: FromTheWheel, tmp_path_factory: pytest.TempPathFactory) -> str:
    script = tmp_path_factory.mktemp("points") / "logs.py"
    script.write_text(LOGS)
    word = served.submit("spiky", f"if [ $SHOAL_ROLE = worker ]; then {{python}} {script}; fi")
    served.finished(word)
    return word


def zoomed(page: Page, part: float, width: float) -> None:
    """Drags over the chart around a part of its width."""
    page.run(
        f"const box = await {OVER}.boundingBox();"
        "const x = (part) => box.x + box.width * Math.min(1, Math.max(0, part));"
        "const y = box.y + box.height / 2; await page.mouse.move(x(args.part - args.width / 2), y);"
        "await page.mouse.down(); await page.mouse.move(x(args.part), y); "
        "await page.mouse.move(x(args.part + args.width / 2), y); await page.mouse.up()",
        part=part,
        width=width,
    )


def shown(page: Page) -> tuple[float, float]:
    """From where to where the address says the chart goes."""
    found = dict(re.findall(r"[?&](from|until)=([^&]+)", page.run("return page.url()")))
    return float(found["from"]), float(found["until"])


def drawn(page: Page, low: float, high: float) -> bool:
    """Whether the curve is that of this range: the one before stays until it has come."""
    found = re.search(r"from (\S+) to ([^;]+);", page.run(f"return {CHART}.getAttribute('aria-label')"))
    assert found
    first, last = (float(number.replace(",", "")) for number in found.groups())
    slack = 1 + (high - low) / 10  # a range before it is many times as wide
    return bool(low - slack <= first and last <= high + slack)


def test_no_spike_is_hidden_and_zooming_leads_to_it(page: Page, served: FromTheWheel, word: str) -> None:
    page.goto(f"http://{served.host}/experiments/{word}/metrics")
    page.run(f"await {CHART}.waitFor()")
    assert "largest 1000;" in page.run(f"return {CHART}.getAttribute('aria-label')")
    badge = page.run("return page.getByText(/^sampled/).innerText()")
    assert badge.endswith("of 1M"), "it says that it is sampled"
    low, high = 0.0, float(POINTS - 1)
    for _ in range(4):
        zoomed(page, (SPIKE - low) / (high - low), 0.06)
        page.run("await page.waitForFunction((old) => location.search !== old, args.old)", old=search(low, high))
        low, high = shown(page)
        assert low < SPIKE < high
        until(lambda low=low, high=high: drawn(page, low, high), "the curve of this range")
        assert "largest 1000;" in page.run(f"return {CHART}.getAttribute('aria-label')")
    assert high - low < 100
    assert page.run("return page.getByText(/^sampled/).count()") == 0, "these are all points of the range"
    page.run(
        f"const box = await {OVER}.boundingBox();"
        f"await {OVER}.hover({{position: {{x: box.width * args.part, y: box.height / 2}}}})",
        part=(SPIKE - low) / (high - low),
    )
    page.run("await page.getByText(args.step, {exact: true}).waitFor()", step=f"step {SPIKE}")
    page.run("await page.getByRole('cell', {name: '1000', exact: true}).first().waitFor()")
    address = page.run("return page.url()")
    page.run("await page.reload()")
    page.run(f"await {CHART}.waitFor()")
    assert page.run("return page.url()") == address
    assert "largest 1000;" in page.run(f"return {CHART}.getAttribute('aria-label')")
    page.run("await page.getByRole('button', {name: 'Whole range'}).click()")
    page.run("await page.getByText(/^sampled .* of 1M$/).waitFor()")


def search(low: float, high: float) -> str:
    return "" if low == 0 else f"?from={low:.14g}&until={high:.14g}"


def test_the_spike_is_drawn(page: Page, served: FromTheWheel, word: str) -> None:
    """The upper half of the chart is empty but for it."""
    page.goto(f"http://{served.host}/experiments/{word}/metrics")
    page.run(f"await {CHART}.waitFor()")
    columns = page.run(
        "return page.locator('section[aria-label=loss] canvas').evaluate((canvas) => {"
        "  const over = canvas.parentElement.querySelector('.u-over');"
        "  const scale = canvas.width / canvas.clientWidth;"
        "  const [left, top] = [over.offsetLeft * scale, over.offsetTop * scale];"
        "  const [width, height] = [over.clientWidth * scale, over.clientHeight * scale];"
        "  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "  const place = (x, y) => 4 * (Math.round(top + height * y) * canvas.width + Math.round(left + x));"
        "  const blue = (x, y) => { const at = place(x, y);"
        "    return pixels[at + 3] > 20 && pixels[at + 2] > pixels[at] + 20; };"
        "  const found = [];"
        "  for (let x = 0; x < width; x += 1) if ([0.3, 0.35, 0.4].every((y) => blue(x, y))) found.push(x / width);"
        "  return found; })"
    )
    assert columns, "something reaches up there"
    assert all(abs(part - SPIKE / POINTS) < 0.01 for part in columns), columns


def test_the_numbers_are_there_as_a_table_and_as_csv(page: Page, served: FromTheWheel, word: str) -> None:
    page.goto(f"http://{served.host}/experiments/{word}/metrics?from={SPIKE - 2}&until={SPIKE + 2}")
    page.run(f"await {CHART}.waitFor()")
    page.run("await page.getByRole('button', {name: 'more for loss'}).click()")
    link = page.run("return page.getByRole('menuitem', {name: 'Every point as CSV'}).getAttribute('href')")
    answer = served.ask("GET", link)
    assert answer.body.decode().count("\n") == 1 + 5
    assert b"1000" in answer.body
    page.run("await page.getByRole('menuitem', {name: 'Table'}).click()")
    page.run("await page.getByRole('region', {name: 'values'}).getByRole('cell', {name: '1000'}).first().waitFor()")
