"""Outputs of a replica that shares no disk: carried, put where those of a laptop lie, none lost without a word."""

from __future__ import annotations

import errno
import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal.backends.kubernetes.carried import collect, judge, writers
from shoal.launcher.manifest import LOOK, SETTLED, Outputs
from shoal.launcher.shipping import OUTPUTS_IN_LOG, Away, Marks, Mirror, Refused, Shipper, outputs, stays_behind
from shoal.launcher.sinks import DirectorySink, StdoutSink, decode
from tests.launched import ran, start, try_directory


def filled(directory: Path, sizes: Mapping[str, int]) -> Path:
    for path, size in sizes.items():
        (directory / "outputs" / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / "outputs" / path).write_bytes(b"x" * size)
    return directory


def test_outputs_come_when_they_have_settled_or_at_the_end(tmp_path: Path) -> None:
    """A file that changes is taken back, and comes again."""
    directory, copy = filled(tmp_path / "try", {"a": 1, "worker-0/b": 2}), tmp_path / "copy"
    found = Outputs(str(directory), None)
    assert found.due(0.0, over=False) == []
    assert found.due(LOOK, over=False) == []
    (directory / "outputs" / "a").write_bytes(b"another")
    assert found.due(2 * LOOK, over=False) == []
    assert found.due(SETTLED, over=False) == ["outputs/worker-0/b"]
    assert found.due(SETTLED + 2 * LOOK, over=False) == ["outputs/worker-0/b", "outputs/a"]
    assert found.due(0.0, over=True) == ["outputs/worker-0/b", "outputs/a"]
    mirror = Mirror(str(directory), DirectorySink(str(copy)))
    mirror.carry()
    assert not (copy / "outputs").exists()
    (directory / "exit.json").write_text("{}")
    mirror.carry()
    assert sorted(judge(str(copy)).whole) == ["outputs/a", "outputs/worker-0/b"]


def test_little_is_left_at_the_end(tmp_path: Path) -> None:
    """What has settled is carried beside the command, a piece at a time while others wait for their turn."""
    directory, copy = filled(tmp_path / "try", {"model.pt": 5 << 20, "b": 10}), tmp_path / "copy"
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.2
        return now

    mirror = Mirror(str(directory), DirectorySink(str(copy)), clock=clock)
    mirror.carry()
    now += SETTLED
    looks = 1
    while mirror.carry():
        looks += 1
    assert looks > 3
    (directory / "outputs" / "last").write_bytes(b"y")
    (directory / "exit.json").write_text("{}")
    before = mirror.carried
    mirror.carry()
    assert mirror.carried - before < 1000
    assert sorted(judge(str(copy)).whole) == ["outputs/b", "outputs/last", "outputs/model.pt"]


def test_what_was_carried_and_changed_or_deleted_is_as_it_is_at_the_end(tmp_path: Path) -> None:
    directory, copy = filled(tmp_path / "try", {"changed": 5, "deleted": 5, "kept": 5}), tmp_path / "copy"
    (directory / "exit.json").write_text("{}")
    Mirror(str(directory), DirectorySink(str(copy))).carry()
    (directory / "outputs" / "changed").write_bytes(b"shorter"[:3])
    (directory / "outputs" / "deleted").unlink()
    again = Mirror(str(directory), DirectorySink(str(copy)))
    again.carry()
    assert again.carried < 3 + 600, "what is whole is not sent again"
    assert tree(copy / "outputs") == {"changed": "sho", "kept": "xxxxx"}
    found = judge(str(copy))
    assert (sorted(found.whole), found.missing) == (["outputs/changed", "outputs/kept"], {})


def test_a_log_takes_the_small_ones_and_says_which_stay(tmp_path: Path) -> None:
    filled(
        tmp_path, {"small": 10, "half": OUTPUTS_IN_LOG - 10, "one more": OUTPUTS_IN_LOG, "large": 5 * OUTPUTS_IN_LOG}
    )
    taken, left = outputs(str(tmp_path), OUTPUTS_IN_LOG)
    assert (sorted(taken), sorted(left)) == (["outputs/half", "outputs/small"], ["outputs/large", "outputs/one more"])
    said = stays_behind(str(tmp_path), {"SHOAL_SINK": "stdout:"})
    assert said.startswith("shoal: 2 outputs of 6.0 MiB stay behind (large, one more): the log takes 1 MiB;")
    assert stays_behind(str(tmp_path), {"SHOAL_SINK": "https://host"}) == ""


