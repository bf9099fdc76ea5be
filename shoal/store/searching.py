"""Finds lines in logs of any length: text by searching bytes, patterns line by line in a process of their own.

A count is that of lines, as `grep -c` counts them in the text of the log. A pattern can take for ever (`(a+)+b`), and
Python cannot be interrupted in one; so it runs where it can be killed.
"""

from __future__ import annotations

import io
import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.errors import UsageError
from shoal.logformat import NO_STREAM
from shoal.store.lines import BOTH, Ends, Integers, NumberedLog, joined, newlines

MISSING = b"\0"  # in place of what is missing in a line: nothing is found across it
PATIENCE = 20  # seconds of a processor that a pattern may take, however busy the machine is

Matches = tuple[Integers, Integers, Integers]  # which lines, and where in each the match begins and ends


@dataclass(frozen=True)
class Wanted:
    """What to look for: a text, or a pattern in Python's spelling. Letters of both cases are ASCII's for a text."""

    text: str = ""
    regex: str = ""
    ignore_case: bool = False

    def check(self) -> None:
        if bool(self.text) == bool(self.regex):
            raise UsageError("search for a text or for a regex", hint="give one of the two")
        if "\n" in self.text:
            raise UsageError("text: a line has no newline in it", hint="search for one line")
        try:
            re.compile(self.regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(f"regex: {error}", hint="a text means itself") from None


class Hits(NamedTuple):
    """Lines that match: their numbers, ends and times as in Ends; where the first match in each begins and ends."""

    lines: Ends
    starts: Integers
    stops: Integers


def search(logs: Sequence[NumberedLog], wanted: Wanted) -> list[Hits]:
    """What matches in each of the logs. Places in a line are of bytes for a text and of characters for a pattern."""
    wanted.check()
    if wanted.regex:
        return _elsewhere(logs, wanted)
    needle = wanted.text.lower() if wanted.ignore_case else wanted.text
    return [_hits(log, _finder(needle.encode("utf-8", "surrogateescape"), wanted.ignore_case)) for log in logs]


def in_order(hits: Sequence[Hits]) -> tuple[Integers, Integers]:
    """(which log, which of its hits) of all hits, in the order that the lines of several logs have together."""
    whose = np.concatenate([np.full(len(found.starts), which) for which, found in enumerate(hits)])
    within = np.concatenate([np.arange(len(found.starts)) for found in hits])
    order = np.lexsort((within, whose, np.concatenate([found.lines.times for found in hits])))
    return whose[order], within[order]


def before(hits: Sequence[Hits], log: int, number: int, time: float) -> int:
    """How many hits come before a line: its log, its number there, its time."""
    count = 0
    for which, found in enumerate(hits):
        earlier = found.lines.times < time
        if which < log:
            earlier |= found.lines.times == time
        elif which == log:
            earlier = found.lines.numbers < number
        count += int(earlier.sum())
    return count


def _hits(log: NumberedLog, find: Callable[[bytes], Matches]) -> Hits:
    found: list[Hits] = []
    unfinished: dict[int, list[bytes]] = {}
    reached = 0
    for base, data in log.segments():
        for pieces in unfinished.values() if base > reached else ():
            pieces.append(MISSING)
        reached = base + len(data)
        rows, starts, stops = find(_whole_lines(log, base, data, unfinished))
        if len(rows):
            found.append(Hits(log.ends_in(base, data).take(rows), starts, stops))
    last = log.ends(log.finished, log.count)
    for place, stream in enumerate(s for _, s in log.open if log.stream in (BOTH, s)):
        rows, starts, stops = find(b"".join(unfinished.get(stream, ())) + b"\n")
        if len(rows):
            found.append(Hits(last.take([place]), starts, stops))
    none = [np.empty(0, np.int64)]
    return Hits(
        joined([hits.lines for hits in found]),
        np.concatenate([hits.starts for hits in found] or none),
        np.concatenate([hits.stops for hits in found] or none),
    )


def _whole_lines(log: NumberedLog, base: int, data: bytes, unfinished: dict[int, list[bytes]]) -> bytes:
    """The lines that end in a segment, whole and in the order of their ends; what is begun waits in `unfinished`."""
    runs = list(_runs(log, base, data))
    if len(runs) == 1 and not unfinished and data.endswith(b"\n") and runs[0] == (0, len(data), runs[0][2]):
        return data if log.stream in (BOTH, runs[0][2]) else b""
    parts: list[bytes] = []
    low = high = 0  # of whole lines that lie together
    for begin, end, stream in runs:
        clean = stream not in unfinished and data[end - 1] == 10
        if clean and begin == high and log.stream in (BOTH, stream):
            high = end
            continue
        if low < high:
            parts.append(data[low:high])
            low = high = 0
        if stream == NO_STREAM:
            for pieces in unfinished.values():
                pieces.append(MISSING)
        elif log.stream not in (BOTH, stream):
            continue
        elif clean:
            low, high = begin, end
        else:
            split = data.rfind(b"\n", begin, end) + 1
            if split:
                parts += [*unfinished.pop(stream, ()), data[begin:split]]
            if (split or begin) < end:
                unfinished.setdefault(stream, []).append(data[split or begin : end])
    return b"".join([*parts, data[low:high]])


def _runs(log: NumberedLog, base: int, data: bytes) -> Iterator[tuple[int, int, int]]:
    """(begin, end, stream) of bytes of one stream that lie together, within the segment."""
    records = log.records(base // log.log.segment)
    changes = np.flatnonzero(np.diff(records["stream"], prepend=255))
    begins = np.clip(records["offset"][changes].astype(np.int64) - base, 0, len(data))
    ends = np.append(begins[1:], len(data))
    streams = records["stream"][changes]
    for begin, end, stream in zip(begins.tolist(), ends.tolist(), streams.tolist(), strict=True):
        if begin < end:
            yield begin, end, stream


def _finder(needle: bytes, ignore_case: bool) -> Callable[[bytes], Matches]:
    def find(text: bytes) -> Matches:
        text = text.lower() if ignore_case else text
        found: list[int] = []
        at = text.find(needle)
        while at >= 0:
            found.append(at)
            end = text.find(b"\n", at)
            at = text.find(needle, end + 1)
        places = np.array(found, np.int64)
        if not found:
            return places, places, places
        ends = newlines(text)
        rows = np.searchsorted(ends, places)
        starts = places - np.where(rows > 0, ends[rows - 1] + 1, 0)
        return rows, starts, starts + len(needle)

    return find


def _matcher(wanted: Wanted) -> Callable[[bytes], Matches]:
    match = re.compile(wanted.regex, re.IGNORECASE if wanted.ignore_case else 0).search

    def find(text: bytes) -> Matches:
        lines = text.decode("utf-8", "replace").split("\n")[:-1]
        matches = [(row, *found.span()) for row, line in enumerate(lines) if (found := match(line))]
        rows, starts, stops = np.array(matches, np.int64).reshape(-1, 3).T
        return rows, starts, stops

    return find


def _elsewhere(logs: Sequence[NumberedLog], wanted: Wanted) -> list[Hits]:
    asked = {
        "directories": [log.log.directory for log in logs],
        "stream": logs[0].stream if logs else BOTH,
        "patience": int(PATIENCE),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shoal.store.searching"],
            input=json.dumps({**asked, **asdict(wanted)}).encode(),
            stdout=subprocess.PIPE,
            timeout=10 * PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise _too_slow() from None
    if done.returncode == -signal.SIGXCPU:
        raise _too_slow()
    done.check_returncode()
    with np.load(io.BytesIO(done.stdout)) as arrays:
        return [
            Hits(Ends(*(arrays[f"{which}-{column}"] for column in range(3))), *(arrays[f"{which}-{c}"] for c in (3, 4)))
            for which in range(len(logs))
        ]


def _too_slow() -> UsageError:
    return UsageError(
        f"regex: it has not been found within {PATIENCE:g} s", hint="a simpler pattern, or fewer replicas"
    )


def _child() -> None:
    asked = json.load(sys.stdin)
    patience = asked.pop("patience")
    resource.setrlimit(resource.RLIMIT_CPU, (patience, patience + 1))
    directories, stream = asked.pop("directories"), asked.pop("stream")
    find = _matcher(Wanted(**asked))
    arrays: dict[str, NDArray[np.generic]] = {}
    for which, directory in enumerate(directories):
        found = _hits(NumberedLog(directory, stream), find)
        arrays |= {f"{which}-{c}": column for c, column in enumerate((*found.lines, found.starts, found.stops))}
    np.savez(sys.stdout.buffer, **arrays)  # type: ignore[arg-type]  # names and arrays


if __name__ == "__main__":
    _child()
