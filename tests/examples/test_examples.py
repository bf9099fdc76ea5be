"""Every example, run by the real command in the virtual environment of its framework.

What is asked of each: it succeeds, every replica has its rank and its end, every log holds its own rank's lines and
nobody else's, the loss falls, and no process is left.

The start command of distributed_cifar is compared with the document it comes from where that lies beside the checkout;
the header of the test run says whether it does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.launcher import processes
from shoal.spec import load
from tests.conftest import ROOT, SEEDS
from tests.environments import PINS, CannotMake, environment

SHOAL = Path(sys.executable).with_name("shoal")
HERE = Path(__file__).parent
EXAMPLES = ROOT / "examples"
EXITS = HERE / "exits"  # scripts of PyTorch are asked how they end
LARGE = ROOT / "tests" / "fixtures" / "experiments" / "tensorflow-large-section.yml"
PATIENCE = 300

CIFAR_COMMAND = """\
python -m torch.distributed.launch  \\
  --nnodes=$NUM_NODES  \\
  --nproc_per_node=$NUM_TRAINERS  \\
  --node_rank=$RANK \\
  --master_addr=$MASTER_ADDR \\
  --master_port=$MASTER_PORT \\
  examples/distributed_cifar/pytorch/main.py
"""


@dataclass(frozen=True)
class Example:
    file: str
    framework: str | None  # whose virtual environment; None: our own python will do
    own: Mapping[str, str]  # replica, in the order of ranks -> a line that it prints and no other does
    losses: Mapping[str, str] = field(default_factory=dict)  # replica -> the lines whose loss falls
    may_be_stopped: tuple[str, ...] = ()  # those that serve, and are not waited for at the end
    warning: str = ""


CASES = [
    Example(
        "quickstart",
        None,
        own={
            "master-0": r"loss fell from 0\.\d+ to 0\.\d+",
            "worker-0": "worker 0 has 1500 samples",
            "worker-1": "worker 1 has 1500 samples",
            "worker-2": "worker 2 has 1500 samples",
            "ps-0": r"listening on \S+ for 3 workers and the master",
        },
        losses={
            "master-0": r"step +\d+  loss",
            "worker-0": r"loss .* on my share",
            "worker-1": r"loss .* on my share",
            "worker-2": r"loss .* on my share",
        },
        may_be_stopped=("ps-0",),
    ),
    Example(
        "tensorflow/parameter_server",
        "tensorflow",
        own={
            "master-0": r"loss fell from \S+ to",
            "worker-0": "worker 0 serves",
            "worker-1": "worker 1 serves",
            "ps-0": "ps 0 serves",
        },
        losses={"master-0": r"steps \d+ to \d+  loss"},
        may_be_stopped=("worker-0", "worker-1", "ps-0"),
    ),
    Example(
        "tensorflow/mirrored",
        "tensorflow",
        own={"master-0": "chief 0 of 3", "worker-0": "worker 0 of 3", "worker-1": "worker 1 of 3"},
        losses={"master-0": "chief 0  step", "worker-0": "worker 0  step", "worker-1": "worker 1  step"},
    ),
    Example(
        "tensorflow/mirrored/no_master.yml",
        "tensorflow",
        own={"worker-0": "worker 0 of 2", "worker-1": "worker 1 of 2"},
        losses={"worker-0": "worker 0  step", "worker-1": "worker 1  step"},
    ),
    Example(
        "pytorch",
        "pytorch",
        own={
            "master-0": "rank 0 of 3, in master-0",
            "worker-0": "rank 1 of 3, in worker-0",
            "worker-1": "rank 2 of 3, in worker-1",
        },
        losses={"master-0": "rank 0  step", "worker-0": "rank 1  step", "worker-1": "rank 2  step"},
    ),
    Example(
        "mxnet",
        "mxnet",
        own={
            "master-0": "scheduler in master-0",
            "worker-0": "worker in worker-0",
            "worker-1": "worker in worker-1",
            "ps-0": "server in ps-0",
            "ps-1": "server in ps-1",
        },
        losses={"worker-0": r"rank \d  step", "worker-1": r"rank \d  step"},
        may_be_stopped=("ps-0", "ps-1"),
        warning="environment.mxnet: an older spelling",
    ),
    Example(
        "jax",
        "jax",
        own={"master-0": "process 0 of 3", "worker-0": "process 1 of 3", "worker-1": "process 2 of 3"},
        losses={"master-0": "process 0  step", "worker-0": "process 1  step", "worker-1": "process 2  step"},
    ),
]


@pytest.mark.parametrize("example", CASES, ids=[case.file for case in CASES])
def test_it_succeeds_and_every_rank_says_so(home: Path, example: Example) -> None:
    done = run(str(EXAMPLES / example.file), framework=example.framework)
    assert done.code == 0, done.err
    assert example.warning in done.err
    assert bool(example.warning) == ("warning" in done.err)
    shown = done.experiment()
    assert (shown["state"], shown["first_failure"]) == ("succeeded", None)
    check_replicas(shown, list(example.own), example.may_be_stopped)
    logs = {replica: lines_of(done.id, replica) for replica in example.own}
    for replica, own in example.own.items():
        holders = [name for name, lines in logs.items() if any(re.match(own, line) for line in lines)]
        assert holders == [replica], f"{own!r} in the logs of {holders}:\n{done.out}"
    for replica, pattern in example.losses.items():
        check_falls(losses(logs[replica], pattern), replica)


def test_no_example_is_left_out() -> None:
    tested = {EXAMPLES / case.file for case in CASES} | {EXAMPLES / "distributed_cifar"}
    files = [file if file in tested else file.parent for file in EXAMPLES.rglob("*.yml")]
    assert set(files) == tested


def test_cifar_runs_with_the_start_command_as_it_was_written(home: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        [python_of("pytorch"), EXAMPLES / "distributed_cifar" / "make_data.py", tmp_path], timeout=PATIENCE
    )
    assert made.returncode == 0
    file = str(EXAMPLES / "distributed_cifar" / "experiment.yml")
    done = run(file, framework="pytorch", CIFAR10=str(tmp_path))
    assert done.code == 0, done.err
    shown = done.experiment()
    assert shown["command"] == CIFAR_COMMAND.strip()
    check_replicas(shown, ["worker-0", "worker-1"])
    for node, replica in enumerate(("worker-0", "worker-1")):
        lines = lines_of(done.id, replica)
        ranks = {int(found.group(1)) for line in lines if (found := re.match(r"rank (\d) ", line))}
        assert ranks == {2 * node, 2 * node + 1}
        for local, rank in enumerate(sorted(ranks)):
            assert any(line.startswith(f"rank {rank} of 4, local rank {local}, ") for line in lines)
            check_falls(losses(lines, f"rank {rank}  epoch"), f"rank {rank}")
    assert (home / "experiments" / done.id / "outputs" / "model.pt").stat().st_size > 0


def test_the_start_command_of_cifar_is_that_of_the_document() -> None:
    assert load([str(EXAMPLES / "distributed_cifar")]).spec.run.cmd == CIFAR_COMMAND.strip()
    documents = [path.read_text() for path in SEEDS.glob("004_*.txt")] if SEEDS.is_dir() else []
    assert all(f"```\n{CIFAR_COMMAND}```\n" in document for document in documents)


@pytest.mark.parametrize("framework", PINS)
def test_shoal_can_be_imported_where_it_is_not_installed(home: Path, tmp_path: Path, framework: str) -> None:
    python = python_of(framework)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    missing = subprocess.run([python, "-c", "import shoal"], cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert "No module named 'shoal'" in missing.stderr

    code = "import shoal; print(shoal.__file__)"
    more = "import sys; print(sys.prefix); print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    script = f"import sys; before = set(sys.modules); {code}; {more}"
    done = run("--worker-count", "1", "--", "python", "-c", script, framework=framework, cwd=tmp_path)
    assert done.code == 0, done.err
    file, prefix, loaded = lines_of(done.id, "worker-0")
    assert re.fullmatch(rf"{re.escape(str(home))}/launcher/shoal-\w+\.zip/shoal/__init__\.py", file)
    assert Path(prefix) == python.parent.parent
    assert set(loaded.split()) - {"shoal"} <= sys.stdlib_module_names


def test_the_large_example_is_refused_with_the_sum(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("[clusters.local]\ngpus = 0\n")  # whatever this machine has
    done = run(str(LARGE), str(HERE / "large_but_light.yml"))
    assert done.code == 2
    assert "the 11 replicas ask for" in done.err
    assert "7 gpu, and this machine has 0" in done.err
    assert "--oversubscribe" in done.err
    assert json.loads(ask("ls")) == []


def test_the_large_example_runs_all_the_same_when_asked_to(home: Path) -> None:
    done = run("--oversubscribe", str(LARGE), str(HERE / "large_but_light.yml"))
    assert done.code == 0, done.err
    workers, servers = [f"worker-{i}" for i in range(7)], [f"ps-{i}" for i in range(3)]
    check_replicas(done.experiment(), ["master-0", *workers, *servers], may_be_stopped=servers)
    for replica in ("master-0", *workers, *servers):
        assert lines_of(done.id, replica) == [replica]


@pytest.mark.parametrize("command", ["python", "torchrun"])
def test_the_rank_that_raised_is_blamed_and_not_those_that_lost_it(home: Path, command: str) -> None:
    done = run(str(HERE / "one_rank_fails" / f"{command}.yml"), framework="pytorch")
    assert done.code == 1
    shown = done.experiment()
    assert shown["state"] == "failed"
    assert shown["first_failure"]["replica"] == "worker-1", done.err
    assert shown["first_failure"]["exit_code"] not in (None, 0)
    states = {entry["replica"]: entry["state"] for entry in shown["replicas"]}
    assert states.pop("worker-1") == "failed"
    assert set(states.values()) <= {"stopped", "failed"}
    assert "first failure: worker-1" in done.err
    for rank, replica in enumerate(("master-0", "worker-0", "worker-1")):
        lines = lines_of(done.id, replica)
        assert [f"rank {rank}  step {step}" in lines for step in range(4)] == [True, True, True, False]
    assert any("ValueError: worker-1 has had enough" in line for line in lines_of(done.id, "worker-1"))


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def id(self) -> str:
        found = re.search(r"^experiment (\w+) #\d+$", self.err, re.MULTILINE)
        assert found, self.err
        return found.group(1)

    def experiment(self) -> Any:
        """What `shoal show` says of it. Nothing of it may run any more."""
        shown = json.loads(ask("show", self.id))
        assert processes.marked_all(shown["uid"]) == {}
        return shown


def run(*arguments: str, framework: str | None = None, cwd: Path = ROOT, **variables: str) -> Done:
    """`shoal run` to its end, as if the framework's virtual environment were active."""
    python = python_of(framework) if framework else Path(sys.executable)
    active = {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(python.parent.parent),
        "PYTHONPATH": str(EXITS),
    }
    done = shoal("run", *arguments, cwd=cwd, **active, **variables)
    return Done(done.returncode, done.stdout, done.stderr)


