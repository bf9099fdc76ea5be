"""The straggler report over made-up ranks: whom it names, and what it rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.store import ranks as reading
from shoal.store.stragglers import STEP_BUSY, STEP_TIME, Points, Process, report
from tests.tracking import BEGAN, Recorded

STEPS = np.arange(50)


def of_values(values: Any, skew: float = 0.0) -> Points:
    values = np.broadcast_to(np.asarray(values, float), STEPS.shape)
    return Points(STEPS, skew + np.arange(50.0), values)


def logged_every(period: float, skew: float = 0.0) -> Points:
    return Points(STEPS, 1.7e9 + skew + STEPS * period, np.zeros(50))


def rank(number: int, *, skew: float = 0.0, cpu: float | None = None, **series: Any) -> Process:
    names = {"busy": STEP_BUSY, "step": STEP_TIME}
    given = {names.get(name, name): found for name, found in series.items()}
    return Process(number, f"worker-{number}", 0, given, cpu)


def test_in_synchronous_training_the_time_before_the_collective_names_it() -> None:
    ranks = [rank(n, step=of_values(0.15), busy=of_values(0.12 if n == 1 else 0.03)) for n in range(3)]
    found = report(ranks)
    assert (found["how"], found["guess"]) == ("busy", False)
    assert found["slowest"]["replica"] == "worker-1"
    assert found["slowest"]["excess"] == pytest.approx(0.09)
    assert found["slowest"]["factor"] == pytest.approx(4)
    assert found["verdict"] == (
        "worker-1 (rank 1) works 120 ms on its part of a step, the others 30 ms: they wait 90 ms for it in every step"
    )
    assert [entry["step_time"]["p50"] for entry in found["ranks"]] == [0.15, 0.15, 0.15]
    assert found["spread"] == pytest.approx(3)


def test_a_rank_that_is_slow_only_now_and_then_is_named_too() -> None:
    jumps = np.where(STEPS % 5 == 0, 0.5, 0.03)
    found = report([rank(n, busy=of_values(jumps if n == 2 else 0.03)) for n in range(4)])
    assert found["slowest"]["rank"] == 2


def test_the_first_step_does_not_count() -> None:
    compiles = np.where(STEPS == 0, 60.0, 0.03)
    found = report([rank(0, busy=of_values(compiles)), rank(1, busy=of_values(0.03))])
    assert found["slowest"] is None
    assert found["verdict"].startswith("no rank stands out")


def test_clocks_that_are_an_hour_apart_change_nothing() -> None:
    ranks = [rank(0, loss=logged_every(0.1)), rank(1, loss=logged_every(0.2, skew=-3600.0))]
    found = report([*ranks, rank(2, loss=logged_every(0.1, skew=3600.0))])
    assert (found["how"], found["step_time_from"]) == ("step_time", "loss")
    assert found["slowest"]["rank"] == 1
    assert found["verdict"] == "worker-1 (rank 1) takes 200 ms for a step, the others 100 ms"


def test_a_clock_that_is_set_back_while_it_runs_costs_one_step() -> None:
    times = 1.7e9 + STEPS * 0.1
    times[25:] -= 3600
    found = report([rank(0, loss=Points(STEPS, times, np.zeros(50))), rank(1, loss=logged_every(0.1))])
    assert found["slowest"] is None
    assert found["ranks"][0]["step_time"]["max"] == pytest.approx(0.1, rel=1e-5)


def test_equal_step_times_alone_name_nobody() -> None:
    found = report([rank(n, loss=logged_every(0.1)) for n in range(3)])
    assert (found["how"], found["slowest"]) == ("none", None)
    assert "shoal.step()" in found["verdict"]


def test_with_equal_step_times_activity_is_a_guess() -> None:
    found = report([rank(n, loss=logged_every(0.1), cpu=1.0 if n == 1 else 0.2) for n in range(3)])
    assert (found["how"], found["guess"]) == ("activity", True)
    assert found["slowest"]["replica"] == "worker-1"
    assert found["verdict"].startswith("a guess: worker-1 uses 1 cores, the others 0.2")


ACTIVITY: dict[str, tuple[list[dict[str, float]], str | None, str]] = {
    "GPUs that wait within the collective are in use, and the idle one is late": (
        [{"gpu0": 97}, {"gpu0": 40}, {"gpu0": 99}],
        "worker-1",
        "a guess: GPUs of worker-1 are in use 40% of the time, the others' 98%; a GPU that waits",
    ),
    "ranks wait on the CPU, and the GPU of the slow one is in use": (
        [{"gpu0": 20}, {"gpu0": 24}, {"gpu0": 90}],
        "worker-2",
        "a guess: GPUs of worker-2 are in use 90% of the time, the others' 22%; in synchronous training the slow one",
    ),
    "of two the one with the idle GPU": ([{"gpu3": 95}, {"gpu5": 50}], "worker-1", "a guess: GPUs of worker-1"),
    "all GPUs of a replica count": (
        [{"gpu0": 90, "gpu1": 90}, {"gpu2": 90, "gpu3": 10}],
        "worker-1",
        "a guess: GPUs of worker-1 are in use 50% of the time, the others' 90%",
    ),
    "GPUs go before CPU": ([{"gpu0": 95, "cpu": 3.0}, {"gpu0": 90, "cpu": 0.5}], None, "all ranks take 100 ms"),
    "a replica without a GPU takes no part": (
        [{"cpu": 4.0}, {"gpu0": 95, "cpu": 1.0}, {"gpu0": 30, "cpu": 1.0}],
        "worker-2",
        "a guess: GPUs of worker-2",
    ),
    "one replica with a GPU tells nothing, and CPU does": (
        [{"gpu0": 95, "cpu": 0.2}, {"cpu": 1.0}, {"cpu": 0.2}],
        "worker-1",
        "a guess: worker-1 uses 1 cores, the others 0.2",
    ),
    "no GPU": ([{"cpu": 1.0}, {"cpu": 0.2}], "worker-0", "a guess: worker-0 uses 1 cores, the others 0.2"),
    "no samples": ([{}, {}], None, "all ranks take 100 ms"),
}


@pytest.mark.parametrize("compacted", [False, True], ids=["in heads", "in chunks"])
@pytest.mark.parametrize(("used", "named", "said"), ACTIVITY.values(), ids=ACTIVITY)
def test_samples_of_gpus_and_cpu_are_a_guess(
    recorded: Recorded, used: list[dict[str, float]], named: str | None, said: str, compacted: bool
) -> None:
    for number, samples in enumerate(used):
        logged = [(BEGAN + step * 0.1, step, {"loss": 1.0}) for step in range(50)]
        recorded.log(recorded.stream(f"worker-{number}"), logged)
        values = {name if name == "cpu" else f"{name}/utilization": value for name, value in samples.items()}
        warming_up = dict.fromkeys(values, 0.0)
        sampled = [(BEGAN + step, step, warming_up if step < 20 else values) for step in range(80)]
        recorded.log(recorded.stream(f"worker-{number}", kind="resource"), sampled if values else [])
    for stream in recorded.streams if compacted else ():
        recorded.compact(stream, close=True)
    with recorded.database.read() as connection:
        found = report(reading.processes(connection, recorded.uid, recorded.summaries, recorded.heads))
    assert ((found["slowest"] or {}).get("replica"), found["guess"]) == (named, named is not None)
    assert found["verdict"].startswith(said)
    assert "shoal.step()" in found["verdict"]


def test_the_metric_that_most_ranks_log_most_often_gives_the_step_times() -> None:
    often = {"loss": logged_every(0.1), "shoal/other": logged_every(9)}
    ranks = [
        Process(n, f"worker-{n}", 0, {**often, "epoch": Points(STEPS[:5], STEPS[:5] * 50.0, STEPS[:5] * 1.0)})
        for n in range(2)
    ]
    assert report(ranks)["step_time_from"] == "loss"


@pytest.mark.parametrize(
    ("ranks", "verdict"),
    [
        ([], "no rank has logged anything yet"),
        ([rank(0, busy=of_values(1.0))], "there is only one rank"),
        ([rank(0), rank(1)], "not enough is known of the steps of at least two ranks"),
    ],
    ids=["no rank", "one rank", "two ranks without steps"],
)
def test_where_nothing_can_be_said_it_says_so(ranks: list[Process], verdict: str) -> None:
    found = report(ranks)
    assert (found["how"], found["slowest"], found["verdict"]) == ("none", None, verdict)
