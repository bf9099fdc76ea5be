"""docs/guides/kubernetes.md, from its top to its end: every command runs, and prints what the page shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tomllib
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path

from shoal.backends.kubernetes.settings import Settings
from shoal.home import read_server
from tests.clusters.kubernetes.cluster import GATEWAY, IMAGE, NODE, Cluster, free_ports
from tests.clusters.kubernetes.conftest import unused_name
from tests.conftest import ROOT
from tests.running import SHOAL

PAGE = ROOT / "docs" / "guides" / "kubernetes.md"
FENCE = re.compile(r"^```([a-z]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_guide_print_what_it_shows(cluster: Cluster, home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    home.mkdir(mode=0o700)
    name, port = unused_name(), str(free_ports(1)[0])
    here = {
        "~/": f"{work}/",
        "team-a": name,
        "DNS:shoal.lab": f"IP:{GATEWAY}",
        "shoal.lab": GATEWAY,
        "8443": port,
        '"registry/team/train:1"': f'"{IMAGE}"\nimage_pull_policy = "Never"',
        "registry/team/train:1": IMAGE,
    }
    variables = {
        **os.environ,
        "KUBECONFIG": str(administrator(cluster, tmp_path)),
        "PATH": f"{Path(SHOAL).parent}:{cluster.programs}:{os.environ['PATH']}",
        "COLUMNS": "100",
    }
    with removed(cluster, name), served(home):
        for language, text in FENCE.findall(PAGE.read_text()):
            said = replaced(text, here)
            if language == "shellsession":
                for command, shown in commands(said):
                    printed = run(command, work, variables)
                    assert normal(printed) == normal(shown), command
            elif language == "toml":
                with (home / "config.toml").open("a") as file:
                    file.write(said if "security_context" not in said else "")  # tests of pods run as nobody
                    tomllib.loads(said)
            else:
                (work / {"yaml": "experiment.yml", "python": "train.py"}[language]).write_text(said)


def test_the_guide_names_all_settings() -> None:
    table = PAGE.read_text().partition("## All settings")[2]
    assert {field.name for field in fields(Settings)} - {"name"} == {
        key for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)
    }


def administrator(cluster: Cluster, place: Path) -> Path:
    """The kubeconfig of somebody who may do anything, under the names of the page."""
    content = json.loads(cluster.kubeconfig.read_text())
    content["clusters"][0]["name"] = content["contexts"][0]["name"] = content["current-context"] = "lab"
    content["users"][0]["name"] = "admin"
    content["contexts"][0]["context"] = {"cluster": "lab", "user": "admin"}
    path = place / "kubeconfig"
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


@contextmanager
def removed(cluster: Cluster, name: str) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(urllib.error.HTTPError):  # it was never made
            cluster.ask("DELETE", f"/api/v1/namespaces/{name}", {"propagationPolicy": "Background"})


@contextmanager
def served(home: Path) -> Iterator[None]:
    """Whatever server the page has started ends with it."""
    try:
        yield
    finally:
        written = read_server(home)
        if written is not None:
            with suppress(OSError):
                if b"shoal" in Path(f"/proc/{written['pid']}/cmdline").read_bytes():
                    os.kill(written["pid"], signal.SIGTERM)


def replaced(text: str, here: Mapping[str, str]) -> str:
    """The words of the page -> those of this machine."""
    return re.sub("|".join(map(re.escape, here)), lambda match: here[match.group()], text)


def commands(session: str) -> list[tuple[str, str]]:
    entries = session.removeprefix("$ ").split("\n$ ")
    return [(command, shown) for command, _, shown in (entry.partition("\n") for entry in entries)]


def run(command: str, work: Path, variables: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=work,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    return done.stdout + (f"[exit code {done.returncode}]\n" if done.returncode else "")


def normal(text: str) -> str:
    """Without what differs each time: seconds, the name of a node, how the cluster counts those that do not fit."""
    text = re.sub(r"after \d+ s on \S+:", "after 3 s on node-1:", text)
    return re.sub(r"0/\d+ nodes", "0/1 nodes", text).replace(NODE, "node-1").rstrip("\n")
