"""What artifacts and models may be called: a path, `resnet` or `team/resnet`, that means itself everywhere. Pure.

Names stand in addresses, before `@version` on command lines, and are directories of exports. The SDK makes a name of
whatever it is given and says so; the server refuses what is none.
"""

from __future__ import annotations

import re

LONGEST = 256
RULE = "letters and other characters, with / between parts; no @, no \\, no part that is empty, . or .."

_WRONG = re.compile(r"[@\\\x00-\x1f\x7f\ud800-\udfff]")


def problem(name: str) -> str:
    """What is wrong with a name; empty when it can be one."""
    if not name:
        return "it is empty"
    if len(name) > LONGEST:
        return f"it has more than {LONGEST} characters"
    if name != name.strip():
        return "it begins or ends with a blank"
    found = _WRONG.search(name)
    if found:
        return f"it holds {found.group()!r}"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"a part of it is {part!r}"
    return ""


def made(name: str, otherwise: str) -> str:
    """The name if it can be one, else the nearest that can; `otherwise` when nothing is left."""
    if not problem(name):
        return name
    parts = (_WRONG.sub("_", part).strip() for part in name.split("/"))
    near = "/".join(part for part in parts if part not in ("", ".", ".."))[:LONGEST].strip().rstrip("/")
    return near if not problem(near) else otherwise
