"""Fetching a bucket's objects into a directory: in parallel, verified, whole or not at all, and resumable.

    <target>.part/    files that are there and verified
    <target>.work/    pieces of those that are not
    <target>/         the directory, once everything is in it: whoever finds it finds all of it

A server that is killed leaves `.part` and `.work`; the next one goes on with them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.data.buckets import Bucket
from shoal.data.manifests import Entry
from shoal.errors import ShoalError, Unavailable, UsageError

PIECE = 16 << 20
CONNECTIONS = 8
TRIES = 3

Job = Callable[[], None]


class Cancelled(Exception):
    """Nobody waits for it any more."""


def complete(target: Path, entries: Sequence[Entry]) -> bool:
    """Whether every file is there with its size."""
    try:
        return all(os.stat(target / entry["path"]).st_size == entry["size"] for entry in entries)
    except OSError:
        return False


def fetch(
    bucket: Bucket,
    entries: Sequence[Entry],
    target: Path,
    *,
    single: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    cancelled: Callable[[], bool] = lambda: False,
    piece: int = PIECE,
) -> None:
    """Fills the directory. `progress` is told how many bytes are there. Raises what a person can read."""
    if target.is_dir():
        if complete(target, entries):
            return
        part = _beside(target, ".part")
        shutil.rmtree(part, ignore_errors=True)
        target.rename(part)
    _Fetch(bucket, entries, target, single, progress, cancelled, piece).run()


class _Fetch:
    """One download: what is missing, and the threads that get it."""

    def __init__(
        self,
        bucket: Bucket,
        entries: Sequence[Entry],
        target: Path,
        single: bool,
        progress: Callable[[int], None],
        cancelled: Callable[[], bool],
        piece: int,
    ) -> None:
        self.bucket = bucket
        self.entries = entries
        self.target = target
        self.single = single
        self.piece = piece
        self.part, self.work = _beside(target, ".part"), _beside(target, ".work")
        self.progress, self.cancelled = progress, cancelled
        self.lock = threading.Lock()
        self.done = 0
        self.failure: BaseException | None = None
        self.etags_are_sums = True
        self.sums: dict[str, str] = {}  # path -> the sum of a download that was not that of its etag

    def run(self) -> None:
        for directory in (self.part, self.work):
            directory.mkdir(parents=True, exist_ok=True)
        missing = [entry for entry in self.entries if not self._there(entry)]
        self._enough_space(missing)
        jobs = self._jobs(missing)
        threads = [threading.Thread(target=self._work, args=(jobs,), daemon=True) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        self.part.rename(self.target)
        shutil.rmtree(self.work, ignore_errors=True)

    def _there(self, entry: Entry) -> bool:
        try:
            there = bool(os.stat(self.part / entry["path"]).st_size == entry["size"])
        except OSError:
            return False
        if there:
            self._advance(entry["size"])
        return there

    def _enough_space(self, missing: Sequence[Entry]) -> None:
        needed = sum(entry["size"] for entry in missing)
        free = shutil.disk_usage(self.part).free
        if needed > free:
            raise Unavailable(
                f"{self.bucket.address.uri}: {mebibytes(needed)} MiB are to be fetched, "
                f"and {mebibytes(free)} MiB are free in {self.target.parent}",
                hint="free some space",
            )

    def _jobs(self, missing: Sequence[Entry]) -> Iterator[Job]:
        for entry in missing:
            if entry["size"] <= self.piece:
                yield lambda entry=entry: self._small(entry)  # type: ignore[misc]
            else:
                yield from _Pieces(self, entry).jobs()

    def _work(self, jobs: Iterator[Job]) -> None:
        try:
            while self.failure is None:
                if self.cancelled():
                    raise Cancelled
                with self.lock:
                    job = next(jobs, None)
                if job is None:
                    return
                job()
        except OSError as error:
            self._fail(Unavailable(f"{self.target.parent}: {error.strerror}", hint="is the disk full?"))
        except BaseException as error:  # noqa: BLE001  whoever started the threads is told
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            self.failure = self.failure or error

    def _advance(self, size: int) -> None:
        with self.lock:
            self.done += size
            done = self.done
        self.progress(done)

    def _small(self, entry: Entry) -> None:
        content = b""
        for _ in range(TRIES):
            content = self.read(entry, 0, entry["size"])
            if self.verified(entry, lambda content=content: hashlib.md5(content, usedforsecurity=False).hexdigest()):  # type: ignore[misc]
                break
        else:
            raise self._damaged(entry)
        temporary = self.work / _name(entry)
        temporary.write_bytes(content)
        self.keep(entry, temporary)
        self._advance(entry["size"])

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        """Bytes of an object that is still the one in the manifest."""
        import obstore

        if start == end:
            return b""
        key = self.bucket.key_of(entry, single=self.single)
        options: dict[str, Any] = {"range": (start, end)}
        if entry["etag"]:
            options["if_match"] = entry["etag"]
        trouble: ShoalError | None = None
        for _ in range(TRIES):
            if self.cancelled():
                raise Cancelled
            try:
                content = bytes(obstore.get(self.bucket.store, key, options=options).bytes())  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001  obstore's errors share no tree with a name
                if isinstance(error, FileNotFoundError) or type(error).__name__ == "PreconditionError":
                    gone = "is gone" if isinstance(error, FileNotFoundError) else "has changed"
                    raise UsageError(f"{self.bucket.address.uri}: {entry['path']} {gone} since it was listed") from None
                trouble = self.bucket.trouble(error)
                continue
            if len(content) == end - start:
                return content
            trouble = Unavailable(
                f"{self.bucket.address.uri}: {entry['path']} ended after {start + len(content)} bytes"
            )
        assert trouble is not None
        raise trouble

    def verified(self, entry: Entry, sum_of: Callable[[], str]) -> bool:
        """Whether what came is what the etag says; False asks to fetch it again.

        An etag is the MD5 of an object that was stored in one piece, unless the bucket encrypts with a key of its own.
        That is told apart by fetching twice: what is damaged on its way does not come out the same.
        """
        etag = entry["etag"].strip('"').lower()
        if not self.etags_are_sums or not re.fullmatch("[0-9a-f]{32}", etag):
            return True
        found = sum_of()
        if found == etag:
            return True
        with self.lock:
            if self.sums.get(entry["path"]) == found:
                self.etags_are_sums = False
                return True
            self.sums[entry["path"]] = found
        return False

    def _damaged(self, entry: Entry) -> ShoalError:
        return Unavailable(
            f"{self.bucket.address.uri}: {entry['path']} came differently each time, and never as its etag says",
            hint="the way to the bucket damages data",
        )

    def keep(self, entry: Entry, temporary: Path) -> None:
        place = self.part / entry["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(temporary, 0o444)  # it is shared by all experiments: a script must not write into it
        os.replace(temporary, place)


class _Pieces:
    """A large object: its pieces go into one file, and a log beside it tells which are there."""

    def __init__(self, fetch: _Fetch, entry: Entry) -> None:
        self.fetch = fetch
        self.entry = entry
        self.file = fetch.work / _name(entry)
        self.log = fetch.work / f"{_name(entry)}.pieces"
        self.size = fetch.piece
        self.count = -(-entry["size"] // self.size)
        self.lock = threading.Lock()
        self.tries = 0
        self.there: set[int] = set()

    def jobs(self) -> Iterator[Job]:
        self.there = self._logged()
        with open(self.file, "ab"):
            os.truncate(self.file, self.entry["size"])
        for number in self.there:
            self.fetch._advance(self._length(number))
        if len(self.there) == self.count:
            yield self._finish
        for number in range(self.count):
            if number not in self.there:
                yield lambda number=number: self._piece(number)  # type: ignore[misc]

    def _logged(self) -> set[int]:
        if not self.file.exists():
            self.log.unlink(missing_ok=True)
            return set()
        with suppress(OSError):
            lines = self.log.read_text().split("\n")[:-1]  # what follows the last line break is torn
            return {int(line) for line in lines if line.isdigit() and int(line) < self.count}
        return set()

    def _length(self, number: int) -> int:
        return min(self.size, int(self.entry["size"]) - number * self.size)

    def _piece(self, number: int) -> None:
        start = number * self.size
        content = self.fetch.read(self.entry, start, start + self._length(number))
        descriptor = os.open(self.file, os.O_WRONLY)
        try:
            at = 0
            while at < len(content):
                at += os.pwrite(descriptor, content[at : at + (1 << 20)], start + at)
            os.fdatasync(descriptor)  # before the log says so
        finally:
            os.close(descriptor)
        with self.lock:
            with open(self.log, "a") as log:
                log.write(f"{number}\n")
            self.there.add(number)
            last = len(self.there) == self.count
        self.fetch._advance(len(content))
        if last:
            self._finish()

    def _finish(self) -> None:
        while not self.fetch.verified(self.entry, self._sum):
            self.tries += 1
            if self.tries == TRIES:
                self.file.unlink()
                raise self.fetch._damaged(self.entry)
            for number in range(self.count):
                start = number * self.size
                content = self.fetch.read(self.entry, start, start + self._length(number))
                with open(self.file, "r+b") as file:
                    file.seek(start)
                    file.write(content)
        self.fetch.keep(self.entry, self.file)
        self.log.unlink(missing_ok=True)

    def _sum(self) -> str:
        digest = hashlib.md5(usedforsecurity=False)
        with open(self.file, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()


def mebibytes(size: int) -> str:
    """`0.4`, `12`, `6,144`"""
    value = size / (1 << 20)
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _name(entry: Entry) -> str:
    return hashlib.sha256(entry["path"].encode()).hexdigest()[:32]


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)
