"""Errors of the types, in words: what is wrong, the valid choices nearest first, one hint."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from shoal.errors import Problem
from shoal.spec.older import FLAT, SECTIONS
from shoal.spec.overrides import REPLICAS
from shoal.spec.tree import Node, Path, dotted
from shoal.spec.types import Spec, shown

# Words that other formats use for what has a name here.
ELSEWHERE: dict[str, str] = {
    **{old: f"environment.replicas.{new}" for old, (new, _) in FLAT.items()},
    **dict.fromkeys(SECTIONS, "environment.replicas"),
    "image": "build.image",
    "cmd": "run.cmd",
    "command": "run.cmd",
    "env": "environment.env_vars",
    "worker_count": "environment.replicas.n_workers",
    "num_workers": "environment.replicas.n_workers",
    "nodeSelector": "environment.node_selector",
    "max_restarts": "restart.max",
}


def problems(error: ValidationError, root: Node, already: set[Path]) -> Iterator[Problem]:
    """The errors of one validation, each at its place; paths in `already` have been reported."""
    for entry in error.errors(include_url=False):
        about_key = "[key]" in entry["loc"]
        path = _path(entry["loc"])
        if path in already:
            continue
        kind, value, context = entry["type"], entry["input"], entry.get("ctx", {})
        node = root.get(*path)
        where = root.locate(path)
        if node is not None and (about_key or kind == "extra_forbidden"):
            where = node.name_where
        message, hint = _words(kind, path, value, context, entry["msg"])
        hint = hint or _description(path)
        if value == "...":
            hint = "`...` stands for something left out: put that here, or remove the line"
        yield Problem(message, path=dotted(path), where=where, hint=hint)


def without_faults(error: ValidationError, root: Node) -> Node:
    """The tree without what the types refused, so that the rules can judge the rest.

    A framework that is not known becomes none; a list with a fault in it goes whole, as its other indices would shift.
    """
    for entry in error.errors(include_url=False, include_input=False, include_context=False):
        path = _path(entry["loc"])
        if entry["type"] == "missing":
            path = path[:-1]
        numbers = [position for position, step in enumerate(path) if isinstance(step, int)]
        path = path[: numbers[0]] if numbers else path
        root = root.drop(*path) if path else root
        if path == ("framework",):
            root = root.put(path, Node("none", root.where))
        if path[:2] == REPLICAS and path[-1] in ("n_workers", "n_ps", "master"):
            for key in ("worker", "default_worker", "ps", "default_ps", "master"):
                root = root.drop(*REPLICAS, key)
    if root.get("run", "cmd") is None:
        root = root.put(("run",), Node({"cmd": Node("true", root.where)}, root.where))
    return root


def _path(location: tuple[str | int, ...]) -> Path:
    """pydantic's location without the marks that are not keys of the file (`<git>`, `[key]`)."""
    return tuple(step for step in location if not (isinstance(step, str) and step[:1] in ("<", "[")))


def _words(kind: str, path: Path, value: Any, context: dict[str, Any], fallback: str) -> tuple[str, str]:
    if kind == "shoal":
        return context["message"], context["hint"]
    if kind == "extra_forbidden":
        return _unknown_key(path)
    if kind == "missing":
        example = {"run": "run: {cmd: python train.py}", "cmd": "cmd: python train.py", "index": "index: 0"}
        return "missing", f"add {example.get(str(path[-1]), f'{path[-1]}: …')}"
    if kind == "literal_error":
        choices = _choices(context["expected"])
        near = nearest(str(value), choices)
        guess = f"did you mean {near[0]}? " if isinstance(value, str) and _alike(value, near[0]) else ""
        return f"{shown(value)} is not one of the choices", f"{guess}choices: {', '.join(near)}"
    expected = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "string_type": "text",
        "bool_type": "true or false",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "tuple_type": "a list",
        "list_type": "a list",
    }.get(kind)
    if expected is not None:
        return f"expected {expected}, not {shown(value)}", _reshape(kind, path, value)
    if kind in ("greater_than_equal", "less_than_equal", "less_than", "greater_than"):
        bound = next(v for k, v in context.items() if k in ("ge", "le", "lt", "gt"))
        words = {
            "greater_than_equal": "at least",
            "less_than_equal": "at most",
            "less_than": "less than",
            "greater_than": "more than",
        }
        return f"{value} is out of range", f"{words[kind]} {bound:,}"
    if kind == "string_too_short":
        return "empty", "give it a value, or remove the line"
    return fallback[:1].lower() + fallback[1:], ""


