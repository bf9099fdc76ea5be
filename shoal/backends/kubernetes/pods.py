"""The pod of one replica: what a Job or an operator's template holds. Pure.

Below /shoal:

    launcher/shoal.zip   the launcher and the SDK, from the anchor: any image with Python 3.8 will do
    launcher/run.json    the experiment as the launcher needs it: topology, command, params
    code/code.tar.gz     the user's files, unpacked into work/code; large ones are fetched from the server
    work/                all that is written: a root file system that is read-only is enough
    claim/               outputs that all replicas share, where the cluster has a claim for them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.backends.backend import Launch
from shoal.backends.kubernetes.settings import STDOUT, Settings
from shoal.launcher import listening
from shoal.plan import Replica

LAUNCHER, CODE, WORK, CLAIM = "/shoal/launcher", "/shoal/code", "/shoal/work", "/shoal/claim"
CA = "ca.pem"
ARCHIVE, RUN, CODE_FILE = "shoal.zip", "run.json", "code.tar.gz"
PORT = 2222
LATE = 15  # seconds that a pod has beyond the grace of its command, and of `carry`: for the last lines of its log

Object = dict[str, Any]


def base_name(launch: Launch) -> str:
    """`shoal-e7k2m9-0`: what all objects of an attempt are called after; short enough for what follows it."""
    return f"shoal-{launch.experiment}-{launch.attempt}"


def labels(launch: Launch, replica: Replica | None = None, try_: int = 0) -> dict[str, str]:
    found = {
        "app.kubernetes.io/managed-by": "shoal",
        "shoal/experiment": launch.experiment,
        "shoal/uid": launch.uid,
        "shoal/attempt": str(launch.attempt),
    }
    if replica is not None:
        found |= {
            "shoal/replica": replica.name,
            "shoal/role": replica.role,
            "shoal/index": str(replica.index),
            "shoal/try": str(try_),
        }
    return found


@dataclass(frozen=True)
class Parts:
    """What not every experiment or cluster has: code, how secrets are called there, and how old the API server is."""

    code: bool = False  # in a ConfigMap
    secrets: Mapping[str, str] = field(default_factory=dict)
    version: tuple[int, int] = (1, 34)


def pod_spec(launch: Launch, replica: Replica, settings: Settings, *, container: str, parts: Parts) -> Object:
    """Everything of a pod but its name, its host name and its labels."""
    plan, base = launch.plan, base_name(launch)
    spec = frame(settings, base, container=container, image=plan.image or settings.image)
    main = spec["containers"][0]
    # The launcher itself ends the command after its grace, and ends as soon as everything has arrived.
    carry = int(settings.carry) if settings.sink != STDOUT else 0
    spec["terminationGracePeriodSeconds"] = int(plan.grace.stop) + carry + LATE
    main["env"] = [
        {"name": "SHOAL_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SHOAL_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SHOAL_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "SHOAL_POD_LABEL_TRY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['shoal/try']"}}},
        *main["env"],
    ]
    # A kubelet says SIGTERM once: it waits until somebody hears it.
    main["lifecycle"] = {"preStop": {"exec": {"command": [*main["command"], listening.WORD]}}}
    main["resources"] = resources(replica)
    if parts.code:
        spec["volumes"].append({"name": "code", "configMap": {"name": f"{base}-code"}})
        main["volumeMounts"].append({"name": "code", "mountPath": CODE, "readOnly": True})
    sources: list[Object] = [{"configMapRef": {"name": name}} for name in plan.config_map_refs]
    sources += [{"secretRef": {"name": parts.secrets.get(name, name)}} for name in plan.secret_refs]
    if sources:
        main["envFrom"] = sources
    selector = {**(settings.node_selector or {}), **(replica.shape.node_selector or {})}
    if selector:
        spec["nodeSelector"] = selector
    tolerations = [*settings.tolerations, *(replica.shape.tolerations or ())]
    if tolerations:
        spec["tolerations"] = [dict(entry) for entry in tolerations]
    if replica.shape.affinity:
        spec["affinity"] = dict(replica.shape.affinity)
    return spec


def frame(settings: Settings, base: str, *, container: str, image: str) -> Object:
    """What pods have in common on one cluster. `base` names the ConfigMap of the launcher."""
    volumes: list[Object] = [
        {"name": "launcher", "configMap": {"name": base}},
        {"name": "work", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    mounts: list[Object] = [
        {"name": "launcher", "mountPath": LAUNCHER, "readOnly": True},
        {"name": "work", "mountPath": WORK},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if settings.outputs_claim:
        volumes.append({"name": "claim", "persistentVolumeClaim": {"claimName": settings.outputs_claim}})
        mounts.append({"name": "claim", "mountPath": CLAIM})
    for number, mount in enumerate(settings.mounts):
        volumes.append({"name": f"mount-{number}", "hostPath": {"path": mount.host_path}})
        mounts.append({"name": f"mount-{number}", "mountPath": mount.at, "readOnly": True})
    main: Object = {
        "name": container,
        "image": image,
        "command": [settings.python, f"{LAUNCHER}/{ARCHIVE}"],
        "env": _sink(settings, base),
        "volumeMounts": mounts,
        "workingDir": WORK,
    }
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [main],
        "volumes": volumes,
    }
    if settings.image_pull_policy:
        main["imagePullPolicy"] = settings.image_pull_policy
    if settings.security_context:
        main["securityContext"] = dict(settings.security_context)
    if settings.pod_security_context:
        spec["securityContext"] = dict(settings.pod_security_context)
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = [dict(entry) for entry in settings.tolerations]
    return spec


def _sink(settings: Settings, base: str) -> list[Object]:
    """Where the launcher sends everything; what allows it to is in a Secret."""
    if settings.sink == STDOUT:
        return [{"name": "SHOAL_SINK", "value": "stdout:"}]
    token = {"secretKeyRef": {"name": f"{base}-sink", "key": "token"}}
    found: list[Object] = [
        {"name": "SHOAL_SINK", "value": settings.sink},
        {"name": "SHOAL_SINK_TOKEN", "valueFrom": token},
        {"name": "SHOAL_SINK_PATIENCE", "value": f"{settings.carry:g}"},
    ]
    if settings.sink_ca:
        found.append({"name": "SHOAL_SINK_CA", "value": f"{LAUNCHER}/{CA}"})
    return found


def resources(replica: Replica) -> Object:
    """Cores, MiB and devices as Kubernetes writes them."""
    sides: dict[str, Object] = {"requests": {}, "limits": {}}
    for side, found in sides.items():
        cpu = getattr(replica.resources.cpu, side)
        memory = getattr(replica.resources.memory, side)
        if cpu is not None:
            found["cpu"] = quantity(cpu)
        if memory is not None:
            found["memory"] = f"{quantity(memory)}Mi"
    gpu = replica.resources.gpu.limits if replica.resources.gpu.limits is not None else replica.resources.gpu.requests
    if gpu:
        sides["limits"]["nvidia.com/gpu"] = str(int(gpu))
    return {side: found for side, found in sides.items() if found}


def quantity(number: float) -> str:
    """`1`, `0.5`: without an exponent, which is not wrong but nobody writes."""
    return re.sub(r"\.?0+$", "", f"{number:.6f}") if number != int(number) else str(int(number))
