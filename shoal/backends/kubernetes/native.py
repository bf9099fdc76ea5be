"""One Job per replica, one headless Service, one anchor that owns all. Pure.

The anchor is a ConfigMap: deleting it deletes the rest, also what a server that died was still creating. Jobs do not
restart pods: which replica starts again, and with whom, is decided by the same rules as on a laptop.
"""

from __future__ import annotations

from shoal.backends.backend import Launch
from shoal.backends.kubernetes.pods import PORT, Object, Parts, base_name, labels, pod_spec
from shoal.backends.kubernetes.settings import Settings
from shoal.plan import Replica

CONTAINER = "shoal"
HAS_FAILURE_POLICY, REPLACES_WHEN_FAILED = (1, 26), (1, 29)  # versions of the API server: on by default from there on


def service(launch: Launch) -> Object:
    """Gives every replica a name before it is ready: peers look for each other while they start."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": base_name(launch), "labels": labels(launch)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"shoal/uid": launch.uid, "shoal/attempt": str(launch.attempt)},
            "ports": [{"name": "replica", "port": PORT}],
        },
    }


def job(launch: Launch, replica: Replica, settings: Settings, parts: Parts, try_: int = 0) -> Object:
    """One start of one replica."""
    mine = labels(launch, replica, try_)
    shape = replica.shape
    spec = pod_spec(launch, replica, settings, container=CONTAINER, parts=parts)
    metadata: Object = {"labels": {**(shape.labels or {}), **mine}}
    if shape.annotations:
        metadata["annotations"] = dict(shape.annotations)
    policies: Object = {}
    if parts.version >= REPLACES_WHEN_FAILED:
        policies["podReplacementPolicy"] = "Failed"
    if parts.version >= HAS_FAILURE_POLICY:
        # A pod that the cluster took away is a failure like others: the rules of the file decide what follows.
        taken = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        policies["podFailurePolicy"] = {"rules": [taken]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(launch, replica.name, try_), **metadata},
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            **policies,
            "template": {
                "metadata": metadata,
                "spec": {"hostname": replica.name, "subdomain": base_name(launch), **spec},
            },
        },
    }


def job_name(launch: Launch, replica: str, try_: int) -> str:
    return f"{base_name(launch)}-{replica}" + (f"-{try_}" if try_ else "")


def host(launch: Launch, replica: Replica, settings: Settings) -> str:
    """The name by which peers reach a replica."""
    domain = f".{settings.cluster_domain}" if settings.cluster_domain else ""
    return f"{replica.name}.{base_name(launch)}.{settings.namespace}.svc{domain}"
