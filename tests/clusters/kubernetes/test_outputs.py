"""Outputs of replicas on a cluster: in a claim that all share, or carried home."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.backends.kubernetes.pods import WORK
from shoal.client import Client
from tests.clusters.kubernetes.conftest import Namespace
from tests.running import finished, lines_of, shoal, submit

SHARED = """
framework: none
run:
  cmd: |
    echo from $SHOAL_REPLICA > $SHOAL_OUTPUTS/$SHOAL_REPLICA.txt
    echo own > $SHOAL_REPLICA_OUTPUTS/own.txt
    until [ "$(ls $SHOAL_OUTPUTS/*.txt | wc -l)" = 2 ]; do sleep 0.1; done
    echo both are seen in $SHOAL_OUTPUTS
environment: {replicas: {n_workers: 1}}
"""
CARRIED = """
framework: none
run:
  cmd: |
    echo small > $SHOAL_REPLICA_OUTPUTS/small.txt
    head -c 3000000 /dev/urandom > $SHOAL_OUTPUTS/large.bin
"""

MARKED = """
framework: none
run:
  cmd: |
    echo begins from ${SHOAL_RESUME_FROM:-nothing}
    echo 3 > $SHOAL_OUTPUTS/step-3
    python3 -c 'import os, shoal; shoal.checkpoint(os.environ["SHOAL_OUTPUTS"] + "/step-3", step=3)'
"""


def claim(namespace: Namespace, place: Path) -> None:
    """A volume of this machine's disk, and a claim to it that many may write."""
    place.mkdir()
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "hostPath": {"path": str(place)},
        "claimRef": {"namespace": namespace.name, "name": "outputs"},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace.name}, "spec": spec}
    namespace.cluster.ask("POST", "/api/v1/persistentvolumes", volume)
    wanted = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{namespace.name}/persistentvolumeclaims"
    namespace.cluster.ask(
        "POST", path, {"metadata": {"name": "outputs"}, "spec": {**wanted, "volumeName": namespace.name}}
    )


def test_a_claim_is_shared_and_stays(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    disk = tmp_path / "disk"
    claim(namespace, disk)
    try:
        seen = namespace.config("seen", outputs_claim="outputs", outputs_path=str(disk))
        (home / "config.toml").write_text(namespace.config(outputs_claim="outputs") + seen)
        (tmp_path / "experiment.yml").write_text(SHARED)
        plan = shoal("plan", str(tmp_path / "experiment.yml"), "--on", "lab").stdout
        assert plan.startswith("# outputs: shared, in the claim outputs\n")
        word, other = (submit(tmp_path, SHARED, "--on", name) for name in ("lab", "seen"))
        assert finished(word)["state"] == "succeeded"
        assert lines_of(word, "worker-0") == [f"both are seen in /shoal/claim/{word}"]
        assert (disk / word / "worker-0" / "own.txt").read_text() == "own\n"
        done = shoal("outputs", word)
        assert f"the outputs are in {word}/ in claim outputs of namespace {namespace.name} on lab" in done.stderr
        assert finished(other)["state"] == "succeeded"
        assert [file["path"] for file in Client().outputs(other)] == [
            "master-0.txt", "master-0/own.txt", "worker-0.txt", "worker-0/own.txt",
        ]  # fmt: skip
        assert shoal("rm", other).returncode == 0
        assert os.path.exists(disk / other / "master-0.txt"), "what is in the claim is not ours to remove"
        assert shoal("cluster", "check", "lab", "--no-pod").returncode == 0
    finally:
        namespace.cluster.ask("DELETE", f"/api/v1/persistentvolumes/{namespace.name}")


def test_a_rerun_goes_on_from_a_checkpoint_in_the_claim_and_from_no_other(
    namespace: Namespace, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    claim(namespace, tmp_path / "disk")
    try:
        (home / "config.toml").write_text(namespace.config(outputs_claim="outputs") + namespace.config("bare"))
        kept, lost = (submit(tmp_path, MARKED, "--on", name) for name in ("lab", "bare"))
        assert (finished(kept)["state"], finished(lost)["state"]) == ("succeeded", "succeeded")
        again = shoal("rerun", "--detach", "--resume", kept)
        assert again.returncode == 0, again.stderr
        refused = shoal("rerun", "--detach", "--resume", lost)
        assert (refused.returncode, refused.stdout) == (2, "")
        path = f"{WORK}/try-0/outputs/step-3"
        said = f"{lost}: its checkpoint of step 3 cannot be used: {path} did not outlive its pod"
        assert said in refused.stderr
        assert "with outputs_claim in [clusters.bare]" in refused.stderr
        assert finished(again.stdout.strip())["state"] == "succeeded"
        assert lines_of(again.stdout.strip()) == [f"begins from /shoal/claim/{kept}/step-3"]
    finally:
        namespace.cluster.ask("DELETE", f"/api/v1/persistentvolumes/{namespace.name}")


def test_without_a_claim_small_files_come_with_the_log_and_the_rest_is_named(
    namespace: Namespace, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    (home / "config.toml").write_text(namespace.config())
    (tmp_path / "experiment.yml").write_text(CARRIED)
    plan = shoal("plan", str(tmp_path / "experiment.yml"), "--on", "lab").stdout
    assert plan.startswith("# outputs: not shared: each replica has its own; small files")
    word = submit(tmp_path, CARRIED, "--on", "lab")
    assert finished(word)["state"] == "succeeded"
    assert [file["path"] for file in Client().outputs(word)] == ["master-0/small.txt"]
    assert shoal("outputs", word, "cat", "small.txt", "-r", "master-0").stdout == "small\n"
    assert lines_of(word) == [
        "shoal: 1 outputs of 2.9 MiB stay behind (large.bin): the log takes 1 MiB; set outputs_claim, or a server as "
        "sink, in the settings of the cluster"
    ]
