"""Real frameworks in real pods, beside the same files on this machine: ranks, exit codes, lines and metrics.

Each environment is the one the local tests use, seen in the pods at its own path; the file that names it is merged
over the example both times, so what runs here and there is the same.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.clusters.kubernetes.conftest import Namespace
from tests.conftest import ROOT
from tests.environments import environment
from tests.running import SHOAL, lines_of, until

PATIENCE = 500.0  # seconds: frameworks take long to load where others want the processors too


@dataclass(frozen=True)
class Case:
    """An example, and what of it is the same in every run."""

    example: str
    framework: str
    each: str  # lines that a replica has in every run
    together: str = "(?!)"  # lines that some replica has: it is left to the framework which
    serving: tuple[str, ...] = ()  # may end by themselves, or be stopped when the experiment has succeeded
    losses_vary: bool = False  # steps are taken by whichever worker is free
    ranks_vary: bool = False  # ranks are given out in the order of arrival
    backends: tuple[str, ...] = ("native", "kubeflow")


CASES = [
    Case(
        "quickstart",
        "none",
        each=r"step |loss fell |done after ",
        backends=("kubeflow",),  # natively it is the first test of test_native.py
        serving=("ps-0",),
    ),
    Case(
        "distributed_cifar",
        "pytorch",
        each=r"rank \d|epoch \d|accuracy |loss fell ",
    ),
    Case(
        "tensorflow/parameter_server",
        "tensorflow",
        each=r"steps \d+ to|loss fell |(worker|ps) \d serves",
        together=r"step \d+  loss",
        losses_vary=True,
    ),
    Case(
        "mxnet",
        "mxnet",
        each=r"(scheduler|server|worker) in ",
        together=r"rank \d",
        serving=("ps-0", "ps-1"),
        ranks_vary=True,
    ),
    Case(
        "jax",
        "jax",
        each=r"process \d",
        backends=("native",),  # it is not run through Kubeflow
    ),
]
RUNS = [pytest.param(case, backend, id=f"{case.framework}-{backend}") for case in CASES for backend in case.backends]


TIMES = ("shoal/step_time", "shoal/step_busy")
ON_THIS_MACHINE: dict[str, Any] = {}  # framework -> its outcome, which every backend is compared to


@pytest.mark.parametrize(("case", "backend"), RUNS)
def test_a_framework_trains_in_pods_as_on_this_machine(
    namespace: Namespace, home: Path, tmp_path: Path, case: Case, backend: str
) -> None:
    experiment = copied(case, tmp_path)
    variables = {"PYTHONFAULTHANDLER": "1"}  # native code that crashes says where
    mounts = []
    if case.framework != "none":
        python = environment(case.framework)
        variables["PATH"] = f"{python.parent}:/usr/bin:/bin"
        mounts.append(python.parent.parent)
    if case.example == "distributed_cifar":
        mounts.append(tmp_path / "data")
        subprocess.run([python, experiment / "make_data.py", mounts[-1]], check=True, timeout=120)
        variables["CIFAR10"] = str(mounts[-1])
    change = tmp_path / "change.yml"
    change.write_text(json.dumps({"backend": backend, "environment": {"env_vars": variables}}))
    home.mkdir()
    sections = [f'[[clusters.lab.mounts]]\nhost_path = "{path}"\nat = "{path}"\n' for path in mounts]
    (home / "config.toml").write_text(namespace.config() + "".join(sections))

    if case.framework not in ON_THIS_MACHINE:
        ON_THIS_MACHINE[case.framework] = outcome(case, experiment, change, "local")
    assert outcome(case, experiment, change, "lab") == ON_THIS_MACHINE[case.framework]
    until(lambda: not namespace.items("pods"), "an empty namespace")


def copied(case: Case, place: Path) -> Path:
    """The example in a place of its own: the whole checkout need not travel into the pods."""
    experiment = place / "checkout" / "examples" / case.example
    shutil.copytree(ROOT / "examples" / case.example, experiment)
    return experiment


def outcome(case: Case, experiment: Path, change: Path, cluster: str) -> Mapping[str, Any]:
    """Runs it to its end; what must be the same in every run."""
    command = [SHOAL, "run", str(experiment), str(change), "--on", cluster]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode and case.framework == "tensorflow" and "SIGSEGV" in done.stdout + done.stderr:
        # Its native threads have once called Python without holding its lock, which no setting of ours can keep them
        # from. Twice in a row would be ours.
        print(f"TensorFlow crashed:\n{done.stdout[-5000:]}{done.stderr}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    found = re.search(r"^experiment (\w+) #\d+$", done.stderr, re.MULTILINE)
    assert found, done.stderr
    shown = Client().show(found.group(1))
    assert shown["cluster"] == cluster
    logs = {entry["replica"]: lines_of(shown["id"], entry["replica"]) for entry in shown["replicas"]}
    curves = Client().metrics(shown["id"])
    return {
        "state": shown["state"],
        "replicas": [ending(case, entry) for entry in shown["replicas"]],
        "lines of each": {
            replica: matching(case, case.each, without_last_words(case, replica, lines))
            for replica, lines in logs.items()
        },
        "lines of some": matching(case, case.together, [line for lines in logs.values() for line in lines]),
        "metrics": sorted(
            (
                curve.name,
                "" if case.ranks_vary else curve.replica,
                curve.process,
                list(curve.steps),
                []
                if case.losses_vary or curve.name in TIMES
                else sorted(round(float(value), 3) for value in curve.values),
            )
            for curve in curves
        ),
    }


def without_last_words(case: Case, replica: str, lines: list[str]) -> list[str]:
    """Who serves is stopped when the others have ended, and may come to its last words or not."""
    return [line for line in lines if replica not in case.serving or not line.startswith("done after ")]


def ending(case: Case, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    who = tuple(entry[key] for key in ("replica", "role", "rank"))
    if entry["replica"] in case.serving:
        return (*who, entry["state"] in ("succeeded", "stopped"))
    return (*who, entry["state"], entry["exit_code"], entry["signal"])


def matching(case: Case, pattern: str, lines: list[str]) -> list[str]:
    """Sorted: processes of one replica write at the same time. Rates, and losses that vary, are left out."""
    found = [re.sub(r" +\d+ images/s", "", line) for line in lines if re.match(pattern, line)]
    if case.losses_vary:
        found = [re.sub(r"(loss|from|to) \d*\.\d+", r"\1 …", line) for line in found]
    return sorted(found)
