"""The pure parts of the SDK: steps, marks, identities, names, images, histograms, copies."""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from shoal.sdk import identity, media, staging, values
from shoal.sdk.points import Done, Mark, Points, Said

NAN, INF = math.nan, math.inf


def folded(entries: list[Any]) -> dict[str, list[tuple[int, float]]]:
    """name -> (step, value) of entries, in one go."""
    points = Points()
    points.add(entries)
    found: dict[str, list[tuple[int, float]]] = {}
    for groups, _ in points.frames():
        for group in groups:
            for name, column in zip(group.names, group.values, strict=True):
                found.setdefault(name, []).extend(zip(group.steps, column, strict=True))
    return {name: sorted(pairs) for name, pairs in found.items()}


def counted(*calls: Any) -> dict[str, list[int]]:
    """name -> steps of calls; a call is a text of names, or a pair of it and a step."""
    entries = []
    for number, call in enumerate(calls):
        names, step = call if isinstance(call, tuple) else (call, None)
        entries.append((float(number), step, dict.fromkeys(names, 0.0)))
    return {name: [step for step, _ in pairs] for name, pairs in folded(entries).items()}


STEPS = {
    "calls without a step are counted": (["a", "a", "a"], {"a": [0, 1, 2]}),
    "names that are logged together count together": (["ab", "ab"], {"a": [0, 1], "b": [0, 1]}),
    "each name counts by itself": (["a", "a", "b"], {"a": [0, 1], "b": [0]}),
    "names that part keep their counts": (["ab", "a", "ab"], {"a": [0, 1, 2], "b": [0, 1]}),
    "a name that joins later begins at 0": (["a", "a", "ab", "ab"], {"a": [0, 1, 2, 3], "b": [0, 1]}),
    "the order of names means nothing": (["ab", "ba"], {"a": [0, 1], "b": [0, 1]}),
    "three groups cross": (["ab", "bc", "ca"], {"a": [0, 1], "b": [0, 1], "c": [0, 1]}),
    "steps that are given are kept, also backwards": ([("a", 7), ("a", 3)], {"a": [3, 7]}),
    "counting goes on after a step that was given": ([("a", 7), "a", "a"], {"a": [7, 8, 9]}),
    "so it does for names apart": (["ab", "a", ("a", 9), "ab"], {"a": [0, 1, 9, 10], "b": [0, 1]}),
    "negative steps are steps": ([("a", -1)], {"a": [-1]}),
    "a call without names is nothing": (["", "a"], {"a": [0]}),
}


@pytest.mark.parametrize(("calls", "expected"), STEPS.values(), ids=STEPS)
def test_steps(calls: list[Any], expected: dict[str, list[int]]) -> None:
    assert counted(*calls) == expected


def test_steps_are_the_same_however_calls_are_cut_into_batches() -> None:
    calls = [
        (float(number), None, dict.fromkeys(names, 0.0)) for number, names in enumerate(["ab", "a", "abc", "c"] * 9)
    ]
    whole = folded(calls)
    points = Points()
    found: dict[str, list[tuple[int, float]]] = {}
    for call in calls:
        points.add([call])
        for groups, _ in points.frames():
            for group in groups:
                for name, column in zip(group.names, group.values, strict=True):
                    found.setdefault(name, []).extend(zip(group.steps, column, strict=True))
    assert {name: sorted(pairs) for name, pairs in found.items()} == whole


def test_numbers_that_no_float_or_step_can_hold() -> None:
    found = folded([(0.0, 2**80, {"a": 10**400, "b": -(10**400)}), (0.0, -(2**80), {"a": 1, "b": 2})])
    assert found["a"] == [(-(2**63), 1.0), (2**63 - 1, INF)]
    assert found["b"][1][1] == -INF


def test_wide_calls_become_groups_that_fit() -> None:
    names = [f"{number:05d}-" + "x" * 90 for number in range(3000)]
    entries = [(float(row), row, dict.fromkeys(names, float(row))) for row in range(300)]
    points = Points()
    points.add(entries)
    frames = list(points.frames())
    assert len(frames) > 1
    assert all(sum(len(name) + 1 for name in group.names) < 65536 for groups, _ in frames for group in groups)
    assert sum(len(group.times) * len(group.names) for groups, _ in frames for group in groups) == 900_000


def mark(entered: float | None = None) -> Mark:
    made = Mark(None, None, None)
    made.entered = entered
    return made


