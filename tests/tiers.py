"""Runs the tests tier by tier and prints the number of tests and the time of each. `make test` calls it.

Standard library only; a tier is a list of commands, and every tier runs even when an earlier one failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest", "-q"]

TIERS: dict[str, list[list[str]]] = {
    "checks": [
        [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
        [str(BIN / "ruff"), "check", "--quiet", "."],
        [str(BIN / "mypy"), "--no-error-summary"],
    ],
    "unit": [[*PYTEST, "tests/unit", "tests/shape"]],
    "golden": [[*PYTEST, "tests/golden"]],
    "property": [[*PYTEST, "tests/property"]],
    "docs": [[*PYTEST, "tests/docs"]],
    "e2e": [[*PYTEST, "tests/e2e"]],
    "contract": [[*PYTEST, "tests/contract"]],
    "api": [[*PYTEST, "tests/api"]],
    "crash": [[*PYTEST, "tests/crash"]],
    "examples": [[*PYTEST, "tests/examples"]],
}
FAST = {"checks", "unit", "golden", "property"}


def main(names: list[str]) -> int:
    rows = []
    for name in names:
        started = time.monotonic()
        passed = failed = 0
        for command in TIERS[name]:
            print(f"\n== {name}: {' '.join(command[-3:])}", flush=True)
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert process.stdout is not None
            last = ""
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
            code = process.wait()
            counted = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
            passed += counted.get("passed", 0) or (0 if "pytest" in command else code == 0)
            failed += counted.get("failed", 0) + counted.get("error", 0)
            failed += 1 if code and not (counted.get("failed") or counted.get("error")) else 0
        rows.append((name, passed, failed, time.monotonic() - started))
    print("\ntier        passed  failed     time")
    for name, passed, failed, seconds in rows:
        print(f"{name:10} {passed:7} {failed:7} {seconds:7.0f}s")
    total, bad = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{'all':10} {total:7} {bad:7} {sum(row[3] for row in rows):7.0f}s\n")
    print(f"{total} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    fast = "--fast" in sys.argv
    if fast:
        os.environ.setdefault("SHOAL_EXAMPLES", "100")
    named = [word for word in sys.argv[1:] if not word.startswith("-")]
    sys.exit(main(named or [tier for tier in TIERS if not fast or tier in FAST]))
