"""Archives that are made while they are sent: what is in them, and what becomes of files that change meanwhile."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path

import pytest

from shoal.server.archives import CHUNK, Member, tarred, zipped

Made = Callable[[Iterable[Member]], Generator[bytes]]
Read = Callable[[bytes], dict[str, bytes]]
FILES = {"a.txt": b"first", "sub/b.bin": bytes(range(256)) * 3000, "empty": b"", "größe/c": b"\0" * (CHUNK + 1)}


@pytest.fixture
def members(tmp_path: Path) -> list[Member]:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return [Member(name, partial(open, tmp_path / name, "rb")) for name in FILES]


def of_zip(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def of_tar(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


@pytest.mark.parametrize(("made", "read"), [(zipped, of_zip), (tarred, of_tar)], ids=["zip", "tar"])
class TestBoth:
    def test_every_file_is_in_it_as_it_is(self, members: list[Member], made: Made, read: Read) -> None:
        assert read(b"".join(made(members))) == FILES

    def test_of_nothing_there_is_an_empty_one(self, made: Made, read: Read) -> None:
        assert read(b"".join(made([]))) == {}

    def test_what_is_gone_when_its_turn_comes_is_left_out(
        self, members: list[Member], tmp_path: Path, made: Made, read: Read
    ) -> None:
        (tmp_path / "a.txt").unlink()
        assert set(read(b"".join(made(members)))) == set(FILES) - {"a.txt"}

    def test_it_is_sent_piece_by_piece_and_files_are_closed_by_who_leaves(
        self, members: list[Member], made: Made, read: Read
    ) -> None:
        before = len(os.listdir("/proc/self/fd"))
        sent = made(members)
        assert len(next(piece for piece in sent if len(piece) > 1000)) <= 2 * CHUNK
        assert len(os.listdir("/proc/self/fd")) > before
        sent.close()
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_becomes_shorter_is_as_long_as_it_is_in_a_zip(members: list[Member], tmp_path: Path) -> None:
    sent = zipped(members)
    data = b""
    for piece in sent:
        data += piece
        if b"sub/b.bin" in data:
            os.truncate(tmp_path / "sub/b.bin", CHUNK)
    assert of_zip(data)["sub/b.bin"] == FILES["sub/b.bin"][:CHUNK]


@pytest.mark.parametrize(
    ("modified", "year"), [(0.0, 1980), (1.7e9, 2023), (1e11, 2107)], ids=["too long ago", "a day", "too far away"]
)
def test_a_time_that_a_zip_cannot_say_is_the_nearest_that_it_can(
    members: list[Member], modified: float, year: int
) -> None:
    data = b"".join(zipped([members[0]._replace(modified=modified)]))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.infolist()[0].date_time[0] == year


def test_a_name_that_is_no_text_is_written_as_far_as_it_can_be(members: list[Member]) -> None:
    assert of_zip(b"".join(zipped([members[0]._replace(path=os.fsdecode(b"x\xff.txt"))]))) == {"x?.txt": b"first"}
