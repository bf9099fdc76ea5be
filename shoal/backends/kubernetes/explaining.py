"""What keeps replicas from starting, where their pods do not tell: two questions for all of them, asked seldom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shoal.backends.kubernetes import observing
from shoal.backends.kubernetes.api import Api
from shoal.backends.kubernetes.attempts import Tended
from shoal.backends.kubernetes.watching import Seen
from shoal.states import CREATED, DELETED, FAILED, STOPPED, Status


def silent(attempt: Tended, pods: Mapping[str, Seen]) -> list[Status]:
    """The replicas that have not started, and of which nobody says why."""
    waiting = [status for status in attempt.statuses.values() if status.state == CREATED]
    return [s for s in waiting if s.replica not in pods or not observing.pending(pods[s.replica].pod)]


def explained(
    api: Api, attempt: Tended, pods: Mapping[str, Seen], waiting: Sequence[Status], now: float
) -> list[Status]:
    """What is known then of those of which something is: a reason, or that they will never start."""
    events, _ = api.list("Event", fields="type=Warning")
    names = {}
    for status in waiting:
        pod = pods.get(status.replica)
        names[status.replica] = pod.pod["metadata"]["name"] if pod is not None else _made_by(attempt, status)
    told = observing.explained(events, names)
    lost = _without_maker(api, attempt, [status for status in waiting if status.replica not in pods])
    found = []
    for status in waiting:
        after = replace(status, reason=told.get(status.replica, status.reason))
        if status.replica in lost:
            stopping = attempt.stopping.get(status.replica, "")
            state, why = (STOPPED, stopping) if stopping else (FAILED, lost[status.replica])
            after = replace(after, state=state, reason=why, finished=now)
        if after != status:
            found.append(after)
    return found


def _made_by(attempt: Tended, status: Status) -> str:
    """The object from which its pod is made."""
    return str(attempt.request["anchor"]) if attempt.operator else attempt.job_name(status.replica, status.try_)


def _without_maker(api: Api, attempt: Tended, waiting: Sequence[Status]) -> dict[str, str]:
    """replica -> why it will never have a pod."""
    if not waiting:
        return {}
    kind = attempt.operator or "Job"
    makers, _ = api.list(kind, f"shoal/uid={attempt.uid}")
    known = {maker["metadata"]["name"]: maker for maker in makers}
    found: dict[str, str] = {}
    for status in waiting:
        maker = known.get(_made_by(attempt, status))
        if maker is None:
            found[status.replica] = f"{DELETED}: its {kind} was deleted"
        elif observing.failure_of(maker) and not attempt.operator:
            found[status.replica] = f"{DELETED}: its pod is gone: {observing.failure_of(maker)}"
    return found
