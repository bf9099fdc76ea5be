"""What trials of several sizes tell: throughput, speed-up, efficiency, cost, and a plain answer. Pure.

Throughput is the metric's mean over the second half of each process's points, the first half being warm-up, added up
over the processes that log it. Without the metric it is runs per second: all trials must then do the same work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WORTH = 0.7  # efficiency from which on more machines are well used
FASTER = 1.1  # less is noise


def in_words(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"


def trains(framework: str, role: str) -> bool:
    """Whether a replica does a part of the work: parameter servers and the scheduler of MXNet only serve it."""
    return role == "worker" or (role == "master" and framework != "mxnet")


def throughput(curves: Iterable[Sequence[float]], *, mean: bool = False) -> float | None:
    """Of the values that each process logged; with `mean` every process logs that of all."""
    means = []
    for values in curves:
        good = [value for value in values if value == value and abs(value) != float("inf")]
        half = good[len(good) // 2 :]
        if half:
            means.append(sum(half) / len(half))
    if not means:
        return None
    return sum(means) / len(means) if mean else sum(means)


def judged(trials: Sequence[Mapping[str, Any]], cost_per_hour: float | None) -> dict[str, Any]:
    """The trials with speed-up, efficiency and cost, and the verdict. A trial: {workers, replicas, trains, throughput}.

    `trains` is how many replicas train, `replicas` how many there are. Cost is of one unit of work: money with
    `cost_per_hour` (of one replica), else seconds of one replica.
    """
    good = [trial for trial in trials if trial["throughput"]]
    base = min(good, key=lambda trial: (trial["trains"], trial["workers"]), default=None)
    told = [{**trial, **_compared(trial, base, cost_per_hour)} for trial in trials]
    return {"trials": told, "verdict": _verdict([trial for trial in told if trial["throughput"]], len(trials))}


def _compared(trial: Mapping[str, Any], base: Mapping[str, Any] | None, price: float | None) -> dict[str, Any]:
    if base is None or not trial["throughput"]:
        return {"speed_up": None, "efficiency": None, "cost": None}
    speed_up = trial["throughput"] / base["throughput"]
    seconds = trial["replicas"] / trial["throughput"]
    return {
        "speed_up": speed_up,
        "efficiency": speed_up * base["trains"] / trial["trains"],
        "cost": seconds if price is None else seconds / 3600 * price,
    }


def _verdict(good: Sequence[Mapping[str, Any]], tried: int) -> str:
    if len(good) < 2:
        return f"{len(good)} of {tried} trials can be compared: too few to tell"
    base = min(good, key=lambda trial: (trial["trains"], trial["workers"]))
    fastest = max(good, key=lambda trial: trial["throughput"])
    cheapest = min(good, key=lambda trial: trial["cost"])
    cheap = f"the cheapest is {_workers(cheapest)}"
    if fastest["speed_up"] < FASTER:
        return f"no: more workers are not faster here; stay with {_workers(base)}"
    used = [t for t in good if t is not base and t["efficiency"] >= WORTH and t["speed_up"] >= FASTER]
    if used:
        best = max(used, key=lambda trial: trial["throughput"])
        return f"yes, up to {_workers(best)}: {_gain(best, base)}; {cheap}"
    return f"only if time matters more than cost: with {_workers(fastest)} it is {_gain(fastest, base)}; {cheap}"


def _gain(trial: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    times = trial["cost"] / base["cost"]
    return (
        f"{trial['speed_up']:.2f} times as fast as {_workers(base)}, at {trial['efficiency'] * 100:.0f} % efficiency, "
        f"and each unit of work costs {times:.2f} times as much"
    )


def _workers(trial: Mapping[str, Any]) -> str:
    return in_words(trial["workers"])
