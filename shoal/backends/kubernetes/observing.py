"""What the cluster says of pods -> the status of replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from shoal.states import (
    CREATED,
    DELETED,
    EVICTED,
    FAILED,
    NODE_LOST,
    OOM_KILLED,
    PREEMPTED,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    Status,
    normal_exit,
)

Object = Mapping[str, Any]

TAKEN = {  # reasons of a pod, or of its DisruptionTarget condition -> how it is told
    "Evicted": EVICTED,
    "EvictionByEvictionAPI": EVICTED,
    "TerminationByKubelet": EVICTED,
    "Terminated": EVICTED,  # its node is shut down
    "NodeShutdown": EVICTED,
    "Preempting": PREEMPTED,
    "PreemptionByScheduler": PREEMPTED,
    "NodeLost": NODE_LOST,
    "DeletionByTaintManager": NODE_LOST,
    "DeletionByPodGC": NODE_LOST,
}
DEADLINE = "DeadlineExceeded"  # how a kubelet calls an end that we asked for
LATE = 30.0  # seconds after which a pod that should be gone is so: its node does not answer


def status_of(
    before: Status,
    pod: Object | None,
    *,
    gone: bool = False,
    ending: Mapping[str, Any] | None = None,
    stopping: str = "",
    drained: bool = True,
    limit: str = "",
    again: bool = False,
) -> Status:
    """One start of one replica.

    `gone`: the cluster has the pod no more. `ending` is what its launcher wrote last, `stopping` why we asked it to
    end, `limit` its memory limit as a person reads it. A pod that ended is only over when everything it printed has
    been read: `drained`. `again`: its launcher goes on with the next try in the same pod.
    """
    if before.over:
        return before
    if pod is None:  # never seen, or gone while nobody looked
        return before if before.started is None else _ended(before, None, ending, stopping, limit)
    node = str(pod.get("spec", {}).get("nodeName") or before.node)
    state = (container_of(pod) or {}).get("state", {})
    if gone or ended(pod) or again or _stays(ending):
        now = replace(_running(before, state), node=node, reason="")
        return _ended(now, pod, ending, stopping, limit) if drained else now
    if "running" in state:
        return replace(_running(before, state), node=node, reason="")
    known = before.reason if node == before.node else ""  # what was found out beside the pod
    return replace(before, node=node, reason=pending(pod) or known)


def ended(pod: Object) -> bool:
    """Whether its command is over, or its node has been lost with it."""
    status = pod.get("status", {})
    main = container_of(pod) or {}
    return status.get("phase") in ("Succeeded", "Failed") or "terminated" in main.get("state", {})


def _stays(ending: Mapping[str, Any] | None) -> bool:
    """Whether its command has succeeded, however long its launcher stays: an operator takes note of pods only."""
    return ending is not None and ending["exit_code"] == 0 and not ending.get("stopped")


def lost_with_its_node(pod: Object, now: float, carry: float = 0.0) -> bool:
    """Whether the cluster has long wanted it gone, because of its node, and nobody there says that it is.

    `carry`: seconds of its grace that were for its files only.
    """
    due = moment(pod["metadata"].get("deletionTimestamp"))
    taken = any(TAKEN.get(str(entry.get("reason"))) == NODE_LOST for entry in _disruptions(pod.get("status", {})))
    return taken and due is not None and now > due - carry + LATE


def _running(before: Status, state: Mapping[str, Any]) -> Status:
    told = state.get("running") or state.get("terminated") or {}
    started = before.started or moment(told.get("startedAt"))
    return replace(before, state=RUNNING if started else before.state, started=started)


def _ended(before: Status, pod: Object | None, ending: Mapping[str, Any] | None, stopping: str, limit: str) -> Status:
    terminated = (container_of(pod) or {}).get("state", {}).get("terminated") if pod is not None else None
    taken = _taken(pod)
    told = str(ending.get("reason") or "") if ending is not None else ""
    if ending is not None:
        code, signal = ending["exit_code"], str(ending.get("signal") or "")
        stopped = bool(ending.get("stopped"))
        started, finished = ending.get("started"), ending.get("finished")
    elif terminated is not None:
        code, signal = normal_exit(int(terminated.get("exitCode", 0)))
        stopped = code != 0 and terminated.get("reason") != OOM_KILLED
        started, finished = moment(terminated.get("startedAt")), moment(terminated.get("finishedAt"))
    else:
        code, signal, stopped, started, finished = None, "", True, None, None
    # A container is said to be out of memory also when it went on without the process that the kernel had killed.
    if terminated is not None and terminated.get("reason") == OOM_KILLED and code != 0 and not told:
        told = f"{OOM_KILLED}: its container reached its memory limit" + (f" of {limit}" if limit else "")
    if told.startswith(OOM_KILLED):
        state, reason = FAILED, told
    elif stopping and stopped:
        state, reason = STOPPED, stopping
    elif taken and (stopped or code != 0):
        state, reason = FAILED, taken
    elif code == 0 and not (stopped and ending is not None):
        state, reason = SUCCEEDED, ""
    else:
        state, reason = FAILED, told or _unasked(before, pod, ending, code)
    return replace(
        before,
        state=state,
        reason=reason,
        exit_code=code,
        signal=signal,
        started=before.started or started,
        finished=finished or before.finished,
    )


def _taken(pod: Object | None) -> str:
    """`Evicted: The node was low on resource: memory.`: why the cluster has taken a pod away; empty if it has not."""
    if pod is None:
        return ""
    status = pod.get("status", {})
    told = [(status.get("reason"), status.get("message"))]
    told += [(entry.get("reason"), entry.get("message")) for entry in _disruptions(status)]
    for name, message in told:
        if name in TAKEN:
            said = message or next((str(text) for _, text in told if text), "")
            return f"{TAKEN[name]}: {said}" if said else TAKEN[name]
    return ""


def _unasked(before: Status, pod: Object | None, ending: Mapping[str, Any] | None, code: int | None) -> str:
    """Why a replica ended that neither succeeded nor was asked to end, where that was not its command's own doing."""
    if pod is None:
        return f"{DELETED}: its pod is gone"
    status = pod.get("status", {})
    main = container_of(pod) or {}
    terminated = main.get("state", {}).get("terminated") or {}
    if terminated.get("reason") in ("ContainerCannotRun", "StartError"):
        return f"cannot start: {terminated.get('message') or terminated['reason']}"
    if pod["metadata"].get("deletionTimestamp") and (ending is None or ending.get("stopped")):
        return f"{DELETED}: its pod was deleted" + ("" if before.started else " before it started")
    for entry in status.get("initContainerStatuses") or ():
        failed = entry.get("state", {}).get("terminated") or {}
        if failed.get("exitCode"):
            said = str(failed.get("message") or "").strip()
            told = f"its init container {entry.get('name')} failed with exit code {failed['exitCode']}"
            return f"{told}: {said}" if said else told
    if status.get("reason") and status["reason"] != DEADLINE:
        return f"{status['reason']}: {status.get('message') or ''}".rstrip(": ")
    if ending is not None and ending.get("stopped"):
        return "its launcher got SIGTERM, and not from Shoal"
    return f"{DELETED}: its pod is gone" if code is None else ""


