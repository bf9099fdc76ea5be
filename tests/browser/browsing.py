"""A real browser for tests: Debian's Chromium, driven by playwright-core in a Node process (driver.mjs).

A test says what to do in Playwright's own words, and gets JSON back:

    page.run("await page.getByRole('link', {name: 'Logs'}).click()")
    assert page.run("return page.title()") == "…"
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.environments import CannotMake, install_system_packages, installing

WEB = ROOT / "web"
CHROMIUM = Path(os.environ.get("SHOAL_CHROMIUM", "/usr/bin/chromium"))
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"


def chromium() -> Path:
    """The browser, installed first where it is missing and we may. Raises CannotMake with one line that says why."""
    with installing():  # while somebody else installs it, it may be half there
        there = CHROMIUM.exists()
    if not there:
        install_system_packages("the browser tests", ["chromium"])
    return CHROMIUM


def console() -> None:
    """Builds the console if it is not up to date. Raises CannotMake, as `modules` does."""
    if "SHOAL_TEST_INSTALLED" not in os.environ:
        _make("console")


def modules() -> None:
    """Installs what the console is built with, if it is not there."""
    _make("web/node_modules/.package-lock.json")


def _make(target: str) -> None:
    """One at a time: two of npm in one directory take each other's files away."""
    making = os.open(WEB, os.O_RDONLY)
    try:
        fcntl.flock(making, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "--no-print-directory", target],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        os.close(making)
    if done.returncode:
        missing = [line for line in done.stdout.splitlines() if line.startswith("missing:")]
        raise CannotMake(missing[0] if missing else f"make {target} failed:\n{done.stdout[-2000:]}")


class Failed(AssertionError):
    """What the browser was told to do did not work."""


class Browser:
    """One browser; each page has cookies and storage of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", Path(__file__).with_name("driver.mjs"), WEB, chromium()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._count = 0
        self.version = self._read()["value"]

    def page(self, **options: Any) -> Page:
        """A new page; `options` as of Playwright's newContext: colorScheme, reducedMotion, viewport, …"""
        self._count += 1
        return Page(self, f"page-{self._count}", options)

    def ask(self, **request: Any) -> Any:
        self._count += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": self._count, **request}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the browser's driver ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Page:
    def __init__(self, browser: Browser, name: str, options: dict[str, Any]) -> None:
        self.browser = browser
        self.name = name
        self.options = options

    def run(self, source: str, **args: Any) -> Any:
        """Runs JavaScript beside the browser, with `page`, `context`, `heard` and `args`; what it returns."""
        return self.browser.ask(page=self.name, options=self.options, run=source, args=args)

    def goto(self, url: str) -> int:
        """Opens an address; the status of the answer."""
        return int(self.browser.ask(page=self.name, options=self.options, go=url))

    def see(self, text: str) -> None:
        """Waits until a text is to be seen."""
        self.run("await page.getByText(args.text).filter({visible: true}).first().waitFor()", text=text)

    def settled(self) -> None:
        """Waits until the page shows something and has asked for all it wants; its stream of events stays open."""
        self.run("await page.waitForFunction(() => document.querySelector('main')?.innerText.trim())")
        self.browser.ask(page=self.name, options=self.options, settle=True)
        self.run("await page.waitForFunction(() => !document.querySelector('main [aria-label^=loading]'))")

    def text(self) -> str:
        return str(self.run("return page.locator('body').innerText()"))

    def heard(self) -> dict[str, list[str]]:
        """What the page complained about, and every address that it asked."""
        found: dict[str, list[str]] = self.run("return heard")
        return found

    def axe(self) -> list[str]:
        """What keeps people out, serious and critical: `rule: element`."""
        found = self.run(
            "await page.evaluate(args.axe);"  # and not a script element: the policy of the page forbids those
            "return page.evaluate(async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
            ".filter((v) => ['serious', 'critical'].includes(v.impact))"
            ".flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(' ')}: ${n.failureSummary}`)))",
            axe=AXE.read_text(),
        )
        return list(found)

    def screenshot(self, path: Path) -> None:
        self.run("await page.screenshot({path: args.path})", path=str(path))

    def close(self) -> None:
        self.browser.ask(page=self.name, close=True)
