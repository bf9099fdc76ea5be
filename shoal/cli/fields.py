"""Values of experiments by the names that queries use, as the command line shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.errors import UsageError

STATISTICS = ("last", "min", "max", "step", "time")
PLAIN = (
    "id",
    "uid",
    "number",
    "name",
    "state",
    "reason",
    "framework",
    "backend",
    "cluster",
    "origin",
    "attempt",
    "tags",
)


def check(names: Sequence[str]) -> list[str]:
    """The names; an error when one of them cannot be a column."""
    for name in names:
        group, dot, key = name.partition(".")
        if not (name in PLAIN or (group in ("params", "metrics") and dot and key)):
            raise UsageError(
                f"--columns: {name!r} is no field", hint=f"fields: {', '.join(PLAIN)}, params.NAME, metrics.NAME"
            )
    return list(names)


def value(experiment: Mapping[str, Any], name: str) -> str:
    """`0.0312`, `adam`, or `-` when there is none."""
    group, dot, key = name.partition(".")
    return shown(_of(experiment.get(group) or {}, key, group) if dot else experiment.get(name))


def shown(found: Any) -> str:
    if found is None or found == "" or found == []:
        return "-"
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, float):
        return f"{found:.6g}"
    if isinstance(found, list) and all(isinstance(entry, str) for entry in found):
        return ",".join(found)
    return found if isinstance(found, str) else json.dumps(found)


def _of(values: Mapping[str, Any], key: str, group: str) -> Any:
    if group == "metrics":
        if key in values:
            return values[key].get("value", values[key]["last"])  # what its script chose to stand for it
        name, _, statistic = key.rpartition(".")
        return values[name].get(statistic) if name in values and statistic in STATISTICS else None
    if key in values:
        return values[key]
    first, dot, rest = key.partition(".")
    inner = values.get(first)
    return _of(inner, rest, group) if dot and isinstance(inner, Mapping) else None
