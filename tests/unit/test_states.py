"""The policy of one attempt as tables: who decides success, what a failure does, when something is started again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from shoal.frameworks import deciding
from shoal.states import (
    CREATED,
    FAILED,
    FINAL,
    RUNNING,
    STARTING,
    STOPPED,
    SUCCEEDED,
    Attempt,
    Decision,
    End,
    Outcome,
    Policy,
    StartReplica,
    Status,
    StopReplica,
    describe_exit,
    describe_failure,
    next_steps,
    normal_exit,
    stopped,
)

MASTER, WORKERS, PS = "master-0", ("worker-0", "worker-1"), "ps-0"


def running(name: str, try_: int = 0) -> Status:
    return Status(name, try_, RUNNING, started=0.0)


def succeeded(name: str, at: float = 10.0) -> Status:
    return Status(name, 0, SUCCEEDED, "", 0, "", "here", 0.0, at)


def failed(name: str, at: float = 10.0, code: int = 1, signal: str = "", try_: int = 0, line: str = "") -> Status:
    return Status(name, try_, FAILED, "", code, signal, "here", 0.0, at, (line,) if line else ())


def halted(name: str, reason: str = "worker-0 failed", at: float = 11.0) -> Status:
    return stopped(running(name), reason, at)


def among(*statuses: Status) -> dict[str, Status]:
    return {status.replica: status for status in statuses}


def policy(framework: str, names: Mapping[str, Status] | list[str], **more: object) -> Policy:
    servers = frozenset(name for name in names if name.startswith("ps-"))
    return replace(Policy(deciding(framework, names), servers), **more)


def ask(statuses: Mapping[str, Status], by: Policy, now: float = 20.0, stop: str = "") -> Decision:
    """The answer, which has to be the same when asked again."""
    attempt = Attempt(dict(statuses), 0.0, stop)
    decision = next_steps(attempt, by, now)
    assert next_steps(attempt, by, now) == decision
    return decision


SUCCESS = {
    "one replica that succeeds": ("none", among(succeeded(MASTER))),
    "tensorflow: the master decides, and the others are over": (
        "tensorflow",
        among(succeeded(MASTER), succeeded("worker-0"), halted("worker-1"), halted(PS)),
    ),
    "tensorflow without a master: worker 0 decides": (
        "tensorflow",
        among(succeeded("worker-0"), halted("worker-1"), halted(PS)),
    ),
    "pytorch: master and workers": ("pytorch", among(succeeded(MASTER), *map(succeeded, WORKERS))),
    "pytorch without a master: the workers": ("pytorch", among(*map(succeeded, WORKERS))),
    "jax: master and workers": ("jax", among(succeeded(MASTER), *map(succeeded, WORKERS))),
    "mxnet: the workers, and the scheduler was stopped": (
        "mxnet",
        among(halted(MASTER), *map(succeeded, WORKERS), halted(PS)),
    ),
    "none: the master": ("none", among(succeeded(MASTER), halted("worker-0"), halted(PS))),
    "none without a master: all workers": ("none", among(*map(succeeded, WORKERS), halted(PS))),
}


@pytest.mark.parametrize(("framework", "statuses"), SUCCESS.values(), ids=SUCCESS)
def test_an_attempt_succeeds(framework: str, statuses: dict[str, Status]) -> None:
    assert ask(statuses, policy(framework, statuses)).steps == (End(SUCCEEDED, ""),)


NOT_YET = {
    "tensorflow: all workers succeeded, the master runs": (
        "tensorflow",
        among(running(MASTER), *map(succeeded, WORKERS), running(PS)),
    ),
    "tensorflow without a master: worker 1 succeeded, worker 0 runs": (
        "tensorflow",
        among(running("worker-0"), succeeded("worker-1")),
    ),
    "pytorch: one of three still runs": (
        "pytorch",
        among(succeeded(MASTER), succeeded("worker-0"), running("worker-1")),
    ),
    "jax: the master still runs": ("jax", among(running(MASTER), *map(succeeded, WORKERS))),
    "mxnet: the scheduler succeeded, a worker runs": (
        "mxnet",
        among(succeeded(MASTER), succeeded("worker-0"), running("worker-1"), running(PS)),
    ),
    "none without a master: one worker of two": ("none", among(succeeded("worker-0"), running("worker-1"))),
    "nothing has started": ("pytorch", among(Status(MASTER), Status("worker-0", state=STARTING))),
}


@pytest.mark.parametrize(("framework", "statuses"), NOT_YET.values(), ids=NOT_YET)
def test_an_attempt_goes_on(framework: str, statuses: dict[str, Status]) -> None:
    assert ask(statuses, policy(framework, statuses)) == Decision()


HAS_SUCCEEDED = "the experiment has succeeded"
GRACE = {
    "others get the grace, and somebody looks again at its end": (
        "none",
        among(succeeded(MASTER, 10), running("worker-0")),
        69.9,
        Decision((), 70.0),
    ),
    "at its end they are stopped": (
        "none",
        among(succeeded(MASTER, 10), running("worker-0"), running("worker-1")),
        70.0,
        Decision((StopReplica("worker-0", HAS_SUCCEEDED), StopReplica("worker-1", HAS_SUCCEEDED))),
    ),
    "parameter servers get none": (
        "tensorflow",
        among(succeeded(MASTER, 10), running("worker-0"), running(PS)),
        10.0,
        Decision((StopReplica(PS, HAS_SUCCEEDED),), 70.0),
    ),
    "mxnet's scheduler gets it, its servers do not": (
        "mxnet",
        among(running(MASTER), succeeded("worker-0", 10), running(PS)),
        11.0,
        Decision((StopReplica(PS, HAS_SUCCEEDED),), 70.0),
    ),
    "it counts from the last of those that decide": (
        "none",
        among(succeeded("worker-0", 10), succeeded("worker-1", 50), running(PS)),
        60.0,
        Decision((StopReplica(PS, HAS_SUCCEEDED),), 110.0),
    ),
    "what has not even started is stopped too": (
        "none",
        among(succeeded(MASTER, 10), Status("worker-0", state=STARTING)),
        70.0,
        Decision((StopReplica("worker-0", HAS_SUCCEEDED),)),
    ),
}


@pytest.mark.parametrize(("framework", "statuses", "now", "expected"), GRACE.values(), ids=GRACE)
def test_the_grace_after_success(framework: str, statuses: dict[str, Status], now: float, expected: Decision) -> None:
    assert ask(statuses, policy(framework, statuses, grace_finish=60.0), now) == expected


ENDS = {
    "a failure after success changes nothing": (
        "none",
        among(succeeded(MASTER, 10), failed("worker-0", 10.5)),
        End(SUCCEEDED, ""),
    ),
    "a server killed after success changes nothing": (
        "tensorflow",
        among(succeeded(MASTER, 10), failed(PS, 11, 137, "SIGKILL")),
        End(SUCCEEDED, ""),
    ),
    "a failure at the very moment of success changes nothing": (
        "none",
        among(succeeded(MASTER, 10), failed("worker-0", 10)),
        End(SUCCEEDED, ""),
    ),
    "a failure before the last decider succeeded fails": (
        "pytorch",
        among(succeeded(MASTER, 9), succeeded("worker-0", 11), failed("worker-1", 10, 3)),
        End(FAILED, "worker-1 failed: exit code 3", (failed("worker-1", 10, 3),)),
    ),
    "a server that failed before the master succeeded fails": (
        "tensorflow",
        among(succeeded(MASTER, 12), failed(PS, 10)),
        End(FAILED, "ps-0 failed: exit code 1", (failed(PS, 10),)),
    ),
    "a failure whose time nobody knows counts": (
        "none",
        among(succeeded(MASTER, 12), replace(failed("worker-0"), finished=None)),
        End(FAILED, "worker-0 failed: exit code 1", (replace(failed("worker-0"), finished=None),)),
    ),
    "all others were stopped": (
        "pytorch",
        among(halted(MASTER), failed("worker-0", 10, 2), halted("worker-1")),
        End(FAILED, "worker-0 failed: exit code 2", (failed("worker-0", 10, 2),)),
    ),
    "all failures that count are kept, the first one first": (
        "pytorch",
        among(failed(MASTER, 12, 1), failed("worker-0", 11, 1), succeeded("worker-1", 5)),
        End(FAILED, "worker-0 failed: exit code 1", (failed("worker-0", 11, 1), failed(MASTER, 12, 1))),
    ),
}


@pytest.mark.parametrize(("framework", "statuses", "end"), ENDS.values(), ids=ENDS)
def test_a_failure_and_the_end(framework: str, statuses: dict[str, Status], end: End) -> None:
    assert ask(statuses, policy(framework, statuses)).steps == (end,)


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "mxnet", "jax", "none"])
@pytest.mark.parametrize("who", ["master-0", "worker-0", "worker-1"])
def test_whoever_fails_all_others_are_stopped_at_once(framework: str, who: str) -> None:
    statuses = among(running(MASTER), *map(running, WORKERS))
    statuses[who] = failed(who)
    others = [name for name in statuses if name != who]
    expected = Decision(tuple(StopReplica(name, f"{who} failed") for name in others))
    assert ask(statuses, policy(framework, statuses)) == expected


def test_what_has_not_started_is_stopped_after_a_failure_too() -> None:
    statuses = among(failed(MASTER), Status("worker-0"), Status("worker-1", state=STARTING))
    steps = ask(statuses, policy("pytorch", statuses)).steps
    assert steps == tuple(StopReplica(name, "master-0 failed") for name in WORKERS)


STOPS = {
    "all that run are stopped": (
        among(running(MASTER), succeeded("worker-0"), Status("worker-1")),
        Decision((StopReplica(MASTER, "by ann"), StopReplica("worker-1", "by ann"))),
    ),
    "it ends when nothing runs": (
        among(halted(MASTER, "by ann"), halted("worker-0", "by ann")),
        Decision((End(STOPPED, "by ann"),)),
    ),
    "a failure meanwhile makes no failed experiment of it": (
        among(halted(MASTER, "by ann"), failed("worker-0", 137)),
        Decision((End(STOPPED, "by ann"),)),
    ),
    "a failure meanwhile starts nothing again": (
        among(running(MASTER), failed("worker-0", 137)),
        Decision((StopReplica(MASTER, "by ann"),)),
    ),
    "after success the others do not get their grace": (
        among(succeeded(MASTER, 10), running("worker-0")),
        Decision((StopReplica("worker-0", "by ann"),)),
    ),
    "what has succeeded stays a success": (
        among(succeeded(MASTER, 10), halted("worker-0", "by ann")),
        Decision((End(SUCCEEDED, ""),)),
    ),
}


@pytest.mark.parametrize(("statuses", "expected"), STOPS.values(), ids=STOPS)
def test_a_wish_to_stop(statuses: dict[str, Status], expected: Decision) -> None:
    by = policy("none", statuses, restart="replica", timeout_run=5.0)
    assert ask(statuses, by, stop="by ann") == expected


SLOW = "TimedOut: worker-0, worker-1 not started after 30 s"
LONG = "TimedOut: ran longer than 100 s"
TIMEOUTS = {
    "somebody looks when the first of both runs out": (
        among(running(MASTER), Status("worker-0", state=STARTING)),
        29.9,
        Decision((), 30.0),
    ),
    "all run, so only the time of running counts": (
        among(running(MASTER), running("worker-0")),
        50.0,
        Decision((), 100.0),
    ),
    "two did not start in time": (
        among(running(MASTER), Status("worker-0", state=STARTING), Status("worker-1", state=CREATED)),
        30.0,
        Decision(tuple(StopReplica(name, SLOW) for name in (MASTER, *WORKERS))),
    ),
    "one of them is stopped already: the others still have to be": (
        among(running(MASTER), halted("worker-0", SLOW), Status("worker-1")),
        31.0,
        Decision((StopReplica(MASTER, SLOW), StopReplica("worker-1", SLOW))),
    ),
    "when all are stopped it has failed": (
        among(*(halted(name, SLOW) for name in (MASTER, *WORKERS))),
        31.0,
        Decision((End(FAILED, SLOW),)),
    ),
    "it ran too long": (
        among(running(MASTER), running("worker-0")),
        100.0,
        Decision((StopReplica(MASTER, LONG), StopReplica("worker-0", LONG))),
    ),
    "it ran too long, and all are stopped": (
        among(halted(MASTER, LONG), halted("worker-0", LONG)),
        101.0,
        Decision((End(FAILED, LONG),)),
    ),
    "what succeeded in time is not late": (among(succeeded(MASTER, 99)), 101.0, Decision((End(SUCCEEDED, ""),))),
    "one that starts while it is told to stop is late all the same": (
        among(running(MASTER), replace(running("worker-0"), started=30.5), replace(running("worker-1"), started=31.0)),
        31.0,
        Decision(tuple(StopReplica(name, SLOW) for name in (MASTER, *WORKERS))),
    ),
    "a replica that starts a second time is not late": (
        among(running(MASTER), Status("worker-0", 1, STARTING)),
        50.0,
        Decision((), 100.0),
    ),
    "what is late is not started again": (
        among(running(MASTER), failed("worker-0", 99)),
        100.0,
        Decision((StopReplica(MASTER, LONG),)),
    ),
}


@pytest.mark.parametrize(("statuses", "now", "expected"), TIMEOUTS.values(), ids=TIMEOUTS)
def test_time_outs(statuses: dict[str, Status], now: float, expected: Decision) -> None:
    by = policy("none", statuses, timeout_start=30.0, timeout_run=100.0, restart="replica")
    assert ask(statuses, by, now) == expected


@pytest.mark.parametrize("now", [0.0, 1e9])
def test_without_time_outs_nobody_looks_again(now: float) -> None:
    statuses = among(Status(MASTER), Status("worker-0", state=STARTING))
    assert ask(statuses, policy("pytorch", statuses), now) == Decision()


def start(name: str, try_: int, after: str) -> StartReplica:
    return StartReplica(name, try_, f"restarted after {after}")


RESTARTS = {
    "a failed replica is started again": (
        {},
        among(running(MASTER), failed("worker-0", code=3)),
        Decision((start("worker-0", 1, "exit code 3"),)),
    ),
    "and again, up to the maximum": (
        {},
        among(running(MASTER), failed("worker-0", code=137, signal="SIGKILL", try_=1)),
        Decision((start("worker-0", 2, "SIGKILL (137)"),)),
    ),
    "then it fails the attempt": (
        {},
        among(running(MASTER), failed("worker-0", try_=2)),
        Decision((StopReplica(MASTER, "worker-0 failed"),)),
    ),
    "two at once": (
        {},
        among(running(MASTER), failed("worker-0"), failed("worker-1", try_=1)),
        Decision((start("worker-0", 1, "exit code 1"), start("worker-1", 2, "exit code 1"))),
    ),
    "one of two has used up its tries: nothing is started": (
        {},
        among(running(MASTER), failed("worker-0"), failed("worker-1", try_=2)),
        Decision((StopReplica(MASTER, "worker-1 failed"),)),
    ),
    "the exit code is one to start again after": (
        {"on_exit_codes": frozenset({3, 137})},
        among(running(MASTER), failed("worker-0", code=137, signal="SIGKILL")),
        Decision((start("worker-0", 1, "SIGKILL (137)"),)),
    ),
    "the exit code is another one": (
        {"on_exit_codes": frozenset({3, 137})},
        among(running(MASTER), failed("worker-0", code=1)),
        Decision((StopReplica(MASTER, "worker-0 failed"),)),
    ),
    "no exit code is none to start again after": (
        {"on_exit_codes": frozenset({3})},
        among(running(MASTER), replace(failed("worker-0"), exit_code=None, reason="Evicted")),
        Decision((StopReplica(MASTER, "worker-0 failed"),)),
    ),
    "the master too, where it decides": (
        {},
        among(failed(MASTER), running("worker-0")),
        Decision((start(MASTER, 1, "exit code 1"),)),
    ),
    "time-outs are looked at meanwhile": (
        {"timeout_run": 100.0},
        among(running(MASTER), failed("worker-0")),
        Decision((start("worker-0", 1, "exit code 1"),), 100.0),
    ),
    "not when the experiment has succeeded at the same time": (
        {},
        among(succeeded(MASTER, 11), failed("worker-0", 10)),
        Decision((End(SUCCEEDED, ""),)),
    ),
    "not with the policy never": (
        {"restart": "never"},
        among(running(MASTER), failed("worker-0")),
        Decision((StopReplica(MASTER, "worker-0 failed"),)),
    ),
    "not with the policy experiment: that is the engine's": (
        {"restart": "experiment"},
        among(failed(MASTER)),
        Decision((End(FAILED, "master-0 failed: exit code 1", (failed(MASTER),)),)),
    ),
}


@pytest.mark.parametrize(("more", "statuses", "expected"), RESTARTS.values(), ids=RESTARTS)
def test_a_replica_is_started_again(more: dict[str, object], statuses: dict[str, Status], expected: Decision) -> None:
    by = policy("none", statuses, **{"restart": "replica", "restart_max": 2, **more})
    assert ask(statuses, by) == expected


STRANGERS = {
    "the others would wait for it": (
        among(halted(MASTER, "preempted"), running("worker-0"), running(PS)),
        Decision((StopReplica("worker-0", "master-0 was stopped"), StopReplica(PS, "master-0 was stopped"))),
    ),
    "the first one is the reason": (
        among(halted(MASTER, "worker-0 was stopped", 12), halted("worker-0", "preempted", 11)),
        Decision((End(STOPPED, "worker-0 was stopped: preempted"),)),
    ),
    "without a reason": (among(halted(MASTER, "")), Decision((End(STOPPED, "master-0 was stopped"),))),
    "nothing is started again": (
        among(halted(MASTER, "preempted"), failed("worker-0")),
        Decision((End(STOPPED, "master-0 was stopped: preempted"),)),
    ),
}


@pytest.mark.parametrize(("statuses", "expected"), STRANGERS.values(), ids=STRANGERS)
def test_a_replica_that_somebody_else_stopped(statuses: dict[str, Status], expected: Decision) -> None:
    assert ask(statuses, policy("none", statuses, restart="replica")) == expected


EXITS = {
    "success": (0, (0, "")),
    "an ordinary code": (3, (3, "")),
    "killed, as Python says it": (-9, (137, "SIGKILL")),
    "killed, as a shell says it": (137, (137, "SIGKILL")),
    "a segmentation fault": (-11, (139, "SIGSEGV")),
    "terminated, as a shell says it": (143, (143, "SIGTERM")),
    "a signal without a name": (-64, (192, "signal 64")),
    "the largest code is no signal": (255, (255, "")),
    "128 is no signal": (128, (128, "")),
    "command not found": (127, (127, "")),
}


@pytest.mark.parametrize(("code", "expected"), EXITS.values(), ids=EXITS)
def test_an_exit_as_every_cluster_shows_it(code: int, expected: tuple[int, str]) -> None:
    assert normal_exit(code) == expected
    assert normal_exit(expected[0])[0] == expected[0]


DESCRIBED = {
    "exit code 3": failed("a", code=3),
    "SIGKILL (137)": failed("a", code=137, signal="SIGKILL"),
    "OOMKilled: reached 512 MiB of 512 MiB": replace(
        failed("a", code=137, signal="SIGKILL"), reason="OOMKilled: reached 512 MiB of 512 MiB"
    ),
    "Evicted": Status("a", state=FAILED, reason="Evicted"),
    "an unknown end": Status("a", state=FAILED),
}


@pytest.mark.parametrize(("words", "status"), DESCRIBED.items(), ids=DESCRIBED)
def test_an_end_in_words(words: str, status: Status) -> None:
    assert describe_exit(status) == words
    assert describe_failure(status) == f"a failed: {words}"


def test_a_status_is_over_in_a_final_state_only() -> None:
    assert {state for state in (*FINAL, CREATED, STARTING, RUNNING) if Status("a", state=state).over} == FINAL


def test_what_travels_as_json_comes_back_the_same() -> None:
    status = failed("worker-1", 10.25, 137, "SIGKILL", 2, line="é 🐟")
    limits = Policy(frozenset({"a", "b"}), frozenset({"ps-0"}), on_exit_codes=frozenset({1, 137}), timeout_run=3.5)
    outcome = Outcome(FAILED, "why", (status, running("a")), (status,), 12.5, 1.5, (failed("a"),))
    for value in (status, limits, outcome):
        assert type(value).of(json.loads(json.dumps(value.json()))) == value


def test_a_status_of_a_later_version_is_read() -> None:
    assert Status.of({"replica": "a", "state": RUNNING, "colour": "blue"}) == Status("a", state=RUNNING)


def test_an_outcome_without_history_is_read() -> None:
    assert Outcome.of({"state": STOPPED, "reason": "by ann"}) == Outcome(STOPPED, "by ann", ())
