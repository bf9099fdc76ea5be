"""Whether code that no commit tells of is still what it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.engine import codefiles


@pytest.fixture
def place(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    for path in ("train.py", "nets/small.py", "home/shoal.db", "__pycache__/train.pyc", ".secret/key", "outputs/a"):
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        (code / path).write_text(path)
    (code / "large").write_bytes(bytes(codefiles.LARGEST + 1))
    os.mkfifo(code / "pipe")
    (code / "loop").symlink_to(code)
    return code


def described(place: Path) -> dict[str, object]:
    return codefiles.describe(str(place), str(place / "home"))


def test_what_is_looked_at(place: Path) -> None:
    found = codefiles.describe(str(place), str(place / "home"))
    assert sorted(found["hashes"]) == ["nets/small.py", "train.py"]
    assert found["complete"]
    assert found == described(place)


def test_nothing_stays_open(place: Path) -> None:
    """What a link leads to may be a directory, which can be opened and not read."""
    before = os.listdir("/proc/self/fd")
    described(place)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    ("change", "said", "exactly"),
    [
        (lambda place: None, [], []),
        (lambda place: (place / "train.py").write_text("2"), ["are changed: train.py"], ["are changed: train.py"]),
        (lambda place: (place / "nets/small.py").unlink(), ["are gone: nets/small.py"], ["are gone: nets/small.py"]),
        (lambda place: (place / "result").write_text("1"), [], ["are new: result"]),
        (lambda place: os.utime(place / "train.py", (1, 1)), [], []),
    ],
    ids=["nothing", "a changed file", "a missing file", "a new file is what the run wrote", "only another time"],
)
def test_what_is_said_of_a_change(place: Path, change: object, said: list[str], exactly: list[str]) -> None:
    before = described(place)
    change(place)  # type: ignore[operator]
    for exact, expected in ((False, said), (True, exactly)):
        found = codefiles.differences(before, described(place), "code", exact=exact)
        assert found == [f"code: files {text}" for text in expected]


def test_a_directory_of_anything_is_bounded(tmp_path: Path) -> None:
    for number in range(codefiles.MOST_FILES + 10):
        (tmp_path / f"{number:04}").write_text(str(number))
    found = codefiles.describe(str(tmp_path), "/nowhere")
    assert (len(found["hashes"]), found["complete"]) == (codefiles.MOST_FILES, False)
    assert codefiles.differences(found, found, "code", exact=False) == []
    assert "too many files" in codefiles.differences(found, found, "code", exact=True)[0]
