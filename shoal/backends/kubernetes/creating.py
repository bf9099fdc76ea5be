"""Makes the objects of one attempt: the anchor first, then what it owns. Making them again changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shoal.backends.kubernetes.api import Api, Refused
from shoal.errors import Unavailable

AT_ONCE = 8  # calls
FIRST = ("ConfigMap", "Secret", "Service")  # what pods need comes before them
Object = dict[str, Any]


def create_anchor(api: Api, anchor: Object, uid: str) -> Object:
    """The anchor as an owner reference; that of the experiment `uid` when it is there already.

    Raises Refused when the cluster does not take it, Unavailable when it does not answer.
    """
    return _reference(_made_or_found(api, anchor, uid))


def create_owned(api: Api, objects: Sequence[Object], owner: Object, wanted: Callable[[], bool]) -> bool:
    """Whether all were made; not, when they were no longer wanted. Raises as `create_anchor` does."""

    def make(obj: Object) -> bool:
        if not wanted():
            return False
        create_one(api, owned(obj, owner))
        return True

    first = [obj for obj in objects if obj["kind"] in FIRST]
    then = [obj for obj in objects if obj["kind"] not in FIRST]
    with ThreadPoolExecutor(AT_ONCE if len(then) > AT_ONCE else 1, "creating") as pool:
        return all([*map(make, first), *pool.map(make, then)])


def create_one(api: Api, obj: Object) -> None:
    """Silent when there is one of that name: it was made by us before."""
    try:
        api.create(obj)
    except Refused as error:
        if error.status != 409:
            raise


def owned(obj: Object, owner: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [{**owner, "blockOwnerDeletion": False}]}}


def _reference(anchor: Object) -> Object:
    metadata = anchor["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}


def _made_or_found(api: Api, anchor: Object, uid: str) -> Object:
    try:
        return api.create(anchor)
    except Refused as error:
        if error.status != 409:
            raise
    name = anchor["metadata"]["name"]
    found = api.get("ConfigMap", name)
    if found is None or found["metadata"].get("deletionTimestamp"):
        raise Unavailable(f"cluster {api.settings.name}: {name} is being deleted", hint="it is tried again")
    if (found["metadata"].get("labels") or {}).get("shoal/uid") != uid:
        raise Refused(409, "AlreadyExists", f"{api.settings.namespace} has another {name}", hint="delete it")
    return found
