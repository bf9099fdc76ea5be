"""Which checkpoint a restarted replica goes on from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal import journal
from shoal.journalfile import JournalFile
from shoal.launcher.checkpoints import Mark, choose, newest, resume_from


def mark(attempt: int, rank: int, step: int, path: str = "", process: int = 0, time: float = 0.0) -> Mark:
    return Mark(attempt, f"worker-{rank}", process, rank, time or step, step, path or f"{rank}/{step}")


CASES = {
    "nobody marked anything": ([], (), None),
    "rank 0 writes for all": ([mark(0, 0, 1), mark(0, 0, 2)], (), (2, {"worker-0": "0/2"}, "0/2")),
    "all ranks mark, and one is behind": (
        [mark(0, 0, 1), mark(0, 1, 1), mark(0, 0, 2)],
        (),
        (1, {"worker-0": "0/1", "worker-1": "1/1"}, "0/1"),
    ),
    "nothing is complete": ([mark(0, 0, 2), mark(0, 1, 1)], (), None),
    "the newest attempt counts although it got less far": (
        [mark(0, 0, 9), mark(1, 0, 3)],
        (),
        (3, {"worker-0": "0/3"}, "0/3"),
    ),
    "the newest attempt has nothing complete": (
        [mark(0, 0, 5), mark(0, 1, 5), mark(1, 0, 6), mark(1, 1, 7)],
        (),
        (5, {"worker-0": "0/5", "worker-1": "1/5"}, "0/5"),
    ),
    "a rank died before it marked anything in the newest attempt": (
        [mark(0, 0, 5), mark(0, 1, 5), mark(1, 0, 6)],
        (),
        (5, {"worker-0": "0/5", "worker-1": "1/5"}, "0/5"),
    ),
    "a path is gone": ([mark(0, 0, 1), mark(0, 0, 2)], ("0/2",), (1, {"worker-0": "0/1"}, "0/1")),
    "the path of one rank is gone": (
        [mark(0, 0, 1), mark(0, 1, 1), mark(0, 0, 2), mark(0, 1, 2)],
        ("1/2",),
        (1, {"worker-0": "0/1", "worker-1": "1/1"}, "0/1"),
    ),
    "all paths are gone": ([mark(0, 0, 1)], ("0/1",), None),
    "steps may go backwards, and the largest counts": ([mark(0, 0, 9, time=1), mark(0, 0, 3, time=2)], (), (9,)),
    "a step marked twice means the later": (
        [mark(0, 0, 1, "second", time=2), mark(0, 0, 1, "first", time=1)],
        (),
        (1, {"worker-0": "second"}, "second"),
    ),
    "of several processes of a replica the lowest rank": (
        [mark(0, 1, 1, "b", process=1), mark(0, 1, 1, "a", process=0), mark(0, 2, 1, "c")],
        (),
        (1, {"worker-1": "a", "worker-2": "c"}, "a"),
    ),
    "several processes of a replica, one behind": ([mark(0, 0, 1), mark(0, 0, 2), mark(0, 0, 1, process=1)], (), (1,)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_newest_complete_checkpoint_when(case: str) -> None:
    found, gone, expected = CASES[case]
    chosen = choose(found, lambda path: path not in gone)
    if expected is None:
        assert chosen is None
    else:
        assert chosen is not None
        assert tuple(chosen)[: len(expected)] == expected


def stream(experiment: Path, where: str, rank: int, process: int = 0) -> JournalFile:
    directory = experiment / where / "streams"
    directory.mkdir(parents=True, exist_ok=True)
    return JournalFile(str(directory), {"rank": rank, "process": process}, segment=1024)


def test_streams_of_all_starts_are_read_past_points_and_damage(tmp_path: Path) -> None:
    for step in range(4):
        (tmp_path / f"step-{step}").touch()
    written = stream(tmp_path, "attempt-0/worker-0/try-0", 0)
    points = [journal.Group(("loss",), [1.0] * 100, list(range(100)), [[0.5] * 100])]
    for step in range(4):
        written.points(points)
        written.event({"kind": "text", "name": "x", "time": 1.0})
        written.event({"kind": "checkpoint", "time": float(step), "path": str(tmp_path / f"step-{step}"), "step": step})
        written.points(points * 5)
    written.close()
    segments = sorted((tmp_path / "attempt-0/worker-0/try-0/streams").iterdir())
    assert len(segments) > 1
    assert resume_from(str(tmp_path), "worker-0") == str(tmp_path / "step-3")
    assert resume_from(str(tmp_path), "ps-0") == str(tmp_path / "step-3")
    first = segments[0].read_bytes()
    segments[0].write_bytes(b"\0" * 100 + first[100:])
    with segments[-1].open("ab") as torn:
        torn.write(journal.pack_json(journal.EVENT, 99, {"kind": "checkpoint", "path": str(tmp_path), "step": 9})[:-3])
    assert resume_from(str(tmp_path), "worker-0") == str(tmp_path / "step-3")


def test_a_later_try_adds_to_its_attempt_and_a_later_attempt_goes_first(tmp_path: Path) -> None:
    for where, step in (("attempt-0/worker-0/try-0", 1), ("attempt-0/worker-0/try-1", 2)):
        (tmp_path / f"{step}").touch()
        written = stream(tmp_path, where, 0)
        written.event({"kind": "checkpoint", "time": 1.0, "path": str(tmp_path / f"{step}"), "step": step})
        written.close()
    assert resume_from(str(tmp_path), "worker-0") == str(tmp_path / "2")
    (tmp_path / "0").touch()
    written = stream(tmp_path, "attempt-10/worker-0/try-0", 0)
    written.event({"kind": "checkpoint", "time": 1.0, "path": str(tmp_path / "0"), "step": 0})
    written.close()
    assert resume_from(str(tmp_path), "worker-0") == str(tmp_path / "0")


@pytest.mark.parametrize("event", [{"path": "", "step": 1}, {"path": "x"}, {"path": 3, "step": 1}, {"step": "1"}])
def test_what_is_no_checkpoint_is_passed_over(tmp_path: Path, event: dict[str, object]) -> None:
    written = stream(tmp_path, "attempt-0/worker-0/try-0", 0)
    written.event({"kind": "checkpoint", "time": 1.0, **event})
    written.close()
    assert newest(str(tmp_path)) is None


def test_an_experiment_that_continues_another_begins_there_until_it_has_its_own(tmp_path: Path) -> None:
    given = {"step": 7, "paths": {"worker-1": "/theirs/1"}, "otherwise": "/theirs/0"}
    (tmp_path / "resume.json").write_text(json.dumps(given))
    assert resume_from(str(tmp_path), "worker-1") == "/theirs/1"
    assert resume_from(str(tmp_path), "worker-5") == "/theirs/0"
    written = stream(tmp_path, "attempt-0/worker-0/try-0", 0)
    written.event({"kind": "checkpoint", "time": 1.0, "path": str(tmp_path), "step": 8})
    written.close()
    assert resume_from(str(tmp_path), "worker-1") == str(tmp_path)
