"""The pod of a replica: what a file and the settings say of it, as the API server takes it and a kubelet runs it."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from shoal.backends.kubernetes.rights import RULES
from shoal.client import Client
from tests.clusters.kubernetes.conftest import ROLE, Namespace
from tests.fixtures import HERE
from tests.running import finished, lines_of, running, shoal, submit, until

RESTRICTED = """
security_context = {runAsNonRoot = true, runAsUser = 4711, readOnlyRootFilesystem = true, \
allowPrivilegeEscalation = false, capabilities = {drop = ["ALL"]}, seccompProfile = {type = "RuntimeDefault"}}
pod_security_context = {fsGroup = 4711}
node_selector = {"kubernetes.io/os" = "linux"}
tolerations = [{key = "shoal", operator = "Exists"}]
"""
FILE = """
framework: none
run:
  cmd: |
    echo $(id -u) $(touch /here 2>&1 | grep -c 'Read-only') $(stat -f -c %T /dev/shm)
    echo $HOME_SECRET $OLD_SECRET $SETTING $(python3 -c 'import getpass; print(getpass.getuser())')
    touch $HOME/x $TMPDIR/x $SHOAL_OUTPUTS/x ./x && echo all can be written
    until [ -e open ]; do sleep 0.1; done
environment:
  secret_refs: [mine_Here, old]
  config_map_refs: [settings]
  labels: {team: vision}
  annotations: {note: "1"}
  tolerations: [{key: gpu, operator: Exists}]
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions:
    [{key: pool, operator: In, values: [a]}]}}]}}
  resources: {cpu: {requests: 0.1}, memory: {requests: 32, limits: 256}}
grace: {stop: 7s}
"""


def test_a_restricted_namespace_runs_replicas_that_are_nobody(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    """No root, nothing written but where volumes are, secrets by reference."""
    ask, base = namespace.cluster.ask, f"/api/v1/namespaces/{namespace.name}"
    wanted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    ask("PATCH", base, wanted, "application/merge-patch+json")
    ask("POST", f"{base}/secrets", {"metadata": {"name": "old"}, "stringData": {"OLD_SECRET": "from the cluster"}})
    ask("POST", f"{base}/configmaps", {"metadata": {"name": "settings"}, "data": {"SETTING": "set"}})
    home.mkdir(mode=0o700)
    secrets = home / "secrets.toml"
    secrets.write_text('[mine_Here]\nHOME_SECRET = "from home"\n')
    secrets.chmod(0o600)
    (home / "config.toml").write_text(namespace.config() + RESTRICTED)
    code = tmp_path / "code"
    code.mkdir()
    word = submit(code, FILE, "--on", "lab")
    running(word)
    until(lambda: len(lines_of(word)) == 3, "what it prints")
    assert lines_of(word) == ["4711 1 tmpfs", "from home from the cluster set shoal", "all can be written"]
    (pod,) = namespace.items("pods", f"shoal/experiment={word}")
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"]["note"] == "1"
    spec = pod["spec"]
    assert spec["terminationGracePeriodSeconds"] == 22
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert [entry["key"] for entry in spec["tolerations"][:2]] == ["shoal", "gpu"]
    assert "nodeAffinity" in spec["affinity"]
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"},
    }  # fmt: skip
    assert not spec.get("automountServiceAccountToken")
    assert "from home" not in json.dumps([pod, namespace.items("jobs"), namespace.items("configmaps")])
    names = [entry["metadata"]["name"] for entry in namespace.items("secrets")]
    assert sorted(names) == ["old", f"shoal-{word}-0-secret-mine-here"]
    assert shoal("stop", word).returncode == 0
    assert finished(word)["state"] == "stopped"
    until(lambda: [entry["metadata"]["name"] for entry in namespace.items("secrets")] == ["old"], "an empty namespace")


FIXTURES = ["single", "pytorch-two-nodes-eight-trainers", "tensorflow-large-newest", "mxnet-small", "jax-three",
            "none-all-roles", "newer-words"]  # fmt: skip


def test_what_plan_prints_is_taken_by_the_api_server(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    """Word for word, as a dry run: every object of every file, in a namespace where only our rights hold."""
    home.mkdir(mode=0o700)
    claim = 'outputs_claim = "outputs"\nimage_pull_secrets = ["registry"]\nservice_account = "default"\n'
    (home / "config.toml").write_text(namespace.config("lab") + namespace.config("full") + claim + RESTRICTED)
    known = {"ConfigMap": "api/v1", "Secret": "api/v1", "Service": "api/v1", "Job": "apis/batch/v1"}
    seen = set()
    for name in FIXTURES:
        for cluster in ("lab", "full"):
            file = HERE / "experiments" / f"{name}.yml"
            text = Client().render([(str(file), file.read_text())], [], str(file.parent), cluster=cluster)["text"]
            for obj in YAML(typ="safe").load_all(text):
                kind = obj["kind"]
                seen.add(kind)
                path = f"/{known[kind]}/namespaces/{namespace.name}/{kind.lower()}s?dryRun=All&fieldValidation=Strict"
                try:
                    namespace.cluster.ask("POST", path, obj)
                except urllib.error.HTTPError as error:
                    pytest.fail(f"{name} {kind}: {error.read().decode()}")
    assert {"ConfigMap", "Service", "Job"} <= seen
    assert shoal("plan", str(file), "--on", cluster).stdout == text + "\n"


def test_the_role_is_what_the_product_says_it_needs() -> None:
    role = next(obj for obj in YAML(typ="safe").load_all(ROLE) if obj["kind"] == "Role")
    rules = [(rule["apiGroups"], tuple(rule["resources"]), tuple(rule["verbs"])) for rule in role["rules"]]
    assert rules == [([group], resources, verbs) for group, resources, verbs in RULES]
