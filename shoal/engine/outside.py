"""Runs that Shoal did not start: their scripts write streams below `outside/` in the home, and become experiments.

Nobody tells how such a run ends but its streams: each says goodbye, or its process is gone without a word. It is not
over while somebody lives who started its processes and may start more; and when it seemed to be over, what comes later
is read all the same.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal import journal
from shoal.engine.places import tries
from shoal.engine.reading import sound
from shoal.errors import UsageError
from shoal.launcher import processes
from shoal.states import FAILED, FINAL, LOST, RUNNING, SUCCEEDED, Status
from shoal.store import experiments as store
from shoal.store import streams as stream_store
from shoal.store.database import Database

ABOUT = "outside.json"
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
APPEARING = 10.0  # seconds: a run is there before its outside.json, and is touched before its new stream is there
SILENT = 600.0  # seconds without a word from another machine, after which it counts as lost

Stream = Mapping[str, Any]  # its row


class Adopter:
    """Finds runs in the home that are no experiments yet."""

    def __init__(self, home: Path, database: Database, on_new: Callable[[str], None] = lambda uid: None) -> None:
        self.home = home
        self.database = database
        self.on_new = on_new
        self._seen: float | None = None
        self._read: dict[str, float] = {}  # a run that is read to its end -> when it had changed

    def look(self) -> None:
        """Adopts what is new, and takes up again what has more to tell; cheap when nothing is."""
        place = self.home / "outside"
        try:
            changed = place.stat().st_mtime
        except FileNotFoundError:
            return
        if changed == self._seen and time.time() - changed > APPEARING:
            return
        self._seen = changed
        with self.database.read() as connection:
            known = store.origin_keys(connection)
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            if not entry.is_dir(follow_symlinks=False):
                continue
            if entry.name not in known or (known[entry.name] and self._has_more(entry)):
                about = read_about(Path(entry.path))
                if about is not None:
                    self.adopt(about, again=True)

    def _has_more(self, entry: os.DirEntry[str]) -> bool:
        """Whether a run that was read to its end has streams that nobody knows. Who begins one touches the run."""
        changed = entry.stat().st_mtime
        if self._read.get(entry.name) == changed:
            return False
        written = {name for *_, at in tries(Path(entry.path)) for name in _streams_in(at)}
        with self.database.read() as connection:
            new = any(stream_store.get(connection, name) is None for name in written)
        if new or time.time() - changed > APPEARING:
            self._read[entry.name] = changed
        return new

    def adopt(self, about: Mapping[str, Any], *, again: bool = False) -> store.Row:
        """The experiment of the run, made when there is none. With `again` it is read once more if it was over."""
        values = _values(sound(dict(about)))
        with self.database.write() as connection:
            row = store.of_origin(connection, values["origin_key"])
            new = row is None
            if row is None:
                row = store.create(connection, values, state=RUNNING)
            elif again and row["tracked"]:
                store.read_again(connection, row)
                row = store.get(connection, row["uid"])
        if new:
            self.on_new(row["uid"])
        return row

    def settle(self, row: store.Row, streams: Sequence[Stream]) -> store.Row | None:
        """Writes what the streams tell of the replicas; the new row when the run is over."""
        if not streams:
            return self._never_spoke(row)
        statuses = _statuses(streams)
        attempt = max(statuses)
        state, reason = _state(streams)
        if state in FINAL and self._more_may_come(row, streams):
            state, reason = RUNNING, ""
        with self.database.write() as connection:
            row = store.get(connection, row["uid"])
            if row["state"] in FINAL:
                return row
            places = _places(streams)
            store.extend_plan(connection, row, list(places.values()))
            for number, found in statuses.items():
                store.record(connection, {**row, "attempt": number}, places, found)
            values: dict[str, Any] = {"attempt": attempt}
            if row["started"] is None:
                values["started"] = min(stream["started"] for stream in streams)
            if state in FINAL:
                values["finished"] = max(_end_time(stream) or stream["started"] for stream in streams)
                values["first_failure"] = _first_failure(streams) if state == FAILED else None
            if (state, reason) != (row["state"], row["reason"]) or row["started"] is None or row["attempt"] != attempt:
                store.change(connection, row, state, reason, **values)
            new = store.get(connection, row["uid"])
        return new if state in FINAL else None

    def _more_may_come(self, row: store.Row, streams: Sequence[Stream]) -> bool:
        """Whether somebody lives who started processes of the run, and records nothing itself: it may start more."""
        run = self.home / "outside" / str(row["origin_key"])
        about = read_about(run) or {}
        starters = {str(about.get("starter")), *_claims(run)}
        recorded = {_process_name(stream["header"]) for stream in streams}
        return any(_lives(name) for name in starters - recorded)

    def _never_spoke(self, row: store.Row) -> store.Row | None:
        """A run that was killed before it recorded anything is over all the same."""
        about = read_about(self.home / "outside" / str(row["origin_key"]))
        if about is not None and not ("pid" in about and gone(about)):
            return None
        with self.database.write() as connection:
            row = store.get(connection, row["uid"])
            if row["state"] not in FINAL:
                why = "its process was gone before it recorded anything"
                store.change(connection, row, FAILED, why, finished=time.time())
            return store.get(connection, row["uid"])


def read_about(directory: Path) -> dict[str, Any] | None:
    """What a run says of itself; None when it says nothing that can be used."""
    try:
        value = sound(json.loads((directory / ABOUT).read_bytes()))
    except (OSError, ValueError):
        return None
    usable = isinstance(value, dict) and value.get("key") == directory.name and KEY.fullmatch(directory.name)
    return value if usable else None


def gone(header: Mapping[str, Any]) -> bool:
    """Whether the process that wrote a stream is known to be gone; on other machines nobody knows."""
    if header.get("host") != socket.gethostname():
        return False
    if header.get("boot") != processes.boot_id():
        return True
    pid, start = header.get("pid"), header.get("pid_start")
    if not isinstance(pid, int) or not isinstance(start, int):
        return not (isinstance(pid, int) and os.path.exists(f"/proc/{pid}"))
    return not processes.alive(pid, start)


def _streams_in(try_: str) -> list[str]:
    try:
        return list(journal.segments(os.listdir(os.path.join(try_, "streams"))))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _claims(run: Path) -> set[str]:
    """The names of the processes that took part for all those that they started."""
    found = set()
    for claim in run.glob("claims/*"):
        try:
            found.add(claim.read_text())
        except (OSError, ValueError):
            continue
    return found


def _process_name(header: Mapping[str, Any]) -> str:
    """As the SDK names a process in claims."""
    return "/".join(str(header.get(key)) for key in ("host", "boot", "pid", "pid_start"))


def _lives(name: str) -> bool:
    """Whether a process of this machine that is called so runs; of others nobody knows."""
    host, boot, pid, start = [*name.rsplit("/", 3), "", "", ""][:4]
    if (host, boot) != (socket.gethostname(), processes.boot_id()) or not (pid.isdigit() and start.isdigit()):
        return False
    return processes.alive(int(pid), int(start))


def _values(about: Mapping[str, Any]) -> dict[str, Any]:
    key = about.get("key")
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise UsageError(f"{str(key)[:80]!r} cannot be the key of a run", hint="letters, digits, dots, _ and -")
    command = about.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    params, tags, origin = about.get("params"), about.get("tags"), about.get("origin")
    git = about.get("git")
    known = {name: about[name] for name in ("user", "python") if name in about}
    known |= {"host": {"name": str(about.get("host") or "")}, "git": git if isinstance(git, dict) else None}
    cwd = str(about.get("cwd") or "")
    return {
        "name": str(about.get("name") or "")[:128],
        "framework": str(about.get("framework") or "none")[:32],
        "backend": "native",
        "cluster": "outside",
        "params": params if isinstance(params, dict) else {},
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
        "sources": {"files": [], "params": [], "directory": cwd},
        "resolved": "",
        "plan": {"command": " ".join(words), "replicas": []},
        "policy": {"grace_stop": 0.0},
        "cwd": cwd,
        "oversubscribe": True,
        "origin": "import" if origin == "import" else "outside",
        "origin_key": key,
        "provenance": {"command": " ".join(words), "directory": cwd, **known},
        "created": _time(about.get("started")),
    }


def _time(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e11 else time.time()


def _places(streams: Sequence[Stream]) -> dict[str, dict[str, Any]]:
    """replica -> what a plan would say of it. Its rank is that of its lowest process."""
    found: dict[str, dict[str, Any]] = {}
    for stream in streams:
        role, _, index = str(stream["replica"]).rpartition("-")
        known = found.setdefault(
            stream["replica"],
            {"replica": stream["replica"], "role": role or "master", "index": 0, "rank": stream["rank"]},
        )
        known["index"] = int(index) if index.isdigit() else 0
        known["rank"] = min(known["rank"], stream["rank"])
    return found


def _statuses(streams: Sequence[Stream]) -> dict[int, list[Status]]:
    """attempt -> its replicas, each as bad as the worst of its processes."""
    found: dict[int, dict[tuple[str, int], list[Stream]]] = {}
    for stream in streams:
        tries = found.setdefault(stream["attempt"], {})
        tries.setdefault((stream["replica"], stream["try"]), []).append(stream)
    return {
        attempt: [_status(replica, try_, mine) for (replica, try_), mine in tries.items()]
        for attempt, tries in found.items()
    }


def _status(replica: str, try_: int, mine: Sequence[Stream]) -> Status:
    bad = [why for stream in mine if (why := _wrong(stream))]
    over = all(stream["closed"] for stream in mine)
    state = RUNNING if not over else FAILED if bad else SUCCEEDED
    ends = [at for stream in mine if (at := _end_time(stream)) is not None]
    return Status(
        replica,
        try_,
        state,
        bad[0] if bad and over else "",
        node=str(mine[0]["header"].get("host") or ""),
        started=min(stream["started"] for stream in mine),
        finished=max(ends, default=None) if over else None,
    )


def _wrong(stream: Stream) -> str:
    """Why a stream that is over did not end well; empty when it did."""
    if not stream["closed"]:
        return ""
    end = stream["ended"]
    if end is None:  # children, such as those that load data, are often killed by their parent
        return "" if stream["header"].get("parent") else "its process was gone without a word"
    return str(end.get("error") or "an exception") if end.get("how") == "exception" else ""


def _end_time(stream: Stream) -> float | None:
    when = (stream["ended"] or {}).get("time")
    return float(when) if isinstance(when, (int, float)) else None


def _state(streams: Sequence[Stream]) -> tuple[str, str]:
    if not all(stream["closed"] for stream in streams):
        speaking = [stream for stream in streams if not stream["closed"]]
        elsewhere = all(stream["header"].get("host") != socket.gethostname() for stream in speaking)
        if elsewhere and time.time() - max(stream["heard"] for stream in speaking) > SILENT:
            host = speaking[0]["header"].get("host")
            return LOST, f"no word from {host}; shoal sync brings in what it wrote since"
        return RUNNING, ""
    newest = max(stream["attempt"] for stream in streams)
    wrong = [f"{stream['replica']}: {_wrong(stream)}" for stream in streams if stream["attempt"] == newest]
    wrong = [text for text in wrong if not text.endswith(": ")]
    return (FAILED, wrong[0]) if wrong else (SUCCEEDED, "")


def _first_failure(streams: Sequence[Stream]) -> dict[str, Any] | None:
    failed = [stream for stream in streams if _wrong(stream)]
    if not failed:
        return None
    # An exception tells more than silence; then the earliest.
    # By our own clock: those of the ranks may differ by hours.
    first = min(failed, key=lambda stream: (stream["ended"] is None, stream["heard"], _end_time(stream) or 0.0))
    return {
        **{key: first[key] for key in ("replica", "process", "attempt", "try")},
        "exit_code": None,
        "signal": None,
        "reason": _wrong(first),
        "time": _end_time(first),
        "lines": [],
    }
