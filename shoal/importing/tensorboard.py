"""TensorBoard's event files below a directory -> one run; names of metrics begin with the directories they lie in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.errors import UsageError
from shoal.importing.writing import Run, Series, key_of
from shoal.launcher import tfevents

MARK = "tfevents"
PIECE = 1 << 20
TEXT_SUFFIX = "/text_summary"


def runs(path: Path, name: str = "", *, each: bool = False) -> Iterator[Run]:
    """What lies at a path: one run, or with `each` one for every directory directly in it."""
    if not path.exists():
        raise UsageError(
            f"{path}: there is no such directory", hint="name the directory that tensorboard --logdir shows"
        )
    places = sorted(entry for entry in path.iterdir() if entry.is_dir()) if each and path.is_dir() else [path]
    found = False
    for place in places:
        files = _files(place)
        if files:
            found = True
            yield _run(place, files, name if not each else f"{name}{'/' if name else ''}{place.name}")
    if not found:
        raise UsageError(
            f"{path}: no event file lies there", hint="their names hold tfevents; is it the right directory?"
        )


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = [Path(here) / name for here, _, names in os.walk(place) for name in names if MARK in name]
    return sorted(found, key=lambda file: (file.parent, file.name))


def _run(place: Path, files: list[Path], name: str) -> Run:
    metrics: dict[str, Series] = {}
    events: list[dict[str, Any]] = []
    first, last = float("inf"), 0.0
    known = False  # whether anything was written by TensorBoard
    for file in files:
        below = "" if file == place or file.parent == place else f"{file.parent.relative_to(place).as_posix()}/"
        plugins: dict[str, str] = {}
        for item in _items(file, plugins):
            if item is None:
                known = True
                continue
            first, last = min(first, item.time), max(last, item.time)
            tag = below + item.tag
            if isinstance(item, tfevents.Scalar):
                metrics.setdefault(tag, Series()).add(item.time, item.step, item.value)
            elif isinstance(item, tfevents.Text):
                told = {"name": tag.removesuffix(TEXT_SUFFIX), "text": item.text}
                events.append({"kind": "text", "time": item.time, "step": item.step, **told})
            else:
                shape = {"name": tag, "edges": item.edges, "counts": item.counts}
                events.append({"kind": "histogram", "time": item.time, "step": item.step, **shape})
    if not known:
        raise UsageError(f"{place}: what lies there is no event file", hint="no record in it has a right checksum")
    source = place.resolve()
    started = first if last else files[0].stat().st_mtime
    return Run(
        source=str(source),
        key=key_of("tensorboard", name or source.name, str(source)),
        name=name or source.name,
        started=started,
        finished=last or started,
        metrics=metrics,
        events=events,
        about={"tensorboard": {"directory": str(source)}},
    )


def _items(file: Path, plugins: dict[str, str]) -> Iterator[tfevents.Item | None]:
    """What a file says; None for each record that is one, whatever it says."""
    with file.open("rb") as opened:
        data = b""
        while True:
            more = opened.read(PIECE)
            data += more
            whole = tfevents.records(data)
            for record in whole.data:
                yield None
                try:
                    yield from tfevents.items(record, plugins)
                except (ValueError, ArithmeticError):
                    continue  # its checksum is right: written by something else
            data = data[whole.done :]
            if whole.skip:
                over = max(0, whole.skip - len(data))
                data = data[whole.skip :]
                opened.seek(over, os.SEEK_CUR)
            if not more:
                return
