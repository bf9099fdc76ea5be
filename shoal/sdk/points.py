"""Calls of `log` and `step` in, columns out: what the writer thread makes of them. Pure.

Calls that logged the same names become one group. A call without a step counts: names that are always logged together
share one counter, which is fast; they part when they are logged without each other.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from shoal import journal
from shoal.sdk.values import LARGEST_STEP, SMALLEST_STEP, clean_name, number

FRAME = 400_000  # points that go into one frame: about 10 MB before compression
STEP_TIME, STEP_BUSY = "shoal/step_time", "shoal/step_busy"

Entry = Tuple[float, Optional[int], Any]  # time, step, and {name: value} or one of the classes below


class Said(NamedTuple):
    """An event, as the body of its frame."""

    kind: str
    body: bytes


class Mark:
    """What `shoal.step()` gives. As a context manager it measures the block; by itself the call was the mark."""

    __slots__ = ("_append", "_clock", "entered", "number")

    def __init__(self, append: Any, clock: Any, number: Optional[int]) -> None:
        self._append = append
        self._clock = clock
        self.number = number
        self.entered: Optional[float] = None

    def __enter__(self) -> Mark:
        self.entered = self._clock()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._append((self._clock(), self.number, Done(self.entered or 0.0)))


class Done(NamedTuple):
    """The end of a `with shoal.step():`."""

    entered: float


class Columns:
    """Calls of which the names are the same, as they come."""

    __slots__ = ("names", "next", "parts", "rows", "steps", "times", "together")

    def __init__(self, names: Tuple[str, ...], together: bool) -> None:
        self.names = names
        self.together = together
        self.next = 0
        self.parts = _parts(names)
        self._clear()

    def _clear(self) -> None:
        self.times: List[float] = []
        self.steps: List[int] = []
        self.rows: List[Iterable[Any]] = []

    def take(self) -> Iterator[journal.Group]:
        """What came, as groups of at most FRAME points each."""
        width = len(self.names)
        times, steps, rows = self.times, self.steps, self.rows
        self._clear()
        most = max(1, FRAME // width)
        for start in range(0, len(times), most):
            end = start + most
            flat = _floats(rows[start:end])
            when, at = array("d", times[start:end]), _steps(steps[start:end])
            for first, last in self.parts:
                columns = [flat[place::width] for place in range(first, last)]
                yield journal.Group(self.names[first:last], when, at, columns)


class Points:
    """All calls of one process. Not for several threads at once."""

    def __init__(self) -> None:
        self._columns: Dict[Tuple[Any, ...], Columns] = {}  # by names as they were given
        self._split: Dict[Tuple[str, ...], Columns] = {}  # parts of calls whose names count differently
        self._owner: Dict[str, Columns] = {}  # a name -> the columns whose counter it shares
        self._next: Dict[str, int] = {}  # a name -> its own counter
        self._filled: List[Columns] = []
        self.widest = 1  # names of one call
        self.refused = 0  # calls that could not be taken
        self._marks = 0
        self._marked: Optional[float] = None
        self._since: Optional[float] = None  # the first call after the last mark

    def add(self, entries: Sequence[Entry]) -> List[Said]:
        """Takes entries in their order; the events among them."""
        said: List[Said] = []
        filled = self._filled
        last: Optional[Tuple[Any, ...]] = None
        columns: Any = None
        for when, step, values in entries:
            if type(values) is not dict:
                if type(values) is Said:
                    said.append(values)
                    if self._since is None:
                        self._since = when
                elif type(values) is Done:
                    self._since = values.entered
                    self._mark(when, step)
                elif values.entered is None:
                    self._mark(when, step)
                last = None
                continue
            if self._since is None:
                self._since = when
            names = tuple(values)
            try:
                if names != last:
                    if not names:
                        continue
                    columns = self._columns.get(names)
                    if columns is None:
                        columns = self._new(names)
                    last = names
            except Exception:  # noqa: BLE001  names of a user's own class, which compare as they like
                self.refused += 1
                last = None
                continue
            if columns.together:
                if step is None:
                    step = columns.next
                columns.next = step + 1
            elif step is None:
                self._count_apart(columns, when, values)
                continue
            else:
                for name in columns.names:
                    self._next[name] = step + 1
            if not columns.times:
                filled.append(columns)
            columns.times.append(when)
            columns.steps.append(step)
            columns.rows.append(values.values())
        return said

    def frames(self) -> Iterator[Tuple[List[journal.Group], int]]:
        """All points that were added since the last time, as the groups of one frame after another; and their calls."""
        groups: List[journal.Group] = []
        size = calls = 0
        filled, self._filled = self._filled, []
        filled.sort(key=lambda columns: columns.times[-1])  # so that the newest value of a name is in its last group
        for columns in filled:
            for group in columns.take():
                groups.append(group)
                calls += len(group.times)
                size += len(group.times) * len(group.names)
                if size >= FRAME:
                    yield groups, calls
                    groups, size, calls = [], 0, 0
        if groups:
            yield groups, calls

    def _new(self, given: Tuple[Any, ...]) -> Columns:
        names = tuple(clean_name(name) for name in given)
        self.widest = max(self.widest, len(names))
        met = [name for name in names if name in self._owner or name in self._next]
        columns = self._columns[given] = Columns(names, together=not met)
        if not met:
            for name in names:
                self._owner[name] = columns
            return columns
        for name in met:
            owner = self._owner.get(name)
            if owner is not None:  # its names part
                owner.together = False
                for other in owner.names:
                    self._next[other] = owner.next
                    self._owner.pop(other, None)
        for name in names:
            self._next.setdefault(name, 0)
        return columns

    def _count_apart(self, columns: Columns, when: float, values: Dict[Any, Any]) -> None:
        counts = self._next
        by_step: Dict[int, List[Tuple[str, Any]]] = {}
        for name, value in zip(columns.names, values.values()):  # noqa: B905  Python 3.8
            step = counts[name]
            counts[name] = step + 1
            by_step.setdefault(step, []).append((name, value))
        for step, pairs in by_step.items():
            target = columns
            if len(by_step) > 1:
                names = tuple(name for name, _ in pairs)
                target = self._split.get(names) or self._split.setdefault(names, Columns(names, together=False))
            if not target.times:
                self._filled.append(target)
            target.times.append(when)
            target.steps.append(step)
            target.rows.append([value for _, value in pairs])

    def _mark(self, when: float, number: Optional[int]) -> None:
        step = self._marks if number is None else number
        self._marks = step + 1
        found = {}
        if self._marked is not None and when >= self._marked:
            found[STEP_TIME] = when - self._marked
        if self._since is not None and when >= self._since:
            found[STEP_BUSY] = when - self._since
        self._marked, self._since = when, None
        if not found:
            return
        names = tuple(found)
        columns = self._split.get(names) or self._split.setdefault(names, Columns(names, together=False))
        if not columns.times:
            self._filled.append(columns)
        columns.times.append(when)
        columns.steps.append(step)
        columns.rows.append(found.values())


def _parts(names: Tuple[str, ...]) -> List[Tuple[int, int]]:
    """Where the names are cut so that each part fits into a group."""
    parts = []
    first = size = 0
    for place, name in enumerate(names):
        length = len(name.encode("utf-8", "replace")) + 1
        if size + length > journal.MOST_NAME_BYTES or place - first >= journal.MOST_NAMES:
            parts.append((first, place))
            first, size = place, 0
        size += length
    return [*parts, (first, len(names))]


def _floats(rows: Sequence[Iterable[Any]]) -> Any:
    try:
        return array("d", chain.from_iterable(rows))
    except Exception:  # noqa: BLE001  an integer that no float can hold, or a number that will not be one
        return array("d", [_nearest(value) for row in rows for value in row])


def _nearest(value: Any) -> float:
    try:
        return number(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    except Exception:  # noqa: BLE001  a user's own class may raise anything
        return float("nan")


def _steps(steps: Sequence[int]) -> Any:
    try:
        return array("q", steps)
    except OverflowError:
        return array("q", [min(max(step, SMALLEST_STEP), LARGEST_STEP) for step in steps])
