"""Experiments from the command line to their end: environment, queue, limits, logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import running
from tests.running import finished, lines_of, nothing_left, shoal, show, submit, until

ONE = "framework: none\nrun:\n  cmd: |\n    %s\n"


class TestEnvironment:
    def test_the_callers_variables_path_and_directory_reach_the_replicas(self, home: Path, tmp_path: Path) -> None:
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "mytool").write_text("#!/bin/sh\necho mytool works\n")
        (tools / "mytool").chmod(0o755)
        (tmp_path / "experiment.yml").write_text(
            ONE % 'mytool; echo "$MINE $NUM_NODES"; pwd; echo "[$SHOAL_EXPERIMENT]"'
        )
        result = shoal("run", str(tmp_path), cwd=Path("/"), MINE="a b", PATH=f"{tools}:{os.environ['PATH']}")
        assert result.returncode == 0, result.stderr
        word = show("1")["id"]
        expected = ["mytool works", "a b ", str(tmp_path.resolve()), f"[{word}]"]
        assert result.stdout.splitlines() == [f"master-0 | {line}" for line in expected]

    def test_variables_expand_in_the_replica(self, home: Path, tmp_path: Path) -> None:
        result = shoal(
            "run", "--framework", "pytorch", "--worker-count", "2", "--", "echo $RANK of $NUM_NODES", cwd=tmp_path
        )
        assert sorted(result.stdout.splitlines()) == ["worker-0 | 0 of 2", "worker-1 | 1 of 2"]

    def test_code_says_where_to_run(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        word = submit(tmp_path, ONE % "pwd" + "code: src\n")
        finished(word)
        assert lines_of(word) == [str((tmp_path / "src").resolve())]

    def test_the_callers_environment_is_private_and_gone_afterwards(self, home: Path, tmp_path: Path) -> None:
        go = tmp_path / "go"
        word = submit(tmp_path, ONE % f"while [ ! -e {go} ]; do sleep 0.02; done")
        running.running(word)
        kept = home / "experiments" / word / "environment.json"
        assert kept.stat().st_mode & 0o777 == 0o600
        go.touch()
        finished(word)
        until(lambda: not kept.exists(), "its removal")

    def test_outputs_are_shared_and_own_and_live_through_attempts(self, home: Path, tmp_path: Path) -> None:
        command = (
            "echo $SHOAL_ATTEMPT >> $SHOAL_OUTPUTS/all; echo me > $SHOAL_REPLICA_OUTPUTS/x; [ $SHOAL_ATTEMPT = 1 ]"
        )
        word = submit(tmp_path, ONE % command + "restart: {policy: experiment, max: 3}\n")
        assert finished(word)["attempt"] == 1
        outputs = home / "experiments" / word / "outputs"
        assert (outputs / "all").read_text() == "0\n1\n"
        assert (outputs / "master-0" / "x").read_text() == "me\n"


class TestQueue:
    HUNGRY = "environment: {resources: {cpu: {requests: %d}}}\n"

    def test_what_can_never_fit_is_refused_with_the_sum(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "experiment.yml").write_text(ONE % "true" + "environment: {resources: {gpu: {requests: 7}}}\n")
        result = shoal("run", str(tmp_path))
        assert result.returncode == 2
        assert "the 1 replicas ask for 7 gpu, and this machine has 0" in result.stderr
        assert "--oversubscribe" in result.stderr
        assert shoal("run", "--oversubscribe", str(tmp_path)).returncode == 0

    def test_first_in_first_out_with_the_reason_in_numbers(self, home: Path, tmp_path: Path) -> None:
        cores = len(os.sched_getaffinity(0))
        go = tmp_path / "go"
        wait = ONE % f"while [ ! -e {go} ]; do sleep 0.02; done; date +%s%N"
        first = submit(tmp_path, wait + self.HUNGRY % cores)
        second = submit(tmp_path, wait + self.HUNGRY % 1)
        third = submit(tmp_path, wait)
        assert until(lambda: show(second)["reason"], "a reason") == f"waits for 1 cpu (0 of {cores} free)"
        assert until(lambda: show(third)["reason"], "a reason") == "behind #2 in the queue"
        assert show(third)["state"] == "queued"
        go.touch()
        ends = [finished(word) for word in (first, second, third)]
        assert [end["state"] for end in ends] == ["succeeded"] * 3
        assert ends[0]["finished"] <= ends[1]["started"]

    def test_a_queued_one_can_be_stopped(self, home: Path, tmp_path: Path) -> None:
        cores = len(os.sched_getaffinity(0))
        first = submit(tmp_path, ONE % "sleep 600" + self.HUNGRY % cores)
        second = submit(tmp_path, ONE % "sleep 600" + self.HUNGRY % cores)
        shoal("stop", second, first, "--now")
        assert finished(second)["state"] == "stopped"
        assert finished(first)["state"] == "stopped"
        nothing_left(home)

    def test_waiting_too_long_fails(self, home: Path, tmp_path: Path) -> None:
        cores = len(os.sched_getaffinity(0))
        first = submit(tmp_path, ONE % "sleep 600" + self.HUNGRY % cores)
        running.running(first)
        second = submit(tmp_path, ONE % "true" + self.HUNGRY % cores + "timeout: {queue: 0.3s}\n")
        assert finished(second)["reason"].startswith("TimedOut: not started after 0.3 s in the queue: waits for ")
        shoal("stop", first, "--now")
        finished(first)


class TestLimits:
    def test_too_much_memory_is_told_with_peak_limit_and_line(self, home: Path, tmp_path: Path) -> None:
        hog = f"{sys.executable} -c 'b = bytearray(400 << 20); print(len(b))'"
        word = submit(tmp_path, ONE % hog + "environment:\n  resources:\n    memory: {limits: 64}\n")
        end = finished(word)
        assert end["state"] == "failed"
        reason = end["first_failure"]["reason"]
        assert reason.startswith("OOMKilled: reached ")
        assert reason.endswith(f"of 64 MiB, set in {tmp_path / 'experiment.yml'}:7:22")


class TestLogs:
    def test_garbage_long_lines_progress_bars_and_an_unfinished_last_line(self, home: Path, tmp_path: Path) -> None:
        script = tmp_path / "noise.py"
        script.write_text(
            "import os, sys\n"
            "out = sys.stdout.buffer\n"
            "out.write(bytes(range(256)) + b'\\n')\n"
            "out.write(b'x' * 100_000_000 + b'\\n')\n"
            "for step in range(100): out.write(b'\\rstep %d' % step)\n"
            "out.write(b'\\n')\n"
            "out.flush(); sys.stderr.write('to stderr\\n'); sys.stderr.flush()\n"
            "out.write(b'no newline'); out.flush()\n"
        )
        word = submit(tmp_path, ONE % f"{sys.executable} {script}")
        assert finished(word)["state"] == "succeeded"
        log = running.attempt_directory(home, word) / "master-0" / "try-0" / "log"
        raw = b"".join(path.read_bytes() for path in sorted(log.glob("[0-9]*[0-9]")))
        bar = b"".join(b"\rstep %d" % step for step in range(100))
        expected = bytes(range(256)) + b"\n" + b"x" * 100_000_000 + b"\n" + bar + b"\n"
        assert raw.replace(b"to stderr\n", b"") == expected + b"no newline"
        assert lines_of(word)[-1] == "no newline"
        result = shoal("logs", word, "--stderr")
        assert result.stdout == "master-0 | to stderr\n"

    def test_half_a_million_lines_are_all_there(self, home: Path, tmp_path: Path) -> None:
        word = submit(tmp_path, ONE % "seq 500000")
        assert finished(word)["state"] == "succeeded"
        assert lines_of(word) == [str(number) for number in range(1, 500_001)]

    def test_what_is_beyond_the_cap_is_a_visible_gap(self, home: Path, tmp_path: Path) -> None:
        script = tmp_path / "much.py"
        script.write_text(
            "import sys\nline = b'y' * 1023 + b'\\n'\n"
            "sys.stdout.buffer.write(b'first\\n')\n"
            "for _ in range(400 * 1024): sys.stdout.buffer.write(line)\n"
            "sys.stdout.buffer.write(b'last\\n')\n"
        )
        word = submit(tmp_path, ONE % f"{sys.executable} {script}")
        assert finished(word)["state"] == "succeeded"
        log = running.attempt_directory(home, word) / "master-0" / "try-0" / "log"
        kept = sum(path.stat().st_size for path in log.iterdir())
        assert kept < 272 << 20
        for how in ([], ["-f"]):
            result = shoal("logs", word, *how)
            assert result.stdout.startswith("master-0 | first\n")
            assert result.stdout.endswith("master-0 | last\n")
            assert result.stdout.count("bytes are missing here (cap)") == 1

    def test_choices(self, home: Path, tmp_path: Path) -> None:
        text = "framework: none\nrun: {cmd: 'echo same; echo mine $SHOAL_INDEX; echo oops >&2'}\n"
        word = submit(tmp_path, text + "environment: {replicas: {n_workers: 3, master: false}}\n")
        finished(word)
        assert sorted(shoal("logs", word, "--collapse", "-g", "same").stdout.splitlines()) == ["[×3] | same"]
        # Which of two streams was written to last is not known of one who printed into both before anybody read.
        assert shoal("logs", word, "-r", "worker-1", "-n", "1", "-g", "m").stdout == "worker-1 | mine 1\n"
        assert shoal("logs", word, "-r", "worker-2", "-g", "mine").stdout == "worker-2 | mine 2\n"
        assert len(shoal("logs", word, "--since", "1h").stdout.splitlines()) == 9
        assert shoal("logs", word, "--until", "1h").stdout == ""
        assert len(shoal("logs", word, "--stderr", "--json").stdout.splitlines()) == 3
        assert shoal("logs", word, "--attempt", "5").stdout == ""
        assert shoal("logs", word, "--since", "soon").returncode == 2


class TestVerbs:
    def test_a_failure_is_shown_with_its_last_lines(self, home: Path, tmp_path: Path) -> None:
        first = "[ $SHOAL_INDEX = 0 ] && touch said && exec sleep 600"  # else it might be stopped before it says a word
        command = f"echo about to fail; {first}; until [ -e said ]; do sleep 0.02; done; exit 4"
        text = f"framework: none\nrun: {{cmd: '{command}'}}\n"
        (tmp_path / "experiment.yml").write_text(text + "environment: {replicas: {n_workers: 2, master: false}}\n")
        result = shoal("run", str(tmp_path))
        assert result.returncode == 1
        assert "failed after" in result.stderr
        assert "first failure: worker-1 ended with 4 at " in result.stderr
        assert "  worker-1 | about to fail" in result.stderr
        why = shoal("why", "1").stdout
        assert "is failed: worker-1 failed: exit code 4" in why
        assert "worker-0" in why
        assert json.loads(shoal("why", "1", "--json").stdout)["ranks"][0]["last_line"] == "about to fail"

    def test_the_json_of_show_and_ls(self, home: Path, tmp_path: Path) -> None:
        word = submit(tmp_path, ONE % "true" + "name: mine\nparams: {lr: 1e-3}\ntags: [a]\n")
        finished(word)
        shown = json.loads(shoal("show", "mine", "--json").stdout)
        expected = (
            "id number name state reason framework backend cluster attempt created started finished params tags "
            "metrics replicas first_failure"
        )
        assert set(expected.split()) <= set(shown)
        assert (shown["id"], shown["number"], shown["params"], shown["tags"]) == (word, 1, {"lr": 0.001}, ["a"])
        wanted = "replica role index rank state reason exit_code signal node try started finished"
        assert set(wanted.split()) <= set(shown["replicas"][0])
        listed = json.loads(shoal("ls", "--json").stdout)
        assert [entry["id"] for entry in listed] == [word]
        assert "replicas" not in listed[0]

    def test_rerun_and_rm(self, home: Path, tmp_path: Path) -> None:
        word = submit(tmp_path, ONE % "echo {{ lr }}" + "params: {lr: 1}\n")
        finished(word)
        result = shoal("rerun", word, "-P", "lr=2")
        assert result.returncode == 0, result.stderr
        assert result.stdout == "master-0 | 2\n"
        assert shoal("rm", word).returncode == 0
        assert not (home / "experiments" / word).exists()
        gone = shoal("show", word)
        assert gone.returncode == 2
        assert f"there is no experiment '{word}'" in gone.stderr

    def test_what_is_running_is_not_removed(self, home: Path, tmp_path: Path) -> None:
        word = submit(tmp_path, ONE % "sleep 600")
        result = shoal("rm", word)
        assert result.returncode == 2
        assert f"shoal stop {word} first" in result.stderr
        shoal("stop", word, "--now")
        finished(word)

    def test_a_wrong_file_is_answered_as_by_check(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "experiment.yml").write_text("framework: pytroch\nrun: {cmd: x}\n")
        ran, checked = shoal("run", str(tmp_path)), shoal("check", str(tmp_path))
        assert ran.returncode == checked.returncode == 2
        assert ran.stderr == checked.stderr

    def test_plan_prints_what_would_run(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "experiment.yml").write_text(ONE % "echo hello" + "environment: {env_vars: {A: b}}\n")
        printed = shoal("plan", str(tmp_path)).stdout
        assert f"cd {tmp_path.resolve()}\n" in printed
        assert "A=b\n" in printed
        assert printed.endswith("bash -c 'echo hello'\n")

    def test_the_local_cluster_says_what_it_does_not_do(self, home: Path, tmp_path: Path) -> None:
        text = (
            ONE % "true"
            + "backend: kubeflow\nbuild: {image: x}\nenvironment: {node_selector: {a: b}, config_map_refs: [c]}\n"
        )
        (tmp_path / "experiment.yml").write_text(text)
        result = shoal("run", str(tmp_path))
        assert result.returncode == 0
        assert result.stderr.count("warning: ") == 4

    def test_server_status_and_stop(self, home: Path, tmp_path: Path) -> None:
        assert shoal("server", "status").returncode == 3
        finished(submit(tmp_path, ONE % "true"))
        assert f"home {home}" in shoal("server", "status").stdout
        assert shoal("server", "stop").returncode == 0
        assert shoal("server", "status").returncode == 3
        assert shoal("server", "stop").stdout == "no server runs\n"


@pytest.mark.parametrize("replicas", [128])
def test_many_replicas_in_one_experiment(home: Path, tmp_path: Path, replicas: int) -> None:
    text = "framework: none\nrun: {cmd: 'echo $SHOAL_INDEX'}\n"
    word = submit(tmp_path, text + f"environment: {{replicas: {{n_workers: {replicas}, master: false}}}}\n")
    end = finished(word)
    assert end["state"] == "succeeded"
    assert sorted(int(line) for line in lines_of(word)) == list(range(replicas))
    nothing_left(home)


def test_a_wish_to_stop_never_becomes_slower(home: Path, tmp_path: Path) -> None:
    """Two wishes may overtake each other on their way: Ctrl-C pressed twice, quickly."""
    word = submit(tmp_path, ONE % "trap '' TERM; echo ready; while :; do sleep 0.02; done" + "grace: {stop: 1h}\n")
    until(lambda: lines_of(word) == ["ready"], "its first line")
    assert shoal("stop", word, "--now").returncode == 0
    assert shoal("stop", word).returncode == 0
    assert finished(word)["replicas"][0]["signal"] == "SIGKILL"


def test_a_server_ends_when_it_is_idle_and_not_before(home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    word = submit(tmp_path, ONE % f"while [ ! -e {go} ]; do sleep 0.02; done")
    running.running(word)
    assert shoal("server", "stop").returncode == 0
    command = [sys.executable, "-m", "shoal.server", "--home", str(home), "--idle", "0.3"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):  # longer than it may be idle, but an experiment runs
        server.wait(1.5)
    go.touch()
    assert server.wait(60) == 0
    assert finished(word)["state"] == "succeeded"
