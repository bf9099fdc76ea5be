"""The real Kubeflow training operator, beside the cluster: its kinds, its webhooks, and its program on this machine.

In the cluster it would be a Deployment behind a Service. Here it is a process with the administrator's kubeconfig, and
the Service is a name for this machine, so the webhooks are asked as in production: by the Service, with the
certificate that the operator made for itself.
"""

from __future__ import annotations

import base64
import contextlib
import json
import urllib.error
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from tests.clusters.kubernetes import binaries
from tests.clusters.kubernetes import cluster as machine

if TYPE_CHECKING:
    from tests.clusters.kubernetes.cluster import Cluster, Programs

NAMESPACE, SERVICE, SECRET = "kubeflow", "training-operator", "training-operator-webhook-cert"
WEBHOOKS = "validator.training-operator.kubeflow.org"  # the operator looks for this name
CERTIFICATES = "k8s-webhook-server/serving-certs"  # below /tmp: a constant of the operator
KINDS = {"tfjobs": "TFJob", "pytorchjobs": "PyTorchJob", "mxjobs": "MXJob"}

# Its own template has an image of alpine and asks nslookup; the test image has Python.
INIT_CONTAINER = """- name: init-pytorch
  image: %s
  imagePullPolicy: Never
  command:
    - python3
    - -c
    - |
      import socket, time
      for _ in range({{.MaxTries}} * 20):
          try:
              socket.getaddrinfo("{{.MasterAddr}}", None)
              break
          except OSError:
              time.sleep(0.1)
      else:
          raise SystemExit(1)
"""


def ensure(cluster: Cluster) -> None:
    """The operator of a cluster that runs answers; it is started when it does not run."""
    with machine.changing(cluster):
        programs = machine.Programs(cluster, cluster.info)
        if not programs.runs("operator"):
            start(cluster, programs)
        ready(cluster)


def start(cluster: Cluster, programs: Programs) -> None:
    """The operator runs; `ready` waits until it answers, which takes some seconds."""
    _objects(cluster, port := machine.free_ports(1)[0])
    place = cluster.place / "operator"
    (place / "tmp" / CERTIFICATES).mkdir(parents=True, exist_ok=True)
    for stale in (place / "tmp" / CERTIFICATES).iterdir():
        stale.unlink()
    (place / "init-container.yaml").write_text(INIT_CONTAINER % machine.IMAGE)
    command = [
        str(cluster.programs / "training-operator.v1"),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--webhook-server-port={port}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        f"--pytorch-init-container-template-file={place}/init-container.yaml",
        "--controller-threads=2",
    ]
    # It reads certificates below /tmp, wherever it is told to look: so it has a /tmp of its own.
    script = 'mount --bind "$0" /tmp && exec "$@"'
    programs.start(
        "operator",
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, str(place / "tmp"), *command],
        MY_POD_NAMESPACE=NAMESPACE,
        TMPDIR="/tmp",
    )


def ready(cluster: Cluster) -> None:
    """Waits until the webhooks judge: one object that is right passes, one that is wrong does not."""
    machine.until("the operator's certificates", lambda: _mounted(cluster))
    for plural in KINDS:
        machine.until(f"the webhook of {plural}", lambda plural=plural: _refusal(cluster, plural, masters=1) == "")
    machine.until("the judgement of the webhook", lambda: "must be 1" in _refusal(cluster, "pytorchjobs", masters=2))


def _objects(cluster: Cluster, port: int) -> None:
    """Kinds, namespace, Service, Secret, webhooks. What is there already stays as it is."""
    manifests = binaries.operator_manifests()
    yaml = YAML(typ="safe")
    for path in sorted((manifests / "crds").glob("kubeflow.org_*.yaml")):
        _create(cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.load(path))
    _create(cluster, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    inside = f"/api/v1/namespaces/{NAMESPACE}"
    here = {"type": "ExternalName", "externalName": "localhost"}
    _create(cluster, f"{inside}/services", {"metadata": {"name": SERVICE}, "spec": here})
    _create(cluster, f"{inside}/secrets", {"metadata": {"name": SECRET}, "type": "Opaque"})
    hooks = yaml.load(manifests / "webhook" / "manifests.yaml")
    hooks["metadata"]["name"] = WEBHOOKS
    for hook in hooks["webhooks"]:
        hook["clientConfig"]["service"] |= {"name": SERVICE, "namespace": NAMESPACE, "port": port}
    place = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    with contextlib.suppress(urllib.error.HTTPError):
        cluster.ask("DELETE", f"{place}/{WEBHOOKS}")  # of an operator that ran on another port
    _create(cluster, place, hooks)


def _create(cluster: Cluster, path: str, obj: dict[str, Any]) -> None:
    try:
        cluster.ask("POST", path, obj)
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise


def _mounted(cluster: Cluster) -> bool:
    """The operator fills the Secret; what a kubelet would mount, we write."""
    secret = cluster.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")
    place = cluster.place / "operator" / "tmp" / CERTIFICATES
    files = {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}
    for name, content in sorted(files.items(), reverse=True):
        if not (place / name).exists() or (place / name).read_bytes() != content:
            (place / name).write_bytes(content)
            (place / name).chmod(0o600)
    return {"tls.crt", "tls.key", "ca.crt", "ca.key"} <= files.keys()


def _refusal(cluster: Cluster, plural: str, masters: int) -> str:
    """What is said to a job of that kind, without making it; empty when it would be taken."""
    kind = KINDS[plural]
    names = {"tfjobs": ("tf", "tensorflow", "Chief"), "pytorchjobs": ("pytorch", "pytorch", "Master"),
             "mxjobs": ("mx", "mxnet", "Scheduler")}  # fmt: skip
    key, container, replica = names[plural]
    template = {"spec": {"containers": [{"name": container, "image": machine.IMAGE}]}}
    spec: dict[str, Any] = {f"{key}ReplicaSpecs": {replica: {"replicas": masters, "template": template}}}
    if kind == "MXJob":
        spec["jobMode"] = "MXTrain"
    job = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "probe"}, "spec": spec}
    try:
        cluster.ask("POST", f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/{plural}?dryRun=All", job)
    except urllib.error.HTTPError as error:
        with contextlib.suppress(ValueError):
            return str(json.loads(error.read()).get("message"))
        return str(error)
    return ""
