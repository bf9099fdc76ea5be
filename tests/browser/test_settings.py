"""Settings: how the console looks in this browser, what the server is."""

from __future__ import annotations

import os

from tests.browser.browsing import Browser
from tests.browser.serving import FromTheWheel


def test_looks_are_remembered_by_the_browser(served: FromTheWheel, browser: Browser) -> None:
    page = browser.page(colorScheme="light", timezoneId="Asia/Kolkata")
    page.goto(served.client.sign_in("/settings"))
    page.see("Where this browser is: Asia/")
    page.run("await page.getByText(/Now it is .* UTC\\+5:30/).waitFor()")
    scheme = "return page.evaluate(() => document.documentElement.dataset.mantineColorScheme)"
    assert page.run(scheme) == "light"
    for label in ("Dark", "UTC", "Compact"):
        page.run("await page.getByRole('main').getByText(args.label, {exact: true}).click()", label=label)
    page.run("await page.getByText(/Now it is .* UTC\\./).waitFor()")
    page.run("await page.reload()")
    page.run("await page.getByText(/Now it is .* UTC\\./).waitFor()")
    assert page.run(scheme) == "dark"
    checked = page.run(
        "return page.getByRole('radio', {checked: true}).evaluateAll((all) => all.map((one) => one.value))"
    )
    assert checked == ["dark", "dense", "utc"]
    assert page.heard()["console"] == []
    page.close()


def test_the_server_says_what_it_is(served: FromTheWheel, browser: Browser) -> None:
    page = browser.page()
    page.goto(served.client.sign_in("/settings"))
    page.see(str(served.home))
    page.see(str(served.pid))
    assert os.path.isdir(f"/proc/{served.pid}")
    page.close()
