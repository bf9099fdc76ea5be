"""Five hundred metrics: each has its chart, wherever one scrolls to, and only those in sight are drawn."""

from __future__ import annotations

from pathlib import Path

from tests.browser.browsing import Page
from tests.browser.serving import FromTheWheel

LOGS = """
import shoal
for step in range(5):
    shoal.log({f"layer{number // 10}/norm{number % 10}": step + number for number in range(500)})
"""


def test_the_last_of_many_charts_is_drawn_when_one_comes_there(
    page: Page, served: FromTheWheel, tmp_path: Path
) -> None:
    script = tmp_path / "logs.py"
    script.write_text(LOGS)
    word = served.submit("many", f"if [ $SHOAL_ROLE = worker ]; then {{python}} {script}; fi")
    served.finished(word)
    page.goto(f"http://{served.host}/experiments/{word}/metrics")
    page.run("await page.locator('section[aria-label=\"layer0/norm0\"] canvas').waitFor()")
    page.run("await page.locator('[data-scrolls]').evaluate((place) => { place.scrollTop = place.scrollHeight; })")
    page.run("await page.locator('section[aria-label=\"layer49/norm9\"] canvas').waitFor()")
    assert page.run("return page.locator('main section canvas').count()") < 60
