"""One real cluster for a run of tests, and for each test a namespace in which Shoal has only its documented rights."""

from __future__ import annotations

import contextlib
import os
import secrets
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.clusters.kubernetes.cluster import IMAGE, NEEDS_ROOT, Cluster, kubeconfig, running
from tests.conftest import ROOT
from tests.environments import CannotMake
from tests.running import until

ROLE = ROOT / "deploy" / "kubernetes.yaml"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


LACKING: list[str] = []  # why there is no cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(running())
        except CannotMake as error:
            LACKING.append(str(error))
            pytest.skip(str(error))
        yield found


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Said from one place, so that it is one line however many tests there are."""
    if os.geteuid() != 0 and not LACKING:
        LACKING.append(NEEDS_ROOT)
    if LACKING and "cluster" in getattr(item, "fixturenames", ()):
        pytest.skip(LACKING[0])


@dataclass(frozen=True)
class Namespace:
    """A namespace of the cluster, and how Shoal and the administrator speak of it."""

    cluster: Cluster
    name: str
    kubeconfig: Path

    def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """`pods`, `configmaps`, `jobs`, … as the administrator sees them."""
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        if kind in ("tfjobs", "pytorchjobs", "mxjobs"):
            group = "/apis/kubeflow.org/v1"
        query = f"?labelSelector={selector}" if selector else ""
        found: list[dict[str, Any]] = self.cluster.ask("GET", f"{group}/namespaces/{self.name}/{kind}{query}")["items"]
        return found

    def becomes_empty(self) -> None:
        """Waits until nothing is left that was not there at the beginning; what an anchor owned goes bit by bit."""
        for kind in ("pods", "jobs", "services", "secrets", "configmaps"):
            until(lambda kind=kind: self._names(kind) <= {"kube-root-ca.crt"}, f"a namespace without {kind}")

    def _names(self, kind: str) -> set[str]:
        return {entry["metadata"]["name"] for entry in self.items(kind)}

    def may(self, verb: str, resource: str) -> bool:
        """Whether the API server lets Shoal do it: it hears of roles and bindings a little later than they are made."""
        where = {"namespace": self.name, "verb": verb, "resource": resource}
        asked = {"spec": {"user": f"system:serviceaccount:{self.name}:shoal", "resourceAttributes": where}}
        answer = self.cluster.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)
        return bool(answer["status"]["allowed"])

    def may_run_inside(self) -> None:
        """The right that deploy/kubernetes.yaml leaves to whoever wants it."""
        inside = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["*"]}
        binding = {
            "metadata": {"name": "inside"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "inside"},
            "subjects": [{"kind": "ServiceAccount", "name": "shoal"}],
        }
        self.cluster.ask("POST", PATHS["Role"].format(self.name), {"metadata": {"name": "inside"}, "rules": [inside]})
        self.cluster.ask("POST", PATHS["RoleBinding"].format(self.name), binding)

    def config(self, name: str = "lab", **more: str) -> str:
        """A section of config.toml."""
        values = {
            "kubeconfig": str(self.kubeconfig),
            "namespace": self.name,
            "image": IMAGE,
            "image_pull_policy": "Never",
            **more,
        }
        lines = [f'{key} = "{value}"' for key, value in values.items()]
        return f"[clusters.{name}]\n" + "\n".join(lines) + "\n"


@pytest.fixture
def namespace(cluster: Cluster, tmp_path: Path) -> Iterator[Namespace]:
    with new_namespace(cluster, tmp_path) as made:
        yield made


def unused_name() -> str:
    """Of a namespace."""
    return f"shoal-test-{secrets.token_hex(4)}"


@contextlib.contextmanager
def new_namespace(cluster: Cluster, directory: Path, *, rights: bool = True) -> Iterator[Namespace]:
    """A namespace, and a kubeconfig in this directory; without `rights` the account may do nothing."""
    name = unused_name()
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        for obj in YAML(typ="safe").load_all(ROLE):
            if rights or obj["kind"] == "ServiceAccount":
                cluster.ask("POST", PATHS[obj["kind"]].format(name), obj)
        path = f"/api/v1/namespaces/{name}/serviceaccounts/shoal/token"
        token = cluster.ask("POST", path, {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        place = directory / f"{name}.kubeconfig"
        made = Namespace(cluster, name, kubeconfig(place, cluster.place, cluster.info["port"], token, name))
        if rights:
            until(lambda: made.may("create", "configmaps"), "the rights of the account")
        yield made
    finally:
        with contextlib.suppress(urllib.error.HTTPError):
            cluster.ask("DELETE", f"/api/v1/namespaces/{name}", {"propagationPolicy": "Background"})
