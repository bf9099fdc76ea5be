"""Which run a process records into: in a replica, by itself, under torchrun, in a Slurm step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.sdk.place import commit_around
from tests.environments import environment
from tests.recording import environment_for, record, start, streams_below
from tests.running import finished, lines_of, shoal, submit, until


def test_a_server_is_told_when_a_run_begins_and_ends(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 40) / "home"
    home.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        before = Path.cwd()
        os.chdir(home)
        try:
            listener.bind("wake.sock")
        finally:
            os.chdir(before)
        record("import shoal; shoal.log(a=1)", home)
        listener.setblocking(False)
        assert [listener.recv(16), listener.recv(16)] == [b".", b"."]


def rank_of_slurm(rank: int, **more: str) -> dict[str, str]:
    ids = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2)}
    return {**ids, "SLURM_NODEID": str(rank // 2), "SLURM_NTASKS": "4", "SLURM_CLUSTER_NAME": "big.iron", **more}


def test_tasks_of_a_slurm_step_are_one_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = "import shoal; shoal.log(a=shoal.replica.rank)"
    for restart in ("0", "1"):
        processes = [start(code, home, **rank_of_slurm(rank, SLURM_RESTART_COUNT=restart)) for rank in range(4)]
        assert [process.wait(60) for process in processes] == [0] * 4
    (run,) = (home / "outside").iterdir()
    assert run.name == "slurm-big-iron-77-1"
    found = sorted(str(path.relative_to(run).parent) for path in run.glob("attempt-*/*/try-0"))
    assert found == [f"attempt-{attempt}/worker-{node}" for attempt in (0, 1) for node in (0, 1)]
    streams = streams_below(home)
    assert [stream.points["a"] for stream in streams] == [[(0, float(rank))] for rank in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_scripts_one_after_another_in_a_slurm_step_are_runs_of_their_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for _ in range(3):
        record("import shoal; shoal.log(a=1)", home, **rank_of_slurm(0))
    names = sorted(path.name for path in (home / "outside").iterdir())
    assert names == ["slurm-big-iron-77-1", "slurm-big-iron-77-1-g1", "slurm-big-iron-77-1-g2"]


TRAIN = """
import os, pathlib, signal, sys, time, shoal
rank, attempt, fails = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], "--fail" in sys.argv
shoal.init("plain torchrun", params={"world": shoal.replica.world})
for number in range(10):
    shoal.log({"loss": number + 100 * shoal.replica.rank})
if fails and attempt == "0":
    if rank == "0":
        pathlib.Path("waits").touch()
        signal.pause()  # until the other one fails, and torchrun ends this one
    while not os.path.exists("waits"):
        time.sleep(0.01)
    sys.exit(5)
"""


def test_all_ranks_of_torchrun_are_one_run_and_the_next_is_another(tmp_path: Path) -> None:
    home, script = tmp_path / "home", tmp_path / "train.py"
    script.write_text(TRAIN)
    torchrun = environment("pytorch").with_name("torchrun")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for options in (["--fail"], []):
        command = [torchrun, "--nproc-per-node=2", "--max-restarts=1", f"--master-port={port}", script, *options]
        done = subprocess.run(
            command, env=environment_for(home), cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    first, second = sorted((home / "outside").iterdir(), key=lambda path: len(path.name))
    assert second.name == f"{first.name}-g1"
    assert json.loads((first / "outside.json").read_text())["name"] == "plain torchrun"
    streams = {(stream.header["attempt"], stream.header["rank"]): stream for stream in streams_below(first)}
    assert sorted(streams) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [stream.end and stream.end["error"] for stream in streams.values()].count("ended by SIGTERM") == 1
    again = streams_below(second)
    assert [stream.header["process"] for stream in again] == [0, 1]
    for stream in [*streams.values(), *again]:
        rank = stream.header["rank"]
        assert stream.points["loss"] == [(step, step + 100.0 * rank) for step in range(10)]
        assert (stream.header["replica"], stream.header["world"]) == ("worker-0", 2)


def test_replicas_log_without_init_and_find_the_sdk(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        """
import shoal
assert ".zip" in shoal.__file__
for number in range(50):
    shoal.log(loss=number + 100 * shoal.replica.index)
