"""States of replicas and experiments, and what follows from them. Pure.

    created → queued → starting → running → succeeded | failed | stopped
                          ▲          │
                          └ restarting     between attempts; `lost` while the cluster does not answer

`next_steps` is the policy of one attempt: fail fast, grace, time-outs, the restart of one replica. A shepherd asks it
on a laptop whether or not a server lives; the engine asks it for clusters that have no shepherd. Standard library
only, Python 3.8: it travels.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

CREATED, QUEUED, STARTING, RUNNING = "created", "queued", "starting", "running"
SUCCEEDED, FAILED, STOPPED = "succeeded", "failed", "stopped"
RESTARTING, LOST = "restarting", "lost"

FINAL = frozenset({SUCCEEDED, FAILED, STOPPED})

TIMED_OUT, OOM_KILLED = "TimedOut", "OOMKilled"
# How reasons begin where a cluster has taken a replica away: its command did nothing wrong.
EVICTED, PREEMPTED, NODE_LOST, DELETED = "Evicted", "Preempted", "NodeLost", "Deleted"
FROM_OUTSIDE = (OOM_KILLED, EVICTED, PREEMPTED, NODE_LOST, DELETED)
CANNOT_START = "cannot start"  # how the reason begins of a replica whose command never ran
NOT_SUBMITTED = "cannot be submitted"  # how the reason begins of an attempt that the cluster does not take
LOST_A_PEER = 2  # the severity of a failure that is only a symptom
SETTLE = 3.0  # seconds that a symptom waits for its cause to show, before the others are stopped


@dataclass(frozen=True)
class Status:
    """One start of one replica: attempt and experiment are known to whoever holds it."""

    replica: str
    try_: int = 0
    state: str = CREATED
    reason: str = ""
    exit_code: Optional[int] = None
    signal: str = ""
    node: str = ""
    started: Optional[float] = None
    finished: Optional[float] = None
    lines: Tuple[str, ...] = ()  # the last lines of its log, once it has failed

    @property
    def over(self) -> bool:
        return self.state in FINAL

    def json(self) -> Dict[str, Any]:
        return {**self.__dict__, "lines": list(self.lines)}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Status:
        known = {name: data[name] for name in Status.__dataclass_fields__ if name in data}
        return Status(**{**known, "lines": tuple(data.get("lines", ()))})


@dataclass(frozen=True)
class Policy:
    """What the experiment file says about ends, as one attempt needs it."""

    deciders: FrozenSet[str]
    servers: FrozenSet[str] = frozenset()
    grace_stop: float = 30.0
    grace_finish: float = 300.0
    timeout_start: Optional[float] = None
    timeout_run: Optional[float] = None
    restart: str = "never"
    restart_max: int = 3
    on_exit_codes: Optional[FrozenSet[int]] = None

    def json(self) -> Dict[str, Any]:
        codes = sorted(self.on_exit_codes) if self.on_exit_codes is not None else None
        return {
            **self.__dict__,
            "deciders": sorted(self.deciders),
            "servers": sorted(self.servers),
            "on_exit_codes": codes,
        }

    @staticmethod
    def of(data: Mapping[str, Any]) -> Policy:
        codes = data.get("on_exit_codes")
        return Policy(
            **{
                **data,
                "deciders": frozenset(data["deciders"]),
                "servers": frozenset(data["servers"]),
                "on_exit_codes": frozenset(codes) if codes is not None else None,
            }
        )

    def restarts_after(self, status: Status) -> bool:
        """Whether a failure with this exit code is one to start again after. An end that nobody saw was a SIGKILL."""
        code = status.exit_code if status.exit_code is not None else 137
        return self.on_exit_codes is None or code in self.on_exit_codes


@dataclass(frozen=True)
class Attempt:
    """What is known of one attempt: the newest try of every replica, and whether somebody asked it to stop."""

    statuses: Mapping[str, Status]
    began: float
    stop_reason: str = ""


@dataclass(frozen=True)
class StopReplica:
    replica: str
    reason: str


@dataclass(frozen=True)
class StartReplica:
    replica: str
    try_: int
    reason: str


@dataclass(frozen=True)
class End:
    """The attempt is over. `failures` are those that count, the one to show first."""

    state: str
    reason: str
    failures: Tuple[Status, ...] = ()


Step = Union[StopReplica, StartReplica, End]


@dataclass(frozen=True)
class Decision:
    steps: Tuple[Step, ...] = ()
    wake_at: Optional[float] = None  # when to ask again although nothing happened


def next_steps(attempt: Attempt, policy: Policy, now: float) -> Decision:
    """What has to happen next in an attempt. Asking again without a change gives the same answer."""
    statuses = attempt.statuses
    alive = [status for status in statuses.values() if not status.over]
    done_at = _deciders_done_at(statuses, policy)

    if done_at is not None:
        return _finish(alive, policy, attempt.stop_reason, done_at, now)
    if attempt.stop_reason:
        return _stop_or_end(alive, attempt.stop_reason, End(STOPPED, attempt.stop_reason))

    failures = [status for status in statuses.values() if status.state == FAILED]
    restarts = [s for s in failures if restarts_alone(s, policy)]
    fatal = tuple(first_failure_first([s for s in failures if s not in restarts]))
    if fatal:
        first = fatal[0]
        settled_at = (first.finished or 0.0) + SETTLE
        if alive and _severity(first) == LOST_A_PEER and not _stopping(statuses) and now < settled_at:
            return Decision((), settled_at)  # the peer it lost may be about to end, and is the cause
        return _stop_or_end(alive, f"{first.replica} failed", End(FAILED, describe_failure(first), fatal))

    gone = [status for status in statuses.values() if status.state == STOPPED]
    if gone:
        return _after_a_stop(gone, alive)
    late, wake_at = _timed_out(attempt, policy, now)
    if late:
        return _stop_or_end(alive, late, End(FAILED, late))
    starts = [StartReplica(s.replica, s.try_ + 1, f"restarted after {describe_exit(s)}") for s in restarts]
    return Decision(tuple(starts), wake_at)


def _stopping(statuses: Mapping[str, Status]) -> bool:
    """Whether others were stopped already: then the cause is known, or it is too late for it."""
    return any(status.state == STOPPED for status in statuses.values())


def _deciders_done_at(statuses: Mapping[str, Status], policy: Policy) -> Optional[float]:
    """When the last of the deciding replicas succeeded, unless one failed for good before."""
    deciding = [statuses[name] for name in policy.deciders]
    if not all(status.state == SUCCEEDED for status in deciding):
        return None
    done_at = max(status.finished or 0.0 for status in deciding)
    failed = [s for s in statuses.values() if s.state == FAILED and not restarts_alone(s, policy)]
    return None if any((status.finished or 0.0) < done_at for status in failed) else done_at


def _finish(alive: Sequence[Status], policy: Policy, stop_reason: str, done_at: float, now: float) -> Decision:
    """The deciding replicas have succeeded: the others get their grace, parameter servers none.

    Who asks to stop now does not wait for the grace; the success stays one.
    """
    if not alive:
        return Decision((End(SUCCEEDED, ""),))
    deadline = done_at + policy.grace_finish
    at_once = bool(stop_reason) or now >= deadline
    reason = stop_reason or "the experiment has succeeded"
    stops = [StopReplica(s.replica, reason) for s in alive if at_once or s.replica in policy.servers]
    return Decision(tuple(stops), None if at_once else deadline)


def restarts_alone(status: Status, policy: Policy) -> bool:
    """Whether a replica that has failed starts again while the others go on."""
    return policy.restart == "replica" and status.try_ < policy.restart_max and policy.restarts_after(status)


def _after_a_stop(gone: Sequence[Status], alive: Sequence[Status]) -> Decision:
    """Nobody asked for it now: it was stopped because the attempt was late, or by a stranger.

    In both cases the others would wait for it. What was stopped remembers why: by now it may look as if nothing were
    late.
    """
    first = min(gone, key=lambda status: (not status.reason.startswith(TIMED_OUT), status.finished or 0.0))
    if first.reason.startswith(TIMED_OUT):
        return _stop_or_end(alive, first.reason, End(FAILED, first.reason))
    why = f"{first.replica} was stopped"
    return _stop_or_end(alive, why, End(STOPPED, f"{why}: {first.reason}" if first.reason else why))


def _timed_out(attempt: Attempt, policy: Policy, now: float) -> Tuple[str, Optional[float]]:
    """Why the attempt has taken too long, or when it will have."""
    deadlines: List[float] = []
    if policy.timeout_start is not None:
        deadline = attempt.began + policy.timeout_start
        late = sorted((s for s in attempt.statuses.values() if _started_after(s, deadline)), key=lambda s: s.replica)
        waiting = [status.replica for status in late]
        if waiting and now >= deadline:
            told = f"{TIMED_OUT}: {', '.join(waiting)} not started after {policy.timeout_start:g} s"
            why = next((f": {status.reason}" for status in late if status.reason), "")
            return told + why, None
        if waiting:
            deadlines.append(deadline)
    if policy.timeout_run is not None:
        deadline = attempt.began + policy.timeout_run
        if now >= deadline:
            return f"{TIMED_OUT}: ran longer than {policy.timeout_run:g} s", None
        deadlines.append(deadline)
    return "", min(deadlines) if deadlines else None


def _started_after(status: Status, deadline: float) -> bool:
    """Also one that starts while it is told to stop for being late. A later try is no start of the attempt."""
    waits = status.state in (CREATED, STARTING)
    return status.try_ == 0 and (waits or (status.started is not None and status.started >= deadline))


def _stop_or_end(alive: Sequence[Status], reason: str, end: End) -> Decision:
    if alive:
        return Decision(tuple(StopReplica(status.replica, reason) for status in alive))
    return Decision((end,))


# A replica that lost its peer prints one of these: a symptom, whoever printed it first.
LOST_CONNECTION = re.compile(
    r"ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError|Connection reset by peer"
    r"|Connection closed by peer|Connection refused|Broken pipe|Socket closed|failed to connect"
    r"|Software caused connection abort|EOFError(?!: Ran out of input|: EOF when reading)|IncompleteReadError"
    # PyTorch: the store, gloo, NCCL. Other errors of NCCL (`unhandled cuda error`, `invalid usage`) are causes.
    r"|DistNetworkError|DistStoreError|RendezvousConnectionError|recvValue failed|Gloo .*(?:failed|closed)"
    r"|Timed out waiting \d+ms for |Application timeout caused pair closure"
    r"|NCCL error.*(?:remote process exited|unhandled system error)|ncclRemoteError|ncclSystemError"
    r"|NCCL communicator was aborted|collective operation timeout"
    # TensorFlow and JAX: gRPC, collectives, the coordination service.
    r"|UnavailableError|UNAVAILABLE: |Collective ops is aborted|another task died|stopped sending heartbeats"
    r"|heartbeat timeout",
    re.IGNORECASE,
)


def first_failure_first(failures: Iterable[Status]) -> List[Status]:
    """The one to show first: a signal or OOM before an exception before a lost connection, then the earliest."""
    return sorted(failures, key=lambda status: (_severity(status), status.finished or 0.0, status.replica))


def _severity(status: Status) -> int:
    if status.reason.startswith(FROM_OUTSIDE):
        return 0
    if status.signal == "SIGPIPE" or any(LOST_CONNECTION.search(line) for line in status.lines):
        # Libraries in C++ abort when a peer is gone; any other signal came from outside or is a crash of its own.
        return LOST_A_PEER if status.signal in ("", "SIGPIPE", "SIGABRT") else 0
    return 0 if status.signal else 1


def describe_exit(status: Status) -> str:
    """`exit code 3`, `SIGKILL (137)`, `OOMKilled: …`, `cannot start: …`"""
    if status.reason.startswith((*FROM_OUTSIDE, CANNOT_START)):
        return status.reason
    if status.signal:
        return f"{status.signal} ({status.exit_code})"
    if status.exit_code is not None:
        return f"exit code {status.exit_code}"
    return status.reason or "an unknown end"


def describe_failure(status: Status) -> str:
    return f"{status.replica} failed: {describe_exit(status)}"


SIGNALS = {int(member): member.name for member in signal.Signals if int(member) < 32}


def normal_exit(code: int) -> Tuple[int, str]:
    """An exit as every cluster shows it: negative (Python) and 128+n (shells) both mean a signal."""
    if code < 0:
        return 128 - code, SIGNALS.get(-code, f"signal {-code}")
    if code > 128 and code - 128 in SIGNALS:
        return code, SIGNALS[code - 128]
    return code, ""


def stopped(status: Status, reason: str, now: float) -> Status:
    return replace(status, state=STOPPED, reason=reason, finished=now)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended, as its shepherd writes it down and the engine reads it."""

    state: str
    reason: str
    statuses: Tuple[Status, ...]
    failures: Tuple[Status, ...] = ()
    finished: float = 0.0
    began: float = 0.0
    history: Tuple[Status, ...] = field(default=())  # earlier tries of restarted replicas

    def json(self) -> Dict[str, Any]:
        return {
            "state": self.state,
            "reason": self.reason,
            "finished": self.finished,
            "began": self.began,
            "statuses": [status.json() for status in self.statuses],
            "failures": [status.json() for status in self.failures],
            "history": [status.json() for status in self.history],
        }

    @staticmethod
    def of(data: Mapping[str, Any]) -> Outcome:
        def several(key: str) -> Tuple[Status, ...]:
            return tuple(Status.of(item) for item in data.get(key, ()))

        return Outcome(
            data["state"],
            data["reason"],
            several("statuses"),
            several("failures"),
            data.get("finished", 0.0),
            data.get("began", 0.0),
            several("history"),
        )