def test_a_sink_gets_outputs_as_they_are_at_the_end(tmp_path: Path) -> None:
    command = "cd $(dirname $SHOAL_STREAMS); mkdir outputs; echo 1 > outputs/x; echo 23 > outputs/x"
    ran(tmp_path, command, SHOAL_SINK=f"directory:{tmp_path / 'sink'}")
    assert (try_directory(tmp_path / "sink") / "outputs" / "x").read_text() == "23\n"


class Nobody:
    """A sink that took some, and was never seen again."""

    def __init__(self, held: Mapping[str, int]) -> None:
        self.held = held
        self.asked = 0

    def watermarks(self) -> Marks:
        self.asked += 1
        if self.asked > 1:
            raise Away("it is away")
        return Marks(self.held, {})

    def put(self, path: str, offset: int, data: bytes) -> int:
        raise Away("it is away")

    def delete(self, path: str) -> None:
        raise Away("it is away")

    def close(self, sizes: Mapping[str, int]) -> None:
        raise AssertionError("it is away")


def test_what_a_server_does_not_come_back_for_is_left_in_the_log(tmp_path: Path) -> None:
    directory, copy = tmp_path / "try", tmp_path / "copy"
    (directory / "log").mkdir(parents=True)
    (directory / "log" / "000000").write_bytes(b"the first part, the second part")
    filled(directory, {"x": 100, "large": 2 * OUTPUTS_IN_LOG})
    (directory / "files").mkdir()
    (directory / "files" / "model").write_bytes(b"x" * 2 * OUTPUTS_IN_LOG)
    (directory / "exit.json").write_text('{"exit_code": 0}')
    (copy / "log").mkdir(parents=True)
    (copy / "log" / "000000").write_bytes(b"the first part,")
    text = tmp_path / "printed"
    with text.open("wb") as printed:
        shipper = Shipper(Mirror(str(directory), Nobody({"log/000000": 15})), 0.1, StdoutSink(printed.fileno()))
        with pytest.raises(Exception, match=r"files/model: too large for a log"):
            shipper.finish()
    found = decode(text.read_text().splitlines(keepends=True), str(copy))
    assert (copy / "log" / "000000").read_bytes() == b"the first part, the second part"
    assert (copy / "exit.json").exists()
    assert (copy / "outputs" / "x").stat().st_size == 100
    assert not (copy / "outputs" / "large").exists()
    assert found.gaps == []
    assert judge(str(copy)) == (
        ["outputs/x"], {"outputs/large": "too large for a log", "files/model": "too large for a log"}, 0,
    )  # fmt: skip


class Leaves(DirectorySink):
    """A server that goes for good after some pieces."""

    def __init__(self, directory: Path, pieces: int) -> None:
        super().__init__(str(directory))
        self.pieces = pieces

    def watermarks(self) -> Marks:
        self._stay()
        return super().watermarks()

    def put(self, path: str, offset: int, data: bytes) -> int:
        self._stay()
        self.pieces -= 1
        return super().put(path, offset, data)

    def _stay(self) -> None:
        if not self.pieces:
            raise Away("it is away")


@pytest.mark.parametrize("pieces", range(2, 9))
def test_a_server_that_leaves_at_any_piece_leaves_whole_files_or_names(tmp_path: Path, pieces: int) -> None:
    directory, copy = tmp_path / "try", tmp_path / "copy"
    contents = {"outputs/a": b"a" * 100, "outputs/model.pt": random.Random(3).randbytes(5 << 20)}
    filled(directory, {})
    for path, data in contents.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    (directory / "exit.json").write_text('{"exit_code": 0}')
    text = tmp_path / "printed"
    with text.open("wb") as printed:
        shipper = Shipper(Mirror(str(directory), Leaves(copy, pieces)), 0.1, StdoutSink(printed.fileno()))
        told = ""
        try:
            shipper.finish()
        except Refused as error:
            told = str(error)
    decode(text.read_text().splitlines(keepends=True), str(copy))
    found = judge(str(copy))
    assert (copy / "exit.json").exists()
    assert {path for path in contents if path not in found.whole} == set(found.missing), "nothing is lost untold"
    assert bool(found.missing) == bool(told) == ("model.pt" in told)
    target = tmp_path / "outputs"
    collect(str(copy), str(target), "worker-0", found.whole)
    for path in found.whole:
        assert (tmp_path / path).read_bytes() == contents[path]
    assert {f"outputs/{path.name}" for path in target.iterdir()} == set(found.whole)
    if found.missing:
        assert str(found) == "1 output did not arrive: model.pt (too large for a log)"