def lines_of(experiment: str, replica: str) -> list[str]:
    return [json.loads(line)["text"] for line in ask("logs", experiment, "-r", replica).splitlines()]


def ask(*arguments: str) -> str:
    """What a verb prints with --json; it must succeed."""
    done = shoal(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def shoal(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHOAL, *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def python_of(framework: str) -> Path:
    try:
        return environment(framework)
    except CannotMake as why:
        pytest.skip(str(why))


def check_replicas(shown: Any, names: list[str], may_be_stopped: tuple[str, ...] | list[str] = ()) -> None:
    assert [(entry["rank"], entry["replica"]) for entry in shown["replicas"]] == list(enumerate(names))
    for entry in shown["replicas"]:
        if entry["state"] == "stopped" and entry["replica"] in may_be_stopped:
            assert entry["reason"] == "the experiment has succeeded"
        else:
            assert (entry["state"], entry["exit_code"]) == ("succeeded", 0), entry


def losses(lines: list[str], pattern: str) -> list[float]:
    matching = [line for line in lines if re.search(pattern, line)]
    return [float(found.group(1)) for line in matching if (found := re.search(r"loss (\d+\.\d+)", line))]


def check_falls(values: list[float], whose: str) -> None:
    assert len(values) >= 3, f"{whose}: {values}"
    assert values[-1] < values[0], f"{whose}: {values}"
