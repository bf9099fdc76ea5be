"""How long a command takes to answer, as a multiple of the bare interpreter in the same run. `make bench` runs it.

The absolute times of a machine are noisy and differ between machines; the ratio tells what Shoal adds. Runs of all
candidates are interleaved, so a slow moment hits each of them alike, and the median is taken.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from shoal import __version__
from shoal.plan import plan
from shoal.spec.types import Spec

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
LARGE = ROOT / "tests" / "fixtures" / "experiments" / "tensorflow-large-newest.yml"
ROUNDS = 31
SHOAL = str(Path(sys.executable).with_name("shoal"))

COMMANDS = {
    "bare interpreter": [sys.executable, "-c", "pass"],
    "shoal --help": [SHOAL, "--help"],
    "shoal check, 11 replicas": [SHOAL, "check", str(LARGE)],
}
AIMS = {"shoal --help": 6, "shoal check, 11 replicas": 15}


def main() -> None:
    # Compiled modules are written as on any installation; some build machines switch that off.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for round_number in range(ROUNDS + 2):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if round_number >= 2:
                times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in times.items()}
    bare = medians["bare interpreter"]
    lines = [
        "# Start-up times",
        "",
        f"Written by `make bench`: shoal {__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, median of {ROUNDS} interleaved runs.",
        "",
        "| command | time | ratio to the bare interpreter | aim |",
        "|---|---|---|---|",
    ]
    for name, median in medians.items():
        aim = f"≤ {AIMS[name]}×" if name in AIMS else ""
        lines.append(f"| `{name}` | {median * 1000:.0f} ms | {median / bare:.1f}× | {aim} |")
    lines += ["", f"A plan of 10,000 replicas: {plan_time(10_000) * 1000:.0f} ms."]
    text = "\n".join(lines) + "\n"
    print(text)
    PAGE.write_text(text)


def plan_time(replicas: int) -> float:
    """Of a spec that is already read, with an override for every hundredth worker."""
    workers = replicas - 1
    overrides = [{"index": index, "resources": {"cpu": {"requests": 2}}} for index in range(0, workers, 100)]
    spec = Spec.model_validate(
        {
            "framework": "tensorflow",
            "run": {"cmd": "x"},
            "environment": {"replicas": {"n_workers": workers, "worker": tuple(overrides)}},
        }
    )
    times = []
    for _ in range(9):
        started = time.perf_counter()
        assert len(plan(spec).replicas) == replicas
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
