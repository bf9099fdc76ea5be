"""Asks the processes in pods where they are: the launcher's archive does it there, as on a laptop (launcher.stacks).

That takes the right to run something in a pod (`create pods/exec`), which is not among those that Shoal needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shoal.backends.kubernetes import observing
from shoal.backends.kubernetes.api import Api
from shoal.backends.kubernetes.attempts import Tended
from shoal.backends.kubernetes.watching import Seen
from shoal.launcher.stacks import Answer

AT_ONCE = 16
PATIENCE = 30.0  # seconds for the answer of one pod
NO_RIGHT = "the account may not run anything in pods: create pods/exec in the Role lets it (deploy/kubernetes.yaml)"

Object = dict[str, Any]


def stacks(api: Api, attempt: Tended, seen: Iterable[Seen]) -> tuple[list[Answer], list[str]]:
    """What the processes of all pods say that run; and why some say nothing."""
    pods = running(attempt, seen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda replica: _one(api, replica, pods[replica]), pods))
    notes = [note for _, said in found for note in said]
    return [answer for answers, _ in found for answer in answers], list(dict.fromkeys(notes))


def running(attempt: Tended, seen: Iterable[Seen]) -> Mapping[str, Object]:
    """replica -> the pod in which its newest try runs."""
    names = {pod: replica for replica, pod in attempt.request["pods"].items()}
    found: dict[str, Object] = {}
    for one in sorted(seen, key=lambda one: observing.age(one.pod)):
        labels = one.pod["metadata"].get("labels") or {}
        replica = names.get(one.pod["metadata"]["name"]) if names else labels.get("shoal/replica")
        state = (observing.container_of(one.pod) or {}).get("state", {})
        if replica in attempt.statuses and not one.gone and "running" in state:
            found[str(replica)] = one.pod
    return {name: found[name] for name in attempt.statuses if name in found}


def _one(api: Api, replica: str, pod: Object) -> tuple[list[Answer], list[str]]:
    container = pod["spec"]["containers"][0]
    said, why = api.run_inside(pod["metadata"]["name"], container["name"], [*container["command"], "stacks"], PATIENCE)
    if said is None:
        return [], [NO_RIGHT if "403" in why else f"{replica} cannot be asked: {why}"]
    try:
        told = json.loads(said.strip().splitlines()[-1])
        return [Answer(**answer) for answer in told["answers"]], [f"{replica}: {note}" for note in told["notes"]]
    except (ValueError, LookupError, TypeError):
        return [], [f"{replica} cannot be asked: {said.strip()[-200:] or 'it said nothing'}"]
