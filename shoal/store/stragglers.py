"""Which rank holds the others up. Pure: arrays in, a report out.

In synchronous training every rank takes part in every step, so all step times are equal, whoever is slow: what differs
is the time a rank works before it waits for the others. `shoal.step()` marks that moment. Without it, step times tell
only about training that is not synchronous, and what is left is a guess: while the others wait, the slow one works. On
GPUs it may be the other way round, since one that waits within a collective is in use: see `_by_gpus`.
A rank is named when its score (see `scores`) is low in several windows in sequence, not for a slow step now and then.

Only differences of times within one process are used: the clocks of machines may be hours apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.store.scores import CHRONIC, Score, Series, scores, windows

STEP_TIME, STEP_BUSY = "shoal/step_time", "shoal/step_busy"
OURS = "shoal/"
STANDS_OUT = 0.10  # slower than the median of the others by this part; else one rank is fast, and not one slow
ENOUGH = 3  # steps of a rank, below which nothing is said of it
STANDS_OUT_BUSY = 0.25  # for guesses by activity, in cores, or as a part of the time of GPUs
WOULD_TELL = "shoal.step() before the collective would tell"


class Points(NamedTuple):
    """Of one series, in the order they were logged: steps, times in seconds, values."""

    steps: NDArray[Any]
    times: NDArray[Any]
    values: NDArray[Any]


@dataclass(frozen=True)
class Process:
    """One process of the newest attempt, with the newest points of its series."""

    rank: int
    replica: str
    process: int
    series: Mapping[str, Points]
    cpu: float | None = None  # cores its replica uses, on the average
    gpu: float | None = None  # the part of the time in which its replica's GPUs are in use, on the average

    @property
    def name(self) -> str:
        return f"{self.replica}:{self.process}" if self.process else self.replica


def report(processes: Sequence[Process]) -> dict[str, Any]:
    """Per rank step time, time of its own and scores, the spread, and the slowest rank with by how much; see `how`.

    `how` is what the answer rests on: busy, step_time, activity (a guess) or none.
    """
    metric = _most_logged(processes)
    ordered = sorted(processes, key=lambda one: one.rank)
    times, busy = [_times(one, metric) for one in ordered], [_busy(one) for one in ordered]
    ranks = [_rank(*about) for about in zip(ordered, times, busy, strict=True)]
    by_busy = sum(rank["busy"] is not None for rank in ranks) > 1
    measure, series = ("busy", busy) if by_busy else ("step_time", times)
    means, width = windows([entry if rank[measure] else None for entry, rank in zip(series, ranks, strict=True)])
    known = scores(means, [rank["step_time"]["mean"] if rank["step_time"] else None for rank in ranks])
    slow = _slow(ranks, known, means, measure)
    ways: tuple[tuple[str, Verdict | None], ...] = (
        ("busy", _by_busy(ranks, slow) if by_busy else None),
        ("step_time", _by_step_time(slow) if slow is not None and not by_busy else None),
        ("activity", _by_activity(ranks)),
        ("none", _nothing(ranks)),
    )
    how, (slowest, text) = next((how, verdict) for how, verdict in ways if verdict is not None)
    measured = [rank["busy" if how == "busy" else "step_time"] for rank in ranks]
    return {
        "how": how,
        "guess": how == "activity",
        "slowest": slowest,
        "verdict": text,
        "spread": _spread([entry["mean"] for entry in measured if entry]),
        "step_time_from": STEP_TIME if any(STEP_TIME in one.series for one in processes) else metric,
        "window": width if any(score is not None for score in known) else None,
        "ranks": [
            {**rank, "score": score.json() if score is not None else None}
            for rank, score in zip(ranks, known, strict=True)
        ],
    }


Verdict = tuple[dict[str, Any] | None, str]


def _rank(process: Process, times: Series | None, busy: Series | None) -> dict[str, Any]:
    return {
        "rank": process.rank,
        "replica": process.replica,
        "process": process.process,
        "name": process.name,
        "step_time": _statistics(times[1]) if times is not None else None,
        "busy": _statistics(busy[1]) if busy is not None else None,
        "cpu": process.cpu,
        "gpu": process.gpu,
    }


def _busy(process: Process) -> Series | None:
    points = process.series.get(STEP_BUSY)
    return _without_first(points.steps, points.values) if points is not None else None


def _times(process: Process, metric: str | None) -> Series | None:
    """Seconds of each step: as they were marked, else between points of a metric."""
    marked = process.series.get(STEP_TIME)
    if marked is not None:
        return _without_first(marked.steps, marked.values)
    logged = process.series.get(metric) if metric is not None else None
    return _without_first(*_step_times(logged)) if logged is not None else None


def _without_first(steps: NDArray[Any], values: NDArray[Any]) -> Series:
    """Without the first step, in which everything is loaded and compiled."""
    good = np.isfinite(values)
    steps, values = steps[good], values[good]
    return (steps[1:], values[1:]) if len(values) > ENOUGH else (steps, values)


def _most_logged(processes: Sequence[Process]) -> str | None:
    """The metric that tells most about the time of steps: logged by the most processes, then the most often."""
    seen: dict[str, tuple[int, int]] = {}
    for process in processes:
        for name, points in process.series.items():
            if not name.startswith(OURS) and len(points.steps) > ENOUGH:
                ranks, count = seen.get(name, (0, 0))
                seen[name] = ranks + 1, count + len(points.steps)
    return max(seen, key=lambda name: (seen[name], name), default=None)


def _step_times(points: Points) -> Series:
    """Seconds per step between points whose step grows; a clock that was set back gives nothing."""
    steps, times = np.diff(points.steps), np.diff(points.times)
    good = (steps > 0) & (times > 0)
    return points.steps[1:][good], times[good] / steps[good]


def _statistics(values: NDArray[Any]) -> dict[str, Any] | None:
    if len(values) < ENOUGH:
        return None
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "p50": float(np.percentile(values, 50)),
        "p95": float(np.percentile(values, 95)),
        "max": float(values.max()),
    }


class Slow(NamedTuple):
    """The rank that costs the others most."""

    rank: Mapping[str, Any]
    score: Score
    mean: float  # its time, and the median of the others'
    others: float

    def told(self, is_: str, was: str, times: str) -> str:
        """Since when it is slow, and by how much."""
        who = f"{self.rank['name']} (rank {self.rank['rank']})"
        if self.score.pattern == CHRONIC:
            return f"{who} {is_} {times}"
        count = f"{int(self.score.slow.sum())} of {self.score.windows} windows"
        if self.score.now:
            return f"{who} has become slow ({count}): it {is_} {times}"
        return f"{who} was slow for a while ({count}): it {was} {times}"

    def found(self) -> dict[str, Any]:
        return _found(self.rank, self.mean - self.others, self.mean, self.others, self.score.pattern)


def _slow(
    ranks: Sequence[Mapping[str, Any]], known: Sequence[Score | None], means: NDArray[Any], measure: str
) -> Slow | None:
    """Times are those of all steps for one that is always slow, else those of the windows in which it was."""
    costs = {
        number: (score.pattern == CHRONIC, score.now, float(score.excess[score.slow].sum()))
        for number, score in enumerate(known)
        if score is not None and score.pattern is not None
    }
    for number in sorted(costs, key=lambda one: costs[one], reverse=True):
        score = known[number]
        assert score is not None
        if score.pattern == CHRONIC:
            times = {place: float(rank[measure]["mean"]) for place, rank in enumerate(ranks) if rank[measure]}
        else:
            times = {place: _mean(row[score.slow]) for place, row in enumerate(means)}
        mean = times.pop(number)
        others = float(np.median([time for time in times.values() if np.isfinite(time)]))
        if mean - others > STANDS_OUT * others:
            return Slow(ranks[number], score, mean, others)
    return None


def _mean(values: NDArray[Any]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _by_busy(ranks: Sequence[Mapping[str, Any]], slow: Slow | None) -> Verdict:
    if slow is None:
        slowest, others = _slowest([rank for rank in ranks if rank["busy"]], lambda rank: float(rank["busy"]["mean"]))
        return _none_stands_out(slowest, slowest["busy"]["mean"], others)
    times = f"{seconds(slow.mean)} on its part of a step, the others {seconds(slow.others)}"
    text = slow.told("works", "worked", times)
    over = slow.score.pattern != CHRONIC and not slow.score.now
    wait = f": they wait {seconds(slow.mean - slow.others)} for it in every step"
    return slow.found(), text if over else text + wait


def _by_step_time(slow: Slow) -> Verdict:
    times = f"{seconds(slow.mean)} for a step, the others {seconds(slow.others)}"
    return slow.found(), slow.told("takes", "took", times)


def _by_activity(ranks: Sequence[Mapping[str, Any]]) -> Verdict | None:
    """By GPUs where several replicas have some, else by CPU. Both are known of replicas, not of processes."""
    gpus, cpus = _replicas_with(ranks, "gpu"), _replicas_with(ranks, "cpu")
    if len(gpus) > 1:
        return _by_gpus(gpus)
    if len(cpus) < 2:
        return None
    slowest, others = _slowest(cpus, lambda rank: float(rank["cpu"]))
    excess = slowest["cpu"] - others
    if excess < STANDS_OUT_BUSY:
        return None
    text = (
        f"a guess: {slowest['replica']} uses {slowest['cpu']:.2g} cores, the others {others:.2g}; "
        f"in synchronous training the slow one works while the others wait. {WOULD_TELL}"
    )
    return _found(slowest, None, slowest["cpu"], others, None), text


def _by_gpus(ranks: Sequence[Mapping[str, Any]]) -> Verdict | None:
    """The replica that stands out, to either side.

    NCCL waits in a kernel on the GPU, which is then in use: who comes late, because it loads data or works on the CPU,
    has the idle GPU. Where waiting is done by the CPU, the GPU of the slow one is in use and those of the others idle.
    Of two replicas, of which neither stands out more than the other, the idle one is taken: NCCL is what GPUs use.
    """

    def distance(rank: Mapping[str, Any]) -> tuple[float, float]:
        others = float(np.median([other["gpu"] for other in ranks if other is not rank]))
        return abs(rank["gpu"] - others), others - rank["gpu"]

    odd = max(ranks, key=distance)
    apart, below = distance(odd)
    if apart < STANDS_OUT_BUSY:
        return None
    others = odd["gpu"] + below
    reason = (
        "a GPU that waits within a collective is in use, so the others may wait for it"
        if below > 0
        else "in synchronous training the slow one works while the others wait"
    )
    text = (
        f"a guess: GPUs of {odd['replica']} are in use {odd['gpu']:.0%} of the time, the others' {others:.0%}; {reason}"
    )
    return _found(odd, None, odd["gpu"], others, None), f"{text}. {WOULD_TELL}"


def _replicas_with(ranks: Sequence[Mapping[str, Any]], measure: str) -> list[Mapping[str, Any]]:
    """The first process of every replica of which it is known."""
    found: dict[str, Mapping[str, Any]] = {}
    for rank in ranks:
        if rank[measure] is not None:
            found.setdefault(rank["replica"], rank)
    return list(found.values())


def _nothing(ranks: Sequence[Mapping[str, Any]]) -> Verdict:
    if len(ranks) < 2:
        return None, "there is only one rank" if ranks else "no rank has logged anything yet"
    times = [rank["step_time"]["mean"] for rank in ranks if rank["step_time"]]
    if len(times) < 2:
        return None, "not enough is known of the steps of at least two ranks"
    return None, (
        f"all ranks take {seconds(float(np.mean(times)))} for a step. "
        "In synchronous training that is so whoever is slow: "
        "call shoal.step() before the collective to see who the others wait for"
    )


def _none_stands_out(slowest: Mapping[str, Any], mean: float, others: float) -> Verdict:
    return (
        None,
        f"no rank stands out: {slowest['name']} works longest, {seconds(mean)} a step, the others {seconds(others)}",
    )


def _slowest(
    ranks: Sequence[Mapping[str, Any]], measure: Callable[[Mapping[str, Any]], float]
) -> tuple[Mapping[str, Any], float]:
    """The one with the largest, and the median of all others."""
    slowest = max(ranks, key=measure)
    return slowest, float(np.median([measure(rank) for rank in ranks if rank is not slowest]))


def _found(
    rank: Mapping[str, Any], excess: float | None, mean: float, others: float, pattern: str | None
) -> dict[str, Any]:
    return {
        **{key: rank[key] for key in ("rank", "replica", "process", "name")},
        "excess": excess,
        "factor": mean / others if others > 0 else None,
        "pattern": pattern,
    }


def _spread(means: Sequence[float]) -> float | None:
    """How far the slowest and the fastest are apart, as a part of the median."""
    middle = float(np.median(means)) if len(means) > 1 else 0.0
    return (max(means) - min(means)) / middle if middle > 0 else None


def seconds(value: float) -> str:
    """`1.52 s`, `84 ms`, `120 µs`"""
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
