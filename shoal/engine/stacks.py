"""What processes said of where they are -> ranks in their order, each with a name. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shoal.engine.stacktrees import Frame, Rank, parse
from shoal.launcher.stacks import Answer


def ranks_of(answers: Iterable[Answer]) -> list[Rank]:
    found = sorted(map(_read, answers), key=lambda rank: (rank.rank, rank.replica, rank.process, rank.pid))
    return [replace(rank, name=_name(rank, found)) for rank in found]


def _read(answer: Answer) -> Rank:
    rank = Rank("", answer.replica, answer.process, answer.rank, answer.pid, answer.how, error=answer.error)
    if answer.error:
        return rank
    frames, threads = parse(answer.said, answer.main) if answer.how == "sdk" else _of_py_spy(answer.said)
    return replace(rank, frames=frames, threads=threads, error="" if frames else "its answer cannot be read")


def _of_py_spy(said: str) -> tuple[tuple[Frame, ...], int]:
    try:
        threads = json.loads(said)
        main = next((t for t in threads if t.get("thread_name") == "MainThread"), threads[-1])
        frames = [Frame(f["filename"], int(f["line"]), f["name"]) for f in reversed(main["frames"])]
    except (ValueError, LookupError, TypeError, AttributeError):
        return (), 0
    return tuple(frames), len(threads)


def _name(rank: Rank, ranks: Sequence[Rank]) -> str:
    """`worker-2`; `worker-2:1` where the replica has several processes; with the pid where even that is not unique."""
    mine = [other for other in ranks if other.replica == rank.replica]
    if len(mine) == 1:
        return rank.replica
    twice = sum(other.process == rank.process for other in mine) > 1
    return f"{rank.replica}:{rank.process}" + (f" (pid {rank.pid})" if twice else "")
