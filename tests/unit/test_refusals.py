from __future__ import annotations

import pytest

from shoal.errors import FileProblems
from shoal.spec import refusals
from shoal.spec.tree import dotted
from tests.fixtures import BASE, read


@pytest.mark.parametrize("kind", refusals.KINDS)
def test_other_kinds_get_one_error_with_the_way_to_say_it(kind: str) -> None:
    with pytest.raises(FileProblems) as raised:
        read(f"version: 1\nkind: {kind}\nwhatever: 1\n")
    (problem,) = raised.value.problems
    assert problem.line() == f"a.yml:2:7: kind: {kind} is not supported"
    assert problem.hint


@pytest.mark.parametrize("run_kind", [*refusals.RUN_KINDS, "job", "rayjob"])
def test_kinds_of_polyaxon_2(run_kind: str) -> None:
    with pytest.raises(FileProblems, match="Polyaxon 1 and 2"):
        read(f"run:\n  kind: {run_kind}\n")


@pytest.mark.parametrize("path", refusals.KEYS, ids=dotted)
def test_refused_keys_are_named_with_the_way_out(path: tuple[str, ...]) -> None:
    text = BASE.replace("run: {cmd: python train.py}\n", "") if path[0] == "run" else BASE
    lines = [f"{'  ' * depth}{key}:" for depth, key in enumerate(path)]
    lines[-1] += " {a: 1}"
    with pytest.raises(FileProblems) as raised:
        read(text + "\n".join(lines) + "\n")
    problem = next(p for p in raised.value.problems if p.path == dotted(path))
    assert problem.message.startswith("not supported: ")
    assert problem.hint


@pytest.mark.parametrize(("key", "value"), [("framework", "horovod"), ("backend", "mpi"), ("backend", "other")])
def test_refused_values(key: str, value: str) -> None:
    with pytest.raises(FileProblems) as raised:
        read(BASE + f"{key}: {value}\n")
    assert [problem.path for problem in raised.value.problems] == [key]
    assert raised.value.problems[0].hint.startswith("use ")


def test_a_section_of_horovod_is_refused_by_its_name() -> None:
    with pytest.raises(FileProblems) as raised:
        read(BASE + "environment:\n  horovod:\n    n_workers: 2\n")
    assert [problem.line() for problem in raised.value.problems] == [
        "a.yml:5:3: framework: horovod is not supported: "
        "Horovod is started by mpirun over ssh, which Shoal does not set up"
    ]
