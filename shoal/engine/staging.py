"""Brings an experiment's data and code to where its replicas will look, before they start; in threads of its own.

    cache/<digest>/                 objects that were fetched, or links to blobs: shared by all experiments
    cache/code/<commit>/            a checkout, copied for each experiment
    experiments/<id>/data/<at>      a link to one of the above, or to a path
    experiments/<id>/code/          the experiment's own copy

What is on the disk says what is done: a server that is killed leaves nothing half done under a final name, and the next
one goes on.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal.data import buckets, downloads
from shoal.data.downloads import Cancelled, mebibytes
from shoal.engine import checkouts
from shoal.engine.data import label, read_manifest
from shoal.engine.decide import FETCHING, Staging
from shoal.errors import ShoalError, UsageError
from shoal.launcher.replica import read_json
from shoal.store.blobs import Blobs
from shoal.store.database import Database
from shoal.store.datasets import OBJECT, PATH

TELL_EVERY = 1.0  # seconds between two words about how far it is
AT_ONCE = 4

Row = Mapping[str, Any]


class Stager:
    """What is being fetched, and for whom. `wake` is called when there is something to see."""

    def __init__(self, home: Path, database: Database, wake: Callable[[], None]) -> None:
        self.home = home
        self.database = database
        self.wake = wake
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._turns: dict[str, threading.Lock] = {}  # what is fetched -> who fetches it; the others wait, and find it
        self._progress: dict[str, str] = {}
        self._places = threading.Semaphore(AT_ONCE)
        self._told = 0.0
        self.ending = False

    def look(self, row: Row) -> Staging | None:
        """How far it is; None when everything is there, or nothing is needed."""
        provenance = row["provenance"] or {}
        mounts, code = provenance.get("datasets") or (), provenance.get("code")
        directory = self.home / "experiments" / row["id"]
        linked = all(_linked(directory / "data" / mount["at"], self._target(mount), mount["kind"]) for mount in mounts)
        if linked and (code is None or (directory / "code").is_dir()):
            return None
        with self._lock:
            job = self._jobs.get(row["uid"])
        if job is None:
            return Staging()
        if job.failure:
            return Staging(begun=True, failed=True, reason=job.failure)
        reason = f"{FETCHING}{job.what}" if job.what else ""
        return Staging(begun=True, reason=self._progress.get(job.what, reason))

    def begin(self, row: Row) -> None:
        """Starts to fetch, unless that goes on already."""
        with self._lock:
            if row["uid"] in self._jobs or self.ending:
                return
            job = self._jobs[row["uid"]] = _Job(self, row)
        job.thread.start()

    def forget(self, uid: str) -> None:
        """Nobody waits for it any more. What is there stays for the next."""
        with self._lock:
            job = self._jobs.pop(uid, None)
        if job is not None:
            job.cancelled.set()

    def close(self) -> None:
        self.ending = True
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.cancelled.set()
        for job in jobs:
            job.thread.join(timeout=5)

    def turn(self, what: str) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(what, threading.Lock())

    def tell(self, what: str, text: str) -> None:
        self._progress[what] = text
        now = time.monotonic()
        if now - self._told > TELL_EVERY:
            self._told = now
            self.wake()

    def _target(self, mount: Mapping[str, Any]) -> Path:
        """Where the link leads."""
        if mount["kind"] == PATH:
            return Path(mount["uri"])
        tree = self.home / "cache" / str(mount["digest"])
        return tree / str(mount["file"]) if mount["file"] else tree


class _Job:
    """One experiment's thread."""

    def __init__(self, stager: Stager, row: Row) -> None:
        self.stager = stager
        self.row = row
        self.directory = stager.home / "experiments" / row["id"]
        self.what = ""
        self.failure = ""
        self.cancelled = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"staging {row['id']}", daemon=True)

    def _run(self) -> None:
        try:
            with self.stager._places:
                self._stage()
        except Cancelled:
            return
        except ShoalError as error:
            message = error.problems[0].message
            self.failure = message if message.startswith(self.what) else f"{self.what}: {message}"
        except Exception as error:  # noqa: BLE001  whatever it is, the experiment must not wait for ever
            self.failure = f"{self.what} could not be fetched: {error}"
        else:
            self.stager.forget(self.row["uid"])  # what is on the disk says the rest
        self.stager.wake()

    def _stage(self) -> None:
        provenance = self.row["provenance"]
        environment = read_json(str(self.directory / "environment.json")) or {}
        for mount in provenance.get("datasets") or ():
            self.what = label(mount)
            self._tree(mount, environment)
            _link(self.directory / "data" / mount["at"], self.stager._target(mount))
        code = provenance.get("code")
        if code is not None:
            self.what = f"{code['written']} at {code['ref']}"
            self._code(code, environment)

    def _tree(self, mount: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        if mount["kind"] == PATH:
            if not os.path.exists(mount["uri"]):
                raise UsageError(f"{mount['uri']} is gone")
            return
        entries = read_manifest(self.stager.home, self.stager.database, mount)
        target = self.stager.home / "cache" / mount["digest"]
        with self._turn(mount["digest"]):
            if mount["kind"] == OBJECT:
                total = sum(entry["size"] for entry in entries)
                address = buckets.address_of(mount["uri"], mount["options"], environment)

                def progress(done: int) -> None:
                    self.stager.tell(self.what, f"{FETCHING}{self.what}: {mebibytes(done)} of {mebibytes(total)} MiB")

                progress(0)
                bucket = buckets.Bucket(address, environment)
                single, cancelled = bool(mount["file"]), self.cancelled.is_set
                downloads.fetch(bucket, entries, target, single=single, progress=progress, cancelled=cancelled)
            else:
                _tree_of_links(target, entries, Blobs(self.stager.home))

    def _code(self, code: Mapping[str, str], environment: Mapping[str, str]) -> None:
        place = self.directory / "code"
        if place.is_dir():
            return
        kept = self.stager.home / "cache" / "code" / code["commit"]
        with self._turn(code["commit"]):
            self.stager.tell(self.what, f"{FETCHING}{self.what}")
            checkouts.checkout(code["git"], code["commit"], kept, environment, self.cancelled.is_set)
        copy = self.directory / "code.part"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(kept, copy, symlinks=True)
        copy.rename(place)

    def _turn(self, what: str) -> _Turn:
        return _Turn(self.stager.turn(what), self.cancelled)


class _Turn:
    """Waits for a lock, but not longer than anybody waits for this."""

    def __init__(self, lock: threading.Lock, cancelled: threading.Event) -> None:
        self.lock = lock
        self.cancelled = cancelled

    def __enter__(self) -> None:
        while not self.lock.acquire(timeout=0.2):
            if self.cancelled.is_set():
                raise Cancelled

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def _tree_of_links(target: Path, entries: list[Any], blobs: Blobs) -> None:
    """The files of a managed data set under their own names."""
    if target.is_dir():
        return
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for entry in entries:
        file = part / entry["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        blob = blobs.path(entry["hash"])
        if not blob.is_file():
            raise UsageError(f"{entry['path']} is gone from the blobs")
        file.symlink_to(blob)
    part.rename(target)


def _linked(link: Path, target: Path, kind: str) -> bool:
    """The engine asks: it must not look at a path, which may be on a server that does not answer."""
    try:
        return os.readlink(link) == str(target) and (kind == PATH or os.path.exists(target))
    except OSError:
        return False


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)
