"""How long experiments are kept: `[retention]` of config.toml, and which of them go. Pure.

    [retention]
    keep_days = 90      # what was over before that goes
    keep = 1000         # beyond the newest so many, what is over goes

Without the section everything is kept. Only what is over and wholly in the store may go; a tag `keep` holds it, and so
does an alias of one of its models: somebody may want to know where that comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import UsageError
from shoal.states import FINAL

SECTION = "retention"
KEYS = ("keep_days", "keep")
TAG = "keep"
DAY = 86400.0


@dataclass(frozen=True)
class Rules:
    keep_days: float | None = None
    keep: int | None = None


def rules(config: Mapping[str, Any], file: Path) -> Rules | None:
    """What config.toml says; None when it says nothing. UsageError that names the key which is wrong."""
    section = config.get(SECTION)
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise UsageError(f"{file}: {SECTION}: not a section", hint="write [retention] and keep_days = 90 below it")
    for key in section:
        if key not in KEYS:
            raise UsageError(f"{file}: {SECTION}.{key}: there is no such key", hint=f"there are {' and '.join(KEYS)}")
    days, keep = section.get("keep_days"), section.get("keep")
    if days is not None and (isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days < 1e6):
        raise UsageError(f"{file}: {SECTION}.keep_days: {days!r} is not a number of days", hint="keep_days = 90")
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 0):
        raise UsageError(f"{file}: {SECTION}.keep: {keep!r} is not a number of experiments", hint="keep = 1000")
    return Rules(None if days is None else float(days), keep) if section else None


def expired(wanted: Rules, rows: Iterable[Mapping[str, Any]], aliased: Collection[str], now: float) -> list[str]:
    """The uids of what goes, the oldest first.

    Rows have uid, number, state, tracked, tags, created and finished. All of them count for `keep`, those too that
    are held. `aliased` are the uids of experiments with a model that has an alias.
    """
    newest_first = sorted(rows, key=lambda row: -row["number"])
    going = []
    for place, row in enumerate(newest_first):
        if row["state"] not in FINAL or not row["tracked"] or TAG in row["tags"] or row["uid"] in aliased:
            continue
        age = now - (row["finished"] or row["created"])
        too_old = wanted.keep_days is not None and age > wanted.keep_days * DAY
        too_many = wanted.keep is not None and place >= wanted.keep
        if too_old or too_many:
            going.append(row["uid"])
    return going[::-1]