def _disruptions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    return [entry for entry in conditions if entry.get("type") == "DisruptionTarget" and entry.get("status") == "True"]


def container_of(pod: Object) -> Mapping[str, Any] | None:
    """What is told of the container that runs the launcher: the first."""
    names = [entry["name"] for entry in pod.get("spec", {}).get("containers", ())]
    told: Sequence[Mapping[str, Any]] = pod.get("status", {}).get("containerStatuses") or ()
    return next((entry for entry in told if names and entry.get("name") == names[0]), None)


def pending(pod: Object) -> str:
    """What a pod waits for, in the cluster's own words."""
    status = pod.get("status", {})
    for entry in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = entry.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            message = str(waiting.get("message") or "")
            return f"{waiting['reason']}: {message}" if message else str(waiting["reason"])
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason') or 'Pending'}: {condition.get('message') or ''}".rstrip(": ")
    return ""


def waits(before: Status, pod: Object | None) -> bool:
    """Whether a replica has not started, so that it can be taken back."""
    if before.state != CREATED or before.started is not None:
        return False
    return (
        pod is None
        or not pod.get("spec", {}).get("nodeName")
        or "waiting" in ((container_of(pod) or {"state": {"waiting": {}}}).get("state", {}))
    )


def about_to_start(before: Status, pod: Object) -> bool:
    """Whether a replica that has not started is with a kubelet, and nothing is known to keep it from starting."""
    return bool(pod.get("spec", {}).get("nodeName")) and not pending(pod) and not before.reason


def explained(events: Iterable[Object], names: Mapping[str, str]) -> dict[str, str]:
    """replica -> what the newest warning about its object says. `names`: replica -> how that is called, or begins."""
    found: dict[str, tuple[str, str]] = {}
    for event in events:
        about = str((event.get("involvedObject") or {}).get("name") or "")
        when = str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
        said = f"{event.get('reason')}: {event.get('message') or ''}".rstrip(": ")
        for replica, name in names.items():
            mine = about == name or about.startswith(f"{name}-")
            if mine and when >= found.get(replica, ("", ""))[0]:
                found[replica] = (when, said)
    return {replica: said for replica, (_, said) in found.items()}


def failure_of(job: Object) -> str:
    """Why a Job will not make another pod; empty when it still may."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition.get("type") in ("Failed", "FailureTarget") and condition.get("status") == "True":
            return f"{condition.get('reason') or 'Failed'}: {condition.get('message') or ''}".rstrip(": ")
    return ""


def asked(pod: Object) -> float:
    """The grace with which a pod has been asked to end, by this server or another."""
    metadata = pod["metadata"]
    noted = (metadata.get("annotations") or {}).get("shoal/asked")
    graces = [float(noted)] if noted else []
    if metadata.get("deletionTimestamp"):
        graces.append(float(metadata.get("deletionGracePeriodSeconds") or 0))
    return min(graces, default=float("inf"))


def age(pod: Object) -> str:
    """Later for newer ones."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def moment(text: Any) -> float | None:
    """`2026-11-15T23:00:00Z` -> UTC seconds."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(re.sub(r"Z$", "+00:00", text)).timestamp()
    except ValueError:
        return None
