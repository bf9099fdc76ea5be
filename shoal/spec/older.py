"""The spellings Polyaxon had before, rewritten to the newest, one rule each.

    environment.tensorflow: {n_workers: 3}              framework: tensorflow
                                                    ->  environment.replicas: {n_workers: 3}
    worker_resources: [{index: 2, cpu: {…}}]        ->  replicas.worker: [{index: 2, resources: {cpu: {…}}}]
    gpu: {request: 1}                               ->  gpu: {requests: 1}

Each rule takes a tree and returns a tree; nodes keep the places they were written at. Every rewriting is a warning that
shows the new form. Nothing here judges values, so whatever is wrong with them is found later, in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from shoal.errors import Problem
from shoal.spec.tree import Node, Path, dotted

SECTIONS = ("tensorflow", "mxnet", "pytorch", "horovod")
REPLICAS: Path = ("environment", "replicas")


@dataclass
class Notes:
    """What the rewriting found: forms that are dated, and forms that say the same thing twice."""

    warnings: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def dated(self, node: Node, path: Path, new_form: str) -> None:
        self.warnings.append(
            Problem("an older spelling", path=dotted(path), where=node.name_where, hint=f"write {new_form}")
        )

    def twice(self, node: Node, path: Path, other: Path) -> None:
        message = f"given here and as {dotted(other)}"
        self.problems.append(Problem(message, path=dotted(path), where=node.name_where, hint="keep one of the two"))


def rewrite(root: Node) -> tuple[Node, Notes]:
    """The tree in the newest spelling. Rewriting twice changes nothing more and warns of nothing more."""
    notes = Notes()
    rules: tuple[Callable[[Node, Notes], Node], ...] = (
        _renamed_keys,
        _framework_sections,
        _flat_shapes,
        _singular_amounts,
        _max_restarts,
    )
    for rule in rules:
        root = rule(root, notes)
    return root, notes


RENAMED: tuple[tuple[Path, Path], ...] = (
    (("declarations",), ("params",)),
    (("run", "image"), ("build", "image")),
    (("environment", "configmap_refs"), ("environment", "config_map_refs")),
    (("environment", "node_selectors"), ("environment", "node_selector")),
)


def _renamed_keys(root: Node, notes: Notes) -> Node:
    for old, new in RENAMED:
        node = root.get(*old)
        if node is None:
            continue
        if root.get(*new) is not None:
            notes.twice(node, old, new)
            root = root.drop(*old)
            continue
        notes.dated(node, old, f"{dotted(new)}: …")
        root = root.move(old, new)
    return root


def _framework_sections(root: Node, notes: Notes) -> Node:
    """`environment.tensorflow: {…}` says the framework and holds the replicas."""
    for section in SECTIONS:
        path: Path = ("environment", section)
        node = root.get(*path)
        if node is None:
            continue
        root = root.drop(*path)
        said = root.get("framework")
        if said is None:
            root = root.put(("framework",), Node(section, node.name_where, node.key, section))
        elif said.value != section:
            notes.problems.append(
                Problem(
                    f"a section for {section}, but framework is {said.text}",
                    path=dotted(path),
                    where=node.name_where,
                    hint=f"rename the section to replicas, or set framework: {section}",
                )
            )
            continue
        if root.get(*REPLICAS) is not None:
            notes.twice(node, path, REPLICAS)
            continue
        notes.dated(node, path, f"framework: {section} at the top, and environment.replicas: {{{_keys_of(node)}}}")
        root = root.put(REPLICAS, node)
    return root


FLAT = {
    "default_worker_resources": ("default_worker", "resources"),
    "default_ps_resources": ("default_ps", "resources"),
    "worker_resources": ("worker", "resources"),
    "ps_resources": ("ps", "resources"),
    "default_worker_node_selectors": ("default_worker", "node_selector"),
    "default_ps_node_selectors": ("default_ps", "node_selector"),
    "worker_node_selectors": ("worker", "node_selector"),
    "ps_node_selectors": ("ps", "node_selector"),
}


def _flat_shapes(root: Node, notes: Notes) -> Node:
    for home in (("environment",), REPLICAS):
        for old, (key, prop) in FLAT.items():
            path: Path = (*home, old)
            node = root.get(*path)
            if node is None:
                continue
            root = root.drop(*path)
            if key.startswith("default_"):
                target: Path = (*REPLICAS, key, prop)
                if root.get(*target) is not None:
                    notes.twice(node, path, target)
                    continue
                notes.dated(node, path, f"environment.replicas.{key}: {{{prop}: {{…}}}}")
                root = root.put(target, node)
            else:
                notes.dated(node, path, f"environment.replicas.{key}: [{{index: …, {prop}: {{…}}}}]")
                root = _merge_indexed(root, node, path, key, prop, notes)
    return root


def _merge_indexed(root: Node, flat: Node, path: Path, key: str, prop: str, notes: Notes) -> Node:
    """Flat entries join those that `worker:` or `ps:` already has, by their index."""
    target = (*REPLICAS, key)
    present = root.get(*target)
    if flat.sequence is None or (present is not None and present.sequence is None):
        return root.put(target, flat)  # not a list: the types say so, at the place it was written
    entries = list(present.sequence or ()) if present is not None else []
    for item in flat.sequence:
        if item.mapping is None:
            entries.append(item)
            continue
        index = item.get("index")
        body = Node({name: child for name, child in item.mapping.items() if name != "index"}, item.where, item.key)
        match = next((n for n, entry in enumerate(entries) if _same_index(entry, index)), None)
        if match is None:
            entries.append(replace(item, value={**({"index": index} if index else {}), prop: body}))
        elif entries[match].get(prop) is not None:
            notes.twice(item, path, (*target, match, prop))
        else:
            entries[match] = entries[match].put((prop,), body)
    base = present if present is not None else flat
    return root.put(target, replace(base, value=tuple(entries)))


def _same_index(entry: Node, index: Node | None) -> bool:
    own = entry.get("index")
    return own is not None and index is not None and own.value == index.value and type(own.value) is type(index.value)


def _singular_amounts(root: Node, notes: Notes) -> Node:
    """`request` and `limit`, which the documents of Polyaxon themselves wrote for gpu."""
    for path in list(_amounts(root)):
        for old, new in (("request", "requests"), ("limit", "limits")):
            node = root.get(*path, old)
            if node is None:
                continue
            if root.get(*path, new) is not None:
                notes.twice(node, (*path, old), (*path, new))
                root = root.drop(*path, old)
                continue
            notes.dated(node, (*path, old), f"{path[-1]}: {{{new}: {node.text or '…'}}}")
            root = root.move((*path, old), (*path, new))
    return root


def _amounts(root: Node) -> Iterator[Path]:
    """Every path `….resources.{cpu,memory,gpu}` that the file has."""
    shapes: list[Path] = [("environment",), (*REPLICAS, "default_worker"), (*REPLICAS, "default_ps")]
    for key in ("worker", "ps"):
        entries = root.get(*REPLICAS, key)
        if entries is not None and entries.sequence is not None:
            shapes += [(*REPLICAS, key, number) for number in range(len(entries.sequence))]
    for shape in shapes:
        for kind in ("cpu", "memory", "gpu"):
            path = (*shape, "resources", kind)
            node = root.get(*path)
            if node is not None and node.mapping is not None:
                yield path


def _max_restarts(root: Node, notes: Notes) -> Node:
    """Polyaxon restarted single pods; a distributed run needs all of them to start again together."""
    path: Path = ("environment", "max_restarts")
    node = root.get(*path)
    if node is None:
        return root
    root = root.drop(*path)
    if root.get("restart") is not None:
        notes.twice(node, path, ("restart",))
        return root
    if node.value == 0 and not isinstance(node.value, bool):
        notes.dated(node, path, "restart: {policy: never}, which is also the default")
        return root
    notes.dated(node, path, f"restart: {{policy: experiment, max: {node.text or '…'}}}")
    policy = Node("experiment", node.where, node.key, "experiment")
    return root.put(("restart", "policy"), policy).put(("restart", "max"), node)


def _keys_of(node: Node) -> str:
    return ", ".join(f"{key}: {child.text or '…'}" for key, child in (node.mapping or {}).items()) or "…"
