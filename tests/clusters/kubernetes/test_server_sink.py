"""Replicas that send to the server by HTTPS: logs, metrics, outputs, and code that no ConfigMap could hold."""

from __future__ import annotations

import hashlib
import json
import random
import time
from pathlib import Path

from shoal.client import Client
from shoal.home import read_server
from shoal.server.trust import write_token
from tests.clusters.kubernetes.conftest import Namespace
from tests.clusters.kubernetes.serving import https_sink, kubectl, serving
from tests.running import finished, kill, lines_of, running, shoal, submit, until

FILE = """
framework: none
run:
  cmd: |
    python3 train.py
    echo and that was all >&2
environment: {replicas: {n_workers: 1}}
"""
TRAIN = """
import hashlib, os, pathlib, time
import shoal
print("data", hashlib.sha256(pathlib.Path("data.bin").read_bytes()).hexdigest(), flush=True)
print("ignored", os.path.exists("ignored.bin"), [name for name in os.environ if "SINK" in name], flush=True)
shared, own = pathlib.Path(os.environ["SHOAL_OUTPUTS"]), pathlib.Path(os.environ["SHOAL_REPLICA_OUTPUTS"])
(own / "deep").mkdir()
(own / "deep" / "own.bin").write_bytes(b"x" * 3_000_000)
(shared / "same.txt").write_text("the same")
(shared / "other.txt").write_text(os.environ["SHOAL_REPLICA"])
for step in range(5):
    shoal.log(loss=1 / (step + 1), step=step)
while not os.path.exists("/gate/open"):
    time.sleep(0.05)
print("after the gate", flush=True)
shoal.log(loss=0.0, step=5)
"""


def test_everything_arrives_also_while_the_server_is_dead(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    sink, options = https_sink(tmp_path)
    gate = tmp_path / "gate"
    gate.mkdir()
    mount = f'mounts = [{{host_path = "{gate}", at = "/gate"}}]\n'
    (home / "config.toml").write_text(namespace.config(**sink) + mount)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    (code / "data.bin").write_bytes(random.Random(1).randbytes(1_500_000))
    (code / "ignored.bin").write_bytes(b"x")
    (code / ".shoalignore").write_text("# not needed there\nignored.*\n")
    with serving(home, *options) as server:
        word = submit(code, FILE, "--on", "lab")
        running(word)
        until(lambda: show_lines(word) == 4, "what both have printed so far")
        pods = namespace.items("pods", f"shoal/experiment={word}")
        assert len(pods) == 2
        written = read_server(home)
        assert written is not None
        token = write_token(written["token"], Client().show(word)["uid"])
        assert token not in json.dumps([pods, namespace.items("configmaps"), namespace.items("jobs")])
        assert f"shoal-{word}-0-sink" in [entry["metadata"]["name"] for entry in namespace.items("secrets")]
        seen = kubectl(namespace.cluster, "logs", "-n", namespace.name, pods[0]["metadata"]["name"])
        assert seen.splitlines()[0].startswith("data ")
        kill(server.pid)
        server.wait()
    (gate / "open").touch()
    until(lambda: "after the gate" in kubectl(namespace.cluster, "logs", "-n", namespace.name,
                                              pods[0]["metadata"]["name"]), "the end of a command")  # fmt: skip
    with serving(home, *options):
        shown = finished(word)
        assert (shown["state"], [replica["exit_code"] for replica in shown["replicas"]]) == ("succeeded", [0, 0])
        for name in ("master-0", "worker-0"):
            lines = lines_of(word, name)
            assert lines[1:] == ["ignored False []", "after the gate", "and that was all"], name
            assert lines[0] == lines_of(word, "master-0")[0]
        curves = json.loads(shoal("metrics", word, "loss", "--json").stdout)
        assert {curve["replica"]: len(curve["points"]) for curve in curves} == {"master-0": 6, "worker-0": 6}
        assert shown["metrics"]["loss"]["last"] == 0.0
        until(lambda: not namespace.items("pods") and not namespace.items("secrets"), "an empty namespace")
        files = {file["path"]: file for file in Client().outputs(word)}
        assert set(files) == {
            "master-0/deep/own.bin", "worker-0/deep/own.bin", "same.txt", "other.txt", other_copy(files),
        }  # fmt: skip
        assert files["worker-0/deep/own.bin"]["size"] == 3_000_000
        assert files["other.txt"]["conflict"]
        assert files["other.txt"]["writers"] == ["master-0", "worker-0"]
        said = [shoal("outputs", word, "cat", path).stdout for path in ("other.txt", other_copy(files))]
        assert sorted(said) == ["master-0", "worker-0"], "neither copy is lost"
        assert list((home / "experiments" / word / "attempt-0").glob("code-*")) == []


def show_lines(word: str) -> int:
    return len(lines_of(word))


def other_copy(files: dict[str, object]) -> str:
    return next(path for path in files if path.endswith("/other.txt"))


def test_code_that_is_too_large_for_a_config_map_needs_a_server(
    namespace: Namespace, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    (home / "config.toml").write_text(namespace.config())
    (tmp_path / "data.bin").write_bytes(random.Random(1).randbytes(1_500_000))
    (tmp_path / "experiment.yml").write_text("run: {cmd: 'true'}\n")
    for verb in ("plan", "run"):
        done = shoal(verb, str(tmp_path / "experiment.yml"), "--on", "lab")
        assert done.returncode == 2
        assert "is more than 900 KiB packed, and replicas have no server to fetch it from" in done.stderr
        assert "MiB: data.bin 1.4 MiB" in done.stderr
        assert ".shoalignore" in done.stderr
    (tmp_path / ".shoalignore").write_text("*.bin\n")
    assert shoal("plan", str(tmp_path / "experiment.yml"), "--on", "lab").returncode == 0


KEEPS = """
framework: none
run:
  cmd: |
    head -c 30000000 /dev/urandom > $SHOAL_REPLICA_OUTPUTS/model.pt
    sha256sum < $SHOAL_REPLICA_OUTPUTS/model.pt
    sleep 1000
grace: {stop: 1s}
"""


def test_a_pod_that_has_to_go_while_the_server_is_dead_waits_with_its_outputs(
    namespace: Namespace, home: Path, tmp_path: Path
) -> None:
    """Far longer than its command's own grace: `carry` seconds more."""
    home.mkdir()
    sink, options = https_sink(tmp_path)
    (home / "config.toml").write_text(namespace.config(**sink))
    code = tmp_path / "code"
    code.mkdir()
    with serving(home, *options) as server:
        word = submit(code, KEEPS, "--on", "lab")
        running(word)
        (said,) = until(lambda: lines_of(word), "the hash of its output")
        kill(server.pid)
        server.wait()
    kubectl(namespace.cluster, "delete", "pods", "-n", namespace.name, "-l", f"shoal/experiment={word}", "--wait=false")
    late = time.time() + 25.0
    until(lambda: time.time() > late, "the end of its command's grace, and of what a log needs")
    assert len(namespace.items("pods", f"shoal/experiment={word}")) == 1
    with serving(home, *options):
        shown = finished(word)
        assert shown["state"] == "failed"
        assert "its pod was deleted" in shown["reason"]
        assert "did not arrive" not in shown["reason"]
        place = home / "experiments" / word / "outputs" / "master-0" / "model.pt"
        assert hashlib.sha256(place.read_bytes()).hexdigest() == said.split()[0]
