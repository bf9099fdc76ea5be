"""Bytes -> a tree of located values, with one clear error for every way a file can be unreadable.

ruamel.yaml tokenises and parses (YAML 1.2, positions). The tree is built here from its events rather than by its
constructor, because only so can a bomb of aliases be refused before it is unpacked, every duplicate key be reported
with both places, and each scalar keep its text. Scalars follow the core schema of YAML 1.2: `1e-3` is a float, `no` a
string, `2026-01-01` a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from shoal.errors import FileProblems, Problem, Where
from shoal.sources import Source
from shoal.spec.tree import Node

MOST_VALUES = 100_000
DEEPEST = 64


@dataclass
class _Open:
    """A mapping or sequence whose end has not been read yet."""

    where: Where
    anchor: str | None
    entries: dict[str, Node] | None = None
    items: list[Node] = field(default_factory=list)
    key: tuple[str, Where] | None = None
    merged: list[Node] = field(default_factory=list)
    size: int = 1


def parse(source: Source) -> tuple[Node, list[Problem]]:
    """The tree of one document and the problems that leave a tree behind (duplicate keys).

    Raises FileProblems where no tree can be made.
    """
    ellipsis = _pasted_ellipsis(source)
    try:
        root, problems = _Builder(source).build()
    except FileProblems as error:
        raise FileProblems([ellipsis] if ellipsis else error.problems) from None
    if ellipsis is not None:
        raise FileProblems([ellipsis])
    if root.mapping is None:
        kind = "a list" if root.sequence is not None else "one value"
        raise FileProblems(
            [Problem(f"{kind}, not a mapping", where=root.where, hint="an experiment file starts with `version: 1`")]
        )
    return root, problems


def parse_value(text: str, where: Where) -> Node:
    """One value given on the command line, typed as YAML: `0.1`, `true`, `[1, 2]`."""
    node, problems = _Builder(Source(where.file, text)).build(empty=Node("", where))
    if problems:
        raise FileProblems(problems)
    return _all_at(node, where)


class _Builder:
    """Consumes the events of one document."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.root: Node | None = None
        self.total = 0

    def build(self, empty: Node | None = None) -> tuple[Node, list[Problem]]:
        documents = 0
        for event in self.events():
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise self.stop(
                        "a second document starts here",
                        self.at(event),
                        "one file holds one experiment; to merge files, name them all: shoal check base.yml change.yml",
                    )
            elif kind == "AliasEvent":
                self.alias(event)
            elif kind == "ScalarEvent":
                self.scalar(event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self.start(event, kind == "MappingStartEvent")
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self.end(event)
        if self.root is None:
            if empty is not None:
                return empty, []
            raise self.stop(
                "empty", Where(self.source.name, 1, 1), "start with `version: 1`, `kind: experiment`, `run: {cmd: …}`"
            )
        return self.root, self.problems

    def events(self) -> Iterator[Any]:
        try:
            yield from YAML(typ="safe", pure=True).parse(self.source.text)
        except ReaderError as error:
            before = self.source.text[: error.position]
            where = Where(self.source.name, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
            raise self.stop(
                f"character U+{ord(self.source.text[error.position]):04X} is not allowed in YAML", where, "remove it"
            ) from None
        except MarkedYAMLError as error:
            raise self.syntax(error) from None
        except (YAMLError, RecursionError, ValueError, IndexError, AttributeError, AssertionError, TypeError) as error:
            # ruamel's scanner answers some broken input with an exception of its own making.
            raise self.stop(
                f"not YAML: {error or type(error).__name__}", Where(self.source.name, 1, 1), "is it another format?"
            ) from None

    def syntax(self, error: MarkedYAMLError) -> FileProblems:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark is not None else 0
        column = mark.column if mark is not None else 0
        lines = self.source.text.splitlines()
        typed = lines[line] if line < len(lines) else ""
        where = Where(self.source.name, min(line + 1, max(len(lines), 1)), column + 1)
        problem = error.problem or "cannot be parsed"
        indent = typed[: len(typed) - len(typed.lstrip())]
        if "\t" in indent or "'\\t'" in problem:
            return self.stop("a tab in the indentation", where, "YAML is indented with spaces; replace each tab by two")
        hint = "check the indentation and the quotes of this line and the one above"
        if "mapping values are not allowed" in problem:
            hint = "check the indentation, or quote a value that has `: ` in it"
        elif "cannot start any token" in problem or "{{" in typed:
            hint = "quote the value"
        elif error.context:
            hint = f"it happened {error.context}"
        return self.stop(f"not YAML: {problem}", where, hint)

    def alias(self, event: Any) -> None:
        where = self.at(event)
        name = str(event.anchor)
        if any(level.anchor == name for level in self.open):
            raise self.stop(f"*{name} stands inside its own anchor", where, "an anchor cannot contain itself")
        if name not in self.anchors:
            raise self.stop(f"*{name} has no anchor", where, f"mark the value it means with &{name}, before this line")
        node, size = self.anchors[name]
        if self.awaits_key():
            if node.mapping is not None or node.sequence is not None:
                raise self.stop("a key that is a list or a mapping", where, "keys are plain names")
            self.open[-1].key = (node.text, where)
            return
        self.place(replace(node, key=None), size, where)

    def scalar(self, event: Any) -> None:
        where = self.at(event)
        node = Node(self.resolve(event, where), where, text=event.value, last_line=event.end_mark.line + 1)
        if event.anchor:
            self.anchors[str(event.anchor)] = (node, 1)
        if self.awaits_key():
            self.open[-1].key = (event.value, where)
        else:
            self.place(node, 1, where)

    def resolve(self, event: Any, where: Where) -> Any:
        tag = str(event.tag) if event.tag else ""
        tag = tag.removeprefix("tag:yaml.org,2002:").removeprefix("!!")
        try:
            if not tag:
                return core_schema(event.value) if event.implicit[0] else event.value
            if tag in ("str", "!"):
                return event.value
            if tag in ("int", "float", "bool", "null"):
                value = core_schema(event.value)
                wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}[tag]
                if isinstance(value, wanted):  # type: ignore[arg-type]
                    return float(value) if tag == "float" else value
                raise self.stop(f"{event.value!r} is not a {tag}", where, "remove the tag, or mend the value")
        except ValueError:
            raise self.stop("a number with too many digits", where, "shorten it") from None
        raise self.stop(f"the tag {tag} is not known", where, "remove it: the value's own form tells its type")

    def start(self, event: Any, is_mapping: bool) -> None:
        where = self.at(event)
        if len(self.open) >= DEEPEST:
            raise self.stop(f"nested deeper than {DEEPEST} levels", where, "is a bracket left open?")
        if self.awaits_key():
            raise self.stop("a key that is a list or a mapping", where, "keys are plain names")
        tag = str(event.tag).removeprefix("tag:yaml.org,2002:") if event.tag else ""
        if tag not in ("", "!", "map", "seq"):
            raise self.stop(f"the tag {tag} is not known", where, "remove it")
        anchor = str(event.anchor) if event.anchor else None
        self.open.append(_Open(where, anchor, entries={} if is_mapping else None))

    def end(self, event: Any) -> None:
        level = self.open.pop()
        last_line = event.end_mark.line + 1
        if level.entries is None:
            node = Node(tuple(level.items), level.where, last_line=last_line)
        else:
            entries: dict[str, Node] = {}
            for base in level.merged:  # the first of several wins, and the mapping's own keys win over all
                entries = {**(base.mapping or {}), **entries}
            node = Node({**entries, **level.entries}, level.where, last_line=last_line)
        if level.anchor:
            self.anchors[level.anchor] = (node, level.size)
        self.place(node, level.size, level.where)

    def awaits_key(self) -> bool:
        return bool(self.open) and self.open[-1].entries is not None and self.open[-1].key is None

    def place(self, node: Node, size: int, where: Where) -> None:
        """Hands a finished value to the collection that is open, and counts it."""
        if not self.open:
            self.root = node
            return
        level = self.open[-1]
        level.size += size
        if level.size > MOST_VALUES:
            raise self.stop(f"its aliases unpack to more than {MOST_VALUES:,} values", where, "write the values out")
        if level.entries is None:
            level.items.append(node)
            return
        assert level.key is not None
        (key, key_where), level.key = level.key, None
        if key == "<<":
            level.merged.extend(self.merge_bases(node, where))
            return
        if key in level.entries:
            first = level.entries[key].name_where
            self.problems.append(
                Problem(
                    f"`{key}` is given twice, here and in line {first.line}",
                    where=key_where,
                    hint="keep one of the two",
                )
            )
            return
        level.entries[key] = replace(node, key=key_where)

    def merge_bases(self, node: Node, where: Where) -> list[Node]:
        bases = list(node.sequence) if node.sequence is not None else [node]
        if any(base.mapping is None for base in bases):
            raise self.stop("<< merges mappings only", where, "write `<<: *anchor`, or `<<: [*one, *two]`")
        return bases

    def at(self, event: Any) -> Where:
        return Where(self.source.name, event.start_mark.line + 1, event.start_mark.column + 1)

    def stop(self, message: str, where: Where, hint: str) -> FileProblems:
        return FileProblems([*self.problems, Problem(message, where=where, hint=hint)])


_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def core_schema(text: str) -> Any:
    """A plain scalar by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema)."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITY.fullmatch(text):
        return float("-inf" if text.startswith("-") else "inf")
    return text


def _pasted_ellipsis(source: Source) -> Problem | None:
    """`...` copied from a manual, where it stands for lines left out; in YAML it ends the document."""
    lines = source.text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip() != "..." or _inside_block_scalar(lines, number):
            continue
        at_start = line.startswith("...")
        rest = [later.strip() for later in lines[number:]]
        if at_start and all(not later or later.startswith("#") or later == "..." for later in rest):
            continue
        column = len(line) - len(line.lstrip()) + 1
        return Problem(
            "`...` stands here for something left out",
            where=Where(source.name, number, column),
            hint="remove the line, or put what it stands for; YAML takes `...` as the end of the file",
        )
    return None


def _inside_block_scalar(lines: list[str], number: int) -> bool:
    """Whether a line is text of a `|` or `>` value: the nearest line that is indented less opens one."""
    line = lines[number - 1]
    indent = len(line) - len(line.lstrip())
    for before in reversed(lines[: number - 1]):
        if before.strip() and len(before) - len(before.lstrip()) < indent:
            return bool(re.search(r"[|>][-+0-9]*\s*(#.*)?$", before))
    return False


def _all_at(node: Node, where: Where) -> Node:
    """The same values, all said to stand at `where`."""
    value = node.value
    if node.mapping is not None:
        value = {key: _all_at(child, where) for key, child in node.mapping.items()}
    elif node.sequence is not None:
        value = tuple(_all_at(child, where) for child in node.sequence)
    return Node(value, where, where, node.text)
