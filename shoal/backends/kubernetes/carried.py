"""Outputs that came with a replica, put where those of a laptop lie.

    attempt-0/worker-1/try-0/outputs/worker-1/x    ->    outputs/worker-1/x     its own
    attempt-0/worker-1/try-0/outputs/model.pt      ->    outputs/model.pt       what it took for shared

Only what came as a whole is put there, by the word of its launcher (`shoal.launcher.manifest`): the rest stays in the
try, and is told by name.

Nothing was shared, so two replicas may have written the same path. Then the first keeps its place, the copy of the
other goes into its own directory, and both are told to whoever lists them.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

from shoal.launcher import manifest
from shoal.launcher.manifest import MANIFEST, OUTPUTS
from shoal.launcher.replica import read_json, write_json

ELSEWHERE = "elsewhere.json"  # {"where": "…"}, when the outputs are in a claim that the server does not see
WRITERS = "carried.json"  # beside the outputs: {path: [replica, …]} of what was not in a replica's own directory


JUDGED = "judged.json"  # of a try: {"whole": [path, …], "missing": {path: why}, "more": 0}
SHOWN = 3  # names in a reason
_writing = threading.Lock()  # of WRITERS: the tender and the server's routes may collect at once


class Verdict(NamedTuple):
    """What came of the outputs of a try; paths begin with `outputs/`, or with `files/` where an artifact is missing."""

    whole: Collection[str]
    missing: dict[str, str]  # path -> why
    more: int = 0  # missing, and not named

    def __str__(self) -> str:
        """`2 outputs did not arrive: model.pt (2097152 of 5242880 bytes came), x (…)`; empty when all did."""
        number = len(self.missing) + self.more
        if not number:
            return ""
        names = sorted(self.missing)
        shown = _plain(
            ", ".join(f"{name.partition('/')[2][:200]} ({self.missing[name][:200]})" for name in names[:SHOWN])
        )
        rest = ", …" if number > SHOWN else ""
        return f"{number} output{'s' if number > 1 else ''} did not arrive: {shown}{rest}"


def _plain(text: str) -> str:
    """As it can be printed: names come from far away."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def judge(place: str, *, again: bool = False) -> Verdict:
    """Compares the outputs of a try with what its launcher said of them. Kept: what was moved cannot be compared again.

    `again`: more may have come since.
    """
    kept = read_json(os.path.join(place, JUDGED))
    if kept is not None and not again:
        return Verdict(kept["whole"], kept["missing"], kept["more"])
    before = kept["whole"] if kept is not None else []
    told = manifest.read(os.path.join(place, MANIFEST))
    held = {path: found.size for path, found in manifest.files(place).items()}
    whole = [path for path, size in held.items() if path in told.whole and _is(place, path, size, told.whole[path])]
    here = dict.fromkeys([*before, *whole])
    missing = {path: why for path, why in told.left.items() if path not in here}
    sizes = {**dict.fromkeys(held), **told.expected, **{path: line["size"] for path, line in told.whole.items()}}
    for path, size in sizes.items():
        if path not in here and path not in missing:
            came = held.get(path, 0)
            missing[path] = f"{came} bytes came" if size is None or size <= came else f"{came} of {size} bytes came"
    found = Verdict(list(here), missing, told.more)
    if found.whole or found.missing or found.more:
        kept_now = {"whole": list(found.whole), "missing": found.missing, "more": found.more}
        write_json(os.path.join(place, JUDGED), kept_now)
    return found


def size_of(place: str) -> int:
    """Bytes that a judgement has to read."""
    if os.path.exists(os.path.join(place, JUDGED)):
        return 0
    return sum(found.size for found in manifest.files(place).values())


def _is(place: str, path: str, size: int, told: dict[str, Any]) -> bool:
    if size != told["size"]:
        return False
    digest = hashlib.sha256()
    with open(os.path.join(place, path), "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest() == str(told["sha256"])


def published(place: str) -> list[str]:
    """The outputs of a try that were put where everybody finds them."""
    kept = read_json(os.path.join(place, JUDGED)) or {"whole": []}
    return [str(path) for path in kept["whole"]]


def collect(place: str, target: str, replica: str, whole: Collection[str], *, late: bool = False) -> None:
    """Moves those outputs of a try that came as a whole. Silent when there are none, or when they have been moved.

    `late`: the attempt was over before. Then nothing makes room: a later attempt may have written the same paths, and
    what is in the way of this one's stays in the try.
    """
    source = os.path.join(place, OUTPUTS)
    if not os.path.isdir(source):
        return
    wanted = set(whole)
    paths = [path.partition("/")[2] for path in manifest.files(place) if path in wanted]
    shared = {path for path in paths if not path.startswith(f"{replica}/")}
    with _writing:
        known = writers(target)
        new = [path for path in shared if replica not in known.setdefault(path, [])]
        for path in new:
            known[path].append(replica)
        if new:
            write_json(os.path.join(os.path.dirname(target), WRITERS), known)
    for path in paths:
        found, wish = os.path.join(source, path), path
        if path in shared and known[path][0] != replica:
            if _same(found, os.path.join(target, path)):
                os.unlink(found)
                continue
            wish = f"{replica}/{path}"
        if not late or _is_free(target, wish):
            _move(found, os.path.join(target, wish))
    for directory, _, _ in os.walk(source, topdown=False):
        with suppress(OSError):  # what did not come as a whole stays
            os.rmdir(directory)


def writers(target: str) -> dict[str, Any]:
    """path -> the replicas that brought it, the one that has its place first."""
    return read_json(os.path.join(os.path.dirname(target), WRITERS)) or {}


def _same(one: str, other: str) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _is_free(target: str, path: str) -> bool:
    """Whether a file can be put there with nothing in the way."""
    whole = os.path.join(target, path)
    above = os.path.dirname(whole)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return os.path.isdir(above) and not os.path.lexists(whole)


def _move(source: str, target: str) -> None:
    """In place of what an earlier start left there. What is in the way and not a file of that name is kept aside."""
    parent = os.path.dirname(target)
    try:
        os.makedirs(parent, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        blocked = parent
        while not os.path.lexists(blocked):
            blocked = os.path.dirname(blocked)
        _aside(blocked)
        os.makedirs(parent, exist_ok=True)
    if os.path.isdir(target) and not os.path.islink(target):
        _aside(target)
    os.replace(source, target)


def _aside(path: str) -> None:
    number = 1
    while os.path.lexists(f"{path}.{number}"):
        number += 1
    os.rename(path, f"{path}.{number}")
