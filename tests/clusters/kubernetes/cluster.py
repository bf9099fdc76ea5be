"""A real Kubernetes cluster on one machine, without Docker: one node, one bridge, RBAC on.

    python -m tests.clusters.kubernetes.cluster up       starts it and leaves it running
    python -m tests.clusters.kubernetes.cluster down     ends what `up` started

One cluster per machine, behind a lock: who finds one running uses it together with the others, and who leaves last ends
it, unless `up` was called meanwhile. What a run left that was killed, the next one uses and ends. Everything listens on
loopback or on the cluster's own bridge. Needs root.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clusters.daemons import DidNotStart, LeftBehind, end, free_ports, start_time, until
from tests.clusters.kubernetes import binaries, node, operator
from tests.clusters.kubernetes.node import GATEWAY, IMAGE, NODE
from tests.clusters.sharing import Shared
from tests.environments import CannotMake, cache

__all__ = ["GATEWAY", "IMAGE", "Cluster", "Programs", "free_ports", "kubeconfig", "running", "until"]

SERVICES = "10.96.0.0/24"
NEEDS_ROOT = "kubernetes: a cluster needs root (network, control groups, containers)"
HURRY = ("--kube-api-qps=500", "--kube-api-burst=1000")  # by default hundreds of pods take minutes to come and go


class Cluster:
    """Where it lies and how it is spoken to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.programs = binaries.programs()

    @property
    def kubeconfig(self) -> Path:
        return self.place / "admin.kubeconfig"

    @property
    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / "cluster.json").read_text())
        return found

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One question to the API server as its administrator. Raises urllib.error.HTTPError."""
        context = ssl.create_default_context(cafile=str(self.place / "pki" / "ca.crt"))
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.info['port']}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self.info['token']}", "Content-Type": kind},
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=30) as answer:
            data = answer.read()
        try:
            return json.loads(data)
        except ValueError:
            return data.decode()

    def alive(self) -> bool:
        try:
            return bool(self.ask("GET", "/readyz") == "ok")
        except (OSError, KeyError, ValueError):
            return False


@contextlib.contextmanager
def running(*, keep: bool = False) -> Iterator[Cluster]:
    """The cluster of this machine; started when there is none, and then ended by the last who uses it."""
    if os.geteuid() != 0:
        raise CannotMake(NEEDS_ROOT)
    cluster = Cluster(cache() / "cluster")
    with _shared(cluster).used(keep=keep):
        operator.ensure(cluster)
        yield cluster


def _shared(cluster: Cluster) -> Shared:
    place = cluster.place
    return Shared(
        place, alive=cluster.alive, up=lambda: up(cluster), down=lambda: down(place), ended=lambda: _ended(place)
    )


def _ended(place: Path) -> None:
    remains = node.left(place)
    if remains:
        raise LeftBehind(f"kubernetes: the cluster is ended, and left {', '.join(remains)}")


@contextlib.contextmanager
def changing(cluster: Cluster) -> Iterator[None]:
    """One at a time adds a program to a cluster that runs."""
    with (cluster.place / "changes").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def up(cluster: Cluster) -> None:
    """Starts all programs and waits until the node is ready."""
    place = cluster.place
    for stale in ("etcd", "cluster.json", "logs", "kubelet"):
        _remove(place / stale)
    for name in ("logs", "etcd", "pki", "cni", "kubelet", "run"):
        (place / name).mkdir(exist_ok=True)
    pki(place / "pki")
    node.network(place)
    ports = free_ports(8)
    token = secrets.token_hex(16)
    (place / "pki" / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (place / "pki" / "tokens.csv").chmod(0o600)
    info: dict[str, Any] = {"port": ports[0], "token": token, "pids": {}, "ports": ports}
    kubeconfig(place / "admin.kubeconfig", place, ports[0], token)
    programs = Programs(cluster, info)
    programs.start("etcd", ["/usr/bin/etcd", "--data-dir", str(place / "etcd"),
                   "--listen-client-urls", f"http://127.0.0.1:{ports[1]}",
                   "--advertise-client-urls", f"http://127.0.0.1:{ports[1]}",
                   "--listen-peer-urls", f"http://127.0.0.1:{ports[2]}", "--unsafe-no-fsync",
                   "--initial-advertise-peer-urls", f"http://127.0.0.1:{ports[2]}",
                   "--initial-cluster", f"default=http://127.0.0.1:{ports[2]}"])  # fmt: skip
    programs.api_server()
    until("the API server", cluster.alive)
    admin = str(place / "admin.kubeconfig")
    programs.start("controller-manager", ["kube-controller-manager", f"--kubeconfig={admin}", "--leader-elect=false",
                   f"--secure-port={ports[3]}", "--bind-address=127.0.0.1", "--use-service-account-credentials=true",
                   f"--service-account-private-key-file={place}/pki/sa.key", f"--root-ca-file={place}/pki/ca.crt",
                   "--concurrent-gc-syncs=5", *HURRY])  # fmt: skip
    programs.start("scheduler", ["kube-scheduler", f"--kubeconfig={admin}", "--leader-elect=false",
                   f"--secure-port={ports[4]}", "--bind-address=127.0.0.1", *HURRY])  # fmt: skip
    operator.start(cluster, programs)
    node.containerd(place, programs)
    node.images(place)
    node.kubelet(place, programs, ports[5])
    node.dns(place, programs)
    until("the node", lambda: node_ready(cluster))
    operator.ready(cluster)


class Programs:
    """Starts programs that outlive us when we are asked to leave them; their pids are written down."""

    def __init__(self, cluster: Cluster, info: dict[str, Any]) -> None:
        self.cluster = cluster
        self.info = info

    def start(self, name: str, command: list[str], **variables: str) -> int:
        program = command[0] if command[0].startswith("/") else str(self.cluster.programs / command[0])
        place = self.cluster.place
        with (place / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=place,
                env={**os.environ, **variables},
            )
        self._keep(name, [process.pid, start_time(process.pid)])
        return process.pid

    def runs(self, name: str) -> bool:
        known = self.info["pids"].get(name)
        return known is not None and start_time(known[0]) == known[1]

    def api_server(self, name: str = "apiserver", port: int = 0) -> None:
        """The one that all use; under another name one more beside it, on a port of its own."""
        place, ports = self.cluster.place, self.info["ports"]
        self.start(name, ["kube-apiserver", f"--etcd-servers=http://127.0.0.1:{ports[1]}",
                   f"--secure-port={port or ports[0]}", "--bind-address=127.0.0.1", f"--advertise-address={GATEWAY}",
                   f"--service-cluster-ip-range={SERVICES}", f"--tls-cert-file={place}/pki/server.crt",
                   f"--tls-private-key-file={place}/pki/server.key", f"--client-ca-file={place}/pki/ca.crt",
                   f"--token-auth-file={place}/pki/tokens.csv", "--authorization-mode=RBAC",
                   f"--service-account-key-file={place}/pki/sa.pub",
                   f"--service-account-signing-key-file={place}/pki/sa.key",
                   "--service-account-issuer=https://kubernetes.default.svc",
                   "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true",
                   # Debian's etcd cannot tell how far a watch is: clients that stream lists would try it in vain.
                   "--feature-gates=WatchList=false",
                   f"--kubelet-client-certificate={place}/pki/server.crt",
                   f"--kubelet-client-key={place}/pki/server.key"])  # fmt: skip

    def _keep(self, name: str, known: list[int | None]) -> None:
        """Others may have started programs since we read the file."""
        path = self.cluster.place / "cluster.json"
        with (self.cluster.place / "pids").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                self.info["pids"] = json.loads(path.read_text())["pids"]
            self.info["pids"][name] = known
            path.with_suffix(".new").write_text(json.dumps(self.info))
            path.with_suffix(".new").chmod(0o600)
            path.with_suffix(".new").rename(path)


def down(place: Path) -> None:
    """Ends everything that `up` started, by pid, and what containers left."""
    try:
        info = json.loads((place / "cluster.json").read_text())
    except (FileNotFoundError, ValueError):
        info = {"pids": {}}
    order = ["kubelet", "operator", "kwok", "dns", "scheduler", "controller-manager", "apiserver", "etcd"]
    for name in [*order, *[name for name in info["pids"] if name not in order and name != "containerd"]]:
        end(info["pids"].get(name))
    node.end_containers(place)
    end(info["pids"].get("containerd"))
    node.clear(place)
    for stale in ("run", "kubelet", "cluster.json", "etcd"):
        _remove(place / stale)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def pki(place: Path) -> None:
    """A certificate authority, the API server's certificate, and the key of service accounts; made once."""
    if (place / "complete").exists():
        return

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "3650",
            "-subj", "/CN=shoal test authority")  # fmt: skip
    names = "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1"
    (place / "server.ext").write_text(f"subjectAltName={names},IP:{GATEWAY},IP:10.96.0.1\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr",
            "-subj", "/O=system:masters/CN=kube-apiserver")  # fmt: skip
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days",
            "3650", "-out", "server.crt", "-extfile", "server.ext")  # fmt: skip
    openssl("genrsa", "-out", "sa.key", "2048")
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    (place / "complete").touch()


def kubeconfig(path: Path, place: Path, port: int, token: str, namespace: str = "default") -> Path:
    authority = base64.b64encode((place / "pki" / "ca.crt").read_bytes()).decode()
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": authority}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


def node_ready(cluster: Cluster) -> bool:
    try:
        node = cluster.ask("GET", f"/api/v1/nodes/{NODE}")
    except (urllib.error.HTTPError, OSError):
        return False
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in node["status"]["conditions"])


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb not in ("up", "down"):
        print("usage: cluster up|down", file=sys.stderr)
        return 2
    try:
        if verb == "up":
            with running(keep=True) as cluster:
                print(f"KUBECONFIG={cluster.kubeconfig}")
        elif os.geteuid() != 0:
            raise CannotMake(NEEDS_ROOT)
        else:
            _shared(Cluster(cache() / "cluster")).end()
    except (CannotMake, DidNotStart, LeftBehind) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
