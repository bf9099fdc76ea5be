"""Values -> the text of an experiment file, in the newest spelling."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from shoal.spec.reading import core_schema


def to_yaml(content: Mapping[str, Any]) -> str:
    """YAML that reads back to the same values."""
    out = io.StringIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000
    yaml.allow_unicode = True
    yaml.dump(_styled(dict(content)), out)
    return out.getvalue()


def _styled(value: Any) -> Any:
    if isinstance(value, str):
        if "\n" in value and value.isprintable() is False and all(line == line.rstrip() for line in value.split("\n")):
            return LiteralScalarString(value)
        # ruamel's own rule leaves some words plain that the core schema of YAML 1.2 reads as numbers.
        return value if isinstance(core_schema(value), str) else DoubleQuotedScalarString(value)
    if isinstance(value, Mapping):
        return {key: _styled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_styled(item) for item in value]
    return value
