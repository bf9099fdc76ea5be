"""How far an experiment is, and how long it will take: what its ranks say, in the time of their own clocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.states import FINAL

Said = Mapping[str, Any]


def spoken(stream: Mapping[str, Any], fraction: float, when: Any, now: float) -> dict[str, Any]:
    """One word of a script, as it is kept; `now` is our own clock, all others are the script's."""
    return {
        "fraction": min(1.0, max(0.0, float(fraction))),
        "time": float(when) if isinstance(when, (int, float)) else None,
        "heard": now,
        "stream": stream["stream"],
        "order": [-stream["attempt"], stream["rank"], -stream["restart"], -stream["try"]],
        "since": stream["started"],
        "from": 0.0,
    }


def after(known: Said | None, said: Said) -> dict[str, Any]:
    """What is kept when `said` has come: the newest attempt counts, and of its ranks the lowest that speaks."""
    if not known or "order" not in known:
        return dict(said)
    if known["stream"] == said["stream"]:
        # Its first word is the measure from then on: what resumes from a checkpoint does not begin with nothing.
        first = known if "second" not in known else {"time": known["since"], "fraction": known["from"]}
        return {**said, "since": first["time"], "from": first["fraction"], "second": True}
    return dict(said if list(said["order"]) < list(known["order"]) else known)


def shown(said: Said | None, state: str, now: float) -> dict[str, Any] | None:
    """{fraction, eta}: how many seconds are left if it goes on as it went until it said so."""
    if not said or not isinstance(said.get("fraction"), (int, float)):
        return None
    fraction, eta = float(said["fraction"]), None
    when, since, heard = said.get("time"), said.get("since"), said.get("heard")
    made = fraction - float(said.get("from") or 0.0)
    if state not in FINAL and made > 0 and when and since and heard and when > since:
        eta = max(0.0, (when - since) / made * (1 - fraction) - max(0.0, now - heard))
    return {"fraction": fraction, "eta": eta}
