"""Why an experiment does not run yet: a word that programs can compare, and a sentence for people. Pure."""

from __future__ import annotations

from shoal.engine.decide import BEHIND, FETCHING, WAITS_FOR
from shoal.states import LOST, QUEUED, RESTARTING, STARTING

RESOURCES, ORDER, NEW = "resources", "order", "new"
DATA, CLUSTER, START, UNREACHABLE = "data", "cluster", "start", "unreachable"


def waits(state: str, reason: str) -> tuple[str, str] | None:
    """(word, sentence) of what an experiment in this state waits for; None when it waits for nothing."""
    if state == LOST:
        return UNREACHABLE, f"Its cluster does not answer: {reason}" if reason else "Its cluster does not answer."
    if state == QUEUED:
        if reason.startswith(WAITS_FOR):
            return RESOURCES, f"It {reason}."
        if reason.startswith(BEHIND):
            return ORDER, f"It is {reason}: first in, first out, so that nothing starves."
        return NEW, f"{reason}." if reason else "It has just come; the engine looks at it next."
    if state in (STARTING, RESTARTING):
        if reason.startswith(FETCHING):
            return DATA, f"Its data is on the way: {reason}."
        if reason and state == STARTING:
            return CLUSTER, reason
        return START, f"Its replicas are being started{f': {reason}' if reason else ''}."
    return None
