"""How quick the console is with large data. `make bench` runs it and writes docs/reference/console-benchmarks.md.

10,000 experiments, a million lines of one replica, 64 replicas merged, 500 metrics, 256 ranks, all in a real server;
and as many data sets, models and experiments in the queue as a group of people has after years. For each page: when it
shows what it is about, measured from the click on its address, and the longest task while somebody turns the wheel over
it: far down as fast as the page follows, then, after a jump to the end, up again, until all that it asked for has
come (a task of more than 100 ms is one that a person notices).
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update

from shoal import __version__
from shoal import home as homes
from shoal.client import Client
from shoal.store import experiments as store
from shoal.store.database import Database
from shoal.store.tables import counters, datasets, experiments, models
from tests.api.speaking import Served
from tests.benchmarks.pages import write_page
from tests.benchmarks.tracking_store import VALUES
from tests.browser.browsing import Browser, chromium, console
from tests.environments import CannotMake
from tests.running import until

EXPERIMENTS = 10_000
LINES = 1_000_000
MERGED = 64
METRICS = 500
RANKS = 256
COMPARED = 20  # no more can be
NAMES = 1000  # of data sets, and of models
VERSIONS = 1000  # of one model
FILES = 10_000  # of one data set
QUEUED = 100
TIMES = 3

TEXT = (
    "name: {name}\nframework: none\nrun: {{cmd: {command}}}\n"
    "environment: {{replicas: {{n_workers: {workers}, master: false}}}}\n"
)
HOLDS = (
    "name: {name}\nframework: none\nrun: {{cmd: exec sleep 10000}}\n"
    "environment: {{resources: {{cpu: {{requests: {cpu}}}}}}}\ngrace: {{stop: 0s}}\n"
)
MANY = f"""
import shoal
for step in range(200):
    shoal.log({{f"layer{{n // 10}}/weight{{n % 10}}": (n + step) % 17 / 17 for n in range({METRICS})}}, step=step)
"""
RANKED = """
import shoal
for step in range(100):
    shoal.log(loss=1 / (step + 1), step=step)
    shoal.step()
print("done")
"""
LONG_TASKS = """
  window.__longest = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.__longest = Math.max(window.__longest, entry.duration);
  }).observe({type: 'longtask', buffered: true});
"""
SCROLL = """
  const target = page.locator(args.selector).first();
  const box = await target.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + Math.min(box.height / 2, 300));
  const place = () => target.evaluate((element) => element.scrollTop);
  const before = await place();
  for (let turn = 0; turn < args.down; turn += 1) await page.mouse.wheel(0, args.by);
  const moved = (await place()) !== before;
  await target.evaluate((element) => { element.scrollTop = element.scrollHeight; });
  for (let turn = 0; turn < args.up; turn += 1) await page.mouse.wheel(0, -args.by);
  return moved;
