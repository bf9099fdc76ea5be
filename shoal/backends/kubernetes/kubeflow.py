"""The same replicas as one TFJob, PyTorchJob or MXJob. Pure.

The one place that knows frameworks and a cluster at once: the table of Kubeflow's kinds. The operator has one template
for each type of replica, so replicas of one role that differ cannot be said; that is refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shoal.backends.backend import Launch
from shoal.backends.kubernetes.pods import Object, Parts, base_name, labels, pod_spec
from shoal.backends.kubernetes.settings import Settings
from shoal.errors import UsageError
from shoal.frameworks import MASTER, PS, WORKER
from shoal.plan import Plan, Replica
from shoal.states import Policy


@dataclass(frozen=True)
class Kind:
    """What the operator calls things."""

    kind: str
    plural: str
    replicas: str  # the key of its replica specs
    container: str  # the name it looks for
    port: str
    types: dict[str, str]  # role -> type


TF_JOB = Kind(
    "TFJob", "tfjobs", "tfReplicaSpecs", "tensorflow", "tfjob-port", {MASTER: "Chief", WORKER: "Worker", PS: "PS"}
)
KINDS = {
    "tensorflow": TF_JOB,
    "pytorch": Kind(
        "PyTorchJob",
        "pytorchjobs",
        "pytorchReplicaSpecs",
        "pytorch",
        "pytorchjob-port",
        {MASTER: "Master", WORKER: "Worker"},
    ),
    "mxnet": Kind(
        "MXJob",
        "mxjobs",
        "mxReplicaSpecs",
        "mxnet",
        "mxjob-port",
        {MASTER: "Scheduler", WORKER: "Worker", PS: "Server"},
    ),
    "none": TF_JOB,  # the kind that has all three roles; what it is named after, nobody sees: TF_CONFIG is taken away
}
PORT = 2222
TAKEN = "training.kubeflow.org/"  # labels by which the operator knows its pods


def refusal(plan: Plan, served: Collection[str]) -> str:
    """Why the operator of a cluster cannot run this plan; empty when it can. `served`: plurals of kubeflow.org/v1."""
    kind = KINDS.get(plan.framework)
    if kind is None:
        known = ", ".join(KINDS)
        return f"framework {plan.framework} is not run through Kubeflow (only {known} are); use backend: native"
    if kind.plural not in served:
        found = ", ".join(sorted(served)) or "none of its kinds"
        return f"this cluster does not serve {kind.kind} (it serves {found}); use backend: native"
    for type_, members in types_of(plan).items():
        first = members[0]
        for other in members[1:]:
            if shape_of(other) != shape_of(first):
                return (
                    f"{other.name} differs from {first.name}, and a {kind.kind} has one template for all of {type_}; "
                    "remove the entries for single replicas, or use backend: native"
                )
        for label in first.shape.labels or ():
            if label.startswith(TAKEN):
                return f"{first.name}: the operator sets label {label} itself; remove it"
    return ""


def shape_of(replica: Replica) -> object:
    return replica.shape.model_dump(exclude={"index"}), replica.n_trainers


def types_of(plan: Plan) -> dict[str, list[Replica]]:
    """Type -> its replicas in the order of their indices. PyTorch without a master needs one: worker 0 becomes it."""
    kind = KINDS[plan.framework]
    found: dict[str, list[Replica]] = {}
    for replica in plan.replicas:
        found.setdefault(kind.types[replica.role], []).append(replica)
    if plan.framework == "pytorch" and "Master" not in found:
        first, *rest = found["Worker"]
        found = {"Master": [first], **({"Worker": rest} if rest else {})}
    return found


def hosts(launch: Launch, settings: Settings) -> dict[str, str]:
    """replica -> the name by which its peers reach it: the operator makes a service for every pod."""
    domain = f".{settings.cluster_domain}" if settings.cluster_domain else ""
    return {
        replica.name: f"{pod_name(launch, type_, index)}.{settings.namespace}.svc{domain}"
        for type_, members in types_of(launch.plan).items()
        for index, replica in enumerate(members)
    }


def pod_name(launch: Launch, type_: str, index: int) -> str:
    return f"{base_name(launch)}-{type_.lower()}-{index}"


def custom_object(launch: Launch, settings: Settings, parts: Parts) -> Object:
    """The whole experiment as the operator wants it."""
    kind = KINDS[launch.plan.framework]
    spec: Object = {
        # Pods that still run when it is over are removed; those that ended keep their logs until these are read.
        # No backoffLimit: at the first failure the operator would remove all pods, also those that ended.
        "runPolicy": {"cleanPodPolicy": "Running"},
        kind.replicas: {
            type_: _replica_spec(launch, members, settings, parts, kind)
            for type_, members in types_of(launch.plan).items()
        },
    }
    if kind.kind == "MXJob":
        spec["jobMode"] = "MXTrain"
    if kind.kind == "PyTorchJob":
        spec["nprocPerNode"] = str(max(replica.n_trainers for replica in launch.plan.replicas))
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind.kind,
        "metadata": {"name": base_name(launch), "labels": labels(launch)},
        "spec": spec,
    }


def rules(policy: Policy) -> Object:
    """What the launcher must know where an operator acts on the ends of pods: who may work on after rank 0, and whether
    a command that failed is started again, of which the operator then learns nothing."""
    return policy.json()


def _replica_spec(launch: Launch, members: Sequence[Replica], settings: Settings, parts: Parts, kind: Kind) -> Object:
    first = members[0]
    spec = pod_spec(launch, first, settings, container=kind.container, parts=parts)
    spec["containers"][0]["ports"] = [{"name": kind.port, "containerPort": PORT}]
    del spec["restartPolicy"]  # the operator takes that of the replica
    metadata: Object = {"labels": {**(first.shape.labels or {}), **labels(launch), "shoal/try": "0"}}
    annotations = {"sidecar.istio.io/inject": "false", **(first.shape.annotations or {})}
    return {
        "replicas": len(members),
        "restartPolicy": "Never",
        "template": {"metadata": {**metadata, "annotations": annotations}, "spec": spec},
    }


def check(plan: Plan, served: Collection[str]) -> None:
    """Raises what `refusal` says."""
    why = refusal(plan, served)
    if why:
        text, _, hint = why.partition("; ")
        raise UsageError(f"backend: kubeflow: {text}", hint=hint)
