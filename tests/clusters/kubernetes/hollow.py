"""Nodes without a machine: kwok plays their kubelets, so that hundreds of pods start, print and end on two cores.

Everything between Shoal and a kubelet is real: API server, scheduler, Job controller, garbage collector, watches and
log requests. A hollow pod prints what stands in one file; whoever appends to it makes all pods print. It runs until it
is stopped.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import urllib.error
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.clusters.daemons import start_time
from tests.clusters.kubernetes.cluster import GATEWAY, Cluster, free_ports
from tests.running import until

LABEL, OWNER = "hollow-node", "hollow-node/owner"
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")


@dataclass(frozen=True)
class Hollow:
    """Nodes that only take what asks for them."""

    name: str
    log: Path  # what every pod prints, as a kubelet keeps it
    kwok: subprocess.Popen[bytes]

    def config(self) -> str:
        """For a section of config.toml: pods go to these nodes."""
        taint = f'{{key = "{LABEL}", operator = "Exists"}}'
        return f'node_selector = {{{LABEL} = "{self.name}"}}\ntolerations = [{taint}]\n'

    def prints(self, lines: Sequence[str]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        with self.log.open("a") as file:
            file.write("".join(f"{now} stdout F {line}\n" for line in lines))

    def die(self) -> None:
        """All of these nodes are silent from now on; what is known of them and of their pods stays as it is."""
        self.kwok.kill()
        self.kwok.wait()


@contextlib.contextmanager
def nodes(cluster: Cluster, place: Path, count: int) -> Iterator[Hollow]:
    """`count` nodes that run pods until the end of the block; then they are gone."""
    group, printed = f"h{secrets.token_hex(4)}", place / "hollow.log"
    printed.touch()
    port = free_ports(1)[0]
    with (place / "kwok.yaml").open("w") as file:
        YAML(typ="safe").dump_all([*STAGES, _logs(printed)], file)
    command = [
        cluster.programs / "kwok",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={place / 'kwok.yaml'}",
        f"--manage-nodes-with-label-selector={LABEL}={group}",
        "--node-lease-duration-seconds=40",
        f"--node-ip={GATEWAY}",
        f"--node-port={port}",
        f"--server-address={GATEWAY}:{port}",
        f"--tls-cert-file={cluster.place}/pki/server.crt",
        f"--tls-private-key-file={cluster.place}/pki/server.key",
    ]
    names = [f"{group}-{number}" for number in range(count)]
    with (place / "kwok.log").open("wb") as log:
        kwok = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place)
    try:
        _tidy(cluster)
        for name in names:
            cluster.ask("POST", "/api/v1/nodes", _node(name, group))
        until(lambda: all(map(_ready, _nodes(cluster, group))), "hollow nodes")
        with _many_logs() if count > 1 else contextlib.nullcontext():
            yield Hollow(group, printed, kwok)
    finally:
        for name in names:
            with contextlib.suppress(urllib.error.HTTPError):
                cluster.ask("DELETE", f"/api/v1/nodes/{name}")
        kwok.send_signal(signal.SIGTERM)
        try:
            kwok.wait(10)
        except subprocess.TimeoutExpired:
            kwok.kill()
            kwok.wait()


@contextlib.contextmanager
def _many_logs() -> Iterator[None]:
    """The kernel gives one process few watches of files. Each log that is followed is one, and all kubelets are one."""
    before = INOTIFY.read_text()
    try:
        INOTIFY.write_text("4096")
        yield
    finally:
        INOTIFY.write_text(before)


def _node(name: str, group: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {LABEL: group}, "annotations": {OWNER: f"{os.getpid()}"}},
        "spec": {"taints": [{"key": LABEL, "value": group, "effect": "NoSchedule"}]},
    }


def _tidy(cluster: Cluster) -> None:
    """Removes the nodes of a run that was killed; their pods go with them."""
    for node in cluster.ask("GET", f"/api/v1/nodes?labelSelector={LABEL}")["items"]:
        owner = node["metadata"].get("annotations", {}).get(OWNER, "")
        if owner and start_time(int(owner)) is None:
            with contextlib.suppress(urllib.error.HTTPError):  # another run may tidy, too
                cluster.ask("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


def _nodes(cluster: Cluster, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.ask("GET", f"/api/v1/nodes?labelSelector={LABEL}%3D{group}")["items"]
    return found


def _ready(node: dict[str, Any]) -> bool:
    """The scheduler puts nothing on a node that the controller has not found ready."""
    conditions = node.get("status", {}).get("conditions", ())
    tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", ()))
    return not tainted and any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _stage(name: str, kind: str, conditions: Sequence[tuple[str, ...]], becomes: str) -> dict[str, Any]:
    """What kwok does to an object when all conditions (path, operator, values) hold."""
    selector = [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, *values in conditions
    ]
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": selector},
        "next": {"statusTemplate": becomes} if becomes else {"delete": True},
    }
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _logs(path: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "all"},
        "spec": {"logs": [{"logsFile": str(path), "follow": True}]},
    }


NODE = """
conditions:
- type: Ready
  status: "True"
  reason: Hollow
  lastHeartbeatTime: {{ Quote Now }}
  lastTransitionTime: {{ Quote Now }}
addresses:
- {type: InternalIP, address: {{ Quote NodeIP }}}
daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
capacity: {cpu: "1000", memory: 1Ti, pods: "1000"}
allocatable: {cpu: "1000", memory: 1Ti, pods: "1000"}
phase: Running
"""
RUNNING = """
phase: Running
startTime: {{ Quote Now }}
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ Quote Now }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ Quote .name }}
  image: {{ Quote .image }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ Quote Now }}}}
{{ end }}
"""
ENDED = """
phase: Failed
conditions:
- {type: Ready, status: "False", lastTransitionTime: {{ Quote Now }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ Quote .name }}
  image: {{ Quote .image }}
  ready: false
  restartCount: 0
  state: {terminated: {exitCode: 143, startedAt: {{ Quote Now }}, finishedAt: {{ Quote Now }}}}
{{ end }}
"""
LIVING = (".metadata.deletionTimestamp", "DoesNotExist")
STAGES = [
    _stage("node", "Node", [(".status.phase", "NotIn", "Running")], NODE),
    _stage("starts", "Pod", [LIVING, (".status.phase", "In", "Pending")], RUNNING),
    # What a kubelet does at the deadline of a pod: SIGTERM, and the pod stays.
    _stage(
        "stops",
        "Pod",
        [LIVING, (".status.phase", "In", "Running"), (".spec.activeDeadlineSeconds", "Exists")],
        ENDED,
    ),
    _stage("goes", "Pod", [(".metadata.deletionTimestamp", "Exists")], ""),
]
