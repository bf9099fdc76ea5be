"""Where a restarted replica goes on: the newest checkpoint that is complete, found in the streams of earlier starts.

`shoal.checkpoint(path, step)` is an event in the stream of the process that calls it. No server is asked: whoever
starts a replica reads the streams of its experiment. A step is complete in an attempt when every process of the
experiment that has ever marked a checkpoint has marked this one in it, and what it marked still exists. The newest
attempt that has a complete step gives its largest one; a replica gets what it marked itself, one that never marks what
the lowest rank did. So a rank that died before it wrote its part takes nobody along, and rank 0 may write for all.

`resume.json` beside the attempts ({"paths": {replica: path}, "otherwise": path}) is where an experiment begins that
continues another one; it counts until there is a checkpoint of its own.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from shoal import journal

RESUME = "resume.json"

Process = Tuple[str, int]
"""(replica, local rank): the same through tries and restarts."""


class Mark(NamedTuple):
    """One call of `shoal.checkpoint`."""

    attempt: int
    replica: str
    process: int
    rank: int
    time: float
    step: int
    path: str


class Choice(NamedTuple):
    """A complete checkpoint."""

    step: int
    paths: Dict[str, str]  # replica -> what it marked; several processes: the lowest rank
    otherwise: str  # for replicas that marked nothing


def resume_from(experiment_directory: str, replica: str) -> str:
    """The path of the checkpoint that this replica goes on from; empty when there is none."""
    return path_for(newest(experiment_directory), replica)


def newest(experiment_directory: str, exists: Callable[[str], bool] = os.path.exists) -> Optional[Choice]:
    """The checkpoint that the next start of this experiment goes on from. `exists`: where it starts."""
    return choose(marks(experiment_directory), exists) or _given(experiment_directory)


def path_for(choice: Optional[Choice], replica: str) -> str:
    return choice.paths.get(replica, choice.otherwise) if choice is not None else ""


def choose(found: Iterable[Mark], exists: Callable[[str], bool] = os.path.exists) -> Optional[Choice]:
    """The largest complete step of the newest attempt that has one. `found` may come in any order."""
    attempts: Dict[int, List[Mark]] = {}
    everybody: Set[Process] = set()
    for mark in found:
        attempts.setdefault(mark.attempt, []).append(mark)
        everybody.add((mark.replica, mark.process))
    for attempt in sorted(attempts, reverse=True):
        chosen = _choose(attempts[attempt], everybody, exists)
        if chosen is not None:
            return chosen
    return None


def _choose(found: List[Mark], everybody: Set[Process], exists: Callable[[str], bool]) -> Optional[Choice]:
    steps: Dict[int, Dict[Process, Mark]] = {}
    for mark in sorted(found, key=lambda mark: mark.time):  # who marks a step twice means the second
        steps.setdefault(mark.step, {})[mark.replica, mark.process] = mark
    for step in sorted(steps, reverse=True):
        marked = steps[step]
        if set(marked) == everybody and all(exists(path) for path in {mark.path for mark in marked.values()}):
            by_rank = sorted(marked.values(), key=lambda mark: (mark.rank, mark.process))
            paths: Dict[str, str] = {}
            for mark in by_rank:
                paths.setdefault(mark.replica, mark.path)
            return Choice(step, paths, by_rank[0].path)
    return None


def marks(experiment_directory: str) -> Iterator[Mark]:
    """Every checkpoint that any process of the experiment has marked, as its streams tell it."""
    for attempt, place in _numbered(experiment_directory, "attempt-"):
        for replica in _names(place):
            yield from marks_of(os.path.join(place, replica), attempt, replica)


def marks_of(directory: str, attempt: int, replica: str) -> Iterator[Mark]:
    """Those of one replica, whose tries lie in this directory."""
    for _, try_ in _numbered(directory, "try-"):
        yield from _marks_of(os.path.join(try_, "streams"), attempt, replica)


def _marks_of(directory: str, attempt: int, replica: str) -> Iterator[Mark]:
    for stream, numbers in journal.segments(_names(directory)).items():
        process = rank = 0
        for number in numbers:
            try:
                with open(os.path.join(directory, journal.segment_name(stream, number)), "rb") as file:
                    data = file.read()
            except OSError:
                continue  # what the server has read to its end, it may remove
            for kind, said in _said(data):
                if kind == journal.HEADER:
                    process, rank = _whole(said.get("process")), _whole(said.get("rank"))
                elif said.get("kind") == "checkpoint":
                    step, path, when = said.get("step"), said.get("path"), said.get("time")
                    if isinstance(step, int) and isinstance(path, str) and path:
                        time = float(when) if isinstance(when, (int, float)) else 0.0
                        yield Mark(attempt, replica, process, rank, time, step, path)


def _said(data: bytes) -> Iterator[Tuple[int, Mapping[str, Any]]]:
    """The headers and events of a segment. Points, nearly all of it, are stepped over where the next frame shows."""
    place = 0
    while place < len(data):
        if len(data) - place >= journal.PREFIX.size and data[place : place + 4] == journal.MARKER:
            _, kind, _, _, _, length, _ = journal.PREFIX.unpack_from(data, place)
            end = place + journal.PREFIX.size + length
            if kind == journal.POINTS and (end == len(data) or data[end : end + 4] == journal.MARKER):
                place = end
                continue
            if end <= len(data):
                frames, done = journal.scan(data[place:end])
                if done:
                    yield from _unpacked(frames)
                    place += done
                    continue
        following = data.find(journal.MARKER, place + 1)  # torn, or overwritten
        if following < 0:
            return
        place = following


def _unpacked(frames: Iterable[Any]) -> Iterator[Tuple[int, Mapping[str, Any]]]:
    for frame in frames:
        if isinstance(frame, journal.Frame) and frame.kind in (journal.HEADER, journal.EVENT):
            try:
                yield frame.kind, journal.unpack_json(frame.body)
            except ValueError:
                continue


def _given(experiment_directory: str) -> Optional[Choice]:
    try:
        with open(os.path.join(experiment_directory, RESUME)) as file:
            given = json.load(file)
    except (OSError, ValueError):
        return None
    return Choice(given.get("step", 0), dict(given.get("paths", {})), given.get("otherwise", ""))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _names(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _numbered(directory: str, prefix: str) -> List[Tuple[int, str]]:
    return sorted(
        (int(name[len(prefix) :]), os.path.join(directory, name))
        for name in _names(directory)
        if name.startswith(prefix) and name[len(prefix) :].isdigit()
    )