def test_a_launcher_that_is_killed_in_between_leaves_the_names_of_what_was_to_come(tmp_path: Path) -> None:
    directory, copy = filled(tmp_path / "try", {"small": 10, "model.pt": 3 << 20, "x": 2 << 20}), tmp_path / "copy"
    (directory / "exit.json").write_text('{"exit_code": 0}')
    with pytest.raises(Away):
        Mirror(str(directory), Leaves(copy, 3)).carry()
    found = judge(str(copy))
    assert found.whole == [], "its launcher has not said so"
    assert found.missing == {
        "outputs/small": "10 bytes came",
        "outputs/x": "1048576 of 2097152 bytes came",
        "outputs/model.pt": "0 of 3145728 bytes came",
    }
    assert str(found).startswith("3 outputs did not arrive: model.pt (0 of 3145728 bytes came), small (10 bytes came)")
    again = Mirror(str(directory), DirectorySink(str(copy)))  # whoever carries the rest by hand
    again.carry()
    later = judge(str(copy), again=True)
    assert (sorted(later.whole), later.missing) == (["outputs/model.pt", "outputs/small", "outputs/x"], {})


def test_what_is_not_carried_when_the_time_is_over_stays_and_the_end_is_told(tmp_path: Path) -> None:
    directory, copy = filled(tmp_path / "try", {"a": 10}), tmp_path / "copy"
    (directory / "exit.json").write_text('{"exit_code": 0}')
    shipper = Shipper(Mirror(str(directory), DirectorySink(str(copy))))
    shipper.limit(0.0)
    with pytest.raises(Refused, match="outputs/a: there was no time left"):
        shipper.finish()
    assert (copy / "exit.json").exists()
    assert str(judge(str(copy))) == "1 output did not arrive: a (there was no time left)"


def test_links_and_pipes_are_told_by_name(tmp_path: Path) -> None:
    directory, copy = filled(tmp_path / "try", {"step-1": 10, "d/f": 1}), tmp_path / "copy"
    (directory / "outputs" / "latest").symlink_to("step-1")
    (directory / "outputs" / "all").symlink_to("d")
    os.mkfifo(directory / "outputs" / "pipe")
    (directory / "exit.json").write_text("{}")
    Mirror(str(directory), DirectorySink(str(copy))).carry()
    found = judge(str(copy))
    assert sorted(found.whole) == ["outputs/d/f", "outputs/step-1"]
    assert str(found) == "3 outputs did not arrive: all (a link to d), latest (a link to step-1), pipe (no plain file)"


def test_bytes_that_are_not_those_that_were_sent_do_not_count(tmp_path: Path) -> None:
    directory, copy = filled(tmp_path / "try", {"a": 10, "b": 10}), tmp_path / "copy"
    (directory / "exit.json").write_text("{}")
    Mirror(str(directory), DirectorySink(str(copy))).carry()
    (copy / "outputs" / "a").write_bytes(b"y" * 10)
    found = judge(str(copy))
    assert (found.whole, found.missing) == (["outputs/b"], {"outputs/a": "10 bytes came"})


def test_a_launcher_echoes_what_its_command_prints(tmp_path: Path) -> None:
    launcher = start(tmp_path, "echo out; echo err >&2", {"echo": True})
    assert launcher.communicate(timeout=60)[0] == b"out\n"


def test_a_command_that_cannot_be_started_says_why_and_has_an_exit_code(tmp_path: Path) -> None:
    directory = ran(tmp_path, "echo never", {"trouble": "the code could not be brought here"})
    assert (directory / "log" / "000000").read_text() == "shoal: the code could not be brought here\n"
    assert '"exit_code": 127' in (directory / "exit.json").read_text()


def collected(tmp_path: Path, replica: str, files: Mapping[str, str], attempt: int = 0) -> Path:
    place = tmp_path / f"attempt-{attempt}" / replica / "try-0"
    for path, text in files.items():
        (place / "outputs" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "outputs" / path).write_text(text)
    collect(str(place), str(tmp_path / "outputs"), replica, [f"outputs/{path}" for path in files])
    assert not (place / "outputs").exists()
    return tmp_path / "outputs"


