"""The table of who dies and what then holds (docs/concepts/who-dies.md), row by row, with real signals."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from shoal.backends.local.files import SERVER_LOCK
from shoal.client import Client
from tests import running
from tests.running import SHOAL, finished, kill, launchers_of, lines_of, nothing_left, shepherd_of, show, submit, until

# Each replica says hello, waits until it may go, and says goodbye.
PATIENT = """
framework: none
run:
  cmd: |
    echo hello
    while [ ! -e {go} ]; do sleep 0.02; done
    echo goodbye
environment: {{replicas: {{n_workers: 2, master: false}}}}
grace: {{stop: 10s}}
"""
FAILS_ONCE = (
    PATIENT.replace("echo goodbye", 'echo goodbye; [ "$SHOAL_ATTEMPT" = 1 ]')
    + "restart: {{policy: experiment, max: 1}}\n"
)

HUPS = [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


def finished_alone(home: Path, word: str) -> Any:
    """The experiment, whose second attempt nobody asked for; no question of ours starts a server before its end."""
    second = running.attempt_directory(home, word, 1)
    until(lambda: (second / "result.json").exists(), "the second attempt")
    found = finished(word)
    assert found["state"] == "succeeded"
    return found


def start(tmp_path: Path, go: Path, more: str = "") -> str:
    word = submit(tmp_path, PATIENT.format(go=go) + more)
    running.running(word)
    until(lambda: lines_of(word).count("hello") == 2, "two hellos")
    return word


def goes_on(home: Path, word: str, go: Path) -> None:
    """The experiment lives, and ends as if nothing had happened."""
    go.touch()
    end = finished(word)
    assert (end["state"], end["reason"]) == ("succeeded", "")
    assert [replica["exit_code"] for replica in end["replicas"]] == [0, 0]
    assert sorted(lines_of(word)) == ["goodbye", "goodbye", "hello", "hello"]
    nothing_left(home)


class TestCommandLine:
    @pytest.mark.parametrize("number", HUPS)
    def test_killing_the_terminal_stops_nothing(self, home: Path, tmp_path: Path, go: Path, number: int) -> None:
        file = tmp_path / "experiment.yml"
        file.write_text(PATIENT.format(go=go))
        watching = subprocess.Popen([SHOAL, "run", str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert watching.stdout is not None
        assert watching.stdout.readline().endswith(b"hello\n")
        watching.send_signal(number)
        watching.wait(60)
        goes_on(home, "1", go)

    def test_control_c_once_stops_gracefully(self, home: Path, tmp_path: Path) -> None:
        status, output = on_a_terminal(
            tmp_path, "trap 'echo tidied; exit 0' TERM; echo hello; while :; do sleep 0.02; done", 1
        )
        assert status == 130
        assert "tidied" in output
        end = show("1")
        assert (end["state"], end["reason"]) == ("stopped", "stopped by the user")
        assert {replica["state"] for replica in end["replicas"]} == {"stopped"}
        nothing_left(home)

    def test_control_c_twice_kills(self, home: Path, tmp_path: Path) -> None:
        status, _ = on_a_terminal(tmp_path, "trap '' TERM; echo hello; while :; do sleep 0.02; done", 2)
        assert status == 130
        end = show("1")
        assert end["state"] == "stopped"
        assert [replica["signal"] for replica in end["replicas"]] == ["SIGKILL", "SIGKILL"]
        nothing_left(home)


def on_a_terminal(place: Path, command: str, interrupts: int) -> tuple[int, str]:
    """Runs a command on two nodes on a terminal; types Ctrl-C once both are ready, and again once answered.

    The command is ready where it says `echo hello`: what it does before, it has done on both nodes.
    """
    file = place / "experiment.yml"
    ready = f"touch {place}/$SHOAL_INDEX; until [ -e {place}/0 -a -e {place}/1 ]; do sleep 0.02; done; echo hello"
    text = f"framework: none\nrun:\n  cmd: |\n    {command.replace('echo hello', ready)}\n"
    file.write_text(text + "environment: {replicas: {n_workers: 2, master: false}}\ngrace: {stop: 60s}\n")
    process, terminal = pty.fork()
    if process == 0:
        os.execv(SHOAL, [SHOAL, "run", str(file)])
    output = b""
    awaited = [b"hello", b"stopping it"][:interrupts]
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
        if awaited and awaited[0] in output:
            awaited.pop(0)
            os.write(terminal, b"\x03")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), output.decode()


class TestServer:
    @pytest.mark.parametrize("number", HUPS)
    def test_experiments_go_on_without_it(self, home: Path, tmp_path: Path, go: Path, number: int) -> None:
        word = start(tmp_path, go)
        kill(running.server_pid(home), number)
        goes_on(home, word, go)

    def test_what_ends_while_no_server_lives_is_known_to_the_next(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        kill(running.server_pid(home))
        go.touch()
        until(lambda: (running.attempt_directory(home, word) / "result.json").exists(), "the end of the attempt")
        goes_on(home, word, go)

    def test_who_watches_goes_on_watching(self, home: Path, tmp_path: Path, go: Path) -> None:
        file = tmp_path / "experiment.yml"
        file.write_text(PATIENT.format(go=go))
        watching = subprocess.Popen(
            [SHOAL, "run", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert watching.stdout is not None
        first = [watching.stdout.readline(), watching.stdout.readline()]
        kill(running.server_pid(home))
        go.touch()
        rest, complaint = watching.communicate(timeout=120)
        assert watching.returncode == 0, complaint
        expected = [f"worker-{index} | {word}\n" for index in (0, 1) for word in ("goodbye", "hello")]
        assert sorted([*first, *rest.splitlines(keepends=True)]) == sorted(expected)

    def test_who_follows_the_log_goes_on_following(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        following = subprocess.Popen([SHOAL, "logs", "-f", word], stdout=subprocess.PIPE, text=True)
        assert following.stdout is not None
        first = [following.stdout.readline(), following.stdout.readline()]
        kill(running.server_pid(home))
        go.touch()
        rest, _ = following.communicate(timeout=120)
        assert following.returncode == 0
        expected = [f"worker-{index} | {text}\n" for index in (0, 1) for text in ("goodbye", "hello")]
        assert sorted([*first, *rest.splitlines(keepends=True)]) == sorted(expected)

    @pytest.mark.parametrize(
        "ask",
        [
            pytest.param(lambda client, word: client.show(word)["id"] == word, id="an answer"),
            pytest.param(lambda client, word: len(list(client.logs(word))) == 2, id="lines"),
            pytest.param(lambda client, word: next(client.follow(word)), id="frames"),
        ],
    )
    def test_who_asks_next_starts_another(self, home: Path, tmp_path: Path, go: Path, ask: Any) -> None:
        word = start(tmp_path, go)
        client = Client()
        kill(running.server_pid(home))
        assert ask(client, word)
        goes_on(home, word, go)

    def test_a_new_attempt_starts_although_the_server_is_dead(self, home: Path, tmp_path: Path, go: Path) -> None:
        """The shepherd starts a server when a new attempt is due and none lives."""
        word = submit(tmp_path, FAILS_ONCE.format(go=go))
        running.running(word)
        kill(running.server_pid(home))
        go.touch()
        assert finished_alone(home, word)["attempt"] == 1

    def test_a_new_attempt_starts_although_the_server_takes_its_time_to_die(
        self, home: Path, tmp_path: Path, go: Path
    ) -> None:
        """What was killed holds its lock until its last thread is gone: so does this test in its place."""
        word = submit(tmp_path, FAILS_ONCE.format(go=go))
        running.running(word)
        kill(running.server_pid(home))
        with (home / SERVER_LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            go.touch()
            result = running.attempt_directory(home, word) / "result.json"
            until(result.exists, "the end of the first attempt")
        assert finished_alone(home, word)["attempt"] == 1

    def test_the_queue_goes_on_although_the_server_is_dead(self, home: Path, tmp_path: Path, go: Path) -> None:
        """The shepherd starts a server when others wait and none lives."""
        hungry = (
            "environment: {replicas: {n_workers: 2, master: false, default_worker: {resources: {cpu: {requests: 1}}}}}"
        )
        text = PATIENT.format(go=go).replace("environment: {replicas: {n_workers: 2, master: false}}", hungry)
        first, second = submit(tmp_path, text), submit(tmp_path, text)
        waiting = until(lambda: show(second)["reason"], "a reason to wait")
        cores = len(os.sched_getaffinity(0))
        assert waiting == f"waits for 2 cpu ({cores - 2} of {cores} free)" or cores >= 4
        kill(running.server_pid(home))
        go.touch()
        until(lambda: (running.attempt_directory(home, second) / "result.json").exists(), "the end of the second")
        assert [finished(word)["state"] for word in (first, second)] == ["succeeded", "succeeded"]


class TestShepherd:
    @pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
    def test_it_ignores_what_is_meant_for_terminals(self, home: Path, tmp_path: Path, go: Path, number: int) -> None:
        word = start(tmp_path, go)
        kill(shepherd_of(home, word)["pid"], number)
        goes_on(home, word, go)

    def test_sigterm_stops_the_experiment_gracefully(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        kill(shepherd_of(home, word)["pid"], signal.SIGTERM)
        end = finished(word)
        assert (end["state"], end["reason"]) == ("stopped", "its shepherd got SIGTERM")
        assert {replica["state"] for replica in end["replicas"]} == {"stopped"}
        nothing_left(home)

    def test_killed_its_replicas_end_and_nothing_is_lost(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        kill(shepherd_of(home, word)["pid"])
        ends_as_failed(home, word, "its shepherd was killed")

    def test_killed_its_replicas_are_asked_to_end_once(self, home: Path, tmp_path: Path, go: Path) -> None:
        """Many trainers save at the first SIGTERM and give up at the second."""
        saving = PATIENT.replace("echo hello", "trap 'echo saving' TERM; echo hello").replace("stop: 10s", "stop: 1h")
        word = submit(tmp_path, saving.format(go=go))
        until(lambda: lines_of(word).count("hello") == 2, "two hellos")
        kill(shepherd_of(home, word)["pid"])
        until(lambda: lines_of(word).count("saving") >= 2, "two that save")
        go.touch()
        end = finished(word)
        assert (end["state"], end["reason"]) == ("failed", "its shepherd was killed")
        assert [lines_of(word).count(line) for line in ("hello", "saving", "goodbye")] == [2, 2, 2]
        nothing_left(home)

    def test_killed_with_a_restart_left_the_next_attempt_starts(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go, "restart: {policy: experiment, max: 1}\n")
        kill(shepherd_of(home, word)["pid"])
        shepherd_of(home, word, 1)
        go.touch()
        end = finished(word)
        assert (end["state"], end["attempt"]) == ("succeeded", 1)

    def test_without_its_twin_nothing_changes(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        kill(shepherd_of(home, word)["twin"])
        goes_on(home, word, go)

    def test_both_killed_at_once(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        written = shepherd_of(home, word)
        kill(written["twin"])
        kill(written["pid"])
        ends_as_failed(home, word, "its shepherd and its twin were killed")

    def test_both_killed_while_a_launcher_that_was_just_forked_has_their_lock(
        self, home: Path, tmp_path: Path, go: Path
    ) -> None:
        word = start(tmp_path, go)
        written, server = shepherd_of(home, word), running.server_pid(home)
        kill(server, signal.SIGSTOP)  # nobody cleans up before the lock is taken
        kill(written["twin"])
        kill(written["pid"])
        directory = running.attempt_directory(home, word)
        with open(directory / "lock") as lock:
            until(lambda: taken(lock), "the lock of the dead")
            kill(server, signal.SIGCONT)
            until(lambda: len(shepherds(directory)) == 1, "who cleans up")
        ends_as_failed(home, word, "its shepherd and its twin were killed")

    def test_both_and_the_server_killed_the_next_command_cleans_up(self, home: Path, tmp_path: Path, go: Path) -> None:
        word, arrivals = start_with_half_a_line(home, tmp_path, go)
        written = shepherd_of(home, word)
        launchers = launchers_of(home, word).values()
        go.touch()
        until(lambda: arrivals.read_bytes().endswith(b"half"), "half a line")
        for pid in launchers:
            kill(pid, signal.SIGSTOP)  # else one that is told of the shepherd's death is faster than we are
        for pid in (running.server_pid(home), written["twin"], written["pid"], *launchers):
            kill(pid)
        assert running.left_running(home)
        ends_as_failed(home, word, "its shepherd and its twin were killed")
        assert lines_of(word, "worker-1") == ["hello", "half"]


def taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def shepherds(directory: Path) -> list[int]:
    """Those that have opened the lock of the attempt: they wait for it."""
    found = []
    for opened in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if opened.parent.name != str(os.getpid()) and any(
                os.readlink(one) == str(directory / "lock") for one in opened.iterdir()
            ):
                found.append(int(opened.parent.name))
    return found


def start_with_half_a_line(home: Path, tmp_path: Path, go: Path) -> tuple[str, Path]:
    """Replicas that say hello, and later half of something; and where that of worker-1 arrives."""
    word = submit(tmp_path, PATIENT.format(go=go).replace("echo goodbye", "printf half; sleep 600"))
    until(lambda: lines_of(word).count("hello") == 2, "two hellos")
    return word, running.attempt_directory(home, word) / "worker-1" / "try-0" / "arrivals" / "1.0"


def ends_as_failed(home: Path, word: str, reason: str) -> None:
    end = finished(word)
    assert (end["state"], end["reason"]) == ("failed", reason)
    assert {(replica["state"], replica["reason"]) for replica in end["replicas"]} == {("stopped", reason)}
    assert lines_of(word).count("hello") == 2
    nothing_left(home)


class TestLauncher:
    def test_killed_its_replica_fails_and_what_it_printed_is_kept(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        kill(launchers_of(home, word)["worker-1"])
        end = finished(word)
        assert end["first_failure"]["replica"] == "worker-1"
        assert end["first_failure"]["reason"] == "its launcher was killed (SIGKILL)"
        assert [replica["state"] for replica in end["replicas"]] == ["stopped", "failed"]
        assert lines_of(word).count("hello") == 2
        nothing_left(home)

    def test_what_is_in_the_pipe_when_it_is_killed_is_kept(self, home: Path, tmp_path: Path, go: Path) -> None:
        text = PATIENT.format(go=go).replace("echo goodbye", "echo late; sleep 600")
        word = submit(tmp_path, text)
        until(lambda: lines_of(word).count("hello") == 2, "two hellos")
        launcher = launchers_of(home, word)["worker-1"]
        kill(launcher, signal.SIGSTOP)  # it reads no more: what is printed now stays in the pipe
        go.touch()
        until(lambda: lines_of(word, "worker-0").count("late") == 1, "the other's line")
        command = running.command_of(home, word, "worker-1")
        until(lambda: is_sleeping(command), "its line")
        kill(launcher)
        finished(word)
        assert lines_of(word, "worker-1") == ["hello", "late"]

    def test_half_a_line_that_waits_for_its_end_is_kept(self, home: Path, tmp_path: Path, go: Path) -> None:
        word, arrivals = start_with_half_a_line(home, tmp_path, go)
        launcher = launchers_of(home, word)["worker-1"]
        go.touch()
        until(lambda: arrivals.read_bytes().endswith(b"half"), "half a line")
        kill(launcher)
        finished(word)
        assert lines_of(word, "worker-1") == ["hello", "half"]
        assert not arrivals.parent.exists()

    def test_sigterm_from_outside_is_a_failure(self, home: Path, tmp_path: Path, go: Path) -> None:
        word = start(tmp_path, go)
        kill(launchers_of(home, word)["worker-1"], signal.SIGTERM)
        end = finished(word)
        assert end["state"] == "failed"
        assert end["first_failure"]["reason"] == "its launcher got SIGTERM, and not from Shoal"
        nothing_left(home)


def is_sleeping(pid: int) -> bool:
    """Whether the command, or a child of it, is the `sleep 600` that comes after the line."""
    from shoal.launcher import processes

    words = [processes._bytes(f"/proc/{each}/cmdline").split(b"\0") for each in (pid, *processes.descendants(pid))]
    return any(found[:2] == [b"sleep", b"600"] for found in words)


class TestReplica:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 137), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
    def test_killed_by_a_signal_it_fails_with_its_name(
        self, home: Path, tmp_path: Path, go: Path, number: signal.Signals, code: int
    ) -> None:
        word = start(tmp_path, go)
        kill(running.command_of(home, word, "worker-0"), number)
        end = finished(word)
        assert end["state"] == "failed"
        assert end["first_failure"]["replica"] == "worker-0"
        assert (end["first_failure"]["exit_code"], end["first_failure"]["signal"]) == (code, number.name)
        assert end["replicas"][1]["state"] == "stopped"
        assert end["replicas"][1]["reason"] == "worker-0 failed"
        nothing_left(home)

    def test_what_it_leaves_running_is_ended(self, home: Path, tmp_path: Path) -> None:
        """Daemons in sessions of their own, with and without the mark in their environment."""
        token = f"86400.{abs(hash(tmp_path)) % 10**9}"  # a sleep that nobody else sleeps
        daemons = f"setsid sleep {token} & setsid env -i sleep {token} & nohup sleep {token} >/dev/null 2>&1 &"
        text = (
            f"framework: none\nrun:\n  cmd: |\n    {daemons}\n    while [ ! -e {tmp_path}/go ]; do sleep 0.02; done\n"
        )
        word = submit(tmp_path, text)
        until(lambda: len(sleepers(token)) == 3, "three daemons")
        (tmp_path / "go").touch()
        assert finished(word)["state"] == "succeeded"
        assert sleepers(token) == []
        nothing_left(home)


def sleepers(token: str) -> list[str]:
    """Every `sleep` of the machine with this length, whatever its environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_text().split("\0")
        except OSError:
            continue
        if words[:2] == ["sleep", token]:
            found.append(entry.parent.name)
    return found
