"""The experiment file: text in, a frozen `Spec` out, with every mistake located.

    files ─read─▶ text ─parse─▶ tree ─rewrite older spellings─▶ tree ─merge, -P─▶ tree
          ─refuse by name─▶ tree ─fill {{ }}─▶ tree ─types, rules─▶ Spec

A problem never stops the search for others, as long as there is something left to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path as Directory

from pydantic import ValidationError

from shoal.errors import FileProblems, Problem, UsageError, Where
from shoal.sources import STANDARD_INPUT, Source, read
from shoal.spec import older, reading, refusals, rules, templates
from shoal.spec.tree import Node, Path, dotted, merge
from shoal.spec.types import Spec

__all__ = ["Document", "Source", "Spec", "interpret", "load"]

TEXT_MAPPINGS = ("env_vars", "node_selector", "labels", "annotations")
FREE_FORM = ("params", "affinity", "tolerations")


@dataclass(frozen=True)
class Document:
    """A valid experiment file: what it says, what is dated or doubtful in it, and where each key was written."""

    spec: Spec
    warnings: tuple[Problem, ...]
    root: Node
    files: tuple[str, ...]
    directory: Directory | None

    def where(self, path: Path) -> Where:
        return self.root.locate(path)


def load(files: Sequence[str], overrides: Sequence[str] = ()) -> Document:
    """Reads the named files (none: the one found in this directory) and interprets them."""
    if files.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read only once", hint="name - once")
    return interpret([read(name) for name in files or ["."]], overrides)


def interpret(sources: Sequence[Source], overrides: Sequence[str] = (), *, filled: bool = False) -> Document:
    """One experiment from the texts of its files, merged left to right, and `name=value` overrides of params.

    `filled`: templates have been filled in before, and what looks like one is text. Raises FileProblems with everything
    that is wrong.
    """
    problems: list[Problem] = []
    warnings: list[Problem] = []
    trees: list[Node] = []
    for source in sources:
        try:
            tree, duplicates = reading.parse(source)
        except FileProblems as error:
            problems += error.problems
            continue
        tree, notes = older.rewrite(tree)
        trees.append(tree)
        problems += duplicates + notes.problems
        warnings += notes.warnings
    order = {source.name: number for number, source in enumerate(sources)}
    if not trees or (problems and len(trees) < len(sources)):
        raise FileProblems(_in_order(problems, order), _in_order(warnings, order))

    root = trees[0]
    for tree in trees[1:]:
        root = merge(root, tree)
    other_kind = refusals.another_kind(root)
    if other_kind is not None:
        raise FileProblems([other_kind])
    root, new_params = _override(root, overrides)
    root, refused = refusals.refuse(root)
    root = _as_text(root)
    root, empty = _without_empty(root)
    unfilled: list[Problem] = []
    if not filled:
        root, unfilled = templates.fill(root, {source.name: source.text for source in sources})
    problems += [*refused, *empty.values(), *unfilled]
    warnings += new_params
    try:
        spec = Spec.model_validate(root.plain())
    except ValidationError as error:
        from shoal.spec import wording

        problems += wording.problems(error, root, already={*empty, *(p[:n] for p in empty for n in range(1, len(p)))})
        with suppress(ValidationError):
            rest = Spec.model_validate(wording.without_faults(error, root).plain())
            problems += _located(rules.errors(rest), root)
        raise FileProblems(_in_order(problems, order), _in_order(warnings, order)) from None
    problems += _located(rules.errors(spec), root)
    warnings += _located(rules.warnings(spec), root)
    if problems:
        raise FileProblems(_in_order(problems, order), _in_order(warnings, order))
    return Document(
        spec=spec,
        warnings=tuple(_in_order(warnings, order)),
        root=root,
        files=tuple(source.name for source in sources),
        directory=sources[0].directory,
    )


def _override(root: Node, overrides: Sequence[str]) -> tuple[Node, list[Problem]]:
    """`-P lr=0.2` and `-P model.depth=3`. A name the file does not have may be a slip of the finger: a warning."""
    declared = root.get("params")
    known = set(declared.mapping or ()) if declared is not None else set()
    warnings = []
    for override in overrides:
        name, equals, text = override.partition("=")
        steps = tuple(name.strip().split("."))
        if not equals or not all(re.fullmatch(r"[\w-]+", step) for step in steps):
            raise UsageError(f"-P {override}: expected name=value", hint="for example -P lr=0.1")
        where = Where(f"-P {override}")
        if steps[0] not in known:
            near = f"the file's params: {', '.join(sorted(known))}" if known else "the file has no params"
            warnings.append(Problem("a new param", path=f"params.{name}", where=where, hint=near))
        try:
            root = root.put(("params", *steps), reading.parse_value(text, where))
        except FileProblems as error:
            raise UsageError(f"-P {override}: {error.problems[0].message}", hint="quote the value as in YAML") from None
    return root, warnings


def _as_text(root: Node) -> Node:
    """Variables and labels are text: `OMP_NUM_THREADS: 08` means the two characters that were typed."""
    for path, node in list(_mappings(root)):
        if path[-1:] and path[-1] in TEXT_MAPPINGS:
            entries = {
                key: replace(child, value=child.text)
                if isinstance(child.value, (bool, int, float)) and child.text
                else child
                for key, child in (node.mapping or {}).items()
            }
            root = root.put(path, replace(node, value=entries))
    return root


def _without_empty(root: Node) -> tuple[Node, dict[Path, Problem]]:
    """The tree without keys that have no value, each of them a problem."""
    problems: dict[Path, Problem] = {}
    for path, node in list(_mappings(root)):
        for key, child in (node.mapping or {}).items():
            if child.value is None:
                spot = (*path, key)
                problems[spot] = Problem(
                    "empty",
                    path=dotted(spot),
                    where=child.name_where,
                    hint="give it a value, or remove the line; is what follows indented too little?",
                )
    for spot in problems:
        root = root.drop(*spot)
    return root, problems


def _mappings(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every mapping whose keys are Shoal's, the outermost first."""
    if node.mapping is not None:
        yield path, node
    for key, child in (node.mapping or {}).items():
        if key not in FREE_FORM:
            yield from _mappings(child, (*path, key))
    for number, child in enumerate(node.sequence or ()):
        yield from _mappings(child, (*path, number))


def _located(findings: Iterable[rules.Finding], root: Node) -> list[Problem]:
    return [
        Problem(message, path=dotted(path), where=_key_or_value(root, path), hint=hint)
        for path, message, hint in findings
    ]


def _key_or_value(root: Node, path: Path) -> Where:
    """Rules speak of keys: point at the key where it was written."""
    node = root.get(*path)
    return node.name_where if node is not None else root.locate(path)


def _in_order(problems: Iterable[Problem], order: dict[str, int]) -> list[Problem]:
    """As a reader meets them: by file, line and column; each once."""

    def place(problem: Problem) -> tuple[int, int, int]:
        where = problem.where or Where("")
        return order.get(where.file, len(order)), where.line, where.column

    return sorted(dict.fromkeys(problems), key=place)
