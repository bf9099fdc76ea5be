"""Content by its hash: whole or not at all, once, and never collected while somebody is about to name it."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Unavailable
from shoal.store.blobs import Blobs, collect
from shoal.store.database import Database

CONTENT = b"weights " * 100_000


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def kept(blobs: Blobs) -> list[str]:
    return sorted(file.name for file in blobs.root.rglob("*") if file.is_file())


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "home")


def staged(tmp_path: Path, data: bytes = CONTENT, name: str = "staged") -> Path:
    file = tmp_path / name
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("data", [b"", b"x", CONTENT], ids=["nothing", "one byte", "many bytes"])
@pytest.mark.parametrize("how", ["a path", "a path to give away", "an open file"])
def test_what_is_put_is_there_under_its_hash(blobs: Blobs, tmp_path: Path, data: bytes, how: str) -> None:
    source: Any = io.BytesIO(data) if how == "an open file" else staged(tmp_path, data)
    blob = blobs.put(source, move=how == "a path to give away")
    assert (blob.hash, blob.size) == (sha(data), len(data))
    assert blobs.exists(blob.hash)
    assert blobs.size(blob.hash) == len(data)
    with blobs.open(blob.hash) as file:
        assert file.read() == data
    assert kept(blobs) == [sha(data)]
    assert blobs.path(blob.hash) == blobs.root / blob.hash[:2] / blob.hash


def test_the_same_content_is_kept_once(blobs: Blobs, tmp_path: Path) -> None:
    for number in range(3):
        blobs.put(staged(tmp_path, name=f"copy {number}"), move=number == 1)
    assert kept(blobs) == [sha(CONTENT)]


def test_a_file_given_away_becomes_the_blob_and_stays_until_its_owner_removes_it(blobs: Blobs, tmp_path: Path) -> None:
    file = staged(tmp_path)
    blob = blobs.put(file, move=True)
    assert file.exists()
    assert os.path.samefile(file, blobs.path(blob.hash))
    file.unlink()
    assert blobs.exists(blob.hash)


def test_a_file_with_a_second_name_is_copied_because_somebody_may_write_to_it(blobs: Blobs, tmp_path: Path) -> None:
    file = staged(tmp_path)
    os.link(file, tmp_path / "model.pt")
    blob = blobs.put(file, move=True)
    (tmp_path / "model.pt").write_bytes(b"the next epoch")
    assert blobs.path(blob.hash).read_bytes() == CONTENT


def test_a_damaged_blob_is_replaced(blobs: Blobs, tmp_path: Path) -> None:
    place = blobs.path(sha(CONTENT))
    for move in (False, True):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(b"")
        blobs.put(staged(tmp_path), move=move)
        assert place.read_bytes() == CONTENT


@pytest.mark.parametrize("word", ["", "..", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_only_hashes_name_blobs(blobs: Blobs, word: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        blobs.path(word)


def test_removing_is_silent_when_it_is_gone(blobs: Blobs, tmp_path: Path) -> None:
    blob = blobs.put(staged(tmp_path))
    blobs.remove(blob.hash)
    blobs.remove(blob.hash)
    assert not blobs.exists(blob.hash)
    with pytest.raises(FileNotFoundError):
        blobs.open(blob.hash)


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(blobs: Blobs) -> None:
    """A limit on the size of files is what a process can set itself: writing stops in the middle."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) // 2, hard))
        with pytest.raises(Unavailable, match=os.strerror(errno.EFBIG)) as failed:
            blobs.put(io.BytesIO(CONTENT))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert "shoal rm" in failed.value.text()
    assert kept(blobs) == []


def test_garbage_goes_and_what_is_held_stays(blobs: Blobs, database: Database) -> None:
    garbage = blobs.put(io.BytesIO(b"garbage"))
    blobs.release([garbage.hash])
    (blobs.root / "new-1-left-by-a-killed-server").write_bytes(b"half")
    with blobs.holding() as hold:
        held = hold.put(io.BytesIO(b"about to be named"))
        assert collect(Blobs(blobs.root.parent), database.read) == (2, len(b"garbage") + len(b"half"))
        assert kept(blobs) == [held.hash]
    assert collect(blobs, database.read) == (1, len(b"about to be named"))
    assert kept(blobs) == []


@pytest.mark.parametrize("when", ["while it asks the database", "between asking and sweeping"])
def test_what_is_put_while_somebody_collects_stays(blobs: Blobs, database: Database, when: str) -> None:
    """Also when the holder is done before the sweep, and when the content was garbage until then."""
    old = blobs.put(io.BytesIO(b"known"))
    blobs.release([old.hash])

    def put() -> None:
        with blobs.holding() as hold:
            hold.put(io.BytesIO(b"known"))
            hold.put(io.BytesIO(b"new"))

    @contextmanager
    def read() -> Iterator[Any]:
        with database.read() as connection:
            if when == "while it asks the database":
                put()
            yield connection
        if when == "between asking and sweeping":
            put()

    assert collect(blobs, read) == (0, 0)
    assert kept(blobs) == sorted([sha(b"known"), sha(b"new")])


def test_many_threads_put_and_collect_and_nothing_that_is_held_is_missing(blobs: Blobs, database: Database) -> None:
    missing: list[str] = []
    ending = threading.Event()

    def work(number: int) -> None:
        for turn in range(60):
            with Blobs(blobs.root.parent).holding() as hold:
                blob = hold.put(io.BytesIO(b"%d" % ((number + turn) % 7)))
                if not blobs.exists(blob.hash):
                    missing.append(blob.hash)

    def tidy() -> None:
        while not ending.is_set():
            collect(blobs, database.read)

    collector = threading.Thread(target=tidy)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in (collector, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    ending.set()
    collector.join()
    assert missing == []
    collect(blobs, database.read)
    assert kept(blobs) == []


@pytest.mark.slow
def test_killed_while_it_copies_leaves_only_what_the_next_collector_takes(blobs: Blobs, database: Database) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom shoal.store.blobs import Blobs\n"
        "class Source:\n    left = 3\n    def read(self, size):\n        self.left -= 1\n"
        "        if not self.left: os.kill(os.getpid(), signal.SIGKILL)\n        return b'x' * size\n"
        "Blobs(Path(sys.argv[1])).put(Source())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(blobs.root.parent)])
    assert done.returncode == -signal.SIGKILL
    assert len(kept(blobs)) == 1
    assert kept(blobs)[0].startswith("new-")
    collect(blobs, database.read)
    assert kept(blobs) == []
