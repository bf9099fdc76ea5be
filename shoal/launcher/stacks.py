"""Asks every process of a replica where it is.

Processes that use the SDK are sent a signal, and answer into a file of theirs (shoal.sdk.stacks); it is sent only to
those that catch it and still have that file open. The others are read from outside by py-spy, where the machine allows
that. Beside ranks that answer, a process is taken for another rank only if it was told a rank of its own.

In a pod somebody runs this from the archive (`python3 shoal.zip stacks`) and reads what it prints.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from shoal.launcher import processes
from shoal.launcher.replica import read_json

SIGNAL = 61  # of shoal.sdk.stacks
DIRECTORY = "stacks"
PATIENCE = 3.0  # seconds for an answer
QUIET = 0.06  # seconds without a word after which an answer is taken for complete
AT_ONCE = 4  # runs of py-spy
LARGEST = 4 << 20  # bytes of an answer that are read
STATES = {"D": "it waits for the disk", "T": "it is stopped", "t": "a debugger holds it"}


class Answer(NamedTuple):
    """What one process said, or why it did not."""

    replica: str
    process: int  # local rank
    rank: int
    pid: int
    how: str  # sdk, py-spy
    main: int = 0  # its main thread, where the SDK says it
    said: str = ""  # as faulthandler or py-spy writes it
    error: str = ""


def main(archive: str) -> int:
    """In a pod: asks everybody, and prints one line."""
    from shoal.launcher import pod

    run = read_json(os.path.join(os.path.dirname(os.path.abspath(archive)), "run.json")) or {}
    tries = sorted(Path(run["work"]).glob("try-*"), key=lambda place: int(place.name[4:]))
    me = pod.who(run, socket.gethostname(), "")[1]
    answers, notes = collect([(me.name, tries[-1])] if me is not None and tries else [])
    print(json.dumps({"answers": [answer._asdict() for answer in answers], "notes": notes}), flush=True)
    return 0


def collect(tries: Iterable[Tuple[str, Path]]) -> Tuple[List[Answer], List[str]]:
    """What the processes of these tries (replica, directory) say; and what else there is to say."""
    asked: List[Tuple[Answer, Path, int]] = []
    places = dict(tries)
    table = processes.table()
    for directory in places.values():
        for file in sorted((directory / DIRECTORY).glob("*.txt")):
            about = _header(file)
            if about is not None and _listens(about, file):
                who = Answer(about["replica"], about["process"], about["rank"], about["pid"], "sdk", about["main"])
                asked.append((who, file, file.stat().st_size))
    pids = {who.pid for who, *_ in asked}
    parents = {parent for pid in pids for parent in _ancestors(table, pid)}
    asked = [entry for entry in asked if entry[0].pid not in parents]  # who only started others is no rank
    for who, *_ in asked:
        if who.pid in table:
            processes.send(table[who.pid], SIGNAL)
    found = _answers(asked)
    rest, notes = _from_outside(places, table, found)
    return [*found, *rest], notes


def _header(file: Path) -> Optional[Dict[str, Any]]:
    try:
        with file.open("rb") as opened:
            about = json.loads(opened.readline(4096))
        whole = all(isinstance(about[key], int) for key in ("pid", "start", "fd", "main", "process", "rank"))
        return about if whole and isinstance(about["replica"], str) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _listens(about: Mapping[str, Any], file: Path) -> bool:
    """Whether this very process lives, catches the signal, and writes its answer into this very file."""
    pid = about["pid"]
    if not processes.alive(pid, about["start"]):
        return False
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (SIGNAL - 1) & 1) and os.path.samefile(
            f"/proc/{pid}/fd/{about['fd']}", file
        )
    except (OSError, StopIteration, ValueError):
        return False


def _answers(asked: Sequence[Tuple[Answer, Path, int]]) -> List[Answer]:
    """What they wrote, once they have stopped writing."""
    deadline = time.monotonic() + PATIENCE
    sizes = {who.pid: (before, time.monotonic()) for who, _, before in asked}
    while time.monotonic() < deadline:
        busy = False
        for who, file, before in asked:
            size = file.stat().st_size
            if size != sizes[who.pid][0]:
                sizes[who.pid] = (size, time.monotonic())
            busy |= size == before or time.monotonic() - sizes[who.pid][1] < QUIET
        if not busy:
            break
        time.sleep(0.01)
    found = []
    for who, file, before in asked:
        with file.open("rb") as opened:
            opened.seek(before)
            said = opened.read(LARGEST).decode("utf-8", "replace")
        now = processes.table().get(who.pid) if not said else None
        state = STATES.get(now.state, "") if now else ""
        error = "" if said else f"it did not answer within {PATIENCE:g} s{': ' + state if state else ''}"
        found.append(who._replace(said=said, error=error))
    return found


def _ancestors(table: Mapping[int, processes.Process], pid: int) -> Set[int]:
    found: Set[int] = set()
    while pid in table and table[pid].parent > 1 and table[pid].parent not in found:
        pid = table[pid].parent
        found.add(pid)
    return found


def _from_outside(
    places: Mapping[str, Path], table: Mapping[int, processes.Process], answered: Sequence[Answer]
) -> Tuple[List[Answer], List[str]]:
    """Ranks that do not use the SDK, by py-spy; and why that is not possible."""
    candidates = [who for name, place in places.items() for who in _pythons(name, place, table, answered)]
    if not candidates:
        return [], []
    program = shutil.which("py-spy", path=f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '')}")
    names = list(dict.fromkeys(who.replica for who in candidates))
    listed = f"{', '.join(names[:5])} and {len(names) - 5} more" if len(names) > 6 else ", ".join(names)
    do = "does" if len(names) == 1 else "do"
    without = f"{listed} {do} not use the SDK (`import shoal` and a call of it)"
    if program is None:
        return [who._replace(error="it cannot be asked") for who in candidates], [
            f"{without}; with py-spy installed (pip install py-spy) stacks are read from outside"
        ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda who: _spied(str(program), who), candidates))
    refused = [who for who in found if "ermission" in who.error or "ptrace" in who.error]
    notes = [f"{without}, and this machine refuses ptrace to py-spy"] if refused else []
    return found, notes


def _pythons(
    name: str, place: Path, table: Mapping[int, processes.Process], answered: Sequence[Answer]
) -> List[Answer]:
    """The Python processes of a try that are ranks: not those that only start others, nor workers they forked."""
    found: Dict[int, Tuple[Answer, Tuple[str, ...]]] = {}
    for pid in table:
        env = _environment(pid)
        if env.get("SHOAL_STREAMS") == str(place / "streams") and "python" in _program(pid):
            key = tuple(env.get(word, "") for word in ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"))
            process, rank = (int(env[word]) if env.get(word, "").isdigit() else 0 for word in ("LOCAL_RANK", "RANK"))
            found[pid] = (Answer(name, process, rank, pid, "py-spy"), key)
    above = {pid: [parent for parent in _ancestors(table, pid) if parent in found] for pid in found}
    forked = {pid for pid, parents in above.items() if any(found[parent][1] == found[pid][1] for parent in parents)}
    starters = {parent for pid, parents in above.items() if pid not in forked for parent in parents}
    known = {who.pid for who in answered if who.replica == name}
    related = known | {parent for pid in known for parent in _ancestors(table, pid)}
    told = {found[pid][1][:2] for pid in known if pid in found}
    return [
        who
        for pid, (who, key) in found.items()
        if pid not in forked | starters | related
        and not known.intersection(_ancestors(table, pid))
        and (not known or (any(key[:2]) and key[:2] not in told))
    ]


def _spied(program: str, who: Answer) -> Answer:
    command = [program, "dump", "--json", "--pid", str(who.pid)]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=15
        )
    except subprocess.TimeoutExpired:
        return who._replace(error="py-spy has not answered within 15 s")
    if done.stdout.strip():
        return who._replace(said=done.stdout)
    said = (done.stderr.strip() or "no answer").splitlines()
    return who._replace(error=f"py-spy: {said[-1] if len(said) == 1 else said[0]}")


def _environment(pid: int) -> Dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(part.partition("=")[::2] for part in text.split("\0") if "=" in part)


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""
