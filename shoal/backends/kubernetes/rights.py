"""What Shoal asks of a namespace. deploy/kubernetes.yaml is the same as a Role; a test compares them."""

from __future__ import annotations

from typing import Any, NamedTuple

KUBEFLOW = "kubeflow.org"


class Right(NamedTuple):
    """`create jobs.batch`"""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


RULES = (  # API group, resources, verbs
    ("", ("configmaps",), ("create", "get", "list", "delete")),
    ("", ("secrets", "services"), ("create",)),
    ("batch", ("jobs",), ("create", "list", "delete")),
    ("", ("pods",), ("list", "watch", "patch", "delete")),
    ("", ("pods/log",), ("get",)),
    ("", ("events",), ("list",)),
    ("", ("namespaces",), ("get",)),
    ("", ("persistentvolumeclaims",), ("get",)),
    (KUBEFLOW, ("tfjobs", "pytorchjobs", "mxjobs"), ("create", "list", "delete")),
)
RIGHTS = tuple(
    Right(group, resource, verb) for group, resources, verbs in RULES for resource in resources for verb in verbs
)


def review(right: Right, namespace: str) -> dict[str, Any]:
    """The question whether we have it."""
    resource, _, below = right.resource.partition("/")
    attributes = {"namespace": namespace, "group": right.group, "resource": resource, "verb": right.verb}
    if below:
        attributes["subresource"] = below
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
