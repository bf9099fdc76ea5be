"""A YAML document as values that remember where they were written.

Merging files and rewriting older spellings move nodes about; each node keeps the place it came from, so an error found
at the very end still names the line the user typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from shoal.errors import Where

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a mapping of nodes or a sequence of nodes.

    `key` is where the node's own key stands, when it is a value of a mapping. `text` is a scalar as it was typed:
    `1e-3` and `0.001` are the same value, and different texts. `last_line` is where the node ends.
    """

    value: Any
    where: Where
    key: Where | None = None
    text: str = ""
    last_line: int = 0

    @property
    def mapping(self) -> Mapping[str, Node] | None:
        return self.value if isinstance(self.value, dict) else None

    @property
    def sequence(self) -> Sequence[Node] | None:
        return self.value if isinstance(self.value, tuple) else None

    @property
    def name_where(self) -> Where:
        """Where to point when the key is at fault: the key itself, or the value when it has none."""
        return self.key or self.where

    def get(self, *path: str | int) -> Node | None:
        """The node at `path`, or None."""
        node: Node | None = self
        for step in path:
            if node is None:
                return None
            if node.mapping is not None:
                node = node.mapping.get(str(step))
            elif node.sequence is not None and isinstance(step, int) and step < len(node.sequence):
                node = node.sequence[step]
            else:
                return None
        return node

    def put(self, path: Path, child: Node) -> Node:
        """A copy with `child` at `path`; mappings that are missing on the way are made."""
        if not path:
            return child
        step, rest = path[0], path[1:]
        if isinstance(step, int):
            items = list(self.sequence or ())
            items[step] = items[step].put(rest, child)
            return replace(self, value=tuple(items))
        entries = dict(self.mapping or {})
        entries[step] = entries.get(step, Node({}, child.where, child.key)).put(rest, child)
        return replace(self, value=entries)

    def drop(self, *path: str | int) -> Node:
        """A copy without the key at `path`; the same node when there is none."""
        parent = self.get(*path[:-1])
        if parent is None or parent.mapping is None or path[-1] not in parent.mapping:
            return self
        entries = {key: node for key, node in parent.mapping.items() if key != path[-1]}
        return self.put(path[:-1], replace(parent, value=entries))

    def move(self, source: Path, target: Path) -> Node:
        """A copy with the node at `source` standing at `target`."""
        node = self.get(*source)
        return self if node is None else self.drop(*source).put(target, node)

    def plain(self) -> Any:
        """The value as dicts, tuples and scalars."""
        if self.mapping is not None:
            return {key: node.plain() for key, node in self.mapping.items()}
        if self.sequence is not None:
            return tuple(node.plain() for node in self.sequence)
        return self.value

    def locate(self, path: Path) -> Where:
        """The place of `path`, or of the deepest part of it that was written."""
        node = self
        for step in path:
            child = node.get(step)
            if child is None:
                return node.where if node.mapping is None else node.name_where
            node = child
        return node.where


def merge(left: Node, right: Node) -> Node:
    """`right` laid over `left`: mappings are merged key by key, anything else is replaced."""
    if left.mapping is None or right.mapping is None:
        return right
    entries = dict(left.mapping)
    for key, node in right.mapping.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    return replace(left, value=entries)


def dotted(path: Path) -> str:
    """`environment.replicas.worker[0].resources`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