(shoal.replica.outputs / "weights").write_text("w")
shoal.model("net", shoal.replica.outputs / "weights")
"""
    )
    done = shoal("run", "--framework", "none", "--worker-count", "2", "--", "python3 train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = shoal("metrics", "1", "loss", "--json")
    assert found.returncode == 0, found.stderr
    series = {one["replica"]: one for one in json.loads(found.stdout)}
    assert sorted(series) == ["worker-0", "worker-1"]
    for index, one in enumerate(series[replica] for replica in sorted(series)):
        assert [(step, value) for step, _, value in one["points"]] == [
            (step, step + 100.0 * index) for step in range(50)
        ]


def test_a_plain_script_becomes_an_experiment(home: Path) -> None:
    record("import shoal; shoal.init('by hand', params={'lr': 0.1})\nfor i in range(5): shoal.log(loss=i)", home)

    def adopted() -> Any:
        listed = shoal("ls", "--json")
        return [one for one in json.loads(listed.stdout or "[]") if one["state"] == "succeeded"]

    (experiment,) = until(adopted, "the experiment")
    assert (experiment["name"], experiment["params"]) == ("by hand", {"lr": 0.1})
    (series,) = json.loads(shoal("metrics", str(experiment["number"]), "loss", "--json").stdout)
    assert [value for _, _, value in series["points"]] == [0.0, 1.0, 2.0, 3.0, 4.0]


def outcome(number: int = 1) -> tuple[str, dict[str, list[float]]]:
    """The state of an experiment, and the values of each metric, all processes together; nothing before it is known."""
    client = Client()
    states = {entry["number"]: entry["state"] for entry in client.experiments()}
    found: dict[str, list[float]] = {}
    for curve in client.metrics(str(number)) if number in states else []:
        found[curve.name] = sorted([*found.get(curve.name, []), *curve.values])
    return states.get(number, ""), found


@pytest.mark.parametrize("server", ["lives", "is another"])
def test_what_comes_after_a_run_seemed_to_be_over_is_recorded_too(home: Path, tmp_path: Path, server: str) -> None:
    go = tmp_path / "go"
    Client()
    script = start(
        f"""
        import os, time, shoal
        shoal.log(a=1); shoal.finish()
        while not os.path.exists({str(go)!r}): time.sleep(0.01)
        shoal.log(b=2)
        """,
        home,
    )
    until(lambda: outcome() == ("succeeded", {"a": [1.0]}), "what seemed to be the end")
    if server == "is another":
        Client().end_server()
    go.touch()
    script.communicate(timeout=120)
    assert script.returncode == 0
    until(lambda: outcome() == ("succeeded", {"a": [1.0], "b": [2.0]}), "the rest")


def test_a_run_of_children_is_over_with_their_parent(home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (tmp_path / "folds.py").write_text(
        f"""
import multiprocessing, os, time, shoal

def train(fold):
    for value in range(5):
        shoal.log({{f"fold{{fold}}": value}})

if __name__ == "__main__":
    for fold in range(2):
        child = multiprocessing.Process(target=train, args=(fold,))
        child.start()
        child.join()
        while not os.path.exists({str(go)!r}): time.sleep(0.01)
"""
    )
    Client()
    script = subprocess.Popen([sys.executable, str(tmp_path / "folds.py")], env=environment_for(home))
    until(lambda: "fold0" in outcome()[1], "the first child")
    until(lambda: Client().show("1")["replicas"][0]["state"] == "succeeded", "its end")
    assert outcome()[0] == "running"
    go.touch()
    assert script.wait(120) == 0
    values = [float(value) for value in range(5)]
    until(lambda: outcome() == ("succeeded", {"fold0": values, "fold1": values}), "the end of all")


def test_a_rank_of_torchrun_may_begin_when_another_has_ended(home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (tmp_path / "train.py").write_text(
        f"""
import os, time, shoal
while os.environ["RANK"] == "0" and not os.path.exists({str(go)!r}): time.sleep(0.01)
for value in range(5):
    shoal.log({{"loss" + os.environ["RANK"]: value}})
