"""Why an experiment does not run yet: one word and one sentence, made of what the engine itself says."""

from __future__ import annotations

import pytest

from shoal.backends.backend import Site
from shoal.engine.admission import Needs
from shoal.engine.decide import Experiment, Explain, Snapshot, decide
from shoal.engine.waiting import waits
from shoal.states import LOST, QUEUED, RESTARTING, RUNNING, STARTING, SUCCEEDED, Policy

BEHIND = "It is behind #3 in the queue: first in, first out, so that nothing starves."
WORDS = [
    (QUEUED, "waits for 2 cpu (1 of 4 free)", "resources", "It waits for 2 cpu (1 of 4 free)."),
    (QUEUED, "behind #3 in the queue", "order", BEHIND),
    (QUEUED, "", "new", "It has just come; the engine looks at it next."),
    (STARTING, "fetching cifar10@v1: 3 of 12 MiB", "data", "Its data is on the way: fetching cifar10@v1: 3 of 12 MiB."),
    (STARTING, "worker-0: 0/3 nodes have room", "cluster", "worker-0: 0/3 nodes have room"),
    (STARTING, "", "start", "Its replicas are being started."),
    (RESTARTING, "attempt 1 of at most 3", "start", "Its replicas are being started: attempt 1 of at most 3."),
    (LOST, "lab does not answer", "unreachable", "Its cluster does not answer: lab does not answer"),
    (LOST, "", "unreachable", "Its cluster does not answer."),
]  # fmt: skip


@pytest.mark.parametrize(("state", "reason", "word", "sentence"), WORDS, ids=[f"{w[0]} {w[2]}" for w in WORDS])
def test_a_word_and_a_sentence(state: str, reason: str, word: str, sentence: str) -> None:
    assert waits(state, reason) == (word, sentence)


@pytest.mark.parametrize("state", [RUNNING, SUCCEEDED])
def test_what_runs_or_is_over_waits_for_nothing(state: str) -> None:
    assert waits(state, "whatever") is None


def test_the_words_are_found_in_what_the_engine_says() -> None:
    """So that a reason that is worded anew cannot lose its word."""

    def queued(number: int) -> Experiment:
        return Experiment(str(number), number, QUEUED, "", 0, Policy(frozenset({"master-0"})), needs=Needs(cpu=8))

    said = decide(Snapshot((queued(1), queued(2)), Site(4, 1024, (), "here")), 0.0)
    reasons = [action.reason for action in said.actions if isinstance(action, Explain)]
    assert [waits(QUEUED, reason)[0] for reason in reasons] == ["resources", "order"]  # type: ignore[index]
