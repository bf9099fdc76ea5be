"""A cluster that does not answer, or that nobody knows any more: said, and never in the way of stopping."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.client import Client
from tests.clusters.daemons import free_ports
from tests.running import finished, shoal, show, until

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
FILE = "framework: none\nrun: {cmd: echo hello}\n"


def configure(home: Path, kubeconfig: Path, more: str = "") -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f'[clusters.far]\nkubeconfig = "{kubeconfig}"\nimage = "train:1"\n{more}')


@pytest.fixture
def nobody(home: Path, tmp_path: Path) -> Path:
    """A kubeconfig of an API server that is not there."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(port=free_ports(1)[0]))
    configure(home, path)
    return path


def submitted(place: Path) -> str:
    code = place / "code"
    code.mkdir(exist_ok=True)
    (code / "e.yml").write_text(FILE)
    result = shoal("run", "--detach", "--on", "far", str(code / "e.yml"))
    assert result.returncode == 0, result.stderr
    word = result.stdout.strip()
    until(lambda: show(word)["state"] == "lost", "that nobody answers")
    assert "does not answer: Connection refused" in show(word)["reason"]
    return word


def test_what_never_reached_its_cluster_can_be_stopped(nobody: Path, tmp_path: Path) -> None:
    word = submitted(tmp_path)
    refused = shoal("rm", word)
    assert (refused.returncode, f"shoal stop --now {word} first" in refused.stderr) == (2, True)
    assert "stopped when that is back, or given up with --now" in shoal("stop", word).stderr
    assert finished(word)["state"] == "stopped"
    assert shoal("rm", word).returncode == 0


def test_what_ran_on_a_cluster_that_is_configured_no_more_can_be_given_up(
    nobody: Path, home: Path, tmp_path: Path
) -> None:
    word = submitted(tmp_path)
    Client().end_server()
    (home / "config.toml").write_text("")
    until(lambda: show(word)["reason"] == "there is no cluster 'far'", "the new reason")
    shoal("stop", word)
    assert show(word)["state"] == "lost"
    shoal("stop", "--now", word)
    assert finished(word)["reason"] == "stopped by the user; given up: there is no cluster 'far'"


def test_a_plan_says_what_it_takes_for_granted(nobody: Path, tmp_path: Path) -> None:
    (tmp_path / "e.yml").write_text(FILE)
    result = shoal("plan", "--on", "far", str(tmp_path / "e.yml"))
    assert (result.returncode, "kind: Job" in result.stdout) == (0, True)
    assert "taken for the newest Kubernetes" in result.stderr


@pytest.mark.parametrize("text", ["a: [b", "contexts: 5", "", "[]", "contexts: [{name: x}]\ncurrent-context: x"])
def test_a_file_that_is_no_kubeconfig_is_said_to_be_none(home: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    configure(home, tmp_path / "kubeconfig")
    (tmp_path / "e.yml").write_text(FILE)
    result = shoal("plan", "--on", "far", str(tmp_path / "e.yml"))
    assert result.returncode == 2, result.stderr
    assert f"cluster far: {tmp_path / 'kubeconfig'}: " in result.stderr


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("clusters = 3", "clusters is not a table", "[clusters.NAME]"),
        ("clusters.local = 3", "clusters.local: not a table", "[clusters.local]"),
        ("[clusters.local]\ngpuz = 3", "clusters.local.gpuz: there is no such setting", "known is gpus"),
        ("[clusters.local]\ngpus = -1", "clusters.local.gpus: not a number of devices", "gpus = 2"),
        ("[clusters.lab]\nimag = 'x'", "clusters.lab.imag: there is no such setting", "did you mean image?"),
        ("[clusters.lab]\ntolerations = [{key = 2026-01-01}]", "2026-01-01 is a date", "as a text"),
    ],
)
def test_a_slip_in_the_settings_is_said_by_the_command_that_meets_it(
    home: Path, text: str, said: str, hint: str
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text)
    result = shoal("ls")
    assert result.returncode == 2
    assert said in result.stderr
    assert hint in result.stderr
