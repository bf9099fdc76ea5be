from __future__ import annotations

import pytest

from shoal.errors import FileProblems
from tests.fixtures import read

PARAMS = "params: {lr: 1e-3, name: adam, on: true, deep: {a: {b: 7}}, list: [5, 6], none: null}\n"


def render(command: str) -> str:
    return read(PARAMS + f"run:\n  cmd: '{command}'\n").spec.run.cmd


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("x {{ lr }}", "x 0.001"),
        ("x {{name}}", "x adam"),
        ("{{ deep.a.b }}", "7"),
        ("{{ list[0] }} {{ list[1] }}", "5 6"),
        ("{{ name | upper }}", "ADAM"),
        ("{{ list | join(':') }}".replace("'", "''"), "5:6"),
        ("{% if on %}--on{% endif %}", "--on"),
        ("{{ 1 if on else 2 }}", "1"),
        ("echo ${HOME} $RANK", "echo ${HOME} $RANK"),
        ("awk {print}", "awk {print}"),
    ],
)
def test_what_is_filled_in(template: str, expected: str) -> None:
    assert render(template) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ unknown }}",
        "{{ deep.c }}",
        "{{ list[9] }}",
        "{{ name.__class__ }}",
        "{{ name.upper() }}",
        "{{ range(9) }}",
        "{{ lr * 2 }}",
        "{{ name * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% for i in list %}x{% endfor %}",
        "{% set x = 1 %}",
        '{% include "x" %}',
        "{{ name | center(1000000000) }}",
        "{{ lr",
        "{% if on %}",
        "{{ 1 / 0 }}",
        "{{ name - 1 }}",
    ],
)
def test_what_is_refused_with_its_place(template: str) -> None:
    with pytest.raises(FileProblems) as raised:
        render(template)
    (problem, *_) = raised.value.problems
    assert problem.path == "run.cmd"
    assert problem.where is not None
    assert (problem.where.line, problem.where.column >= 8) == (3, True)


def test_templates_in_variables_and_data() -> None:
    spec = read(
        PARAMS + "run: {cmd: x}\nenvironment: {env_vars: {LR: '{{ lr }}'}}\ndata: [{dataset: 'd-{{ name }}@v1'}]\n"
    ).spec
    assert spec.environment.env_vars == {"LR": "0.001"}
    assert spec.data[0].dataset == "d-adam@v1"


def test_templates_elsewhere_are_text() -> None:
    assert read(PARAMS + "run: {cmd: x}\ndescription: 'about {{ lr }}'\n").spec.description == "about {{ lr }}"


def test_all_unknown_names_are_reported() -> None:
    with pytest.raises(FileProblems) as raised:
        read(PARAMS + "run:\n  cmd:\n    - a {{ one }}\n    - b {{ two }} {{ three }}\n")
    assert [(p.where.line, p.message) for p in raised.value.problems if p.where] == [
        (4, "`one` is not a param"),
        (5, "`two` is not a param"),
        (5, "`three` is not a param"),
    ]
