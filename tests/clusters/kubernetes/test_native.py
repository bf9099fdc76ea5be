"""Experiments on a real Kubernetes cluster, natively: Jobs, pods, the stdout sink, only the rights of the Role."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clusters.kubernetes.conftest import Namespace
from tests.conftest import ROOT
from tests.running import lines_of, shoal, show


def test_the_quickstart_runs_as_on_a_laptop_and_leaves_nothing(namespace: Namespace, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(namespace.config())
    for cluster in ("lab", "local"):
        done = shoal("run", str(ROOT / "examples" / "quickstart"), "--on", cluster)
        assert done.returncode == 0, done.stderr
    there, here = show("1"), show("2")
    assert (there["cluster"], here["cluster"]) == ("lab", "local")
    assert [ending(entry) for entry in there["replicas"]] == [ending(entry) for entry in here["replicas"]]
    assert there["metrics"]["loss"]["last"] == here["metrics"]["loss"]["last"]
    assert sorted(lines_of("1", "master-0")) == sorted(lines_of("2", "master-0"))
    namespace.becomes_empty()


def ending(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Who it is, and how it ended. A parameter server may end by itself just before it is stopped."""
    who = tuple(entry[key] for key in ("replica", "role", "rank"))
    if entry["role"] == "ps":
        return (*who, entry["state"] in ("succeeded", "stopped"))
    return (*who, entry["state"], entry["exit_code"], entry["signal"])
