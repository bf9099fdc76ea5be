"""500 replicas on hollow nodes: what one experiment asks of the API server, beside one of 25."""

from __future__ import annotations

from pathlib import Path

from shoal.backends.kubernetes.turns import MOST, TURN
from shoal.backends.kubernetes.watching import WATCH
from tests.clusters.kubernetes import hollow
from tests.clusters.kubernetes.conftest import Namespace
from tests.clusters.kubernetes.scale import FEW, MANY, NODES, Figures, measure


def test_calls_grow_with_replicas_where_they_must_and_nowhere_else(namespace: Namespace, tmp_path: Path) -> None:
    with hollow.nodes(namespace.cluster, tmp_path, NODES) as nodes:
        found = [measure(namespace, nodes, tmp_path, replicas) for replicas in (FEW, MANY)]
    for figures in found:
        check(figures)
    few, many = (figures.parts["submit"].made for figures in found)
    assert {what for what in many if many[what] != few[what]} == {"POST jobs"}


def check(figures: Figures) -> None:
    """What is made and what is asked to end: once for each replica. What is seen: by one list and one watch."""
    parts, replicas = figures.parts, figures.replicas
    assert parts["submit"].calls["POST jobs"] == replicas
    assert parts["stop"].calls["PATCH pods"] == replicas
    # What the anchor owns goes with it.
    removing = parts["stop"].calls + parts["clean up"].calls
    assert {what: removing[what] for what in removing if what not in ("PATCH pods", "GET pods", "GET log")} == {
        "DELETE configmaps": 1
    }
    # One list, and one watch that is begun anew when its time is over.
    seconds = sum(part.seconds for part in parts.values())
    assert sum(part.calls["GET pods"] for part in parts.values()) <= 2 + seconds / WATCH
    assert set(parts["observe"].calls) <= {"GET pods", "GET log"}
    # While pods wait, the cluster is asked every few seconds what for: for all at once, in pages of 500.
    assert set(parts["start"].calls) <= {"GET pods", "GET events", "GET jobs", "GET log"}
    for part in parts.values():
        turns = part.seconds / TURN + 1 if replicas > MOST else 0
        assert part.calls["GET log"] <= replicas + turns * MOST
