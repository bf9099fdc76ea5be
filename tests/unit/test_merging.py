from __future__ import annotations

import pytest

from shoal.errors import FileProblems, UsageError
from tests.fixtures import BASE, read


def test_files_are_merged_left_to_right() -> None:
    document = read(
        BASE + "params: {lr: 0.1, model: {depth: 3, width: 4}}\ntags: [a, b]\n",
        "params: {model: {depth: 5}}\ntags: [c]\nframework: pytorch\n",
        "environment: {replicas: {n_workers: 1}}\n",
    )
    assert document.spec.params == {"lr": 0.1, "model": {"depth": 5, "width": 4}}
    assert document.spec.tags == ("c",)
    assert document.spec.environment.replicas.n_workers == 1


def test_files_of_different_spellings_merge() -> None:
    document = read(
        BASE + "environment: {tensorflow: {n_workers: 3, n_ps: 1}}\n",
        "environment: {replicas: {n_workers: 5}, worker_resources: [{index: 4, cpu: {requests: 1}}]}\n",
    )
    replicas = document.spec.environment.replicas
    assert (document.spec.framework, replicas.n_workers, replicas.n_ps) == ("tensorflow", 5, 1)
    assert [entry.index for entry in replicas.worker] == [4]


def test_an_error_names_the_file_it_came_from() -> None:
    with pytest.raises(FileProblems) as raised:
        read(BASE + "tags: 3\n", "# second\nframework: pytroch\n")
    assert [str(problem.where) for problem in raised.value.problems] == ["a.yml:4:7", "b.yml:2:12"]


def test_an_error_that_only_the_merge_has_points_at_the_culprit() -> None:
    with pytest.raises(FileProblems) as raised:
        read(BASE + "framework: tensorflow\nenvironment: {replicas: {n_workers: 2, n_ps: 1}}\n", "framework: jax\n")
    assert [problem.line() for problem in raised.value.problems] == [
        "a.yml:5:40: environment.replicas.n_ps: JAX has no parameter servers"
    ]


def test_all_unreadable_files_are_reported() -> None:
    with pytest.raises(FileProblems) as raised:
        read("a: b: c", "- 1", BASE)
    assert [problem.where.file for problem in raised.value.problems if problem.where] == ["a.yml", "b.yml"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("lr=0.2", 0.2),
        ("lr=1e-4", 0.0001),
        ("lr=fast", "fast"),
        ("lr='1'", "1"),
        ("lr=[1, 2]", (1, 2)),
        ("lr=a=b", "a=b"),
        ("lr=", ""),
        ("lr=no", "no"),
    ],
)
def test_overrides_are_typed_as_yaml(override: str, expected: object) -> None:
    assert read(BASE + "params: {lr: 0.1}\n", params=(override,)).spec.params == {"lr": expected}


def test_an_override_may_go_deep() -> None:
    document = read(BASE + "params: {model: {depth: 3, width: 4}}\n", params=("model.depth=5",))
    assert document.spec.params == {"model": {"depth": 5, "width": 4}}


def test_an_override_of_a_name_the_file_does_not_have_is_a_warning() -> None:
    document = read(BASE + "params: {lr: 0.1}\n", params=("lrr=0.2",))
    assert [warning.line() for warning in document.warnings] == ["-P lrr=0.2: params.lrr: a new param"]
    assert document.warnings[0].hint == "the file's params: lr"


@pytest.mark.parametrize("override", ["lr", "=1", "a b=1", "lr=[1", "lr={{"])
def test_a_malformed_override_is_wrong_use(override: str) -> None:
    with pytest.raises(UsageError, match="-P"):
        read(BASE, params=(override,))
