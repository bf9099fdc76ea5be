"""The network of the test cluster itself: pods come and go, and the others notice nothing."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.clusters.kubernetes.cluster import Cluster
from tests.clusters.kubernetes.node import BRIDGE


@contextlib.contextmanager
def port_with(address: str) -> Iterator[None]:
    subprocess.run(["ip", "link", "add", "shoaltest1", "address", address, "type", "veth"], check=True)
    try:
        subprocess.run(["ip", "link", "set", "shoaltest1", "master", BRIDGE, "up"], check=True)
        yield
    finally:
        subprocess.run(["ip", "link", "del", "shoaltest1"], check=True)


def test_the_gateway_keeps_its_address_while_pods_come_and_go(cluster: Cluster) -> None:
    """Bridges take the lowest address of their ports, and a pod that knows the old one waits half a minute in vain."""
    bridge = Path("/sys/class/net", BRIDGE, "address")
    before = bridge.read_text()
    with port_with("02:00:00:00:00:01"):
        assert bridge.read_text() == before
    assert bridge.read_text() == before
