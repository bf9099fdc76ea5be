"""Asks replicas to end: with their grace, sooner, or at once where they have not begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shoal.backends.kubernetes import observing
from shoal.backends.kubernetes.api import Api
from shoal.backends.kubernetes.attempts import Tended
from shoal.states import STOPPED, Status

HOPE = 5.0  # seconds in which a pod that is about to start is to be seen to run, or to have ended
NEVER = float("inf")

Object = dict[str, Any]


def ask(
    api: Api,
    attempt: Tended,
    status: Status,
    reason: str,
    wish: Mapping[str, Any] | None,
    pod: Object | None,
    now: float,
) -> Status | None:
    """Has one replica asked to end; its status when it is over with that. Asking again asks nobody twice."""
    attempt.ask_to_end(status.replica, reason)
    key = (status.replica, status.try_)
    if not observing.waits(status, pod):
        _end(api, attempt, key, wish, pod)
        return None
    # A kubelet tells late that a container runs. One that is about to is asked as if it did: what it prints is read.
    if pod is not None and observing.about_to_start(status, pod) and now < attempt.hoped.setdefault(key, now) + HOPE:
        _end(api, attempt, key, wish, pod)
        return None
    if not attempt.operator:
        api.delete("Job", attempt.job_name(*key))
    return replace(status, state=STOPPED, reason=reason, finished=now)


def look_again(attempt: Tended, now: float) -> float | None:
    """When nobody hopes any longer that a pod still starts."""
    return min((at + HOPE for at in attempt.hoped.values() if at + HOPE > now), default=None)


def withdraw(api: Api, attempt: Tended) -> None:
    """Takes the object away from the operator: its pods end with their grace, and none comes anew."""
    if not attempt.withdrawn:
        api.delete(attempt.operator, attempt.request["anchor"])
        attempt.withdrawn = True


def _end(api: Api, attempt: Tended, key: tuple[str, int], wish: Mapping[str, Any] | None, pod: Object | None) -> None:
    most = attempt.policy.grace_stop
    grace = min(most, float(wish["grace"])) if wish else most
    before = min(attempt.told.get(key, NEVER), observing.asked(pod)) if pod is not None else 0.0
    if pod is None or before <= grace:
        return
    if grace >= most:
        # The kubelet ends it with its own grace, and keeps the pod: its log can be read to the end.
        asked = {"metadata": {"annotations": {"shoal/asked": f"{grace:g}"}}, "spec": {"activeDeadlineSeconds": 1}}
        api.patch("Pod", pod["metadata"]["name"], asked)
    else:
        # An operator makes a new pod for each, once it is gone: it is told in time, when all have been asked.
        attempt.killed = True
        _hurry(api, pod, max(1, int(grace)), asked=before < NEVER)
    attempt.told[key] = grace


def _hurry(api: Api, pod: Object, seconds: int, asked: bool) -> None:
    """A kubelet does not take back a grace that it has given (kubernetes#113606): then the launcher is told.

    That takes the right to run something in the pod. Without it the grace has to pass.
    """
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
    kill = [container["command"][0], "-c", "import os, signal; os.kill(1, signal.SIGUSR2)"]
    if asked and api.run_inside(name, container["name"], kill)[0] is not None:
        return
    api.delete("Pod", name, grace=seconds, uid=pod["metadata"]["uid"])
