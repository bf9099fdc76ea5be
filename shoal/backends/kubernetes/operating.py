"""Beside an operator: what it does of its own must not look like the cause. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shoal.backends.kubernetes import observing
from shoal.backends.kubernetes.watching import Seen
from shoal.states import (
    DELETED,
    FAILED,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    Policy,
    StartReplica,
    Status,
    restarts_alone,
)


def as_the_operator_ended_it(
    before: Status, after: Status, statuses: Mapping[str, Status], pods: Mapping[str, Seen], policy: Policy
) -> Status:
    """The status of a replica whose pod was deleted without our doing.

    An operator deletes pods that still run when one has failed, or when all is done: they are stopped, not failed. It
    takes a pod that somebody deletes for one that has failed, at once. While the log of such a one is still being read,
    nothing is said.
    """
    if after.state != FAILED or not after.reason.startswith(DELETED):
        return after
    others = [status for status in statuses.values() if status.replica != before.replica]
    failed = next((status.replica for status in others if status.state == FAILED), "")
    if failed:
        return replace(after, state=STOPPED, reason=f"{failed} failed")
    if all(statuses[name].state == SUCCEEDED for name in policy.deciders):
        return replace(after, state=STOPPED, reason="the experiment has succeeded")
    order = list(statuses)
    ends = {
        name: (seen.doomed or 0.0, order.index(name))  # one that ended by itself was before all who were made to
        for name, seen in pods.items()
        if not statuses[name].over and (seen.doomed or seen.gone or observing.ended(seen.pod))
    }
    return before if before.replica in ends and min(ends.values()) < ends[before.replica] else after


def too_early(statuses: Mapping[str, Status], name: str, policy: Policy) -> bool:
    """A parameter server that ends before the workers looks like a failure to an operator, which ends them too."""
    if name not in policy.servers:
        return False
    alive = {status.replica for status in statuses.values() if not status.over}
    failed = any(status.state == FAILED for status in statuses.values())
    return not failed and bool(alive - policy.servers)


def may_stay(statuses: Mapping[str, Status], name: str, policy: Policy) -> bool:
    """Whether the launcher of a replica may be there longer than its command: rank 0, or one that begins again."""
    return name == next(iter(statuses)) or policy.restart == "replica"


def starts_again(before: Status, ending: Mapping[str, Any] | None, policy: Policy) -> bool:
    """Whether a launcher goes on with the next try after this end, in its pod: an operator sees nothing of it."""
    if ending is None or ending.get("stopped") or ending["exit_code"] == 0:
        return False
    return restarts_alone(replace(before, exit_code=ending["exit_code"]), policy)


def started_again(step: StartReplica, now: float) -> Status:
    return Status(step.replica, step.try_, RUNNING, started=now)


def policy_now(statuses: Mapping[str, Status], pods: Mapping[str, Seen], policy: Policy) -> Policy:
    """The policy, in which nobody starts again once a pod has failed or is gone: an operator then ends the others."""

    def lost(name: str) -> bool:
        seen = pods.get(name)
        return seen is None or seen.gone or seen.pod.get("status", {}).get("phase") == "Failed"

    failed = any(status.state == FAILED and lost(status.replica) for status in statuses.values())
    return replace(policy, restart="never") if failed and policy.restart == "replica" else policy
