"""Random lives of replicas, carried out as a shepherd would: every attempt ends, and ends as the rules say.

The clock is a number that jumps from event to event. Events may be seen late, as by an engine that was away.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.frameworks import FRAMEWORKS, MASTER, PS, WORKER, deciding
from shoal.states import (
    FAILED,
    RUNNING,
    STARTING,
    STOPPED,
    SUCCEEDED,
    TIMED_OUT,
    Attempt,
    End,
    Outcome,
    Policy,
    StartReplica,
    Status,
    StopReplica,
    first_failure_first,
    next_steps,
    normal_exit,
)

NEVER = math.inf
FEW = settings(max_examples=max(1, settings.default.max_examples // 10))
LINES = ("", "ValueError: bad", "ConnectionResetError: [Errno 104] Connection reset by peer")
PREEMPTED = "preempted"


@dataclass(frozen=True)
class Fate:
    """What one try of one replica would do, were it left alone."""

    starts_after: float
    ends_after: float
    code: int
    preempted: bool  # by a stranger, at its end
    lines: tuple[str, ...]
    stops_within: float


@dataclass
class Simulation:
    """A shepherd without processes."""

    policy: Policy
    random: random.Random
    statuses: dict[str, Status]
    blink: float  # how long after an event it may be seen
    wish_at: float
    now: float = 0.0
    stop_reason: str = ""
    fates: dict[str, tuple[float, Fate]] = field(default_factory=dict)  # of those alive: since when, what
    told: dict[str, tuple[float, str]] = field(default_factory=dict)  # replica -> when it obeys, why
    history: list[Status] = field(default_factory=list)
    starts: int = 0

    def run(self) -> End:
        for name in self.statuses:
            self.start(name, 0)
        for _ in range(50 * (len(self.statuses) + 1) * (self.policy.restart_max + 2)):
            attempt = Attempt(dict(self.statuses), 0.0, self.stop_reason)
            decision = next_steps(attempt, self.policy, self.now)
            assert next_steps(attempt, self.policy, self.now) == decision
            for step in decision.steps:
                if isinstance(step, End):
                    assert decision.steps == (step,)
                    assert next_steps(attempt, self.policy, self.now + 1e6).steps == (step,)
                    return step
                self.do(step)
            assert decision.wake_at is None or decision.wake_at > self.now, "asked to look again in the past"
            self.wait(decision.wake_at)
        raise AssertionError("it never ended")

    def do(self, step: StopReplica | StartReplica) -> None:
        before = self.statuses[step.replica]
        if isinstance(step, StopReplica):
            assert not before.over
            obeys_at = self.now + self.fates[step.replica][1].stops_within
            self.told.setdefault(step.replica, (obeys_at, step.reason))
            return
        assert before.state == FAILED
        assert step.try_ == before.try_ + 1
        assert not self.stop_reason
        assert not self.told, "started while others were told to stop"
        self.history.append(before)
        self.starts += 1
        self.start(step.replica, step.try_)

    def start(self, name: str, try_: int) -> None:
        draw = self.random
        fate = Fate(
            draw.choice((0.0, 0.0, 1.0, 40.0, NEVER)),
            draw.choice((0.5, 3.0, 10.0, 60.0, NEVER)) + draw.choice((0.0, 0.25)),
            draw.choice((0, 0, 0, 1, 3, -9, -6, -11)),
            draw.random() < 0.05,
            (draw.choice(LINES),),
            draw.choice((0.0, 2.0, 30.0)),
        )
        self.fates[name] = self.now, fate
        self.statuses[name] = Status(name, try_, STARTING)

    def wait(self, wake_at: float | None) -> None:
        """Until the next event, or a little longer; then all that has happened is seen at once."""
        due = [self.due(name) for name in self.fates] + [self.wish_at if not self.stop_reason else NEVER]
        if wake_at is not None:
            due.append(wake_at)
        following = min(due)
        assert following < NEVER, "nothing will ever happen again"
        self.now = max(self.now, following) + self.random.choice((0.0, self.blink))
        for name in sorted(self.fates, key=self.due):
            while name in self.fates and self.due(name) <= self.now:
                self.happen(name)
        if self.wish_at <= self.now:
            self.stop_reason = "stopped by the user"

    def due(self, name: str) -> float:
        since, fate = self.fates[name]
        own = fate.starts_after if self.statuses[name].state == STARTING else fate.starts_after + fate.ends_after
        return min(since + own, self.told[name][0] if name in self.told else NEVER)

    def happen(self, name: str) -> None:
        at, status = self.due(name), self.statuses[name]
        _, fate = self.fates[name]
        if name in self.told and at == self.told[name][0]:
            after = replace(status, state=STOPPED, reason=self.told[name][1], exit_code=143, finished=at)
        elif status.state == STARTING:
            self.statuses[name] = replace(status, state=RUNNING, started=at)
            return
        elif fate.preempted:
            after = replace(status, state=STOPPED, reason=PREEMPTED, finished=at)
        else:
            code, signal = normal_exit(fate.code)
            state = FAILED if code else SUCCEEDED
            after = replace(status, state=state, exit_code=code, signal=signal, finished=at, lines=fate.lines)
        self.statuses[name] = after
        del self.fates[name]


def a_simulation(draw: random.Random) -> Simulation:
    framework = draw.choice(sorted(FRAMEWORKS))
    roles = FRAMEWORKS[framework].ROLES
    names = [f"{MASTER}-0"] if FRAMEWORKS[framework].NEEDS_MASTER or draw.random() < 0.7 else []
    names += [f"{WORKER}-{index}" for index in range(draw.randint(0 if names else 1, 3))]
    names += [f"{PS}-{index}" for index in range(draw.randint(0, 2))] if PS in roles else []
    policy = Policy(
        deciders=deciding(framework, names),
        servers=frozenset(name for name in names if name.startswith(PS)),
        grace_finish=draw.choice((0.0, 5.0, 300.0)),
        timeout_start=draw.choice((None, 0.0, 20.0)),
        timeout_run=draw.choice((None, 0.0, 15.0, 100.0)),
        restart=draw.choice(("never", "replica", "experiment")),
        restart_max=draw.randint(1, 3),
        on_exit_codes=draw.choice((None, frozenset({1}), frozenset({3, 137}))),
    )
    assert policy.deciders
    return Simulation(
        policy=policy,
        random=draw,
        statuses={name: Status(name) for name in names},
        blink=draw.choice((0.0, 0.5, 50.0)),
        wish_at=draw.choice((2.0, 12.0, 10_000.0)),  # in the end everybody loses patience
    )


@given(st.randoms(use_true_random=False))
def test_every_attempt_ends_as_the_rules_say(draw: random.Random) -> None:
    simulation = a_simulation(draw)
    policy = simulation.policy
    end = simulation.run()
    statuses = simulation.statuses
    asked = simulation.stop_reason != ""
    preempted = any(status.reason == PREEMPTED for status in statuses.values())

    assert all(status.over for status in statuses.values()), "a replica was left running"
    for status in (*simulation.history, *statuses.values()):
        assert status.try_ <= (policy.restart_max if policy.restart == "replica" else 0)
    assert all(policy.restarts_after(status) for status in simulation.history)

    for name, (_, reason) in simulation.told.items():
        assert statuses[name].state == FAILED or statuses[name].reason in (reason, PREEMPTED, "")
    own = [status for status in statuses.values() if status.state == FAILED]
    assert all(status in own for status in end.failures), "who was stopped has not failed"
    assert list(end.failures) == first_failure_first(end.failures)

    if end.state == SUCCEEDED:
        assert all(statuses[name].state == SUCCEEDED for name in policy.deciders)
        assert not end.failures
    elif end.state == FAILED:
        assert end.failures or end.reason.startswith(TIMED_OUT)
        assert not asked or simulation.now >= simulation.wish_at
    else:
        assert end.state == STOPPED
        assert asked or preempted
        assert not end.failures

    outcome = Outcome(end.state, end.reason, tuple(statuses.values()), end.failures, simulation.now, 0.0)
    kept = replace(outcome, history=tuple(simulation.history))
    assert Outcome.of(json.loads(json.dumps(kept.json()))) == kept


TIMES = st.none() | st.floats(0, 1e12)
STATUSES = st.builds(
    Status,
    replica=st.text(max_size=12),
    try_=st.integers(0, 1000),
    state=st.sampled_from((RUNNING, FAILED, STOPPED, SUCCEEDED)),
    reason=st.text(max_size=20),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.sampled_from(("", "SIGKILL")),
    node=st.text(max_size=8),
    started=TIMES,
    finished=TIMES,
    lines=st.lists(st.text(max_size=30), max_size=3).map(tuple),
)
SEVERAL = st.lists(STATUSES, max_size=3).map(tuple)
NAMES = st.frozensets(st.text(max_size=8), max_size=4)
POLICIES = st.builds(
    Policy,
    deciders=NAMES,
    servers=NAMES,
    grace_stop=st.floats(0, 1e9),
    grace_finish=st.floats(0, 1e9),
    timeout_start=TIMES,
    timeout_run=TIMES,
    restart=st.sampled_from(("never", "replica", "experiment")),
    restart_max=st.integers(1, 1000),
    on_exit_codes=st.none() | st.frozensets(st.integers(1, 255), max_size=4),
)
OUTCOMES = st.builds(
    Outcome,
    state=st.sampled_from((SUCCEEDED, FAILED, STOPPED)),
    reason=st.text(max_size=20),
    statuses=SEVERAL,
    failures=SEVERAL,
    finished=st.floats(0, 1e12),
    began=st.floats(0, 1e12),
    history=SEVERAL,
)


@FEW
@given(STATUSES | POLICIES | OUTCOMES)
def test_what_is_written_as_json_is_read_as_the_same_value(value: Status | Policy | Outcome) -> None:
    assert type(value).of(json.loads(json.dumps(value.json()))) == value


@FEW
@given(st.lists(STATUSES, max_size=6, unique_by=lambda status: status.replica))
def test_the_order_of_failures_is_the_same_whoever_is_seen_first(failures: list[Status]) -> None:
    assert first_failure_first(failures) == first_failure_first(reversed(failures))
