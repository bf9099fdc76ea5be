"""`{{ name }}` in a command, a variable or a data set: params put in their places.

Jinja renders, in its sandbox and with strict names. Only expressions that cannot run long are let through (names,
attributes, items, conditions, arithmetic without powers, a few filters): a server checks files that strangers wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shoal.errors import Problem, Where
from shoal.spec.tree import Node, Path, dotted

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

FILTERS = (
    "default",
    "d",
    "int",
    "float",
    "string",
    "lower",
    "upper",
    "trim",
    "join",
    "length",
    "first",
    "last",
    "round",
    "tojson",
)
NODES = {
    "Template", "Output", "TemplateData", "If", "Name", "Const", "Getattr", "Getitem", "Filter", "Keyword", "List",
    "Tuple", "Not", "And", "Or", "Compare", "Operand", "CondExpr", "Neg", "Pos", "Add", "Sub", "Div", "FloorDiv", "Mod",
    "Concat",
}  # fmt: skip
LONGEST_RESULT = 64 * 1024


def fill(root: Node, sources: Mapping[str, str]) -> tuple[Node, list[Problem]]:
    """The tree with every template replaced by its text. `sources` holds the texts of the files, to point into them."""
    places = [(path, node) for path, node in _templated(root) if "{{" in node.value or "{%" in node.value]
    if not places:
        return root, []
    params_node = root.get("params")
    params = params_node.plain() if params_node is not None and params_node.mapping is not None else {}
    problems: list[Problem] = []
    jinja = _jinja()
    for path, node in places:
        text, found = _render(jinja, node, path, params, sources)
        if found:
            problems += found
            text = "unrendered"  # anything valid, so that one mistake is not reported twice
        root = root.put(path, Node(text, node.where, node.key, text, node.last_line))
    return root, problems


def _templated(root: Node) -> Iterator[tuple[Path, Node]]:
    """Every string that may hold a template."""
    for base in (("run", "cmd"), ("environment", "env_vars"), ("data",)):
        node = root.get(*base)
        if node is not None:
            yield from _strings(base, node)


def _strings(path: Path, node: Node) -> Iterator[tuple[Path, Node]]:
    if isinstance(node.value, str):
        yield path, node
    for key, child in (node.mapping or {}).items():
        yield from _strings((*path, key), child)
    for number, child in enumerate(node.sequence or ()):
        yield from _strings((*path, number), child)


def _jinja() -> SandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    jinja = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    jinja.globals.clear()
    jinja.filters = {name: jinja.filters[name] for name in FILTERS}
    return jinja


def _render(
    jinja: SandboxedEnvironment, node: Node, path: Path, params: Mapping[str, Any], sources: Mapping[str, str]
) -> tuple[str, list[Problem]]:
    from jinja2 import ChainableUndefined, TemplateError, TemplateSyntaxError, UndefinedError
    from jinja2.nodes import Name
    from jinja2.nodes import Node as Syntax

    problems: list[Problem] = []

    def problem(message: str, hint: str, near: str = "") -> None:
        problems.append(Problem(message, path=dotted(path), where=_point(node, near, sources), hint=hint))

    text = ""
    names = ", ".join(params) or "none"
    try:
        tree = jinja.parse(node.value)
        odd = next((part for part in tree.find_all(Syntax) if type(part).__name__ not in NODES), None)
        if odd is not None:
            problem(
                f"{type(odd).__name__.lower()} is not allowed between {{{{ }}}}",
                f"names, a.b, list[0], conditions and these filters are: {', '.join(FILTERS)}",
            )
            return "", problems
        unknown = sorted({name.name for name in tree.find_all(Name)} - set(params))
        for name in unknown:
            problem(f"`{name}` is not a param", _nearest(name, params), name)
        text = jinja.from_string(tree).render({**dict.fromkeys(unknown, ChainableUndefined()), **params})
    except TemplateSyntaxError as error:
        problem(f"the template cannot be read: {error.message}", "a param is written {{ name }}")
    except UndefinedError as error:
        problem(f"{error.message}", f"params: {names}", _last_name(str(error.message)))
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        problem(f"the template fails: {error}", f"params: {names}")
    if len(text) > LONGEST_RESULT:
        problem(f"filled in, this is longer than {LONGEST_RESULT // 1024} KiB", "read long values from a file")
    return text, problems


def _nearest(name: str, params: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    if not params:
        return f"the file has no params; add params: {{{name}: …}}"
    near = get_close_matches(name, params, n=1)
    rest = [param for param in params if param not in near]
    choices = ", ".join([*near, *rest])
    return f"did you mean {near[0]}? params: {choices}" if near else f"params: {choices}; or add params: {{{name}: …}}"


def _last_name(message: str) -> str:
    words = re.findall(r"'([^']+)'", message)
    return words[-1] if words else ""


def _point(node: Node, near: str, sources: Mapping[str, str]) -> Where:
    """The line and column of the expression itself, when the node spans several lines."""
    lines = sources.get(node.where.file, "").splitlines()
    pattern = re.compile(r"\{[{%][^}]*?\b" + re.escape(near) + r"\b" if near else r"\{[{%]")
    for number in range(node.where.line, min(node.last_line, len(lines)) + 1):
        start = node.where.column - 1 if number == node.where.line else 0
        match = pattern.search(lines[number - 1], start)
        if match:
            return Where(node.where.file, number, match.start() + 1)
    return node.where
