"""Every key of the experiment file, found by walking the types."""

from __future__ import annotations

from shoal.spec.types import Spec
from shoal.spec.wording import _models_in


def keys_of_types() -> set[str]:
    keys: set[str] = set()
    waiting: list[type] = [Spec]
    seen = set()
    while waiting:
        model = waiting.pop()
        if model in seen:
            continue
        seen.add(model)
        for name, field in model.model_fields.items():
            keys.add(name)
            waiting += _models_in(field.annotation)
    return keys