"""
    )
    Client()
    torchrun = environment("pytorch").with_name("torchrun")
    command = [torchrun, "--standalone", "--nproc-per-node=2", tmp_path / "train.py"]
    with subprocess.Popen(command, env=environment_for(home), cwd=tmp_path) as script:
        until(lambda: "loss1" in outcome()[1], "the first rank")
        until(lambda: Client().show("1")["replicas"][0]["state"] == "succeeded", "its end")
        assert outcome()[0] == "running"
        go.touch()
        assert script.wait(120) == 0
    values = [float(value) for value in range(5)]
    until(lambda: outcome() == ("succeeded", {"loss0": values, "loss1": values}), "the end of both")


def test_where_a_run_outside_comes_from_is_known(home: Path, tmp_path: Path) -> None:
    """Also when its words hold bytes that are no text."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "train.py").write_text("import shoal; shoal.log(a=1); shoal.tag('caf\\udce9')")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=place, check=True)
    (place / "train.py").write_text((place / "train.py").read_text() + "  # changed\n")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=place, capture_output=True, text=True).stdout.strip()
    Client()
    for number in (1, 2):
        command = [sys.executable, "train.py", b"caf\xe9.csv"]
        assert subprocess.run(command, cwd=place, env=environment_for(home)).returncode == 0
        until(lambda number=number: outcome(number)[0] == "succeeded", "the end")
        until(lambda number=number: (Client().provenance(str(number)).get("git") or {}).get("late"), "its diff")
    found = Client().provenance("1")
    assert (found["git"]["commit"], found["git"]["branch"], found["git"]["dirty"]) == (commit, "main", True)
    assert "+import shoal; shoal.log(a=1)" in found["git"]["diff"]
    assert (found["host"], found["directory"]) == ({"name": socket.gethostname()}, str(place))
    shown = shoal("show", "1", "--provenance")
    assert (shown.returncode, f"git        {commit} main, changed" in shown.stdout) == (0, True), shown.stderr
    assert "caf?.csv" in shown.stdout
    assert Client().show("1")["tags"] == ["caf?"]
    assert shoal("diff", "1", "2").returncode == 0


@pytest.mark.parametrize("kind", ["detached", "packed", "worktree", "empty", "none"])
def test_the_commit_of_a_script_is_read_from_the_repository_around_it(tmp_path: Path, kind: str) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *who, *words], cwd=place, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    place = tmp_path / "repository"
    (place / "deep" / "er").mkdir(parents=True)
    expected: dict[str, Any] | None = {"commit": None, "branch": "main"}
    if kind != "none":
        git("init", "-q", "-b", "main")
    if kind in ("detached", "packed", "worktree"):
        git("commit", "-q", "--allow-empty", "-m", "one")
        expected = {"commit": git("rev-parse", "HEAD"), "branch": "main"}
    here = place / "deep" / "er"
    if kind == "detached":
        git("checkout", "-q", "--detach")
        expected = {**(expected or {}), "branch": None}
    elif kind == "packed":
        git("pack-refs", "--all")
    elif kind == "worktree":
        git("worktree", "add", "-q", "-b", "side/branch", str(tmp_path / "other"))
        here, expected = tmp_path / "other", {**(expected or {}), "branch": "side/branch"}
    elif kind == "none":
        expected = None
    assert commit_around(str(here)) == expected


RENAMES = "import shoal as wandb; run = wandb.init(name='first'); wandb.log({'a': 1}); run.name = 'second'"


def test_a_run_outside_can_be_renamed(home: Path) -> None:
    Client()
    assert record(RENAMES, home) == ""
    until(lambda: outcome()[0] == "succeeded", "the end")
    assert [entry["name"] for entry in Client().experiments()] == ["second"]


def test_an_experiment_keeps_the_name_of_its_file(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RENAMES)
    word = submit(tmp_path, "name: from-the-file\nframework: none\nrun: {cmd: python3 train.py}\n")
    assert finished(word)["name"] == "from-the-file"
    assert lines_of(word) == ["shoal: run.name: the experiment keeps the name that its file gives it"]
