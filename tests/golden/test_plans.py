from __future__ import annotations

from pathlib import Path

import pytest

from shoal.errors import FileProblems, render
from shoal.plan import plan
from shoal.spec import Source, interpret, load
from tests import golden
from tests.fixtures import RIGHT, WRONG

SAME = [
    *[
        (f"{framework}-large-{spelling}", f"{framework}-large-newest")
        for framework in ("tensorflow", "pytorch", "mxnet")
        for spelling in (
            "section",
            "flat-in-section",
            "flat-in-environment",
            "flat-in-replicas",
            "framework-and-section",
        )
    ],
    ("older-words", "newer-words"),
]
OLDER = {older for older, _ in SAME}
PATHS = {path.stem: path for path in RIGHT}


@pytest.mark.parametrize("path", [p for p in RIGHT if p.stem not in OLDER], ids=lambda path: path.stem)
def test_a_file_means_this_plan(path: Path) -> None:
    document = load([str(path)])
    assert document.warnings == ()
    golden.check(f"plans/{path.stem}.json", plan(document.spec).json())


@pytest.mark.parametrize(("older", "newest"), SAME)
def test_an_older_spelling_means_the_same_and_warns(older: str, newest: str) -> None:
    document = load([str(PATHS[older])])
    assert plan(document.spec) == plan(load([str(PATHS[newest])]).spec)
    assert document.spec == load([str(PATHS[newest])]).spec
    text = render("warning", document.warnings).replace(str(PATHS[older]), PATHS[older].name)
    golden.check(f"warnings/{older}.txt", text + "\n")


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_every_error_of_a_wrong_file_has_a_place_and_a_hint(path: Path) -> None:
    """The texts themselves are compared through docs/reference/errors.md, which is made from these files."""
    with pytest.raises(FileProblems) as raised:
        load([str(path)])
    for problem in raised.value.problems:
        assert problem.hint
        assert problem.where is not None
        assert problem.where.file == str(path)
        assert problem.where.line > 0


def test_a_resolved_file_reads_back_to_the_same_spec() -> None:
    from shoal.spec.writing import to_yaml

    for path in RIGHT:
        document = load([str(path)])
        again = interpret([Source("again.yml", to_yaml(document.root.plain()))])
        assert again.spec == document.spec, path
        assert not [warning for warning in again.warnings if "older" in warning.message]
