"""`shoal serve` on the cluster's bridge, where pods reach it, with a certificate of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from shoal.client import alive
from tests.clusters.kubernetes.cluster import GATEWAY, Cluster, free_ports
from tests.running import SHOAL, until


def certificate(place: Path, *names: str) -> tuple[Path, Path, Path]:
    """An authority's certificate, and a certificate with its key that it signed for these names."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=shoal test")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    (place / "names").write_text(f"subjectAltName={','.join(names)}\n")
    openssl(*new, "-keyout", "server.key", "-out", "server.csr")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", "server.pem", "-extfile", "names")  # fmt: skip
    return place / "ca.pem", place / "server.pem", place / "server.key"


def https_sink(place: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a cluster's section says of a server on the bridge, and the options with which it is that server."""
    authority, chain, key = certificate(place, f"IP:{GATEWAY}")
    (port,) = free_ports(1)
    options = ("--host", GATEWAY, "--port", str(port), "--tls-cert", str(chain), "--tls-key", str(key))
    return {"sink": f"https://{GATEWAY}:{port}", "sink_ca": str(authority)}, options


@contextlib.contextmanager
def serving(home: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server of a home until the end of the block; whoever kills it before is free to."""
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen([SHOAL, "serve", *options], stdout=log, stderr=log, env=dict(os.environ))
    try:
        until(lambda: process.poll() is not None or alive(home), "a server")
        assert process.poll() is None, (home / "serve.log").read_text()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def kubectl(cluster: Cluster, *arguments: str) -> str:
    """The real kubectl, as the administrator; what it printed."""
    command = [str(cluster.programs / "kubectl"), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