def _description(path: Path) -> str:
    """What the nearest key above a mistake means: the last hint, when there is no better one."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    key = str(path[-1]) if path else ""
    found = [model.model_fields[key].description for model in models_at(path[:-1]) if key in model.model_fields]
    return f"{key}: {found[0]}" if found else ""


def _reshape(kind: str, path: Path, value: Any) -> str:
    """How to write the same value in the form that is expected, where that can be guessed."""
    key = path[-1] if path else ""
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f'quote it: "{str(value).lower() if isinstance(value, bool) else value}"'
    if kind == "int_type" and isinstance(value, str) and value.strip().isdigit():
        return f"remove the quotes: {key}: {value.strip()}"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off"):
        return f"write {'true' if value.lower() in ('yes', 'on') else 'false'}"
    if kind == "tuple_type" and isinstance(value, str):
        items = ", ".join(part.strip() for part in value.split(","))
        return f"write {key}: [{items}]"
    if kind in ("model_type", "dict_type"):
        if key in ("cpu", "memory", "gpu"):
            return f"write {key}: {{requests: {value}, limits: {value}}}"
        if key == "run":
            return f"write run: {{cmd: {value}}}" if isinstance(value, str) else "write run: {cmd: python train.py}"
        keys = [name for model in models_at(path) for name in model.model_fields]
        return f"its keys: {', '.join(keys)}" if keys else f"write {key}: {{name: value}}"
    return ""


def _unknown_key(path: Path) -> tuple[str, str]:
    key, parent = str(path[-1]), path[:-1]
    valid = [name for model in models_at(parent) for name in model.model_fields]
    near = get_close_matches(key, valid, n=1, cutoff=0.75)
    homes = [home for home in _homes(key) if home != dotted(path)]
    if homes and not near:
        return "not a key here", f"it belongs at {homes[0]}" + (f" (or {homes[1]})" if homes[1:] else "")
    ordered = nearest(key, valid)
    guess = get_close_matches(key, valid, n=1)
    return "unknown key", (f"did you mean {guess[0]}? " if guess else "") + f"keys here: {', '.join(ordered)}"


def _homes(key: str) -> list[str]:
    """Where a key is valid, the shortest path first."""
    if key in ELSEWHERE:
        return [ELSEWHERE[key]]
    return [dotted(path) for path in _paths_of(key)]


def _paths_of(key: str, model: type[BaseModel] = Spec, path: Path = ()) -> list[Path]:
    found = [(*path, name) for name in model.model_fields if name == key]
    for name, field in model.model_fields.items():
        for below in _models_in(field.annotation):
            found += _paths_of(key, below, (*path, name))
    return sorted(dict.fromkeys(found), key=len)


def models_at(path: Path) -> list[type[BaseModel]]:
    """The models whose keys are valid below `path`."""
    models: list[type[BaseModel]] = [Spec]
    for step in path:
        if isinstance(step, str):
            models = [
                below
                for model in models
                if step in model.model_fields
                for below in _models_in(model.model_fields[step].annotation)
            ]
    return models


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models_in(part)]


def nearest(word: str, choices: Iterable[str]) -> list[str]:
    """The choices, the most similar first; those that are alike to no degree keep their order."""
    return sorted(choices, key=lambda choice: -_similarity(word, choice) if _alike(word, choice) else 0)


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.lower()).ratio()


def _alike(one: str, other: str) -> bool:
    return _similarity(one, other) >= 0.6


def _choices(expected: str) -> list[str]:
    """`'native' or 'kubeflow'`, as pydantic says it -> the words."""
    return [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]