ONE = {"loss": 1.0}
MARKS: dict[str, tuple[list[Any], dict[str, list[tuple[int, float]]]]] = {
    "the first mark knows no time": ([(5.0, None, mark())], {}),
    "from mark to mark": ([(5.0, None, mark()), (7.0, None, mark())], {"shoal/step_time": [(1, 2.0)]}),
    "busy from the first call after the mark before": (
        [(5.0, None, mark()), (6.0, None, ONE), (6.5, None, ONE), (9.0, None, mark())],
        {"shoal/step_time": [(1, 4.0)], "shoal/step_busy": [(1, 3.0)], "loss": [(0, 1.0), (1, 1.0)]},
    ),
    "an event is a call too": (
        [(5.0, None, mark()), (6.0, None, Said("tag", b"")), (9.0, None, mark())],
        {"shoal/step_time": [(1, 4.0)], "shoal/step_busy": [(1, 3.0)]},
    ),
    "a block is measured from its begin": (
        [(5.0, None, mark(5.0)), (7.0, None, Done(5.0)), (8.0, None, mark(8.0)), (9.5, None, Done(8.0))],
        {"shoal/step_busy": [(0, 2.0), (1, 1.5)], "shoal/step_time": [(1, 2.5)]},
    ),
    "a number that is given is the step": (
        [(5.0, 40, mark()), (7.0, 41, mark()), (8.0, None, mark())],
        {"shoal/step_time": [(41, 2.0), (42, 1.0)]},
    ),
    "a clock that is set back tells nothing": ([(5.0, None, mark()), (4.0, None, mark())], {}),
}


@pytest.mark.parametrize(("entries", "expected"), MARKS.values(), ids=MARKS)
def test_marks_of_steps(entries: list[Any], expected: dict[str, list[tuple[int, float]]]) -> None:
    assert folded(entries) == expected


REPLICA = {
    "SHOAL_STREAMS": "/try/streams",
    "SHOAL_EXPERIMENT": "e7k2m9",
    "SHOAL_REPLICA": "worker-1",
    "SHOAL_ROLE": "worker",
    "SHOAL_INDEX": "1",
    "SHOAL_ATTEMPT": "2",
    "SHOAL_TRY": "3",
    "SHOAL_CLUSTER_SPEC": '{"master": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}',
}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1", "GROUP_RANK": "1", "RANK": "3"}
TORCHRUN |= {"LOCAL_RANK": "1", "WORLD_SIZE": "4"}
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2"}

IDENTITIES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "a plain script": ({}, {"starter": "plain", "replica": "master-0", "rank": 0, "world": None}),
    "a replica, its rank from its place in the cluster": (
        REPLICA,
        {"starter": "shoal", "replica": "worker-1", "rank": 2, "world": 3, "attempt": 2, "try_": 3, "process": 0},
    ),
    "parameter servers come last": (
        {**REPLICA, "SHOAL_ROLE": "ps", "SHOAL_INDEX": "0", "SHOAL_REPLICA": "ps-0"},
        {"rank": 3, "world": 3},
    ),
    "a process of torchrun in a replica": (
        {**REPLICA, **TORCHRUN},
        {"starter": "shoal", "replica": "worker-1", "rank": 3, "process": 1, "world": 4, "restart": 1, "attempt": 2},
    ),
    "a process of torchrun alone": (
        TORCHRUN,
        {"starter": "torchrun", "replica": "worker-1", "rank": 3, "process": 1, "attempt": 1, "world": 4},
    ),
    "a task of a Slurm step": (
        {**SLURM, "SLURM_NTASKS": "8", "SLURM_RESTART_COUNT": "2"},
        {"starter": "slurm", "replica": "worker-2", "rank": 5, "process": 1, "attempt": 2, "world": 8},
    ),
    "a batch script of Slurm is a plain script": (
        {**SLURM, "SLURM_STEP_ID": ""},
        {"starter": "plain", "replica": "master-0", "rank": 0},
    ),
    "variables that are no numbers": ({"RANK": "first", "LOCAL_RANK": ""}, {"rank": 0, "process": 0}),
    "a cluster spec that is none": ({**REPLICA, "SHOAL_CLUSTER_SPEC": "["}, {"rank": 0, "world": None}),
}


@pytest.mark.parametrize(("env", "expected"), IDENTITIES.values(), ids=IDENTITIES)
def test_identity(env: dict[str, str], expected: dict[str, Any]) -> None:
    found = identity.identify(env)._asdict()
    assert {key: found[key] for key in expected} == expected


