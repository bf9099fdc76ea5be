"""What has to happen next. Pure: a snapshot and the time in, actions out; asking again without a change gives the same.

Every action is safe to do twice, so a server may die between any two of them and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shoal.backends.backend import Observation, Site
from shoal.engine.admission import Needs, shortage
from shoal.states import (
    FAILED,
    LOST,
    NOT_SUBMITTED,
    QUEUED,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    TIMED_OUT,
    Outcome,
    Policy,
    Status,
)


@dataclass(frozen=True)
class StopWish:
    reason: str
    grace: float


FETCHING = "fetching "  # how the reason begins while data or code is on its way
WAITS_FOR = "waits for "  # while too little is free
BEHIND = "behind "  # while another one is to start first


@dataclass(frozen=True)
class Staging:
    """How far it is to bring an experiment's data and code here; `reason` says it in numbers, or why it failed."""

    begun: bool = False
    failed: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Experiment:
    """One unfinished experiment as the engine sees it."""

    uid: str
    number: int
    state: str
    reason: str
    attempt: int
    policy: Policy
    needs: Needs = field(default_factory=Needs)
    queues: bool = True  # False on a cluster with a scheduler of its own
    oversubscribe: bool = False
    created: float = 0.0
    timeout_queue: float | None = None
    handle: str | None = None
    stop: StopWish | None = None
    recorded: Mapping[tuple[str, int], Status] = field(default_factory=dict)  # (replica, try) -> as the store has it
    observation: Observation | None = None
    staging: Staging | None = None  # None: its data and code are where replicas look for them


@dataclass(frozen=True)
class Snapshot:
    experiments: tuple[Experiment, ...]
    site: Site


@dataclass(frozen=True)
class Admit:
    """Take devices and ports, and leave the queue."""

    uid: str


@dataclass(frozen=True)
class Explain:
    """Say what a waiting experiment waits for."""

    uid: str
    reason: str


@dataclass(frozen=True)
class Stage:
    """Begin to bring its data and code here."""

    uid: str


@dataclass(frozen=True)
class Submit:
    uid: str
    attempt: int


@dataclass(frozen=True)
class Record:
    """Write down what was observed of the replicas."""

    uid: str
    attempt: int
    statuses: tuple[Status, ...]
    state: str
    reason: str = ""


@dataclass(frozen=True)
class AskToStop:
    uid: str
    handle: str
    reason: str
    grace: float


@dataclass(frozen=True)
class Restart:
    """Begin the next attempt."""

    uid: str
    attempt: int  # the one that ended
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Finish:
    uid: str
    state: str
    reason: str
    outcome: Outcome | None = None


Action = Admit | Explain | Stage | Submit | Record | AskToStop | Restart | Finish


@dataclass(frozen=True)
class Decision:
    actions: tuple[Action, ...]
    wake_at: float | None = None


def decide(snapshot: Snapshot, now: float) -> Decision:
    actions: list[Action] = []
    for experiment in snapshot.experiments:
        if experiment.state != QUEUED:
            actions += _active(experiment)
    queued, wake_at = _queue(snapshot, now)
    return Decision((*actions, *queued), wake_at)


def _active(experiment: Experiment) -> Iterator[Action]:
    seen = experiment.observation
    if experiment.handle is None and experiment.staging is not None:
        yield from _staged(experiment, experiment.staging)
        return
    if experiment.handle is None or seen is None:
        # Also when it is to be stopped: a server that died may have submitted it and not have kept the handle.
        yield Submit(experiment.uid, experiment.attempt)
        return
    if seen.unreachable:
        yield from _lost(experiment, experiment.handle, seen)
        return
    changed = tuple(s for s in seen.statuses if experiment.recorded.get((s.replica, s.try_)) != _without_lines(s))
    state = _state(experiment, seen)
    if changed or state != experiment.state:
        reason = _waits_for(seen) if state in (STARTING, RESTARTING) else ""
        if not reason and state == experiment.state:
            reason = experiment.reason
        yield Record(experiment.uid, experiment.attempt, changed, state, reason)
    if seen.outcome is not None:
        yield _after(experiment, seen.outcome)
        return
    yield from _wish(experiment, experiment.handle, seen)
    if seen.missing:  # after the wish: whoever looks after it now finds it, and starts nothing
        yield Submit(experiment.uid, experiment.attempt)


def _lost(experiment: Experiment, handle: str, seen: Observation) -> Iterator[Action]:
    """Nothing can be said of it. A wish to stop it is passed on all the same: its cluster may come back."""
    wish = experiment.stop
    if seen.unknown and wish is not None and wish.grace == 0:
        yield Finish(experiment.uid, STOPPED, f"{wish.reason}; given up: {seen.unreachable}")
        return
    if experiment.state != LOST or experiment.reason != seen.unreachable:
        yield Record(experiment.uid, experiment.attempt, (), LOST, seen.unreachable)
    if not seen.unknown:
        yield from _wish(experiment, handle, seen)


