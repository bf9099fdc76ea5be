"""Scripts that Slurm starts, without a word of Shoal but `import shoal`: every rank of a step is in one experiment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from shoal.client import Client
from tests.clusters.daemons import free_ports
from tests.clusters.slurm.cluster import Slurm
from tests.environments import environment
from tests.running import finished, until

TRAIN = """
import shoal
for number in range(20):
    shoal.log(loss=number + 100 * shoal.replica.rank)
"""
INTERRUPTED = """
import os, pathlib, signal, shoal
for number in range(20):
    shoal.log(loss=number + 100 * shoal.replica.rank)
if "SLURM_RESTART_COUNT" not in os.environ:
    shoal.finish()
    pathlib.Path("waits-" + os.environ["SLURM_PROCID"]).touch()
    signal.pause()
"""
TOGETHER = """
import shoal, torch
import torch.distributed as distributed
import torch.distributed.nn  # before a process group is made: its functions keep the one that they find
distributed.init_process_group("gloo")
for number in range(5):
    total = torch.tensor(float(distributed.get_rank()))
    shoal.step()
    distributed.all_reduce(total)
    shoal.log(loss=number + 100 * distributed.get_rank(), total=float(total))
distributed.destroy_process_group()
"""


def experiments() -> list[dict[str, Any]]:
    """The experiments of the home, oldest first, once their scripts are over."""
    known = until(lambda: Client().experiments(), "an experiment")
    return [finished(one["id"]) for one in reversed(list(known))]


def losses(experiment: dict[str, Any], name: str = "loss") -> list[tuple[int, str, int, int, float]]:
    """Of each process: attempt, replica, process, number of points, the last one."""
    series = Client().series(experiment["id"], name=name)
    return sorted((one["attempt"], one["replica"], one["process"], one["count"], one["last"]) for one in series)


def expected(nodes: int, points: int = 20, attempt: int = 0) -> list[tuple[int, str, int, int, float]]:
    """With two processes on each node."""
    return [(attempt, f"worker-{rank // 2}", rank % 2, points, points - 1.0 + 100 * rank) for rank in range(2 * nodes)]


def script(place: Path, text: str) -> Path:
    path = place / "train.py"
    path.write_text(text)
    return path


def batch(place: Path, *lines: str) -> Path:
    path = place / "job.sh"
    path.write_text("\n".join(["#!/bin/sh", "set -e", *lines, ""]))
    return path


def test_every_task_of_a_step_joins_one_experiment(slurm: Slurm, home: Path, tmp_path: Path) -> None:
    slurm.run("srun", "-N3", "-n6", sys.executable, script(tmp_path, TRAIN), home=home, cwd=tmp_path)
    (found,) = experiments()
    assert found["state"] == "succeeded"
    assert losses(found) == expected(nodes=3)


def test_a_heterogeneous_job_is_one_experiment(slurm: Slurm, home: Path, tmp_path: Path) -> None:
    """Its components are jobs of their own; the ranks and the nodes are counted through."""
    train = script(tmp_path, TRAIN)
    each = (sys.executable, train)
    slurm.run("srun", "-N1", "-n2", *each, ":", "-N2", "-n4", *each, home=home, cwd=tmp_path)
    (found,) = experiments()
    assert losses(found) == expected(nodes=3)


def test_steps_of_a_job_are_experiments_of_their_own(slurm: Slurm, home: Path, tmp_path: Path) -> None:
    step = f"srun {sys.executable} {script(tmp_path, TRAIN)}"
    slurm.run("sbatch", "--wait", "-N2", "-n4", batch(tmp_path, step, step), home=home, cwd=tmp_path)
    assert [losses(found) for found in experiments()] == [expected(nodes=2)] * 2


def test_a_job_that_is_queued_again_goes_on_as_the_next_attempt(slurm: Slurm, home: Path, tmp_path: Path) -> None:
    job = batch(tmp_path, f"srun {sys.executable} {script(tmp_path, INTERRUPTED)}")
    said = slurm.run("sbatch", "--parsable", "--requeue", "-N2", "-n4", job, home=home, cwd=tmp_path)
    until(lambda: len(list(tmp_path.glob("waits-*"))) == 4, "the first attempt")
    slurm.run("scontrol", "requeue", said.strip(), home=home, cwd=tmp_path)
    until(lambda: not slurm.run("squeue", "--noheader", home=home, cwd=tmp_path), "the end of the job")
    (found,) = experiments()
    assert found["attempt"] == 1
    assert losses(found) == [*expected(nodes=2), *expected(nodes=2, attempt=1)]


def test_torchrun_on_several_nodes_is_one_experiment(slurm: Slurm, home: Path, tmp_path: Path) -> None:
    """An agent of torchrun on each node; they find each other, and their ranks reduce over gloo."""
    (port,) = free_ports(1)
    agent = [environment("pytorch").with_name("torchrun"), "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    meeting = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=several-nodes"]
    train = script(tmp_path, TOGETHER)
    slurm.run("srun", "-N2", "-n2", *agent, *meeting, train, home=home, cwd=tmp_path)
    (found,) = experiments()
    assert (found["state"], losses(found)) == ("succeeded", expected(nodes=2, points=5))
    assert {last for *_, last in losses(found, "total")} == {0.0 + 1 + 2 + 3}