"""
DOWN, UP, BY = 150, 60, 400  # turns of the wheel, and pixels of each


def page(place: Path) -> str:
    home = place / "home"
    busy = os.getloadavg()[0]
    filled(home)
    served = Served(home, Client(home))
    words = prepared(served, place)
    rows = []
    browser = Browser()
    try:
        for title, address, seen, scrolled in pages(served, words):
            shown, longest = zip(*[look(browser, served, address, seen, scrolled) for _ in range(TIMES)], strict=True)
            rows.append((title, sorted(shown)[TIMES // 2], worst(longest)))
            print(f"{title}: {rows[-1][1]:.0f} ms, longest task {rows[-1][2]}", file=sys.stderr, flush=True)
    finally:
        browser.close()
    return "\n".join(
        [
            "# The console with much data",
            "",
            f"Written by `make bench`: shoal {__version__}, Chromium {browser.version}, Python "
            f"{platform.python_version()}, {len(os.sched_getaffinity(0))} cores, which the server, the browser and its "
            f"driver share; the machine's load was {busy:.1f} when it began. Each page is opened {TIMES} times, each "
            f"in a browser without a cache, and scrolled with {DOWN + UP} turns of the wheel. The time is the median, "
            "the task the longest of all; browsers tell of tasks from 50 ms.",
            "",
            "| page | shows what it is about after | longest task while it is scrolled |",
            "|---|---|---|",
            *[f"| {title} | {shown:.0f} ms | {longest} |" for title, shown, longest in rows],
            "",
        ]
    )


def pages(served: Served, words: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """(title, address, a selector of what it is about, a selector of what scrolls)."""
    ranks = f"/experiments/{words['ranks']}"
    few = ",".join([words["many"], words["ranks"], *[f"e{number:05d}" for number in range(2, COMPARED)]])
    curves = f"/compare?ids={words['many']},{words['ranks']}&show=charts"
    clone = f"/create?from={words['ranks']}"
    yield from [
        (f"{EXPERIMENTS:,} experiments", "/experiments", "a[href^='/experiments/e']", grid("experiments")),
        (f"log of one replica, {LINES:,} lines", f"/experiments/{words['long']}/logs", "[data-index]", "[role=log]"),
        (f"logs of {MERGED} replicas merged", f"/experiments/{words['merged']}/logs", "[data-index]", "[role=log]"),
        (f"{METRICS} metrics", f"/experiments/{words['many']}/metrics", "main canvas", "[data-scrolls]"),
        (f"overview of {RANKS} ranks", ranks, "main [role=row]", grid("replicas")),
        (f"a metric of {RANKS} ranks as a band", f"{ranks}/metrics", "main canvas", "[data-scrolls]"),
        ("the same as a heat map", f"{ranks}/metrics?as=heat", "main canvas", "[data-scrolls]"),
        (f"timeline of {RANKS} ranks", f"{ranks}/timeline", "[data-state]", "[aria-label='states over time']"),
        (f"{COMPARED} experiments compared", f"/compare?ids={few}", f"{COMPARISON} td", COMPARISON),
        (f"{METRICS} metrics of two compared", curves, "main canvas", "[data-scrolls]"),
        (f"create, a clone with {RANKS} ranks", clone, f"{grid('plan')} [role=gridcell]", grid("plan")),
        (f"{NAMES:,} data sets", "/datasets", "main a[href^='/datasets/']", grid("data sets")),
        (f"a data set of {FILES:,} files", "/datasets/large", f"{grid('files')} [role=gridcell]", grid("files")),
        (f"{NAMES:,} models", "/models", "main a[href^='/models/']", grid("models")),
        (f"a model of {VERSIONS:,} versions", "/models/large", "main canvas", grid("versions")),
        ("settings", "/settings", "[aria-label=Server] dd", "main"),
    ]
    fill_queue(served)
    yield f"clusters, {QUEUED} in the queue", "/clusters", f"{grid('queue of local')} [role=gridcell]", "main"


COMPARISON = "[aria-label=comparison]"


def grid(name: str) -> str:
    return f"[role=grid][aria-label='{name}']"


def worst(longest: Iterable[float | None]) -> str:
    """The longest of all; a page that has no more than fits does not scroll."""
    found = [one for one in longest if one is not None]
    if not found:
        return "nothing to scroll"
    return f"{max(found):.0f} ms" if max(found) else "under 50 ms"


def look(browser: Browser, served: Served, address: str, seen: str, scrolled: str) -> tuple[float, float | None]:
    """ms until it is seen, and the longest task while it is scrolled; None when it does not scroll."""
    page = browser.page()
    try:
        page.goto(served.client.sign_in("/settings"))
        page.run("await page.addInitScript(args.script)", script=LONG_TASKS)
        shown = page.run(
            "await page.goto(args.url, {waitUntil: 'commit'}); await page.locator(args.seen).first().waitFor();"
            "return page.evaluate(() => performance.now())",
            url=f"http://{served.host}{address}",
            seen=seen,
        )
        page.settled()
        page.run("await page.evaluate(() => { window.__longest = 0; })")
        moved = page.run(SCROLL, selector=scrolled, down=DOWN, up=UP, by=BY)
        page.settled()
        longest = float(page.run("return page.evaluate(() => window.__longest)"))
        return float(shown), longest if moved else None
    finally:
        page.close()


def filled(home: Path, many: int = EXPERIMENTS) -> None:
    """A home with many experiments that are over, of which only rows are left."""
    homes.prepare(home)
    database = Database(home / "shoal.db")
    database.take_lease()
    with database.write() as connection:
        first = dict(store.create(connection, VALUES, state="succeeded"))
        more = {
            number: {
                "uid": f"{number:032x}",
                "id": f"e{number:05d}",
                "number": number,
                "params": {"lr": 1 / number, "seed": number % 7},
                "metrics": {
                    name: {"last": 1 / number, "min": 0.0, "max": 1.0, "step": 1000, "time": 1.7e9}
                    for name in ("loss", "acc", "val/loss", "val/acc")
                },
            }
            for number in range(2, many + 1)
        }
        over = {"tracked": True, "started": first["created"] - 60, "finished": first["created"], "origin_key": None}
        connection.execute(insert(experiments), [{**first, **over, **row} for row in more.values()])
        connection.execute(update(counters).values(value=many))
        connection.execute(insert(datasets), list(dataset_rows(first["created"])))
        connection.execute(insert(models), list(model_rows(first["created"])))
    database.close()


def dataset_rows(created: float) -> Iterator[dict[str, Any]]:
    """One with many files, and many others."""
    where = {"version": 1, "kind": "object", "options": {}, "created": created}
    for number in range(NAMES):
        files = FILES if number == 0 else 1
        manifest = [{"path": f"{part // 100:03d}/{part:05d}.png", "size": 1000, "etag": ""} for part in range(files)]
        name = f"set-{number:04d}" if number else "large"
        about = {"uri": f"s3://data/{name}", "size": 1000 * files, "files": files, "digest": f"{number:064x}"}
        yield {"name": name, "manifest": manifest, **where, **about}


def model_rows(created: float) -> Iterator[dict[str, Any]]:
    """One with many versions, and many others; each comes from an experiment of its own."""
    versions = [("large", version) for version in range(1, VERSIONS + 1)]
    others = [(f"net-{number:04d}", 1) for number in range(1, NAMES)]
    writer = {"replica": "worker-0", "process": 0, "attempt": 0, "size": 1000}
    for number, (name, version) in enumerate([*versions, *others], 2):
        digest = f"{number:064x}"
        origin = {"uid": f"{number:032x}", "experiment": f"e{number:05d}", "step": number, "created": created + number}
        worth = {"metrics": {"loss": 1 / number, "acc": 1 - 1 / number}}
        files = {"digest": digest, "manifest": [{"path": "model.pt", "size": 1000, "hash": digest}]}
        yield {"name": name, "version": version, **writer, **origin, **worth, **files}


def fill_queue(served: Served) -> None:
    """One experiment that holds the machine, and many that wait for it."""
    holder = served.run(HOLDS.format(name="holder", cpu=len(os.sched_getaffinity(0))))
    until(lambda: served.client.show(holder)["state"] == "running", "the start")
    waiting = [served.run(HOLDS.format(name=f"waits-{number}", cpu=1)) for number in range(QUEUED)]
    until(lambda: served.client.show(waiting[-1])["reason"].startswith("behind"), "the queue")


def prepared(served: Served, place: Path) -> dict[str, str]:
    """Runs what the pages are about; name -> id."""
    for name, text in (("many.py", MANY), ("ranked.py", RANKED)):
        (place / name).write_text(text)

    def run(name: str, command: str, workers: int = 1) -> str:
        text = TEXT.format(name=name, command=json.dumps(command), workers=workers)
        return served.run(text, place, oversubscribe=True)

    python = sys.executable
    words = {
        "long": run("long", f"seq -f 'step %.0f loss 0.125' {LINES}"),
        "many": run("many", f"{python} many.py"),
        "merged": run("merged", "seq -f 'step %.0f of $SHOAL_REPLICA' 2000", MERGED),
        "ranks": run("ranks", f"{python} ranked.py", RANKS),
    }
    for name, word in words.items():
        found = served.finished(word)
        assert found["state"] == "succeeded", (name, found["reason"])
    return words


if __name__ == "__main__":
    try:
        chromium()
        console()
    except CannotMake as error:
        sys.exit(f"error: {error}")
    write_page("console-benchmarks.md", page)
