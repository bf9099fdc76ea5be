"""The functions of the SDK. None of them raises: what cannot be recorded is said once on stderr.

`log` and `step` are called in training loops and only append to a buffer. The others may touch the disk.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from numbers import Real
from time import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar, Union, cast

from shoal import names
from shoal.sdk import media, session, staging
from shoal.sdk.points import Mark
from shoal.sdk.session import buffer, state
from shoal.sdk.values import flat, mapping, number, plain, said, whole
from shoal.sdk.warning import warn

_append = buffer.append
_all_plain = frozenset((float, int)).issuperset
_conversions: Dict[type, Callable[[Any], float]] = {}  # types that have been numbers
_Function = TypeVar("_Function", bound=Callable[..., Any])


def log(
    values: Optional[Mapping[str, Any]] = None,
    step: Optional[int] = None,
    *,
    commit: Optional[bool] = None,
    **named: Any,
) -> None:
    """Records numbers, by name. Costs about a microsecond and never waits.

    Without `step`, calls are counted for each name. Dicts in dicts become `outer/inner`; words are recorded as text.
    With `commit=False` the values wait for the next call and go with it, unless that one has another step.

    >>> import shoal
    >>> shoal.log(loss=0.25, accuracy=0.9)
    >>> shoal.log({"loss": 0.2, "train": {"lr": 0.001}}, step=10)
    """
    if values is None:
        values = named
    elif named or type(values) is not dict:
        return _log_carefully(values, step, commit, named)
    else:
        values = values.copy()
    if (
        len(buffer) >= state.threshold
        or commit is False
        or not (step is None or type(step) is int)
        or not _all_plain(map(type, values.values()))
        or state.held
    ):
        return _log_carefully(values, step, commit, named)
    _append((time(), step, values))
    return None


def step(number: Optional[int] = None) -> Mark:
    """Marks that this process has done its own part of a step and now waits for the others.

    Call it right before the collective operation (with PyTorch: before `backward` of the last micro-batch, or before
    `optimizer.step` if gradients are reduced by hand). Shoal records the time from mark to mark as `shoal/step_time`,
    and from the first call after the mark before (a `log`, usually) to this one as `shoal/step_busy`: that tells which
    rank the others wait for. `with shoal.step():` around the own part measures it exactly.

    >>> import shoal
    >>> for batch in range(3):
    ...     with shoal.step():
    ...         pass  # load and compute
    ...     shoal.log(loss=0.5)
    """
    if state.disabled or len(buffer) >= session.MOST_CALLS:
        return Mark(_ignore, time, None)
    if state.session is None:
        _begin()
    mark = Mark(_append, time, number if number is None or type(number) is int else _step(number))
    _append((time(), mark.number, mark))
    return mark


def _never_raises(function: _Function) -> _Function:
    """What goes wrong is counted, said once per function and path, and training goes on."""
    parameters = cast(Any, function).__code__.co_varnames

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if state.disabled or sys.is_finalizing():
            return None
        try:
            return function(*arguments, **named)
        except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
            session.lost(1)
            path = {**dict(zip(parameters, arguments)), **named}.get("path", "")  # noqa: B905  Python 3.8
            warn(f"{function.__name__} {said(path)}", f"{function.__name__}: {_reason(error)}")
            return None

    return cast(_Function, call)


@_never_raises
def params(values: Any = None, **named: Any) -> None:
    """Records parameters: a dict, a Namespace or a dataclass, or names and values.

    >>> import shoal
    >>> shoal.params(lr=0.001, layers=[64, 32])
    >>> shoal.params({"optimizer": {"name": "sgd", "momentum": 0.9}})
    """
    session.current().event("params", values={**mapping(values), **named})


@_never_raises
def tag(*tags: Union[str, Sequence[str]]) -> None:
    """Adds tags to the experiment.

    >>> import shoal
    >>> shoal.tag("baseline", "small")
    """
    session.current().event("tag", tags=words(tags))


@_never_raises
def progress(fraction: float) -> None:
    """Tells how much is done, from 0 to 1. Shoal shows it with the time that is left.

    >>> import shoal
    >>> shoal.progress(3 / 10)
    """
    value = number(fraction)
    if value == value:
        session.current().event("progress", fraction=min(1.0, max(0.0, value)))


@_never_raises
def text(name: str, text: str, step: Optional[int] = None) -> None:
    """Records a text: a sample, a note, a configuration.

    >>> import shoal
    >>> shoal.text("sample", "once upon a time", step=100)
    """
    session.current().event("text", name=str(name), text=str(text), step=count(name, step))


@_never_raises
def table(name: str, columns: Any, rows: Optional[Sequence[Sequence[Any]]] = None, step: Optional[int] = None) -> None:
    """Records a table: names of columns and rows, or a DataFrame.

    >>> import shoal
    >>> shoal.table("mistakes", ["image", "seen as"], [["cat-3.png", "dog"], ["dog-1.png", "cat"]])
    """
    if rows is None and hasattr(columns, "columns"):
        frame = columns
        columns = list(frame.columns)
        rows = frame.rows() if hasattr(frame, "rows") else frame.values.tolist()
    listed = [list(row) for row in rows or ()]
    heads = [str(column) for column in columns]
    session.current().event("table", name=str(name), step=count(name, step), columns=heads, rows=listed)


@_never_raises
def histogram(name: str, values: Any, bins: int = 64, step: Optional[int] = None) -> None:
    """Records how values are distributed: of a list, an array, a tensor.

    >>> import shoal
    >>> shoal.histogram("weights", [0.1, 0.2, 0.2, 0.9], bins=4)
    """
    edges, counts = media.histogram(values, bins)
    session.current().event("histogram", name=str(name), step=count(name, step), edges=edges, counts=counts)


@_never_raises
def image(name: str, value: Any, step: Optional[int] = None, caption: str = "") -> None:
    """Records an image: a path, the bytes of a file, an array or tensor, a PIL image, a figure of matplotlib.

    Arrays are H×W, H×W×3, H×W×4 or have their channels first; floats reach from 0 to 1.

    >>> import shoal, shoal.sdk.media
    >>> shoal.image("red", shoal.sdk.media.png(2, 1, 3, b"\\xff\\0\\0" * 2), caption="two pixels")
    """
    found = media.picture(value)
    mine = session.current()
    file = staging.stage_bytes(found.content, f"{slug(name)}.{found.format}", mine.place().files, ticket())
    size = {"width": found.width, "height": found.height}
    numbered = count(name, step)
    mine.event("image", name=str(name), step=numbered, caption=str(caption), file=file, format=found.format, **size)


@_never_raises
def artifact(
    path: Union[str, os.PathLike],  # type: ignore[type-arg]
    name: Optional[str] = None,
    kind: str = "artifact",
    step: Optional[int] = None,
    metadata: Optional[Mapping[str, Any]] = None,
) -> None:
    """Keeps a file or a directory as it is now. The same name again is its next version.

    >>> import shoal
    >>> with open("report.txt", "w") as file:
    ...     _ = file.write("all good")
    >>> shoal.artifact("report.txt", kind="report")
    """
    place = os.path.abspath(os.fspath(path))
    called = _called("artifact", os.path.basename(place) if name is None else str(name), place)
    mine = session.current()
    files = staging.stage(place, mine.place().files, ticket())
    data = mapping(metadata)
    mine.event("artifact", name=called, type=str(kind), step=_step(step), metadata=data, files=files)
    mine.flush()


@_never_raises
def model(
    name: str,
    path: Union[str, os.PathLike],  # type: ignore[type-arg]
    metrics: Optional[Mapping[str, Any]] = None,
    step: Optional[int] = None,
) -> None:
    """Keeps a file or a directory as the next version of a model.

    >>> import shoal
    >>> with open("weights.bin", "wb") as file:
    ...     _ = file.write(bytes(16))
    >>> shoal.model("digits", "weights.bin", metrics={"accuracy": 0.93})
    """
    place = os.path.abspath(os.fspath(path))
    called = _called("model", str(name), place)
    mine = session.current()
    files = staging.stage(place, mine.place().files, ticket())
    mine.event("model", name=called, step=_step(step), metrics=mapping(metrics), files=files)
    mine.flush()


@_never_raises
def checkpoint(path: Union[str, os.PathLike], step: int) -> None:  # type: ignore[type-arg]
    """Tells that a checkpoint is complete: after a restart its path is `shoal.replica.resume_from`.

    The file stays where it is. When the call returns, a crash does not make Shoal forget it.

    >>> import shoal
    >>> with open("step-100.pt", "wb") as file:
    ...     _ = file.write(bytes(16))
    >>> shoal.checkpoint("step-100.pt", step=100)
    """
    place = os.path.abspath(os.fspath(path))
    os.stat(place)
    mine = session.current()
    mine.event("checkpoint", path=place, step=whole(step))
    mine.flush()


def finish(exit_code: Optional[int] = None) -> None:
    """Writes everything and ends the recording. Not needed at the end of a script: that does the same.

    >>> import shoal
    >>> shoal.finish()
    """
    _finish("finished", "", exit_code)


def _finish(how: str, error: str, exit_code: Optional[int] = None) -> None:
    try:
        session.end(how, error, **({} if exit_code is None else {"exit_code": int(exit_code)}))
    except Exception as problem:  # noqa: BLE001  nothing that is recorded is worth a training
        warn("finish", f"finish: {_reason(problem)}")


def count(name: str, step: Any) -> int:
    """The step of something that is no number: as it was given, or counted for its name."""
    given = _step(step)
    if given is None:
        given = state.counts.get(name, 0)
    state.counts[name] = given + 1
    return given


def words(tags: Any) -> List[str]:
    """("a", ["b", "c"]) as ["a", "b", "c"]."""
    if isinstance(tags, str):
        return [tags] if tags else []
    return [word for tag in tags or () for word in words(tag)] if isinstance(tags, (list, tuple, set)) else [said(tags)]


def _called(kind: str, name: str, place: str) -> str:
    """The name, or the nearest that can be one: content is not lost because of what it is called."""
    wrong = names.problem(name)
    if not wrong:
        return name
    called = names.made(name, names.made(os.path.basename(place), kind))
    warn(f"{kind} name", f"{kind}: {plain(name)[:80]!r} cannot be a name ({wrong}); it is kept as {called!r}")
    return called


def ticket() -> str:
    """A directory's name for content that is handed over; no other process has it."""
    state.handed += 1
    return f"{session.current().stream[:8]}-{state.handed}"


