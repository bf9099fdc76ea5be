"""What users hand over, made plain: numbers, names, JSON. Pure."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

MOST_NAME = 1000  # bytes of one name
DEEPEST = 32
SMALLEST_STEP, LARGEST_STEP = -(2**63), 2**63 - 1


def number(value: Any) -> float:
    """A float of what is one number: numpy and torch scalars, arrays of one element, bool, Decimal, …

    Raises what the value's own conversion raises: TypeError, ValueError, RuntimeError, OverflowError.
    """
    item = getattr(value, "item", None)  # numpy, torch, jax; exact, and without the warnings of float() on arrays
    if item is not None:
        value = item()
    return float(value)


def whole(step: Any) -> int:
    """A step as int64; ValueError or TypeError when it is none."""
    item = getattr(step, "item", None)
    if item is not None:
        step = item()
    if isinstance(step, float) and not step.is_integer():
        raise ValueError("a step is a whole number")
    step = int(step)
    if not SMALLEST_STEP <= step <= LARGEST_STEP:
        raise ValueError("a step has 64 bits")
    return int(step)


def clean_name(name: Any) -> str:
    """A name as it can be stored: without NUL, at most MOST_NAME bytes of UTF-8."""
    text = said(name)
    text = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    if len(text) * 4 > MOST_NAME:
        text = text.encode("utf-8")[:MOST_NAME].decode("utf-8", "ignore")
    return text or "_"


def said(value: Any) -> str:
    """Its text; where that cannot be had, what it is: a user's own __str__ may do anything."""
    if type(value) is str:
        return value
    try:
        return str(value)
    except Exception:  # noqa: BLE001
        return f"<{type(value).__name__}>"


def flat(values: Mapping[Any, Any], before: str = "", depth: int = 0) -> Iterator[Tuple[str, Any]]:
    """{"train": {"loss": 1}} as ("train/loss", 1)."""
    for name, value in values.items():
        path = f"{before}{said(name)}"
        if isinstance(value, Mapping) and depth < DEEPEST:
            yield from flat(value, path + "/", depth + 1)
        else:
            yield path, value


def plain(value: Any, depth: int = 0) -> Any:
    """The value as strict JSON can say it: NaN and infinities as strings, arrays as lists, the rest as its text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        value = float(value)
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if depth > DEEPEST:
        return said(value)
    if isinstance(value, Mapping):
        return {said(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    for way in ("tolist", "item"):  # numpy and torch; one number of other libraries
        convert = getattr(value, way, None)
        if convert is not None and not isinstance(value, type):
            try:
                return plain(convert(), depth + 1)
            except (TypeError, ValueError, RuntimeError):
                break
    return said(value)


def mapping(values: Any) -> Dict[str, Any]:
    """A dict of what holds named values: a dict, a Namespace, a dataclass. TypeError for others."""
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return {said(name): value for name, value in values.items()}
    if hasattr(values, "keys") and hasattr(values, "__getitem__"):
        return {said(name): values[name] for name in values.keys()}  # noqa: SIM118  only the protocol is known
    if hasattr(values, "__dict__") and not isinstance(values, type):
        return {name: value for name, value in vars(values).items() if not name.startswith("_")}
    raise TypeError(f"{type(values).__name__} is no dict of names and values")


def last_line(error: Optional[BaseException]) -> str:
    """`ValueError: no such file`, as the end of a traceback says it, cut to a sensible length."""
    if error is None:
        return ""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  a user's own __str__ may do anything
        text = ""
    return (f"{name}: {text}" if text else name)[:2000]