PLAIN: dict[str, tuple[Any, Any]] = {
    "NaN is a text": ({"a": NAN, "b": [INF, -INF]}, {"a": "NaN", "b": ["Infinity", "-Infinity"]}),
    "keys are texts": ({1: {2.5: None}}, {"1": {"2.5": None}}),
    "what is unknown is its text": ({"path": Path("/a")}, {"path": "/a"}),
    "tuples and sets are lists": ((1, {2}), [1, [2]]),
}


@pytest.mark.parametrize(("value", "expected"), PLAIN.values(), ids=PLAIN)
def test_json_of_anything(value: Any, expected: Any) -> None:
    assert values.plain(value) == expected
    json.dumps(values.plain(value), allow_nan=False)


NAMES = {
    "NUL is left out": ("a\0b", "ab"),
    "numbers are names": (7, "7"),
    "no name is a name": ("", "_"),
    "a long one is cut between characters": ("é" * 600, "é" * 500),
    "half a character is replaced": ("a\ud800", "a?"),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.values(), ids=NAMES)
def test_names(name: Any, expected: str) -> None:
    assert values.clean_name(name) == expected


def unpacked(png: bytes) -> tuple[int, int, int, bytes]:
    """width, height, kind of colour and raw rows of a PNG, read by the letter of its format."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, parts = 8, {}
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        assert struct.unpack(">I", png[place + 8 + length : place + 12 + length])[0] == zlib.crc32(kind + body)
        parts[kind] = body
        place += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert depth == 8
    return width, height, colour, zlib.decompress(parts[b"IDAT"])


def test_a_png_holds_its_pixels() -> None:
    pixels = bytes(range(24))
    width, height, colour, rows = unpacked(media.png(2, 3, 4, pixels))
    assert (width, height, colour) == (2, 3, 6)
    assert rows == b"\0" + pixels[:8] + b"\0" + pixels[8:16] + b"\0" + pixels[16:]


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08\x00\x07\x00\x09\x01\x01\x11\x00"
FILES = {
    "PNG": (media.png(3, 2, 3, bytes(18)), ("png", 3, 2)),
    "JPEG": (JPEG, ("jpeg", 9, 7)),
    "GIF": (b"GIF89a\x05\x00\x04\x00", ("gif", 5, 4)),
}


@pytest.mark.parametrize(("content", "expected"), FILES.values(), ids=FILES)
def test_size_of_an_image_file(content: bytes, expected: Any) -> None:
    found = media.picture(content)
    assert (found.format, found.width, found.height) == expected


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG", b"\xff\xd8\xff"], ids=["empty", "text", "torn", "cut"])
def test_what_is_no_image_is_an_error_or_has_no_size(content: bytes) -> None:
    if content.startswith(b"\xff\xd8"):
        assert media.picture(content).width is None
    else:
        with pytest.raises(ValueError, match="not an image"):
            media.picture(content)


def test_a_histogram_counts_every_finite_value() -> None:
    edges, counts = media.histogram([1, 2, 2, 5, NAN, INF], 4)
    assert (edges, counts) == ([1.0, 2.0, 3.0, 4.0, 5.0], [1, 2, 0, 1])
    assert media.histogram([3.0], 2) == ([2.5, 3.0, 3.5], [0, 1])
    assert media.histogram([], 2) == ([0.0, 0.5, 1.0], [0, 0])


def test_a_directory_is_copied_with_what_its_links_lead_to(tmp_path: Path) -> None:
    source = tmp_path / "model"
    (source / "part").mkdir(parents=True)
    (source / "part" / "a.bin").write_bytes(b"a" * 100_000)
    (source / "empty").write_bytes(b"")
    (source / "link").symlink_to(source / "part")
    (source / "part" / "up").symlink_to(source)
    (source / "gone").symlink_to(tmp_path / "nowhere")
    staged = staging.stage(str(source), str(tmp_path / "files"), "s-1")
    assert [(file["path"], file["size"]) for file in staged] == [
        ("empty", 0),
        ("link/a.bin", 100_000),
        ("part/a.bin", 100_000),
    ]
    for file in staged:
        assert (tmp_path / "files" / file["staged"]).read_bytes() == (source / file["path"]).read_bytes()


def test_a_missing_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        staging.stage(str(tmp_path / "nowhere"), str(tmp_path / "files"), "s-1")
    assert not (tmp_path / "files").exists()
