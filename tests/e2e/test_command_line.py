"""The real command in real processes: exit codes, streams, wrong input."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures import HERE, WRONG

SHOAL = str(Path(sys.executable).with_name("shoal"))
LARGE = str(HERE / "experiments" / "tensorflow-large-section.yml")
CONTROL_C = b"\x03"


def shoal(*arguments: str, cwd: Path | None = None, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHOAL, *arguments], cwd=cwd, input=text, stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_check_prints_data_to_stdout_and_warnings_to_stderr() -> None:
    result = shoal("check", LARGE)
    assert result.returncode == 0
    assert "worker-2  3     1/2    256/1024    -    1" in result.stdout
    assert "total           11/19  3072/9216   7/7" in result.stdout
    assert "warning" not in result.stdout
    assert "environment.tensorflow: an older spelling" in result.stderr


def test_check_json() -> None:
    report = json.loads(shoal("check", LARGE, "--json", "--env", "worker-2").stdout)
    assert report["ok"] is True
    assert report["errors"] == []
    assert len(report["warnings"]) == 3
    assert [replica["replica"] for replica in report["replicas"]][:3] == ["master-0", "worker-0", "worker-1"]
    assert report["replicas"][3]["resources"] == {
        "cpu": {"requests": 1.0, "limits": 2.0},
        "memory": {"requests": 256.0, "limits": 1024.0},
    }
    assert report["totals"]["gpu"] == {"requests": 7, "limits": 7}
    assert json.loads(report["env"]["TF_CONFIG"])["task"] == {"type": "worker", "index": 2}


def test_check_json_of_a_wrong_file() -> None:
    result = shoal("check", str(HERE / "wrong" / "typo-in-framework.yml"), "--json")
    report = json.loads(result.stdout)
    assert result.returncode == 2
    assert report["ok"] is False
    assert report["replicas"] == []
    assert report["errors"] == [
        {
            "where": f"{HERE / 'wrong' / 'typo-in-framework.yml'}:3:12",
            "path": "framework",
            "message": "'pytroch' is not one of the choices",
            "hint": "did you mean pytorch? choices: pytorch, tensorflow, mxnet, jax, none",
        }
    ]


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_file_never_gives_a_traceback(path: Path) -> None:
    result = shoal("check", str(path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(("error: ", "warning: "))
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "nowhere.yml"], "error: nowhere.yml: no such file"),
        (["check", "/"], "no experiment file here"),
        (["check", "-", "-"], "standard input can be read only once"),
        (["check", LARGE, "--env", "worker-9"], "error: --env worker-9: there is no such replica"),
        (["check", LARGE, "-P", "lr"], "expected name=value"),
        (["chek"], "did you mean shoal check?"),
        (["check", "--jsn"], "No such option"),
        (["run", LARGE, "--worker-count", "2"], "and --worker-count"),
        (["run", "--worker-count", "0", "--", "x"], "is not in the range"),
        (["run", "--framework", "pytroch", "--worker-count", "2", "--", "x"], "did you mean pytorch?"),
        (
            ["run", "--framework", "pytorch", "--worker-count", "2", "--ps-count", "1", "--", "x"],
            "PyTorch has no parameter",
        ),
        (["experiment", "create", "--command", "a", "--", "b"], "--command and a command after --"),
        (["experiment", "create", "--command", "a", "--dataset", "x"], "expected PATH:NAME"),
        (["completion", "tcsh"], "is not one of"),
    ],
)
def test_wrong_use_is_one_clear_text_and_exit_code_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = shoal(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_standard_input() -> None:
    result = shoal("check", "-", text="run: {cmd: 7}\n")
    assert result.stderr.startswith("error: stdin:1:12: run.cmd")


def test_the_file_of_this_directory(tmp_path: Path) -> None:
    (tmp_path / "polyaxonfile.json").write_text('{"version": 1, "kind": "experiment", "run": {"cmd": "x"}}')
    assert shoal("check", cwd=tmp_path).stdout.startswith("polyaxonfile.json: 1 replica,")


def test_an_unreadable_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop.yml").symlink_to("loop.yml")
    result = shoal("check", "loop.yml", cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot be read" in result.stderr


def test_ten_thousand_replicas_are_folded_into_rows() -> None:
    result = shoal(
        "check", "-", text="framework: tensorflow\nrun: {cmd: x}\nenvironment: {replicas: {n_workers: 9999}}\n"
    )
    assert "worker-0 … worker-9998  1 … 9999" in result.stdout
    assert len(result.stdout.splitlines()) < 20


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_complaint(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = ["bash", "-c", f"{SHOAL} schema | head -n 1"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout == "{\n"
    assert result.stderr == ""


def test_control_c_ends_it_with_130(tmp_path: Path) -> None:
    output, status = on_a_terminal([SHOAL, "experiment", "create", "--worker-count", "2"], tmp_path, CONTROL_C)
    assert status == 130
    assert "Traceback" not in output


def test_version() -> None:
    from shoal import __version__

    assert shoal("--version").stdout == f"shoal {__version__}\n"


def test_help_lists_the_verbs_in_groups() -> None:
    output = shoal("--help").stdout
    assert output.index("Run:") < output.index("  check ") < output.index("Shell:")


class TestWithoutAFile:
    def test_several_words_are_kept_word_for_word(self, tmp_path: Path) -> None:
        result = shoal("run", "--framework", "none", "--dry-run", "--", "echo", "a b", "$HOME", cwd=tmp_path)
        assert "cmd: echo 'a b' '$HOME'\n" in result.stdout

    def test_one_word_is_a_shell_command(self, tmp_path: Path) -> None:
        result = shoal("run", "--framework", "none", "--dry-run", "--", "echo $HOME && date", cwd=tmp_path)
        assert "cmd: echo $HOME && date\n" in result.stdout

    def test_mxnet_adds_its_scheduler(self, tmp_path: Path) -> None:
        arguments = ["run", "--framework", "mxnet", "--worker-count", "2", "--ps-count", "1", "--dry-run", "--", "x"]
        result = shoal(*arguments, cwd=tmp_path)
        assert "master: false" not in result.stdout
        assert "n_ps: 1" in result.stdout

    def test_what_it_prints_can_be_checked(self, tmp_path: Path) -> None:
        made = shoal(
            "experiment", "create", "--worker-count", "2", "--framework-type", "pytorch", "-x", "a\nb", "-h", "lr=1e-3",
            "--gpu-limit", "2", "--memory-limit", "4Gi", "--cpu-limit", "1.5", "--dry-run",
            "--dataset", "/input:cifar@v1",
        )  # fmt: skip
        report = json.loads(shoal("check", "-", "--json", text=made.stdout).stdout)
        assert report["command"] == "a\nb"
        assert report["params"] == {"lr": 0.001}
        assert report["env_vars"] == {"lr": "0.001"}
        replicas = [(replica["replica"], replica["rank"], replica["n_trainers"]) for replica in report["replicas"]]
        assert replicas == [
            ("worker-0", 0, 2),
            ("worker-1", 1, 2),
        ]

    def test_the_command_is_taken_from_the_file_here(self, tmp_path: Path) -> None:
        (tmp_path / "experiment.yml").write_text("run: {cmd: from the file}\n")
        result = shoal("experiment", "create", "--worker-count", "2", "--dry-run", cwd=tmp_path)
        assert "cmd: from the file\n" in result.stdout

    def test_without_any_command_it_says_so(self, tmp_path: Path) -> None:
        result = shoal("experiment", "create", "--worker-count", "2", cwd=tmp_path)
        assert result.returncode == 2
        assert "no command" in result.stderr

    def test_on_a_terminal_it_asks(self, tmp_path: Path) -> None:
        output, status = on_a_terminal(
            [SHOAL, "experiment", "create", "--worker-count", "2", "--dry-run"], tmp_path, b"typed in\n"
        )
        assert "Command to run in each replica" in output
        assert "cmd: typed in" in output
        assert status == 0


def on_a_terminal(command: list[str], cwd: Path, typed: bytes) -> tuple[str, int]:
    """What a command shows on a terminal where a person answers its first question, and its exit code.

    Python does not hear a Ctrl-C that comes between the moment it shows a prompt and the moment it waits for an answer:
    whoever pressed it presses it again.
    """
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(cwd)
        os.execv(command[0], command)
    output = b""
    answered = False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if not select.select([terminal], [], [], 0.2)[0]:
                if answered and typed == CONTROL_C:
                    os.write(terminal, typed)
                continue
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
        if not answered and output.rstrip().endswith(b":"):
            os.write(terminal, typed)
            answered = True
    else:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return output.decode(), os.waitstatus_to_exitcode(status)


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_of_each_shell(self, shell: str) -> None:
        result = shoal("completion", shell)
        assert result.returncode == 0
        assert "_SHOAL_COMPLETE" in result.stdout

    @pytest.mark.parametrize(
        ("words", "offered"),
        [("shoal che", "check"), ("shoal check --e", "--env"), ("shoal run --framework py", "pytorch")],
    )
    def test_what_bash_is_offered(self, words: str, offered: str) -> None:
        environment = {
            **os.environ,
            "_SHOAL_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        result = subprocess.run([SHOAL], env=environment, capture_output=True, text=True, timeout=60)
        assert f"plain,{offered}" in result.stdout.split()