def slug(name: str) -> str:
    """A file name of a name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", str(name))[:80].strip(".") or "image"


def _log_carefully(values: Any, step: Any, commit: Optional[bool], named: Dict[str, Any]) -> None:
    """`log` for the first call and for everything that is not a plain dict of plain numbers.

    `values` are `named` themselves when nothing but names and values was given.
    """
    if state.disabled or sys.is_finalizing():  # modules are taken apart already: nothing can be written any more
        return
    try:
        given = values if type(values) is dict else mapping(values)
        merged = {**given, **named} if named and values is not named else given
        if state.instead is not None:
            if values is named and len(named) == 1 and isinstance(named.get("data"), Mapping):
                merged = named["data"]  # what wandb calls `values`
            state.instead(merged, step=step, commit=commit)
            return
        at = None if step is None else _step(step)
        numbers: Dict[str, float] = {}
        for name, value in merged.items():
            convert = _conversions.get(type(value))
            if convert is not None:
                try:
                    numbers[name] = convert(value)
                    continue
                except Exception:  # noqa: BLE001  a tensor of several numbers, say
                    pass
            _take(name, value, at, numbers)
        if state.held and at is not None and state.held_step not in (None, at):
            session.current().append((time(), state.held_step, state.held))  # their step is over
            state.held, state.held_step = {}, None
        if commit is False:
            state.held.update(numbers)
            state.held_step = state.held_step if at is None else at
            return
        if state.held:
            numbers = {**state.held, **numbers}
            at = state.held_step if at is None else at
            state.held, state.held_step = {}, None
        if numbers:
            session.current().append((time(), at, numbers))
    except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
        session.lost(1)
        warn("log", f"log: {_reason(error)}")


def _take(name: str, value: Any, step: Optional[int], numbers: Dict[str, float]) -> None:
    """One value that is no plain number: a number of a library, a text, or something that records itself."""
    record = getattr(value, "shoal_record", None)
    if record is not None:
        record(name, step)
    elif isinstance(value, Mapping):
        for inner, item in flat(value, f"{name}/"):
            _take(inner, item, step, numbers)
    elif isinstance(value, str):
        text(name, value, step)
    elif value is None:
        warn("None", f"log: {name} is None and is left out; so are others that are None")
    else:
        try:
            numbers[name] = number(value)
            _conversions[type(value)] = float if isinstance(value, Real) else number
        except Exception as error:  # noqa: BLE001  conversions of other libraries
            kind = type(value).__name__
            warn(f"value {kind}", f"log: {name} is a {kind} that is no number and is left out ({_reason(error)})")


def _step(step: Any) -> Optional[int]:
    if step is None or type(step) is int:
        return step
    try:
        return whole(step)
    except Exception as error:  # noqa: BLE001  conversions of other libraries
        warn("step", f"step={plain(step)!r} cannot be used, and calls are counted instead ({_reason(error)})")
        return None


def _ignore(entry: Any) -> None:
    return None


def _begin() -> None:
    try:
        session.current()
    except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
        warn("begin", f"recording cannot begin: {_reason(error)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"[:500]
