from __future__ import annotations

import math
from typing import Any

import pytest

from shoal import sources
from shoal.errors import FileProblems, UsageError
from shoal.spec import Source, load, reading
from tests.fixtures import BASE, read


def value(text: str) -> Any:
    root, _ = reading.parse(Source("a.yml", f"key: {text}\n"))
    return root.plain()["key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("1E+3", 1000.0),
        (".5", 0.5),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("0o17", 15),
        ("0x1F", 31),
        ("010", 10),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("12:30:45", "12:30:45"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("-.inf", -math.inf),
        ("[1, a, {b: c}]", (1, "a", {"b": "c"})),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, expected: object) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_nan_is_a_float() -> None:
    assert math.isnan(value(".nan"))


def test_anchors_and_merge_keys() -> None:
    root, problems = reading.parse(
        Source("a.yml", "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: *a\n? &k key\n: *k\n")
    )
    assert problems == []
    assert root.plain()["c"] == {"x": 3, "y": 1, "z": 2}
    assert root.plain()["d"] == {"x": 1, "y": 1}
    assert root.plain()["key"] == "key"


def test_a_merged_key_is_located_where_it_was_written() -> None:
    with pytest.raises(FileProblems) as raised:
        read(BASE + "params: &p\n  n_workers: -1\nframework: tensorflow\nenvironment:\n  replicas:\n    <<: *p\n")
    assert [str(problem.where) for problem in raised.value.problems] == ["a.yml:5:14"]


def test_every_duplicate_is_reported_with_both_places() -> None:
    with pytest.raises(FileProblems) as raised:
        read("version: 1\nversion: 1\nrun: {cmd: x, cmd: y}\nname: 7\n")
    assert [problem.line() for problem in raised.value.problems] == [
        "a.yml:2:1: `version` is given twice, here and in line 1",
        "a.yml:3:15: `cmd` is given twice, here and in line 3",
        "a.yml:4:7: name: a name is text, not 7",
    ]


def test_a_closing_ellipsis_is_fine() -> None:
    assert read(BASE + "...\n").spec.run.cmd == "python train.py"
    assert read(BASE + "...\n# the end\n").spec.run.cmd == "python train.py"


def test_an_ellipsis_inside_a_command_is_text() -> None:
    assert read("run:\n  cmd: |\n    echo start\n    ...\n    echo end\n").spec.run.cmd == "echo start\n...\necho end"


def test_json_with_tabs_is_read() -> None:
    assert read('{\n\t"version": 1,\n\t"run": {"cmd": "x"}\n}').spec.run.cmd == "x"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x" * (sources.LARGEST_FILE + 1), "larger than 256 KiB"),
        (b"\xfe\xff\x00v", "UTF-16"),
        (b"\x7fELF\x00\x01", "binary"),
        (b"name: \xe9", "byte 0xe9 is not UTF-8"),
    ],
)
def test_files_that_are_something_else(data: bytes, message: str) -> None:
    with pytest.raises(FileProblems, match=message):
        sources.decode(data, "a.yml")


def test_deep_nesting_is_one_error() -> None:
    with pytest.raises(FileProblems, match="nested deeper than 64 levels"):
        read("a: " + "[" * 100_000)


def test_a_long_number_is_one_error() -> None:
    with pytest.raises(FileProblems, match="too many digits"):
        read(BASE + f"params: {{n: {'9' * 5000}}}")


def test_a_control_character_is_located() -> None:
    with pytest.raises(FileProblems) as raised:
        read("version: 1\nname: a\x07b\n")
    assert str(raised.value.problems[0].where) == "a.yml:2:8"


class TestFinding:
    @pytest.mark.parametrize("name", sources.USUAL_NAMES)
    def test_a_directory_stands_for_the_usual_names(self, name, tmp_path) -> None:
        (tmp_path / name).write_text('{"run": {"cmd": "x"}}')
        assert load([str(tmp_path)]).spec.run.cmd == "x"

    def test_two_of_them_are_ambiguous(self, tmp_path) -> None:
        (tmp_path / "experiment.yml").write_text(BASE)
        (tmp_path / "polyaxonfile.yml").write_text(BASE)
        with pytest.raises(UsageError, match=r"more than one experiment file: experiment.yml, polyaxonfile.yml"):
            load([str(tmp_path)])

    def test_none_of_them_names_what_was_looked_for(self, tmp_path) -> None:
        with pytest.raises(UsageError, match="no experiment file here") as raised:
            load([str(tmp_path)])
        assert "polyaxonfile.json" in raised.value.problems[0].hint

    def test_a_misspelt_file_name_gets_the_nearest(self, tmp_path) -> None:
        (tmp_path / "train.yml").write_text(BASE)
        with pytest.raises(UsageError, match="no such file") as raised:
            load([str(tmp_path / "trian.yml")])
        assert "did you mean" in raised.value.problems[0].hint
        assert "train.yml" in raised.value.problems[0].hint
