"""`shoal stacks` asks real processes where they are, whatever they are, and does no harm to any of them."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.conftest import ROOT
from tests.running import lines_of, shoal, submit, until

FILE = """\
framework: none
run: {{cmd: '{command}'}}
environment:
  env_vars: {{PYTHONPATH: '{root}'}}
  replicas: {{n_workers: {workers}, master: false}}
grace: {{stop: 0s}}
"""
# Said in one write: several processes of a replica may say it at once, into one pipe.
WAITS = "import signal, threading\ndef next_batch():\n    print('ready\\n', end='')\n    threading.Event().wait()\n"


def started(tmp_path: Path, script: str, *, workers: int = 1, ready: int = 1, command: str = "") -> str:
    """An experiment whose replicas run a script; so many lines of `ready` and it is where it waits."""
    (tmp_path / "train.py").write_text(WAITS + script)
    command = command or f"{sys.executable} {tmp_path}/train.py"
    word = submit(tmp_path, FILE.format(command=command, root=ROOT, workers=workers), "--oversubscribe")
    until(lambda: lines_of(word).count("ready") == ready, "the wait")
    return word


def names(found: Any) -> list[tuple[str, str]]:
    return [(rank["name"], rank["how"]) for rank in found["ranks"]]


def unharmed(word: str) -> None:
    assert {replica["state"] for replica in Client().show(word)["replicas"]} == {"running"}
    Client().stop(word, 0.0)


def read_or_refused(found: Any, who: str) -> None:
    """What py-spy is asked for comes, or the machine's refusal is told."""
    rank = next(rank for rank in found["ranks"] if rank["name"] == who)
    if rank["frames"]:
        assert "next_batch" in [frame["function"] for frame in rank["frames"]]
    else:
        assert rank["error"]
        assert any("refuses ptrace" in note for note in found["notes"])


def test_the_rank_that_is_elsewhere_is_named(home: Path, tmp_path: Path) -> None:
    script = """
import os, shoal
def evaluate():
    print("ready", flush=True)
    threading.Event().wait()
shoal.replica
next_batch() if os.environ["SHOAL_REPLICA"] != "worker-3" else evaluate()
"""
    word = started(tmp_path, script, workers=4, ready=4)
    found = until(lambda: f if (f := Client().stacks(word))["odd"] == ["worker-3"] else None, "the stacks")
    assert re.match(
        r"3 ranks are in \S*wait, called by next_batch \(train.py:4\); worker-3 in \S*wait, called by evaluate",
        found["verdict"],
    ), "Pythons differ in whether they tell the class"
    printed = shoal("stacks", word)
    assert printed.stdout.startswith(found["verdict"])
    assert "all 4 ranks" in printed.stdout
    assert "worker-0, worker-1, worker-2\n" in printed.stdout
    assert printed.stderr == ""
    unharmed(word)


HARMLESS = {
    "that does not know shoal": "next_batch()",
    "that took the signal back": "import shoal; shoal.replica; signal.signal(61, signal.SIG_DFL); next_batch()",
    "that was forked and does not answer": (
        "import os, shoal, time; shoal.replica; parent = os.getpid()\nif os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: time.sleep(0.01)\nnext_batch()"
    ),
    "that became another program": (
        "import os, shoal, sys; shoal.replica\n"
        "if 'again' not in sys.argv: os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
        "signal.signal(61, signal.SIG_DFL); next_batch()"
    ),
}


@pytest.mark.parametrize("script", HARMLESS.values(), ids=HARMLESS)
def test_a_process_is_not_harmed_by_the_question(home: Path, tmp_path: Path, script: str) -> None:
    """The signal would kill each of these: it is not sent, and py-spy is asked instead."""
    command = f"{sys.executable} {tmp_path}/train.py; while true; do read -t 1000 < <(:) || sleep 1000; done"
    word = started(tmp_path, script, command=command.replace("'", "''"))
    found = Client().stacks(word)
    assert names(found) == [("worker-0", "py-spy")]
    read_or_refused(found, "worker-0")
    unharmed(word)


def test_what_is_not_python_is_not_asked(home: Path, tmp_path: Path) -> None:
    word = started(tmp_path, "", command="echo ready; sleep 1000")
    found = Client().stacks(word)
    assert found["ranks"] == []
    assert found["verdict"] == "no process of it can be asked where it is"
    printed = shoal("stacks", word)
    assert "note: only Python processes can be asked" in printed.stderr
    unharmed(word)


def test_a_process_that_is_stopped_is_told_so(home: Path, tmp_path: Path) -> None:
    word = started(tmp_path, "import os, shoal; shoal.replica; print(os.getpid(), flush=True); next_batch()")
    pid = int(next(line for line in lines_of(word) if line.isdigit()))
    os.kill(pid, signal.SIGSTOP)
    try:
        (rank,) = Client().stacks(word)["ranks"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert rank["error"] == "it did not answer within 3 s: it is stopped"
    unharmed(word)


def test_ranks_of_one_replica_with_and_without_the_sdk(home: Path, tmp_path: Path) -> None:
    """As torchrun starts them; whoever started them, and what they forked, is no rank."""
    starter = """
import os, subprocess, sys
if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n)})
             for n in range(3)]
    sys.exit(max(rank.wait() for rank in ranks))
if os.environ["RANK"] != "1":
    import shoal; shoal.replica
if not os.fork():
    threading.Event().wait()
next_batch()
"""
    word = started(tmp_path, starter, ready=3)
    found = Client().stacks(word)
    assert names(found) == [("worker-0:0", "sdk"), ("worker-0:1", "py-spy"), ("worker-0:2", "sdk")]
    read_or_refused(found, "worker-0:1")
    unharmed(word)


def test_what_waits_in_the_queue_has_no_stacks_yet(home: Path, tmp_path: Path) -> None:
    everything = f"environment: {{resources: {{cpu: {{requests: {len(os.sched_getaffinity(0))}}}}}}}\n"
    text = everything + "run: {cmd: sleep 1000}\ngrace: {stop: 0s}\n"
    holder, waiting = submit(tmp_path, text), submit(tmp_path, text)
    refused = shoal("stacks", waiting)
    assert refused.returncode == 2
    assert f"{waiting} waits in the queue: nothing of it runs yet" in refused.stderr
    for word in (waiting, holder):
        Client().stop(word, 0.0)


def test_that_a_cluster_cannot_be_asked_is_told(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    (tmp_path / "kubeconfig").write_text(
        "{apiVersion: v1, kind: Config, current-context: lab,"
        " clusters: [{name: lab, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: me, user: {}}],"
        " contexts: [{name: lab, context: {cluster: lab, user: me}}]}"
    )
    (home / "config.toml").write_text(f'[clusters.lab]\nkubeconfig = "{tmp_path}/kubeconfig"\nimage = "train:1"\n')
    (tmp_path / "code").mkdir()
    word = submit(tmp_path / "code", "run: {cmd: sleep 1000}\n", "--on", "lab")
    told = until(lambda: said if "127.0.0.1:9" in (said := shoal("stacks", word)).stderr else None, "the trouble")
    assert "no process of it can be asked where it is" in told.stdout
