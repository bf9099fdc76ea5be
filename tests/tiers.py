"""Runs the tests tier by tier and prints the number of tests and the time of each. `make test` calls it.

Standard library only; a tier is a list of commands, and every tier runs even when an earlier one failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest", "-q"]
BOTH_CORES = ["-n", "2"]  # for what does not look at the clock
KUBERNETES = ["tests/clusters/test_sharing.py", "tests/clusters/kubernetes"]
FRAMEWORKS = "tests/clusters/kubernetes/test_frameworks.py"

TIERS: dict[str, list[list[str]]] = {
    "checks": [
        [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
        [str(BIN / "ruff"), "check", "--quiet", "."],
        [str(BIN / "mypy"), "--no-error-summary"],
    ],
    "unit": [[*PYTEST, *BOTH_CORES, "tests/unit", "tests/shape"]],
    "golden": [[*PYTEST, *BOTH_CORES, "tests/golden"]],
    "property": [[*PYTEST, *BOTH_CORES, "tests/property"]],
    "docs": [[*PYTEST, *BOTH_CORES, "tests/docs"]],
    "e2e": [[*PYTEST, *BOTH_CORES, "tests/e2e"]],
    "contract": [[*PYTEST, "tests/contract"]],
    "api": [[*PYTEST, *BOTH_CORES, "tests/api"]],
    "web": [[*PYTEST, "tests/web"]],  # the console's source; needs Node
    "browser": [  # the wheel, and the console in it; needs Chromium too
        [*PYTEST, "tests/wheel"],
        [*PYTEST, *BOTH_CORES, "--dist", "loadfile", "tests/browser"],
    ],
    "crash": [[*PYTEST, "-n", "3", "tests/crash"]],  # most of it waits for processes to die
    "examples": [[*PYTEST, "tests/examples"]],
    "slurm": [[*PYTEST, "tests/clusters/slurm"]],
    # Pods take their time: several files at once use the one cluster, in their order, since the ones with few tests
    # take the longest. Frameworks need the cores for themselves.
    "clusters": [
        [*PYTEST, "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", *KUBERNETES, f"--ignore={FRAMEWORKS}"],
        [*PYTEST, FRAMEWORKS],
    ],
}
# For every save: one run of pytest, whose workers take seconds to start, with fewer examples and without what is slow.
FAST = [*PYTEST, *BOTH_CORES, "-p", "no:schemathesis", "-m", "not slow",
        "tests/unit", "tests/shape", "tests/golden", "tests/property"]  # fmt: skip
FEW_EXAMPLES = "10"
CLUSTERS = "clusters"
# What a cluster is made of is built once per machine, for a quarter of an hour: meanwhile other tests run.
MAKE_CLUSTERS = ["nice", "-n", "10", sys.executable, "-m", "tests.clusters.kubernetes.binaries"]


Row = tuple[str, int, int, float]
"""tier, passed, failed, seconds"""


def main(names: list[str]) -> int:
    making = None
    if CLUSTERS in names and os.geteuid() == 0:  # else the tier says what it lacks
        making = subprocess.Popen(MAKE_CLUSTERS, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        return told(run(names, making))
    finally:
        if making is not None and making.poll() is None:
            making.terminate()
            making.wait()


def run(names: list[str], making: subprocess.Popen[bytes] | None) -> list[Row]:
    """Every tier; the one of clusters when there is what it needs."""
    rows = []
    for name in names:
        started = time.monotonic()
        if name == CLUSTERS and making is not None and making.poll() is None:
            print("\n== clusters: waits for the programs of a cluster", flush=True)
            making.wait()
        rows.append(tier(name, TIERS[name], started, lambda line: print(line, flush=True)))
    return rows


def in_haste() -> list[Row]:
    """Both at once: mypy takes one core for half a minute when it has no cache yet."""
    started = time.monotonic()
    said: list[str] = []
    with ThreadPoolExecutor() as pool:
        checks = pool.submit(tier, "checks", TIERS["checks"], started, said.append)
        fast = tier("fast", [FAST], started, lambda line: print(line, flush=True))
        found = checks.result()
    print("\n".join(said))
    return [found, fast]


def tier(name: str, commands: list[list[str]], started: float, say: Callable[[str], None]) -> Row:
    passed = failed = 0
    for command in commands:
        say(f"\n== {name}: {' '.join(command[-3:])}")
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            say(line.rstrip("\n"))
            last = line.strip() or last
        code = process.wait()
        counted = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
        passed += counted.get("passed", 0) or (0 if "pytest" in command else code == 0)
        failed += counted.get("failed", 0) + counted.get("error", 0)
        failed += 1 if code and not (counted.get("failed") or counted.get("error")) else 0
    return name, passed, failed, time.monotonic() - started


def told(rows: list[Row], seconds: float | None = None) -> int:
    """Prints them and their sum; `seconds` when that is not the time of all. The exit code."""
    print("\ntier        passed  failed     time")
    for name, passed, failed, took in rows:
        print(f"{name:10} {passed:7} {failed:7} {took:7.0f}s")
    total, bad = sum(row[1] for row in rows), sum(row[2] for row in rows)
    took = sum(row[3] for row in rows) if seconds is None else seconds
    print(f"{'all':10} {total:7} {bad:7} {took:7.0f}s\n")
    print(f"{total} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    if "--fast" in sys.argv:
        os.environ.setdefault("SHOAL_EXAMPLES", FEW_EXAMPLES)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process of every run compiles all anew
        found = in_haste()
        sys.exit(told(found, max(row[3] for row in found)))
    sys.exit(main([word for word in sys.argv[1:] if not word.startswith("-")] or list(TIERS)))