def _wish(experiment: Experiment, handle: str, seen: Observation) -> Iterator[Action]:
    wish = experiment.stop
    if wish is not None and (seen.stop_grace is None or wish.grace < seen.stop_grace):
        yield AskToStop(experiment.uid, handle, wish.reason, wish.grace)


def _staged(experiment: Experiment, staging: Staging) -> Iterator[Action]:
    """Nothing of this attempt has been submitted while its data is not here, so nothing has to be asked to stop."""
    if experiment.stop is not None:
        yield Finish(experiment.uid, STOPPED, experiment.stop.reason)
    elif staging.failed:
        yield Finish(experiment.uid, FAILED, staging.reason)
    elif not staging.begun:
        yield Stage(experiment.uid)
    elif staging.reason and staging.reason != experiment.reason:
        yield Record(experiment.uid, experiment.attempt, (), experiment.state, staging.reason)


def _state(experiment: Experiment, seen: Observation) -> str:
    """Running once every replica has been seen to run; before that, starting, or restarting in a later attempt."""
    if seen.statuses and all(status.started is not None for status in seen.statuses):
        return RUNNING
    if experiment.state in (STARTING, RESTARTING):
        return experiment.state
    return STARTING if experiment.attempt == 0 else RESTARTING


def _waits_for(seen: Observation) -> str:
    """What keeps a replica from starting, in the cluster's words."""
    waiting = [status for status in seen.statuses if status.started is None and not status.over and status.reason]
    return f"{waiting[0].replica}: {waiting[0].reason}" if waiting else ""


def _after(experiment: Experiment, outcome: Outcome) -> Action:
    """The attempt is over: the next one, or the end."""
    policy = experiment.policy
    again = (
        outcome.state == FAILED
        and policy.restart == "experiment"
        and experiment.stop is None
        and experiment.attempt < policy.restart_max
        and (not outcome.failures or policy.restarts_after(outcome.failures[0]))
        and not outcome.reason.startswith((TIMED_OUT, NOT_SUBMITTED))
    )
    if again:
        reason = f"attempt {experiment.attempt + 1} of at most {policy.restart_max}: {outcome.reason}"
        return Restart(experiment.uid, experiment.attempt, outcome, reason)
    return Finish(experiment.uid, outcome.state, outcome.reason, outcome)


def _queue(snapshot: Snapshot, now: float) -> tuple[list[Action], float | None]:
    actions: list[Action] = []
    wake_at: float | None = None
    used = _used(snapshot)
    ahead: Experiment | None = None
    for experiment in snapshot.experiments:
        if experiment.state != QUEUED:
            continue
        if experiment.stop is not None:
            actions.append(Finish(experiment.uid, STOPPED, experiment.stop.reason))
            continue
        if experiment.timeout_queue is not None:
            deadline = experiment.created + experiment.timeout_queue
            if now >= deadline:
                waited = f"{TIMED_OUT}: not started after {experiment.timeout_queue:g} s in the queue"
                reason = f"{waited}: {experiment.reason}" if experiment.reason else waited
                actions.append(Finish(experiment.uid, FAILED, reason))
                continue
            wake_at = deadline if wake_at is None else min(wake_at, deadline)
        if not experiment.queues:
            actions.append(Admit(experiment.uid))
            continue
        missing = "" if experiment.oversubscribe else shortage(experiment.needs, used, snapshot.site)
        if ahead is not None:
            reason = f"{BEHIND}#{ahead.number} in the queue"
        elif missing:
            reason = f"{WAITS_FOR}{missing}"
        else:
            actions.append(Admit(experiment.uid))
            used = _taken(used, experiment, snapshot.site)
            continue
        ahead = ahead or experiment
        if reason != experiment.reason:
            actions.append(Explain(experiment.uid, reason))
    return actions, wake_at


def _used(snapshot: Snapshot) -> Needs:
    used = Needs()
    for experiment in snapshot.experiments:
        if experiment.state != QUEUED:
            used = _taken(used, experiment, snapshot.site)
    return used


def _taken(used: Needs, experiment: Experiment, site: Site) -> Needs:
    """Totals with this experiment. One that oversubscribes counts for nothing but the devices it was assigned."""
    if not experiment.oversubscribe:
        return used + experiment.needs
    return used + Needs(gpu=min(experiment.needs.gpu, max(0, len(site.gpus) - used.gpu)))


def _without_lines(status: Status) -> Status:
    return Status(**{**status.__dict__, "lines": ()})
