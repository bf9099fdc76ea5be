"""What the engine does next, as tables; and a small model of store and cluster that carries it out to the end."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.backends.backend import Observation, Site
from shoal.engine.admission import Needs
from shoal.engine.decide import (
    Action,
    Admit,
    AskToStop,
    Decision,
    Experiment,
    Explain,
    Finish,
    Record,
    Restart,
    Snapshot,
    Stage,
    Staging,
    StopWish,
    Submit,
    decide,
)
from shoal.states import (
    FAILED,
    FINAL,
    LOST,
    QUEUED,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    SUCCEEDED,
    Outcome,
    Policy,
    Status,
)

SITE = Site(4.0, 8192.0, (0, 1), "here")
ALONE = Policy(frozenset({"master-0"}))
WISH = StopWish("stopped by the user", 30.0)
RUNS = Status("master-0", state=RUNNING, started=1.0)
SUCCESS = Outcome(SUCCEEDED, "", (replace(RUNS, state=SUCCEEDED, exit_code=0, finished=2.0),))


def experiment(number: int, state: str = QUEUED, **more: object) -> Experiment:
    return replace(Experiment(f"u{number}", number, state, "", 0, ALONE), **more)


def active(state: str, seen: Observation | None, **more: object) -> Experiment:
    """An experiment that has left the queue and has been submitted."""
    return experiment(1, state, **{"handle": "h1", "observation": seen, **more})


def ask(*experiments: Experiment, now: float = 0.0, site: Site = SITE) -> Decision:
    """The answer, which has to be the same when asked again."""
    snapshot = Snapshot(experiments, site)
    decision = decide(snapshot, now)
    assert decide(snapshot, now) == decision
    return decision


QUEUES: dict[str, tuple[tuple[Experiment, ...], tuple[Action, ...]]] = {
    "nothing to do": ((), ()),
    "what fits is admitted": ((experiment(1, needs=Needs(cpu=4)),), (Admit("u1"),)),
    "what asks for nothing always fits": (
        (experiment(1, STARTING, needs=Needs(cpu=4), handle="h", observation=Observation()), experiment(2)),
        (Admit("u2"),),
    ),
    "several at once, as long as they fit together": (
        (experiment(1, needs=Needs(cpu=2)), experiment(2, needs=Needs(cpu=2)), experiment(3, needs=Needs(cpu=1))),
        (Admit("u1"), Admit("u2"), Explain("u3", "waits for 1 cpu (0 of 4 free)")),
    ),
    "all or nothing: one kind is missing": (
        (
            active(RUNNING, Observation((RUNS,)), needs=Needs(gpu=1), recorded={("master-0", 0): RUNS}),
            experiment(2, needs=Needs(cpu=1, memory=100, gpu=2)),
        ),
        (Explain("u2", "waits for 2 gpu (1 of 2 free)"),),
    ),
    "every kind that is missing is named": (
        (
            active(
                RUNNING,
                Observation((RUNS,)),
                needs=Needs(3.5, 8000, 2),
                recorded={("master-0", 0): RUNS},
            ),
            experiment(2, needs=Needs(1, 1024, 1)),
        ),
        (Explain("u2", "waits for 1 cpu (0.5 of 4 free), 1024 MiB of memory (192 of 8192 free), 1 gpu (0 of 2 free)"),),
    ),
    "nothing overtakes, though it would fit": (
        (experiment(1, needs=Needs(cpu=3)), experiment(2, needs=Needs(cpu=2)), experiment(3, needs=Needs(cpu=0.5))),
        (
            Admit("u1"),
            Explain("u2", "waits for 2 cpu (1 of 4 free)"),
            Explain("u3", "behind #2 in the queue"),
        ),
    ),
    "what oversubscribes does not overtake either": (
        (experiment(1, needs=Needs(cpu=5)), experiment(2, oversubscribe=True)),
        (Explain("u1", "waits for 5 cpu (4 of 4 free)"), Explain("u2", "behind #1 in the queue")),
    ),
    "what has been explained is not explained again": (
        (
            experiment(1, needs=Needs(cpu=5), reason="waits for 5 cpu (4 of 4 free)"),
            experiment(2, reason="behind #1 in the queue"),
        ),
        (),
    ),
    "oversubscribed: totals are not checked": (
        (experiment(1, needs=Needs(11, 99999, 7), oversubscribe=True),),
        (Admit("u1"),),
    ),
    "oversubscribed: the others' cpu and memory are counted without it": (
        (
            experiment(1, needs=Needs(11, 99999), oversubscribe=True),
            experiment(2, needs=Needs(4, 8192)),
        ),
        (Admit("u1"), Admit("u2")),
    ),
    "oversubscribed: the devices it was assigned are taken": (
        (experiment(1, needs=Needs(gpu=7), oversubscribe=True), experiment(2, needs=Needs(gpu=1))),
        (Admit("u1"), Explain("u2", "waits for 1 gpu (0 of 2 free)")),
    ),
    "oversubscribed: devices that are absent are not counted": (
        (
            experiment(1, needs=Needs(gpu=1)),
            experiment(2, needs=Needs(gpu=7), oversubscribe=True),
            experiment(3, needs=Needs(cpu=1)),
        ),
        (Admit("u1"), Admit("u2"), Admit("u3")),
    ),
    "what is lost still holds its place": (
        (
            active(LOST, Observation(unreachable="no answer"), reason="no answer", needs=Needs(cpu=4)),
            experiment(2, needs=Needs(cpu=1)),
        ),
        (Explain("u2", "waits for 1 cpu (0 of 4 free)"),),
    ),
    "between two attempts the place is kept": (
        (experiment(1, RESTARTING, attempt=1, needs=Needs(cpu=4)), experiment(2, needs=Needs(cpu=1))),
        (Submit("u1", 1), Explain("u2", "waits for 1 cpu (0 of 4 free)")),
    ),
    "stopped while queued: it ends, and the next one is admitted": (
        (experiment(1, needs=Needs(cpu=9), stop=WISH), experiment(2, needs=Needs(cpu=1))),
        (Finish("u1", STOPPED, "stopped by the user"), Admit("u2")),
    ),
}


@pytest.mark.parametrize(("experiments", "actions"), QUEUES.values(), ids=QUEUES)
def test_the_queue(experiments: tuple[Experiment, ...], actions: tuple[Action, ...]) -> None:
    assert ask(*experiments) == Decision(actions)


WAITING = {"needs": Needs(cpu=5), "created": 100.0, "timeout_queue": 60.0}


def test_a_time_out_of_the_queue_is_looked_at_when_it_runs_out() -> None:
    first, second = experiment(1, **WAITING), experiment(2, **{**WAITING, "timeout_queue": 20.0})
    assert ask(first, second, now=110.0).wake_at == 120.0
    assert ask(replace(first, timeout_queue=None), now=110.0).wake_at is None


OVERDUE = {
    "with what it waited for": (
        {"reason": "waits for 5 cpu (4 of 4 free)"},
        "TimedOut: not started after 60 s in the queue: waits for 5 cpu (4 of 4 free)",
    ),
    "behind another one": (
        {"reason": "behind #1 in the queue"},
        "TimedOut: not started after 60 s in the queue: behind #1 in the queue",
    ),
    "when nobody lived to explain it": ({}, "TimedOut: not started after 60 s in the queue"),
}


@pytest.mark.parametrize(("more", "reason"), OVERDUE.values(), ids=OVERDUE)
def test_a_time_out_of_the_queue_fails(more: dict[str, object], reason: str) -> None:
    late = experiment(1, **WAITING, **more)
    assert ask(late, experiment(2), now=160.0) == Decision((Finish("u1", FAILED, reason), Admit("u2")))


def test_a_wish_to_stop_wins_over_a_time_out() -> None:
    assert ask(experiment(1, **WAITING, stop=WISH), now=999.0).actions == (Finish("u1", STOPPED, WISH.reason),)


KNOWN = {("master-0", 0): RUNS}
LIVES: dict[str, tuple[Experiment, tuple[Action, ...]]] = {
    "admitted: it is submitted": (experiment(1, STARTING), (Submit("u1", 0),)),
    "admitted and to be stopped: it may have been submitted, so its handle is found first": (
        experiment(1, STARTING, stop=WISH),
        (Submit("u1", 0),),
    ),
    "the cluster says nothing of it: it is submitted again": (active(RUNNING, None), (Submit("u1", 0),)),
    "the cluster does not know it: it is submitted again": (
        active(RUNNING, Observation((RUNS,), missing=True), recorded=KNOWN),
        (Submit("u1", 0),),
    ),
    "not known, and to be stopped: the wish is there before it starts": (
        active(STARTING, Observation(missing=True), stop=WISH),
        (AskToStop("u1", "h1", WISH.reason, 30.0), Submit("u1", 0)),
    ),
    "submitted, nothing seen yet": (active(STARTING, Observation()), ()),
    "a replica is seen to run": (
        active(STARTING, Observation((RUNS,))),
        (Record("u1", 0, (RUNS,), RUNNING),),
    ),
    "one of two has not started: it is starting still": (
        active(STARTING, Observation((RUNS, Status("worker-0", state=STARTING))), recorded=KNOWN),
        (Record("u1", 0, (Status("worker-0", state=STARTING),), STARTING),),
    ),
    "a later attempt is restarting until all run, and keeps its reason": (
        active(RESTARTING, Observation((Status("master-0", state=STARTING),)), attempt=1, reason="attempt 1"),
        (Record("u1", 1, (Status("master-0", state=STARTING),), RESTARTING, "attempt 1"),),
    ),
    "a later attempt runs": (
        active(RESTARTING, Observation((RUNS,)), attempt=1, reason="attempt 1"),
        (Record("u1", 1, (RUNS,), RUNNING),),
    ),
    "nothing new is not recorded": (active(RUNNING, Observation((RUNS,)), recorded=KNOWN), ()),
    "last lines alone are nothing new": (
        active(RUNNING, Observation((replace(RUNS, lines=("bye",)),)), recorded=KNOWN),
        (),
    ),
    "a second try is recorded beside the first": (
        active(RUNNING, Observation((RUNS, replace(RUNS, try_=1))), recorded=KNOWN),
        (Record("u1", 0, (replace(RUNS, try_=1),), RUNNING),),
    ),
    "the cluster does not answer": (
        active(RUNNING, Observation(unreachable="no route to host"), recorded=KNOWN),
        (Record("u1", 0, (), LOST, "no route to host"),),
    ),
    "it still does not answer": (
        active(LOST, Observation(unreachable="no route to host"), reason="no route to host", recorded=KNOWN),
        (),
    ),
    "it does not answer for another reason": (
        active(LOST, Observation(unreachable="log in again"), reason="no route to host", recorded=KNOWN),
        (Record("u1", 0, (), LOST, "log in again"),),
    ),
    "lost and to be stopped: the wish waits there for the cluster to come back": (
        active(LOST, Observation(unreachable="no route to host"), reason="no route to host", stop=WISH),
        (AskToStop("u1", "h1", WISH.reason, 30.0),),
    ),
    "lost, and the wish waits there": (
        active(LOST, Observation(unreachable="no route", stop_grace=30.0), reason="no route", stop=WISH),
        (),
    ),
    "lost with a cluster that nobody knows any more: there is no place for the wish": (
        active(LOST, Observation(unreachable="no such cluster", unknown=True), reason="no such cluster", stop=WISH),
        (),
    ),
    "lost with a cluster that nobody knows any more, and to be stopped now: it is given up": (
        active(LOST, Observation(unreachable="no such cluster", unknown=True), stop=replace(WISH, grace=0.0)),
        (Finish("u1", STOPPED, f"{WISH.reason}; given up: no such cluster"),),
    ),
    "lost and back": (
        active(LOST, Observation((RUNS,)), reason="no route to host", recorded=KNOWN),
        (Record("u1", 0, (), RUNNING),),
    ),
    "lost and back, and not all run: the reason is gone with it": (
        active(LOST, Observation(), reason="no route to host"),
        (Record("u1", 0, (), STARTING),),
    ),
    "lost and back in a later attempt": (
        active(LOST, Observation(), reason="no route to host", attempt=2),
        (Record("u1", 2, (), RESTARTING),),
    ),
    "lost, and over meanwhile": (
        active(LOST, Observation(SUCCESS.statuses, SUCCESS), reason="no route to host", recorded=KNOWN),
        (Record("u1", 0, SUCCESS.statuses, RUNNING), Finish("u1", SUCCEEDED, "", SUCCESS)),
    ),
    "a wish to stop is told": (
        active(RUNNING, Observation((RUNS,)), recorded=KNOWN, stop=WISH),
        (AskToStop("u1", "h1", WISH.reason, 30.0),),
    ),
    "a wish to stop is told while it starts": (
        active(STARTING, Observation(), stop=WISH),
        (AskToStop("u1", "h1", WISH.reason, 30.0),),
    ),
    "a wish that the cluster has taken note of is not told again": (
        active(RUNNING, Observation((RUNS,), stop_grace=30.0), recorded=KNOWN, stop=WISH),
        (),
    ),
    "a shorter grace is told": (
        active(RUNNING, Observation((RUNS,), stop_grace=30.0), recorded=KNOWN, stop=replace(WISH, grace=0.0)),
        (AskToStop("u1", "h1", WISH.reason, 0.0),),
    ),
    "a longer grace comes too late": (
        active(RUNNING, Observation((RUNS,), stop_grace=0.0), recorded=KNOWN, stop=WISH),
        (),
    ),
    "it is over, and everything seen is recorded before": (
        active(STARTING, Observation(SUCCESS.statuses, SUCCESS)),
        (Record("u1", 0, SUCCESS.statuses, RUNNING), Finish("u1", SUCCEEDED, "", SUCCESS)),
    ),
    "it is over, so a wish to stop changes nothing": (
        active(
            RUNNING,
            Observation(SUCCESS.statuses, SUCCESS),
            stop=WISH,
            recorded={("master-0", 0): SUCCESS.statuses[0]},
        ),
        (Finish("u1", SUCCEEDED, "", SUCCESS),),
    ),
}


@pytest.mark.parametrize(("one", "actions"), LIVES.values(), ids=LIVES)
def test_a_life(one: Experiment, actions: tuple[Action, ...]) -> None:
    assert ask(one) == Decision(actions)


def broken(code: int | None = 1, reason: str = "master-0 failed: exit code 1") -> Outcome:
    failure = replace(RUNS, state=FAILED, exit_code=code, finished=2.0, lines=("ValueError: bad",))
    return Outcome(FAILED, reason, (failure,), () if code is None else (failure,))


AGAIN = {
    "the first failure": ({}, broken(), 0, None, "attempt 1 of at most 2: master-0 failed: exit code 1"),
    "the second failure": ({}, broken(), 1, None, "attempt 2 of at most 2: master-0 failed: exit code 1"),
    "the last attempt": ({}, broken(), 2, None, ""),
    "the exit code is listed": (
        {"on_exit_codes": frozenset({1, 9})},
        broken(),
        0,
        None,
        "attempt 1 of at most 2: master-0 failed: exit code 1",
    ),
    "the exit code is not listed": ({"on_exit_codes": frozenset({9})}, broken(), 0, None, ""),
    "nothing in it failed: it was lost": (
        {"on_exit_codes": frozenset({9})},
        broken(None, "the machine was restarted"),
        0,
        None,
        "attempt 1 of at most 2: the machine was restarted",
    ),
    "somebody wants it to stop": ({}, broken(), 0, WISH, ""),
    "it was late": ({}, broken(None, "TimedOut: ran longer than 60 s"), 0, None, ""),
    "the policy is never": ({"restart": "never"}, broken(), 0, None, ""),
    "the policy is replica": ({"restart": "replica"}, broken(), 0, None, ""),
    "it succeeded": ({}, SUCCESS, 0, None, ""),
    "it was stopped": ({}, replace(SUCCESS, state=STOPPED, reason="by ann"), 0, None, ""),
}


@pytest.mark.parametrize(("more", "outcome", "attempt", "wish", "reason"), AGAIN.values(), ids=AGAIN)
def test_the_experiment_is_started_again(
    more: dict[str, object], outcome: Outcome, attempt: int, wish: StopWish | None, reason: str
) -> None:
    policy = replace(ALONE, **{"restart": "experiment", "restart_max": 2, **more})
    over = active(RUNNING, Observation(outcome.statuses, outcome), attempt=attempt, policy=policy, stop=wish)
    last = ask(over).actions[-1]
    if reason:
        assert last == Restart("u1", attempt, outcome, reason)
    else:
        assert last == Finish("u1", outcome.state, outcome.reason, outcome)


def test_what_runs_is_seen_to_before_the_queue() -> None:
    done = active(RUNNING, Observation(SUCCESS.statuses, SUCCESS), recorded=KNOWN, needs=Needs(cpu=4))
    waits = Explain("u2", "waits for 1 cpu (0 of 4 free)")
    *before, last = ask(done, experiment(2, needs=Needs(cpu=1))).actions
    assert last == waits
    assert before[-1] == Finish("u1", SUCCEEDED, "", SUCCESS)


@dataclass
class Model:
    """Store and cluster as two dictionaries; every action does what its name says, and twice is once."""

    site: Site
    rows: dict[str, Experiment]
    cluster: dict[str, Observation] = field(default_factory=dict)  # handle -> what it says
    devices: dict[str, int] = field(default_factory=dict)  # uid -> how many it holds
    admitted: list[int] = field(default_factory=list)

    def snapshot(self) -> Snapshot:
        open_ = sorted((row for row in self.rows.values() if row.state not in FINAL), key=lambda row: row.number)
        return Snapshot(
            tuple(replace(row, observation=self.cluster.get(row.handle) if row.handle else None) for row in open_),
            self.site,
        )

    def settle(self, now: float) -> None:
        """Acts until nothing is left to do, each action twice."""
        for _ in range(20 * len(self.rows) + 20):
            decision = decide(self.snapshot(), now)
            if not decision.actions:
                assert decision.wake_at is None or decision.wake_at > now
                assert all(row.reason for row in self.rows.values() if row.state == QUEUED), "who waits says why"
                return
            for action in decision.actions:
                self.act(action)
                once = (dict(self.rows), dict(self.cluster), dict(self.devices), list(self.admitted))
                self.act(action)
                assert (self.rows, self.cluster, self.devices, self.admitted) == once, action
        raise AssertionError(f"it never settled: {decision.actions}")

    def act(self, action: Action) -> None:
        row = self.rows[action.uid]
        match action:
            case Admit():
                if row.state == QUEUED and self.take(row):
                    self.admitted.append(row.number)
                    self.change(row, state=STARTING, reason="")
            case Explain(_, reason):
                self.change(row, reason=reason)
            case Submit(_, attempt):
                handle = f"{row.uid}/{attempt}"
                seen = self.cluster.get(handle, Observation())
                stopped = Outcome(STOPPED, "by wish", (replace(RUNS, state=STOPPED, started=None),))
                outcome = stopped if seen.missing and seen.stop_grace is not None else None
                self.cluster[handle] = replace(seen, missing=False, outcome=seen.outcome or outcome)
                if row.attempt == attempt and row.state not in FINAL:
                    self.change(row, handle=handle)
            case Record(_, _, statuses, state, reason):
                known = {(s.replica, s.try_): replace(s, lines=()) for s in statuses}
                self.change(row, recorded={**row.recorded, **known}, state=state, reason=reason)
            case AskToStop(_, handle, _, grace):
                self.cluster[handle] = replace(self.cluster[handle], stop_grace=grace)
            case Restart(_, attempt, _, reason):
                if row.attempt == attempt:
                    del self.devices[row.uid]
                    assert self.take(row)
                    change = {"attempt": attempt + 1, "handle": None, "recorded": {}}
                    self.change(row, state=RESTARTING, reason=reason, **change)
            case Finish(_, state, reason):
                if row.state not in FINAL:
                    self.devices.pop(row.uid, None)
                    self.change(row, state=state, reason=reason)

    def take(self, row: Experiment) -> bool:
        free = len(self.site.gpus) - sum(self.devices.values())
        if row.needs.gpu > free and not row.oversubscribe:
            return False
        self.devices[row.uid] = min(row.needs.gpu, free)
        return True

    def change(self, row: Experiment, **more: object) -> None:
        self.rows[row.uid] = replace(row, **more)

    def happen(self, draw: random.Random) -> None:
        """Something happens on the cluster, or somebody wishes something."""
        rows = [row for row in self.rows.values() if row.state not in FINAL]
        row = draw.choice(rows)
        if draw.random() < 0.15:
            grace = draw.choice((30.0, 5.0, 0.0))
            self.change(row, stop=StopWish("by wish", min(grace, row.stop.grace) if row.stop else grace))
        seen = self.cluster.get(row.handle or "")
        if seen is None or seen.outcome is not None:
            return
        if draw.random() < 0.2:
            self.cluster[row.handle or ""] = replace(seen, unreachable="" if seen.unreachable else "no answer")
        elif draw.random() < 0.2 and not seen.unreachable:
            self.cluster[row.handle or ""] = replace(seen, missing=True)
        elif not seen.unreachable:
            self.cluster[row.handle or ""] = replace(seen, **self.progress(seen, draw))

    def progress(self, seen: Observation, draw: random.Random) -> dict[str, object]:
        if not seen.statuses:
            return {"statuses": (RUNS,)}
        if draw.random() < 0.3:
            return {}
        outcome = draw.choice((SUCCESS, broken(), broken(3), broken(None, "lost"), broken(None, "TimedOut: late")))
        if seen.stop_grace is not None:
            outcome = Outcome(STOPPED, "by wish", (replace(RUNS, state=STOPPED, finished=3.0),))
        return {"statuses": outcome.statuses, "outcome": outcome}


def a_model(draw: random.Random) -> Model:
    site = Site(float(draw.randint(1, 4)), 1024.0, tuple(range(draw.randint(0, 3))), "here")
    rows = {}
    for number in range(1, draw.randint(2, 7)):
        policy = Policy(
            frozenset({"master-0"}),
            restart=draw.choice(("never", "experiment", "experiment")),
            restart_max=draw.randint(1, 2),
            on_exit_codes=draw.choice((None, frozenset({3}))),
        )
        greedy = draw.random() < 0.3
        most = (9, 9999, 9) if greedy else (int(site.cpu), 1024, len(site.gpus))
        one = experiment(
            number,
            policy=policy,
            oversubscribe=greedy,
            needs=Needs(draw.randint(0, most[0]), draw.randint(0, most[1]), draw.randint(0, most[2])),
            timeout_queue=draw.choice((None, None, 5.0)),
        )
        rows[one.uid] = one
    return Model(site, rows)


def in_order(numbers: Iterable[int]) -> bool:
    return list(numbers) == sorted(numbers)


@pytest.mark.slow
@settings(max_examples=max(1, settings.default.max_examples // 5))
@given(st.randoms(use_true_random=False))
def test_whatever_happens_it_settles_and_in_the_end_everything_is_over(draw: random.Random) -> None:
    model = a_model(draw)
    now = 0.0
    for _ in range(draw.randint(0, 40)):
        model.settle(now)
        if all(row.state in FINAL for row in model.rows.values()):
            break
        model.happen(draw)
        now += draw.choice((0.0, 1.0))
        check(model)
    for _ in range(20 * len(model.rows)):  # everything comes back, ends well, and nobody wishes anything
        model.settle(now)
        check(model)
        for handle, seen in model.cluster.items():
            if seen.outcome is None:
                over = {"statuses": SUCCESS.statuses, "outcome": SUCCESS}
                model.cluster[handle] = replace(seen, unreachable="", missing=False, **over)
    assert all(row.state in FINAL for row in model.rows.values()), model.rows
    assert not model.devices
    assert in_order(model.admitted)
    for row in model.rows.values():
        assert row.attempt <= (row.policy.restart_max if row.policy.restart == "experiment" else 0)


def check(model: Model) -> None:
    """What holds at any time: nothing is promised twice."""
    held = [row for row in model.rows.values() if row.state not in FINAL and row.state != QUEUED]
    counted = sum((row.needs for row in held if not row.oversubscribe), Needs())
    assert counted.cpu <= model.site.cpu
    assert counted.memory <= model.site.memory
    assert sum(model.devices.values()) <= len(model.site.gpus)
    assert set(model.devices) == {row.uid for row in held}
    assert all(model.devices[row.uid] == row.needs.gpu for row in held if not row.oversubscribe)


FAR = "fetching cifar10@v1: 120 of 600 MiB"
STAGING: dict[str, tuple[Experiment, tuple[Action, ...]]] = {
    "data that is not here is fetched, and nothing starts": (
        experiment(1, STARTING, staging=Staging()),
        (Stage("u1"),),
    ),
    "how far it is becomes the reason": (
        experiment(1, STARTING, staging=Staging(begun=True, reason=FAR)),
        (Record("u1", 0, (), STARTING, FAR),),
    ),
    "what has been said is not said again": (
        experiment(1, STARTING, reason=FAR, staging=Staging(begun=True, reason=FAR)),
        (),
    ),
    "what cannot be fetched fails the experiment": (
        experiment(1, STARTING, staging=Staging(begun=True, failed=True, reason="cifar10@v1: not allowed")),
        (Finish("u1", FAILED, "cifar10@v1: not allowed"),),
    ),
    "a wish to stop is carried out at once": (
        experiment(1, STARTING, stop=WISH, staging=Staging(begun=True, reason=FAR)),
        (Finish("u1", STOPPED, WISH.reason),),
    ),
    "in a later attempt as well": (
        experiment(1, RESTARTING, attempt=1, staging=Staging()),
        (Stage("u1"),),
    ),
    "when everything is here it is submitted": (experiment(1, STARTING), (Submit("u1", 0),)),
}


@pytest.mark.parametrize(("given_", "expected"), STAGING.values(), ids=STAGING)
def test_data_and_code_come_before_replicas(given_: Experiment, expected: tuple[Action, ...]) -> None:
    assert ask(given_).actions == expected
