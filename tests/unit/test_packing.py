"""The user's files as they are brought to a cluster: what git and .shoalignore ignore stays, the same files give the
same bytes, and what is too large is refused with a way out."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from shoal.backends.kubernetes.code import files_of, pack, packed
from shoal.backends.kubernetes.request import LARGEST_CODE
from shoal.backends.kubernetes.settings import Settings
from shoal.errors import UsageError

LARGE = random.Random(1).randbytes(LARGEST_CODE + 1000)


def entries(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {entry.name: entry for entry in tar.getmembers()}


def written(place: Path, *names: str) -> None:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)


@pytest.mark.parametrize(
    ("ignored", "left"),
    [
        pytest.param("", ["data/a.bin", "data/deep/b.bin", "train.py"], id="nothing is ignored"),
        pytest.param("*.bin\n", ["train.py"], id="names"),
        pytest.param("data/\n", ["train.py"], id="a directory"),
        pytest.param("/data/deep\n", ["data/a.bin", "train.py"], id="a path"),
        pytest.param("# data\n\n  b.bin  \n", ["data/a.bin", "train.py"], id="comments and blanks"),
    ],
)
def test_what_is_ignored_stays(tmp_path: Path, ignored: str, left: list[str]) -> None:
    written(tmp_path, "train.py", "data/a.bin", "data/deep/b.bin", "__pycache__/x.pyc", ".venv/bin/python")
    if ignored:
        (tmp_path / ".shoalignore").write_text(ignored)
    assert sorted(set(files_of(str(tmp_path))) - {".shoalignore"}) == left


def test_names_that_are_no_text_can_be_ignored(tmp_path: Path) -> None:
    for name in (b"a\xff", b"b\xff"):
        (tmp_path / os.fsdecode(name)).write_text("x")
    (tmp_path / ".shoalignore").write_bytes(b"a\xff\n")
    assert sorted(files_of(str(tmp_path))) == [".shoalignore", os.fsdecode(b"b\xff")]


def test_a_list_of_what_stays_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / ".shoalignore").mkdir()
    with pytest.raises(UsageError, match=r"/\.shoalignore: Is a directory"):
        files_of(str(tmp_path))


def test_git_says_what_belongs_to_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    written(tmp_path, "known.py", "new.py", "ignored.log", "gone.py")
    (tmp_path / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "known.py", "gone.py"], check=True)
    (tmp_path / "gone.py").unlink()
    assert sorted(files_of(str(tmp_path))) == [".gitignore", "known.py", "new.py"]


def test_repositories_inside_belong_to_the_code(tmp_path: Path) -> None:
    """Submodules, and clones that nobody has added: git names only their directories."""
    for name in ("", "added", "added/deep", "cloned"):
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
        written(tmp_path / name, "code.py", "made.log")
        (tmp_path / name / ".gitignore").write_text("*.log\n")
    commit = ["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "-m", "x"]
    for words in (["add", "code.py"], commit):
        subprocess.run(["git", "-C", str(tmp_path / "added"), *words], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "added"], check=True)
    places = ("", "added/", "added/deep/", "cloned/")
    assert sorted(files_of(str(tmp_path))) == sorted(
        place + name for place in places for name in (".gitignore", "code.py")
    )


def test_a_directory_that_its_repository_ignores_is_not_empty(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("scratch/\n")
    written(tmp_path, "scratch/train.py")
    assert files_of(str(tmp_path / "scratch")) == ["train.py"]


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name, when in (("one", 1), ("other", 2)):
        written(tmp_path / name, "train.py", "run.sh")
        (tmp_path / name / "run.sh").chmod(0o700)
        os.utime(tmp_path / name / "train.py", (when, when))
        target = io.BytesIO()
        pack(str(tmp_path / name), target, LARGEST_CODE)
        found.append(target.getvalue())
    assert found[0] == found[1]
    assert {name: entry.mode for name, entry in entries(found[0]).items()} == {"train.py": 0o644, "run.sh": 0o755}


def test_links_of_both_kinds_come_along(tmp_path: Path) -> None:
    written(tmp_path, "a.txt")
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to("a.txt")
    os.mkfifo(tmp_path / "pipe")
    data = packed(str(tmp_path), Settings("lab"), tmp_path).code
    found = entries(data)
    assert sorted(found) == ["a.txt", "b.txt", "c.txt"]
    assert (found["b.txt"].isreg(), found["b.txt"].size, found["c.txt"].linkname) == (True, 5, "a.txt")


def test_large_code_is_fetched_where_there_is_a_server_and_refused_elsewhere(tmp_path: Path) -> None:
    code, home = tmp_path / "code", tmp_path / "home"
    code.mkdir()
    home.mkdir()
    (code / "large").write_bytes(LARGE)
    with pytest.raises(UsageError, match="more than 900 KiB packed, and replicas have no server"):
        packed(str(code), Settings("lab"), home)
    found = packed(str(code), Settings("lab", sink="https://host"), home)
    assert found.code == b""
    assert found.file is not None
    assert found.fetched is not None
    found.file.seek(0)
    data = found.file.read()
    assert len(data) == found.fetched.size > LARGEST_CODE
    assert entries(data)["large"].size == len(LARGE)
    found.file.close()
    assert list(home.iterdir()) == [], "a plan leaves nothing"
