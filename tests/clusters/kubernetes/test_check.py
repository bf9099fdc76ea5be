"""`shoal cluster ls` and `shoal cluster check` on a real cluster: what works, what does not, what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal.client import Client
from tests.clusters.kubernetes.cluster import GATEWAY, IMAGE, free_ports
from tests.clusters.kubernetes.conftest import Namespace
from tests.clusters.kubernetes.serving import certificate, serving
from tests.running import finished, shoal, until

MISTYPED = "environment: {affinity: {nodeAffinty: {}}, replicas: {n_workers: 1}}\n"


def check(name: str = "lab", *options: str, code: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Findings by their names."""
    done = shoal("cluster", "check", name, "--json", *options)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in json.loads(done.stdout)["findings"]:
        found.setdefault(entry["name"], []).append(entry)
    return found


def states(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    return {name: entry["state"] for name, entries in found.items() for entry in entries}


def test_a_cluster_with_the_documented_role_is_fine(namespace: Namespace, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(namespace.config())
    done = shoal("cluster", "ls")
    assert done.stdout.splitlines()[-1].split() == [
        "lab", "kubernetes", "(current", f"context)/{namespace.name}", "stdout", IMAGE, "0"
    ]  # fmt: skip
    found = check()
    assert states(found) == {
        "API server": "ok", "namespace": "ok", "rights": "ok", "Kubeflow": states(found)["Kubeflow"],
        "capacity": "note", "image": "ok", "outputs": "note", "sink": "ok", "pod": "ok", "bash": "ok", "work": "ok",
        "DNS": "ok",
    }  # fmt: skip
    assert found["capacity"][0]["text"] == "nodes may not be listed by us"
    assert found["API server"][0]["text"] == "Kubernetes 1.34.4"
    shown = shoal("cluster", "check", "lab", "--no-pod")
    assert shown.returncode == 0
    assert f"ok    namespace   {namespace.name}\n" in shown.stdout
    assert "note  capacity    nodes may not be listed by us\n         the scheduler knows" in shown.stdout
    until(lambda: not namespace.items("pods") and not namespace.items("jobs"), "the end of the pod that looked around")


def test_what_does_not_work_is_said_with_what_to_do(namespace: Namespace, home: Path) -> None:
    home.mkdir()
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace.name}/roles/shoal"
    role = namespace.cluster.ask("GET", roles)
    role["rules"] = [{"apiGroups": [""], "resources": ["configmaps", "secrets", "persistentvolumeclaims"],
                      "verbs": ["create", "get", "list", "delete"]}]  # fmt: skip
    namespace.cluster.ask("PUT", roles, role)
    until(lambda: not namespace.may("create", "services"), "the loss of the rights")
    opaque = {"metadata": {"name": "plain"}, "stringData": {"a": "b"}}
    namespace.cluster.ask("POST", f"/api/v1/namespaces/{namespace.name}/secrets", opaque)
    more = 'image_pull_secrets = ["gone", "plain"]\nsink = "http://10.88.0.1:1"\n'
    (home / "config.toml").write_text(namespace.config(outputs_claim="outputs") + more)
    found = check(code=1)
    assert found["rights"][0]["state"] == "problem"
    assert "create services, create jobs.batch, list jobs.batch" in found["rights"][0]["text"]
    assert found["rights"][0]["hint"] == f"shoal cluster role | kubectl apply -n {namespace.name} -f -"
    assert [entry["text"] for entry in found["image pull secret"]] == [
        "there is no Secret gone",
        "plain is a Secret of type Opaque",
    ]
    assert found["outputs"][0]["text"] == "there is no claim outputs"
    assert found["sink"][0]["state"] == "note"
    assert "pod" not in found, "without the rights no pod is tried"


def test_wrong_settings_are_told_from_each_other(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    away, stranger = json.loads(namespace.kubeconfig.read_text()), json.loads(namespace.kubeconfig.read_text())
    away["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_ports(1)[0]}"
    stranger["users"][0]["user"]["token"] = "wrong"
    (tmp_path / "away").write_text(json.dumps(away))
    (tmp_path / "stranger").write_text(json.dumps(stranger))
    cases: dict[str, tuple[dict[str, str], int, str, str, str]] = {
        "no-image": ({"image": "shoal.test/none:1"}, 1, "pod", "ErrImageNeverPull", "is shoal.test/none:1 right?"),
        "no-python": ({"python": "python9"}, 1, "pod", "could not run the launcher", "Python 3.8 as python9"),
        "no-account": (
            {"service_account": "nobody"}, 1, "pod", 'serviceaccount "nobody" not found',
            f"kubectl create serviceaccount nobody -n {namespace.name}",
        ),
        "another-namespace": ({"namespace": "shoal-nowhere"}, 1, "rights", "we may not", "shoal cluster role"),
        "no-context": ({"context": "other"}, 1, "API server", "other", "set kubeconfig and context"),
        "no-kubeconfig": (
            {"kubeconfig": "/nowhere"}, 1, "API server", "/nowhere: there is no such file", "set kubeconfig",
        ),
        "away": ({"kubeconfig": str(tmp_path / "away")}, 3, "API server", "does not answer", "is its address right"),
        "stranger": (
            {"kubeconfig": str(tmp_path / "stranger")}, 3, "API server", "credentials are not accepted", "log in",
        ),
    }  # fmt: skip
    home.mkdir()
    (home / "config.toml").write_text("".join(namespace.config(name, **case[0]) for name, case in cases.items()))
    for name, (_, code, finding, said, hint) in cases.items():
        found = check(name, code=code)[finding][0]
        assert found["state"] == "problem", name
        assert said in found["text"], name
        assert hint in found["hint"], name


def test_a_cluster_that_is_not_in_the_file_is_wrong_use(home: Path) -> None:
    done = shoal("cluster", "check", "lab")
    assert done.returncode == 2
    assert "there is no cluster 'lab'" in done.stderr
    assert "config.toml is read when the server starts" in done.stderr
    assert shoal("cluster", "check", "local").returncode == 0


def test_the_server_is_looked_for_from_inside_a_pod(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    authority, chain, key = certificate(tmp_path, f"IP:{GATEWAY}")
    port, nobodys = free_ports(2)
    url, elsewhere = f"https://{GATEWAY}:{port}", f"https://{GATEWAY}:{nobodys}"
    clusters = [
        namespace.config(sink=url, sink_ca=str(authority)),
        namespace.config("nobody", sink=elsewhere, sink_ca=str(authority)),
        namespace.config("distrust", sink=url),
    ]
    (home / "config.toml").write_text("".join(clusters))
    with serving(home, "--host", "0.0.0.0", "--port", str(port), "--tls-cert", str(chain), "--tls-key", str(key)):
        assert check()["server"][0]["text"] == f"{url} is reached from a pod"
        found = check("nobody", code=1)["server"][0]
        assert "Connection refused" in found["text"]
        assert found["hint"].startswith("shoal serve --host")
        found = check("distrust", code=1)["server"][0]
        assert "CERTIFICATE_VERIFY_FAILED" in found["text"]
        assert found["hint"].startswith("sink_ca")


def test_a_field_that_is_spelt_wrong_is_named(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    """And not left out: whoever asks for another user must not run as root."""
    home.mkdir()
    more = "[clusters.lab.security_context]\nrunAsUsr = 1000\n"
    (home / "config.toml").write_text(namespace.config() + more)
    found = check(code=1)
    assert 'unknown field "spec.template.spec.containers[0].securityContext.runAsUsr"' in found["pod"][0]["text"]
    assert found["pod"][0]["hint"] == "correct it in the settings"
    Client().end_server()
    (home / "config.toml").write_text(namespace.config())
    for backend in ("native", "kubeflow"):
        file = tmp_path / f"{backend}.yml"
        file.write_text(f"framework: pytorch\nbackend: {backend}\nrun: {{cmd: echo never}}\n" + MISTYPED)
        word = shoal("run", "--detach", "--on", "lab", str(file)).stdout.strip()
        end = finished(word)
        assert end["state"] == "failed"
        assert end["reason"].startswith("cannot be submitted: ")
        assert "nodeAffinty" in end["reason"]
    namespace.becomes_empty()
