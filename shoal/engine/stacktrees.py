"""Stacks of many ranks as one tree, and which rank is not where the others are. Pure.

main (train.py:51)                         4 ranks
  step (train.py:30)                       3 ranks
    all_reduce (distributed_c10d.py:2810)  3 ranks
  next_batch (train.py:18)                 worker-3
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

THREAD = re.compile(r"(Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
MOST_FRAMES = 200

# Where ranks wait for each other: the file of the frame, as far as it tells, and names of functions in it.
WAITING = re.compile(
    r"torch/distributed/|horovod/|mpi4py|kvstore|collective_ops|cross_device|multihost_utils|jax/.*/distributed"
)
CALLS = re.compile(
    r"^(all_?reduce|all_?gather|all_?to_?all|barrier|broadcast|reduce|reduce_scatter|gather|scatter|send|recv|wait"
    r"|monitored_barrier|sync_global_devices|push|pull|pushpull|init_process_group|_store_based_barrier)\w*$"
)
OF_LIBRARIES = re.compile(r"/(site|dist)-packages/|/lib(64)?/python\d|^<")


class Frame(NamedTuple):
    """One call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


@dataclass(frozen=True)
class Rank:
    """Where one process is: frames from the outermost call to the innermost; or why that is not known."""

    name: str  # worker-2, or worker-2:1 for its process 1
    replica: str
    process: int
    rank: int
    pid: int
    how: str = ""  # sdk, py-spy
    frames: tuple[Frame, ...] = ()
    threads: int = 0
    error: str = ""


@dataclass
class Node:
    frame: Frame
    ranks: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return {
            **self.frame._asdict(),
            "ranks": self.ranks,
            "children": [child.json() for child in self.children],
        }


def parse(dump: str, main: int) -> tuple[tuple[Frame, ...], int]:
    """The main thread's frames, outermost first, and how many threads there are, of what faulthandler wrote."""
    stacks: dict[int, list[Frame]] = {}
    current: list[Frame] = []
    for line in dump.splitlines():
        thread, frame = THREAD.match(line), FRAME.match(line)
        if thread:
            current = stacks.setdefault(int(thread[2], 16), [])
        elif frame and len(current) < MOST_FRAMES:
            current.append(Frame(frame[1], int(frame[2]) if frame[2].isdigit() else 0, frame[3]))
        elif not line.strip() or not line.startswith(" "):
            current = []  # what follows is not about a Python thread: the C stack of newer versions
    found = stacks.get(main) or next(reversed(stacks.values()), [])
    return tuple(reversed(found)), len(stacks)


def tree(ranks: Sequence[Rank]) -> list[Node]:
    """Equal calls of all ranks once, with who is in them; branches with the most ranks first."""
    roots: list[Node] = []
    for rank in ranks:
        level = roots
        for frame in rank.frames:
            node = next((node for node in level if node.frame == frame), None)
            if node is None:
                node = Node(frame)
                level.append(node)
            node.ranks.append(rank.name)
            level = node.children
    _sort(roots)
    return roots


def groups(ranks: Sequence[Rank]) -> list[tuple[str, list[Rank]]]:
    """(where, who) of the ranks that are at the same place, the largest group first."""
    found: dict[str, list[Rank]] = {}
    for rank in ranks:
        if rank.frames:
            found.setdefault(place(rank.frames), []).append(rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1][0].rank))


def place(frames: Sequence[Frame]) -> str:
    """Where a stack is, in words: `all_reduce, called by step (train.py:30)`."""
    inner = collective(frames) or frames[-1]
    own = next((frame for frame in reversed(frames) if not OF_LIBRARIES.search(frame.file)), frames[-1])
    return str(own) if own == inner else f"{inner.function}, called by {own}"


def collective(frames: Sequence[Frame]) -> Frame | None:
    """The call in which a rank waits for the others, if it is in one."""
    return next((f for f in frames if WAITING.search(f.file) and CALLS.match(f.function.rpartition(".")[2])), None)


def verdict(ranks: Sequence[Rank]) -> tuple[str, list[str]]:
    """One sentence, and the ranks it is about: those that are not where the others wait for them."""
    known = [rank for rank in ranks if rank.frames]
    waiting = {rank.name: call for rank in known if (call := collective(rank.frames))}
    others = [rank for rank in known if rank.name not in waiting]
    if waiting and others:
        names = [rank.name for rank in others]
        calls = ", ".join(dict.fromkeys(call.function for call in waiting.values()))
        who = _listed(names)
        many = len(waiting)
        wait = f"{many} other rank{'s' if many != 1 else ''} wait{'s' if many == 1 else ''}"
        where = f": {names[0]} is in {place(others[0].frames)}" if len(names) == 1 else ""
        return f"{who} {'has' if len(names) == 1 else 'have'} not entered {calls}, where {wait}{where}", names
    calls_made = {call.function for call in waiting.values()}
    if len(calls_made) > 1:
        made: dict[str, list[str]] = {}
        for name, call in waiting.items():
            made.setdefault(call.function, []).append(name)
        fewest = sorted(made.items(), key=lambda item: len(item[1]))
        said = "; ".join(f"{_listed(names)} in {call}" for call, names in reversed(fewest))
        return f"ranks wait in different collectives: {said}", fewest[0][1]
    found = groups(known)
    if not found:
        return "no stack could be read", []
    if len(found) == 1:
        where = found[0][0]
        return f"all {len(known)} ranks are in {where}" if len(known) > 1 else f"{known[0].name} is in {where}", []
    (where, most), rest = found[0], [rank for _, who in found[1:] for rank in who]
    if len(most) > len(rest):  # a wait that no Python frame shows: the gradients of DDP are added up in C++
        said = "; ".join(f"{_listed([rank.name for rank in who])} in {there}" for there, who in found[1:4])
        return f"{len(most)} ranks are in {where}; {said}", [rank.name for rank in rest]
    return f"ranks are at {len(found)} places; no collective is among them", []


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:5], f"{len(names) - 5} more"] if len(names) > 6 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _sort(nodes: list[Node]) -> None:
    nodes.sort(key=lambda node: -len(node.ranks))
    for node in nodes:
        _sort(node.children)
