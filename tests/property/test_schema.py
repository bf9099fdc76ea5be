"""The JSON Schema accepts exactly what the types accept: on the fixtures, and on files that were tampered with."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from shoal import sources
from shoal.errors import FileProblems
from shoal.spec import Source, _as_text, _without_empty, load, older, reading, refusals
from shoal.spec.schema import json_schema
from shoal.spec.tree import Node
from shoal.spec.types import Spec
from tests.fixtures import RIGHT, WRONG
from tests.golden.test_plans import OLDER

# Wrong in ways a schema cannot say: two keys that must agree, a name in a template.
RULES_ONLY = {
    "data-at-one-place", "duplicate-index", "duplicate-keys", "master-settings-without-master", "unequal-trainers",
    "mxnet-without-scheduler", "replicas-without-framework", "requests-above-limits", "restart-one-of-pytorch",
    "servers-for-pytorch", "template-left-open", "template-that-calls", "unknown-param",
}  # fmt: skip
VALUES = [
    None,
    True,
    0,
    -1,
    3,
    2.5,
    float("inf"),
    "",
    "3",
    "x",
    "2Gi",
    "10m",
    "pytorch",
    "../x",
    "A B",
    "a\0b",
    "\\",
    (),
    ("a",),
    (1,),
    {},
    {"a": 1},
    {"index": 0},
]
KEYS = ["extra", "run", "n_ps", "resources", "index", "git", "uri", "dataset", "RANK", "A", "SHOAL_X", "requests"]


@cache
def validator() -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def arrays(value: Any) -> Any:
    """Sequences as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: arrays(item) for key, item in value.items()}
    return [arrays(item) for item in value] if isinstance(value, (tuple, list)) else value


def newest_spelling(path: Path) -> Any:
    return reading.parse(Source(path.name, sources.decode(path.read_bytes(), path.name)))[0].plain()


@pytest.mark.parametrize("path", [p for p in RIGHT if p.stem not in OLDER], ids=lambda path: path.stem)
def test_the_schema_accepts_what_is_right(path: Path) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in validator().iter_errors(arrays(newest_spelling(path)))]
    assert errors == []


def is_yaml(path: Path) -> bool:
    try:
        newest_spelling(path)
    except FileProblems:
        return False
    return True


@pytest.mark.parametrize(
    "path", [p for p in WRONG if p.stem not in RULES_ONLY and is_yaml(p)], ids=lambda path: path.stem
)
def test_the_schema_refuses_what_is_wrong(path: Path) -> None:
    assert not validator().is_valid(arrays(newest_spelling(path)))


def test_the_files_only_rules_refuse_are_right_by_their_types() -> None:
    for path in WRONG:
        if path.stem in RULES_ONLY:
            assert validator().is_valid(arrays(newest_spelling(path))), path.stem


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*path, key))
    if isinstance(value, tuple):
        for number, item in enumerate(value):
            found += places(item, (*path, number))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: replaced(item, path[1:], new) if key == path[0] else item for key, item in value.items()}
    return tuple(replaced(item, path[1:], new) if number == path[0] else item for number, item in enumerate(value))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_types_and_schema_agree_on_tampered_files(which: int, seed: int) -> None:
    rng = random.Random(seed)
    newest = [path for path in RIGHT if path.stem not in OLDER]
    data = newest_spelling(newest[which % len(newest)])
    for _ in range(rng.randint(1, 2)):
        spot = rng.choice(places(data)[1:])
        mapping = at(data, spot)
        if isinstance(mapping, dict) and rng.random() < 0.4:
            key = rng.choice([*KEYS, *mapping])
            changed = {k: v for k, v in mapping.items() if k != key}
            data = replaced(data, spot, changed if rng.random() < 0.5 else {**mapping, key: rng.choice(VALUES)})
        else:
            data = replaced(data, spot, rng.choice(VALUES))
    by_types = accepted(data)
    by_schema = validator().is_valid(arrays(data))
    assert by_types == by_schema, data


def accepted(data: Any) -> bool:
    """Whether the types take it: what `interpret` does between reading and rules, without templates."""
    root = as_node(data)
    root = _as_text(root)
    root, empty = _without_empty(root)
    if empty:
        return False
    try:
        Spec.model_validate(root.plain())
    except ValidationError:
        return False
    return True


def as_node(data: Any) -> Node:
    from shoal.errors import Where

    where = Where("a.yml", 1, 1)
    if isinstance(data, dict):
        return Node({key: as_node(item) for key, item in data.items()}, where)
    if isinstance(data, tuple):
        return Node(tuple(as_node(item) for item in data), where)
    return Node(data, where, text=str(data))


def test_every_key_has_a_description_and_says_its_default() -> None:
    schema = json_schema()
    for name, definition in {"Spec": schema, **schema["$defs"]}.items():
        properties = definition.get("properties") or definition["anyOf"][1]["properties"]
        required = definition.get("required", [])
        for key, entry in properties.items():
            description = entry.get("description") or schema["$defs"][entry["$ref"].rpartition("/")[2]]["description"]
            assert key in required or "default" in entry or "Default:" in description, f"{name}.{key}"


def test_older_spellings_are_not_in_the_schema() -> None:
    for path in RIGHT:
        if path.stem in OLDER:
            root, _ = reading.parse(Source(path.name, path.read_text()))
            assert not validator().is_valid(arrays(root.plain())), path.stem
            assert older.rewrite(root)[1].warnings
            assert refusals.another_kind(root) is None


def test_a_file_of_every_key_is_among_the_fixtures() -> None:
    """everything.yml holds each key of the types at least once, so the goldens cover them all."""
    from tests.property.keys import keys_of_types

    text = next(path for path in RIGHT if path.stem == "everything").read_text()
    others = "".join(path.read_text() for path in RIGHT)
    missing = {key for key in keys_of_types() if key not in text and f"{key}:" not in others}
    assert missing == set()
    assert load([str(next(path for path in RIGHT if path.stem == "everything"))]).spec.name == "cifar-ddp"
