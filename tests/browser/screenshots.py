"""Pictures of every page, light and dark, of experiments that really ran. `make screenshots` writes docs/images.

python -m tests.browser.screenshots [NAME ...]     only these
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from shoal.client import Client
from tests.api.speaking import Served
from tests.browser.browsing import Browser, Page, chromium, console
from tests.browser.pictures import shrunk
from tests.conftest import ROOT, clear
from tests.environments import CannotMake
from tests.running import until

IMAGES = ROOT / "docs" / "images"
QUICKSTART = ROOT / "examples" / "quickstart"
SIZE = {"width": 1280, "height": 800}

# One worker has three times the data of the others, and so they wait for it.
SKEWED = ("share = samples(1500", "share = samples(4500 if INDEX == 5 else 1500")
# One worker gets a parameter that its script cannot use.
BROKEN = 'if [ $SHOAL_REPLICA = worker-2 ]; then export SHOAL_PARAMS="${SHOAL_PARAMS/300/null}"; fi; python train.py'
FILES = "python train.py | tee train-$SHOAL_REPLICA.log && python report.py train-$SHOAL_REPLICA.log"
REPORT = """
import json, pathlib, re, sys
import shoal

if shoal.replica.role == "master":
    log = pathlib.Path(sys.argv[1]).read_text()
    losses = re.findall(r"step +([0-9]+)  loss ([0-9.]+)", log)
    place = pathlib.Path(shoal.replica.outputs)
    (place / "losses.csv").write_text("step,loss" + "".join(f"\\n{step},{loss}" for step, loss in losses) + "\\n")
    (place / "summary.json").write_text(json.dumps({"loss": float(losses[-1][1]), "steps": int(losses[-1][0])}))
    (place / "logs").mkdir()
    (place / "logs" / "train.log").write_text(log)
    shoal.model("quickstart", place / "summary.json", metrics={"loss": float(losses[-1][1])})
