"""One attempt on a cluster, and what lies in its directory: the truth that the next server goes on from.

request.json     the backend: what to run, and by which rules
created.json     all its objects are in the cluster: who owns them, and which cluster that is
states.jsonl     every change of a replica, one JSON object a line
pods.json        replica -> uid of the pod that began, where an operator would put another in its place
stop.json        the engine: a wish to stop, and how long to wait
stopping.json    replica -> why it was asked to end
result.json      how the attempt ended
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.backends.kubernetes.creating import owned
from shoal.backends.kubernetes.following import Follower
from shoal.backends.kubernetes.watching import Key
from shoal.backends.local import files
from shoal.launcher.replica import read_json, write_json
from shoal.states import FINAL, STOPPED, Policy, Status

CREATED, STOPPING, PODS = "created.json", "stopping.json", "pods.json"

Object = dict[str, Any]


@dataclass
class Tended:
    """One attempt that somebody looks after. Its statuses are changed by one thread only."""

    directory: str
    request: Mapping[str, Any]
    policy: Policy
    statuses: dict[str, Status]
    history: list[Status]
    stopping: dict[str, str]
    uids: dict[str, str]
    created: Mapping[str, Any] | None
    creating: bool = False  # a thread is at it
    trouble: str = ""  # why it cannot be created now
    refused: str = ""  # why it never will be
    elsewhere: str = ""  # why it cannot be seen: the cluster of that name is another one now
    killed: bool = False  # pods were deleted, without their own grace
    withdrawn: bool = False  # its operator has been told to leave it alone
    followers: dict[tuple[str, int], Follower] = field(default_factory=dict)
    told: dict[tuple[str, int], float] = field(default_factory=dict)  # with which grace it was asked to end
    hoped: dict[tuple[str, int], float] = field(default_factory=dict)  # since when it is hoped that one still starts
    doubted: float | None = None  # since when it looks as if it were late: the cluster is asked before that counts
    asked: float = 0.0  # when the cluster was asked last what keeps it from starting

    @property
    def uid(self) -> str:
        return str(self.request["uid"])

    @property
    def key(self) -> Key:
        return self.uid, str(self.request["attempt"])

    @property
    def began(self) -> float:
        return float(self.request["began"])

    @property
    def operator(self) -> str:
        """The kind of the object from which an operator makes the pods; empty when we make Jobs."""
        return str(self.request.get("operator", ""))

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def wish(self) -> Mapping[str, Any] | None:
        """Who wants it to stop: reason and grace."""
        return read_json(self.path(files.STOP))

    def record(self, status: Status) -> None:
        """Written down first, then true."""
        _append(self.path(files.STATES), json.dumps(status.json()).encode() + b"\n")
        before = self.statuses[status.replica]
        if status.try_ > before.try_:
            self.history.append(before)
        self.statuses[status.replica] = status

    def causes(self) -> dict[str, Status]:
        """As the rules are to see them: why each was stopped, without what was lost of it meanwhile."""
        return {
            name: replace(status, reason=self.stopping.get(name, status.reason)) if status.state == STOPPED else status
            for name, status in self.statuses.items()
        }

    def ask_to_end(self, replica: str, reason: str) -> None:
        if replica not in self.stopping:
            write_json(self.path(STOPPING), {**self.stopping, replica: reason})
            self.stopping[replica] = reason

    def know_pod(self, replica: str, uid: str) -> None:
        if replica not in self.uids:
            write_json(self.path(PODS), {**self.uids, replica: uid})
            self.uids[replica] = uid

    def job_name(self, replica: str, try_: int) -> str:
        return f"{self.request['anchor']}-{replica}" + (f"-{try_}" if try_ else "")

    def next_job(self, replica: str, try_: int, checkpoint: str) -> Object:
        """The Job of a later try: as the first, under another name."""
        job: Object = copy.deepcopy(self.request["jobs"][replica])
        job["metadata"]["name"] = self.job_name(replica, try_)
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
            metadata["labels"]["shoal/try"] = str(try_)
        if checkpoint:
            env = job["spec"]["template"]["spec"]["containers"][0]["env"]
            env.append({"name": "SHOAL_RESUME_FROM", "value": checkpoint})
        return owned(job, (self.created or {})["owner"])


def load(directory: str, request: Mapping[str, Any]) -> Tended:
    """As the server before left it."""
    _cut_torn_line(os.path.join(directory, files.STATES))
    statuses = {name: Status(name) for name in request["replicas"]}
    history: list[Status] = []
    for entry in files.read_states(directory):
        status = Status.of(entry)
        before = statuses[status.replica]
        if status.try_ > before.try_ and before.state in FINAL:
            history.append(before)
        statuses[status.replica] = status
    kept = {name: read_json(os.path.join(directory, name)) for name in (STOPPING, PODS, CREATED)}
    return Tended(
        directory,
        request,
        Policy.of(request["policy"]),
        statuses,
        history,
        dict(kept[STOPPING] or {}),
        dict(kept[PODS] or {}),
        kept[CREATED],
    )


def _append(path: str, line: bytes) -> None:
    """A whole line or nothing: a full disk must not leave half of one for others to be written behind."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            written = os.write(descriptor, line)
            if written < len(line):
                raise OSError(28, "No space left on device", path)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _cut_torn_line(path: str) -> None:
    try:
        with open(path, "r+b") as file:
            data = file.read()
            file.truncate(data.rfind(b"\n") + 1)
    except FileNotFoundError:
        return