def tree(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


def test_outputs_lie_as_on_a_laptop(tmp_path: Path) -> None:
    collected(tmp_path, "master-0", {"model.pt": "m", "master-0/own": "0"})
    place = collected(tmp_path, "worker-0", {"worker-0/deep/own": "1"})
    assert tree(place) == {"model.pt": "m", "master-0/own": "0", "worker-0/deep/own": "1"}
    collect(str(tmp_path / "attempt-0" / "worker-0" / "try-0"), str(place), "worker-0", [])  # a second time


def test_two_that_wrote_the_same_path_both_keep_their_copy(tmp_path: Path) -> None:
    collected(tmp_path, "master-0", {"result": "mine", "same": "the same"})
    place = collected(tmp_path, "worker-0", {"result": "no, mine", "same": "the same"})
    assert tree(place) == {"result": "mine", "worker-0/result": "no, mine", "same": "the same"}
    assert writers(str(place))["result"] == ["master-0", "worker-0"]


def test_a_later_attempt_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    collected(tmp_path, "master-0", {"x": "old", "file": "a file", "directory/y": "in a directory"})
    place = collected(tmp_path, "master-0", {"x": "new", "file/z": "a directory", "directory": "a file"}, attempt=1)
    assert tree(place) == {
        "x": "new", "file/z": "a directory", "file.1": "a file", "directory": "a file",
        "directory.1/y": "in a directory",
    }  # fmt: skip


def test_an_earlier_attempt_that_comes_late_takes_nobodys_place(tmp_path: Path) -> None:
    """Its node was lost, and came back when the next attempt was over: what it alone has is added."""
    place = collected(tmp_path, "master-0", {"x": "new", "file": "a file", "directory/y": "new"}, attempt=1)
    files = {"x": "old", "file/z": "a directory", "directory": "a file", "alone/w": "old", "master-0/own": "0"}
    late = tmp_path / "attempt-0" / "master-0" / "try-0"
    for path, text in files.items():
        (late / "outputs" / path).parent.mkdir(parents=True, exist_ok=True)
        (late / "outputs" / path).write_text(text)
    for _ in range(2):
        collect(str(late), str(place), "master-0", [f"outputs/{path}" for path in files], late=True)
    assert tree(place) == {
        "x": "new", "file": "a file", "directory/y": "new", "alone/w": "old", "master-0/own": "0",
    }  # fmt: skip
    assert tree(late / "outputs") == {"x": "old", "file/z": "a directory", "directory": "a file"}, "not lost, either"


class Full(DirectorySink):
    """A disk that is full for a while."""

    full = True

    def put(self, path: str, offset: int, data: bytes) -> int:
        if self.full and path.startswith("outputs/"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().put(path, offset, data)


@pytest.mark.parametrize("freed", [True, False])
def test_what_cannot_be_done_while_the_command_runs_is_tried_until_its_end(tmp_path: Path, freed: bool) -> None:
    directory, sink = filled(tmp_path / "try", {"a": 10}), Full(str(tmp_path / "copy"))
    now = 0.0
    mirror = Mirror(str(directory), sink, clock=lambda: now)
    mirror.carry()
    now += SETTLED
    mirror.carry()
    sink.full = not freed
    (directory / "exit.json").write_text('{"exit_code": 0}')
    mirror.carry()
    told = "" if freed else "1 output did not arrive: a (No space left on device)"
    assert str(judge(str(tmp_path / "copy"))) == told


def test_many_that_stay_are_not_looked_for_again_and_again(tmp_path: Path) -> None:
    """Somebody waits for the end: exit.json comes after them."""
    directory, copy = filled(tmp_path / "try", {f"{number}": 1 for number in range(50)}), tmp_path / "copy"
    (directory / "exit.json").write_text('{"exit_code": 0}')
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        return float(asked)

    mirror = Mirror(str(directory), DirectorySink(str(copy)), clock=clock)
    mirror.until = 0.0
    mirror.carry()
    assert len(judge(str(copy)).missing) == 50
    assert asked < 2 * 50, "the clock is asked once for each of them, and for each look at all"


def test_a_link_is_not_carried(tmp_path: Path) -> None:
    filled(tmp_path, {"a": 1})
    (tmp_path / "outputs" / "link").symlink_to("/etc/passwd")
    subprocess.run(["mkfifo", str(tmp_path / "outputs" / "pipe")], check=True)
    assert list(outputs(str(tmp_path), None)[0]) == ["outputs/a"]