"""

NAMED = "name: {}\nenvironment: {{replicas: {{n_workers: {}}}}}\n"
DATA = "data: [{dataset: digits@v2, at: digits}]\n"
WAITS = """\
name: {name}
framework: none
run: {{cmd: exec sleep 10000}}
environment: {{resources: {{cpu: {{requests: {cpu}}}, memory: {{requests: {memory}}}}}}}
grace: {{stop: 0s}}
"""

DRAWN = "await page.locator('main canvas').nth(1).waitFor()"
HOVER = (
    "const box = await page.locator('section[aria-label=share_loss] .u-over').boundingBox();"
    "await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.5)"
)
COLUMNS = "state,name,number,replicas,duration,created,params.lr,metrics.loss"
# name -> (address, what is seen when it is ready, what to do then)
PAGES: dict[str, tuple[str, str, str]] = {
    "experiments": (f"/experiments?columns={COLUMNS}", "quickstart", ""),
    "overview": ("/experiments/{slow}", "Replicas", ""),
    "failure": ("/experiments/{broken}", "failed first", ""),
    "logs": ("/experiments/{slow}/logs", "on my share", ""),
    "logs-beside": ("/experiments/{broken}/logs?replicas=worker-1,worker-2&side=yes&wrap=yes", "Traceback", ""),
    "metrics": ("/experiments/{slow}/metrics", "share_loss", HOVER),
    "heat-map": ("/experiments/{slow}/metrics?as=heat&group=shoal&replicas=worker-*", "shoal/step_busy", DRAWN),
    "resources": ("/experiments/{slow}/resources", "Memory", DRAWN),
    "artifacts": ("/experiments/{files}/artifacts?file=o:master-0/losses.csv", "losses.csv", ""),
    "timeline": ("/experiments/{broken}/timeline", "Events", ""),
    "stacks": ("/experiments/{running}/stacks", "ranks", ""),
    "config": ("/experiments/{slow}/config?show=plan", "Policy", ""),
    "compare": ("/compare?ids={files},{slow}", "quickstart", ""),
    "create": ("/create", "replicas", ""),
    "datasets": ("/datasets", "digits", ""),
    "dataset": ("/datasets/digits?file=train/labels.csv", "labels.csv", ""),
    "models": ("/models", "quickstart", ""),
    "model": ("/models/quickstart", "Over versions", ""),
    "clusters": ("/clusters", "local", ""),
    "settings": ("/settings", "Settings", ""),
}  # fmt: skip


def main(names: list[str]) -> int:
    try:
        chromium()
        console()
    except CannotMake as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="shoal-pictures-") as directory:
        home = Path(directory) / "home"
        os.environ["SHOAL_HOME"] = str(home)
        browser = Browser()
        try:
            served = Served(home, Client(home))
            words = experiments(served, Path(directory))
            pages = {scheme: opened(browser, served, scheme) for scheme in ("light", "dark")}
            for name in names or PAGES:
                for scheme, page in pages.items():
                    take(page, served, words, name, IMAGES / f"{name}-{scheme}.png")
        finally:
            browser.close()
            clear(home)
    return 0


def opened(browser: Browser, served: Served, scheme: str) -> Page:
    page = browser.page(colorScheme=scheme, reducedMotion="reduce", viewport=SIZE)
    page.goto(served.client.sign_in("/experiments"))
    return page


def experiments(served: Served, place: Path) -> dict[str, str]:
    """name -> id of what the pictures show: trainings of the quickstart, one with a slow worker, one that fails; and a
    queue."""
    code = place / "quickstart"
    shutil.copytree(QUICKSTART, code)
    (code / "report.py").write_text(REPORT)
    (code / "skewed.py").write_text((code / "train.py").read_text().replace(*SKEWED))
    text = (code / "experiment.yml").read_text()

    def run(command: str, more: str = "", **params: float) -> str:
        files = [("experiment.yml", text), ("here.yml", f"run: {{cmd: {json.dumps(command)}}}\n{more}")]
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        given = tuple(f"{name}={value}" for name, value in params.items())
        made = served.client.create(files, given, str(code), environment, oversubscribe=True)
        return str(made["experiment"]["id"])

    words = {}
    datasets(served, place)
    for lr in (0.05, 0.1):
        served.finished(run("python train.py", lr=lr, steps=60))
    served.finished(run(FILES, DATA, lr=0.2, steps=60))
    words["files"] = run(FILES, DATA, lr=0.4, steps=120)
    served.finished(words["files"])
    until(lambda: len(served.client.models("quickstart")) == 2, "both models")
    served.client.promote("quickstart", "2", "production")
    words["broken"] = run(BROKEN, NAMED.format("four-workers", 4))
    served.finished(words["broken"])
    words["slow"] = run("python skewed.py", NAMED.format("eight-workers", 8) + DATA, steps=400)
    served.finished(words["slow"])
    words["running"] = run("python train.py", NAMED.format("long-run", 3), steps=100_000)
    until(lambda: served.client.show(words["running"])["metrics"], "a first point")
    cores = len(os.sched_getaffinity(0))
    held = served.run(WAITS.format(name="evaluation", cpu=cores - 0.5, memory=6144))
    until(lambda: served.client.show(held)["state"] == "running", "the start")
    waits = served.run(WAITS.format(name="sweep", cpu=cores, memory=4096))
    until(lambda: served.client.show(waits)["reason"], "the queue")
    return words


def datasets(served: Served, place: Path) -> None:
    """A data set of two versions, and one of a single file."""
    digits, words = place / "digits", place / "words.txt"
    for part, rows in (("train", 1500), ("test", 300)):
        (digits / part).mkdir(parents=True)
        labels = "".join(f"\n{number:05d}.png,{number * 7 % 10}" for number in range(rows))
        (digits / part / "labels.csv").write_text(f"image,label{labels}\n")
        served.client.add_dataset("digits", str(digits), str(place), {})
    words.write_text("\n".join(f"word {number}" for number in range(5000)))
    served.client.add_dataset("words", str(words), str(place), {})


def take(page: Page, served: Served, words: dict[str, str], name: str, target: Path) -> None:
    address, seen, then = PAGES[name]
    page.goto(f"http://{served.host}{address.format(**words)}")
    page.see(seen)
    page.settled()
    if then:
        page.run(then)
    target.parent.mkdir(exist_ok=True)
    page.screenshot(target)
    target.write_bytes(shrunk(target.read_bytes()))
    print(f"{target.relative_to(ROOT)}  {target.stat().st_size // 1000} kB", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
