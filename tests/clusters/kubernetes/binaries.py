"""The programs of a real Kubernetes cluster, built once per machine from the Go registry and Debian's packages.

    python -m tests.clusters.kubernetes.binaries      builds what is missing, prints where it lies

A cold build takes about a quarter of an hour on two cores, so `make test` begins it while other tests run; what is
built is kept outside the checkout, keyed by version. The API server's own version is set by the linker: clients look
at it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.clusters.debian import install
from tests.environments import SYSTEM_LIBRARIES, CannotMake, cache

KUBERNETES = "1.34.4"
COREDNS = "1.14.7"
OPERATOR = "1.8.1"
KWOK = "0.8.0"

PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
INSTALLED = {
    "coredns": f"github.com/coredns/coredns@v{COREDNS}",
    "training-operator.v1": f"github.com/kubeflow/training-operator/cmd/training-operator.v1@v{OPERATOR}",
    "kwok": f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK}",
}
PACKAGES = {  # Debian package -> a file of it
    "etcd-server": "/usr/bin/etcd",
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iproute2": "/usr/sbin/ip",
    "iptables": "/usr/sbin/iptables",
    "busybox-static": "/usr/bin/busybox",
    "debootstrap": "/usr/sbin/debootstrap",
}
IN_IMAGE = ("python3", *SYSTEM_LIBRARIES["mxnet"])


def programs() -> Path:
    """The directory of all programs, built first where they are missing. Raises CannotMake in one line."""
    install(PACKAGES, "kubernetes")
    place = cache() / f"kubernetes-{KUBERNETES}"
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place / "lock"):
        if any(not (place / name).exists() for name in PARTS):
            _go()
            _kubernetes(place)
        for name, module in INSTALLED.items():
            versioned = place / f"{name}@{module.rpartition('@')[2]}"
            if not versioned.exists():
                _go()
                _install(module, name, versioned)
            _link(place / name, versioned.name)
    return place


def operator_manifests() -> Path:
    """CRDs and the webhook of the operator, from its module."""
    place = cache() / f"training-operator-{OPERATOR}"
    if (place / "complete").exists():
        return place
    with _alone(place.with_name(f".{place.name}.lock")):
        if (place / "complete").exists():
            return place
        _go()
        _say(f"training operator {OPERATOR}: its manifests")
        said = _run(["go", "mod", "download", "-json", f"github.com/kubeflow/training-operator@v{OPERATOR}"], "/")
        module = Path(json.loads(said)["Dir"])
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(module / "manifests" / "base", place)
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        (place / "complete").touch()
    return place


def rootfs() -> Path:
    """The tar of a small Debian with Python and what frameworks need of it: the file system of the test image."""
    included = ",".join(IN_IMAGE)
    made = cache() / f"debian-bookworm-{included.replace(',', '-')}.tar"
    if made.exists():
        return made
    install(PACKAGES, "kubernetes")
    made.parent.mkdir(parents=True, exist_ok=True)
    with _alone(made.with_name(f".{made.name}.lock")), tempfile.TemporaryDirectory(dir=made.parent) as place:
        if made.exists():
            return made
        _say("the image of the tests: Debian with Python")
        root = Path(place) / "root"
        _run(["debootstrap", "--variant=minbase", f"--include={included}", "bookworm", str(root), *_mirror()], "/")
        for unneeded in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"):
            shutil.rmtree(root / unneeded, ignore_errors=True)
        (root / "usr/bin/python").symlink_to("python3")
        new = made.with_suffix(".new")
        _run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(new), "."], "/")
        new.rename(made)
    return made


def _mirror() -> list[str]:
    """The mirror that apt of this machine is set up with."""
    texts = [path.read_text() for path in Path("/etc/apt").glob("sources.list*") if path.is_file()]
    texts += [path.read_text() for path in Path("/etc/apt/sources.list.d").glob("*") if path.is_file()]
    found = re.findall(r"(?m)^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(\S+://\S+)", "\n".join(texts))
    return [address for address in found if address.rstrip("/").endswith("/debian")][:1]


def _go() -> None:
    if not shutil.which("go"):
        raise CannotMake("kubernetes: needs go to build the cluster's programs")


def _kubernetes(place: Path) -> None:
    """A scratch module: Kubernetes' staging modules are published beside it under a version of their own."""
    staging = f"v0.{KUBERNETES.partition('.')[2]}"
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        _run(["go", "mod", "init", "cluster"], scratch)
        said = _run(["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"], scratch)
        names = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", Path(json.loads(said)["GoMod"]).read_text(), re.M)
        if not names:
            names = re.findall(r"^\s*(k8s\.io/[a-z-]+) v0\.", Path(json.loads(said)["GoMod"]).read_text(), re.M)
        edits = [f"-replace={name}={name}@{staging}" for name in sorted(set(names))]
        _run(["go", "mod", "edit", f"-require=k8s.io/kubernetes@v{KUBERNETES}", *edits], scratch)
        lines = "\n".join(f'\t_ "k8s.io/kubernetes/cmd/{part}"' for part in PARTS)
        Path(scratch, "main.go").write_text(f"package main\n\nimport (\n{lines}\n)\n\nfunc main() {{}}\n")
        _run(["go", "mod", "tidy", "-e"], scratch)
        major, minor, _ = KUBERNETES.split(".")
        version = "k8s.io/component-base/version"
        flags = (
            f"-s -w -X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
        )
        for part in PARTS:
            if not (place / part).exists():
                _say(f"{part} {KUBERNETES}")
                new = str(place / f"{part}.new")
                _run(["go", "build", "-o", new, "-ldflags", flags, f"k8s.io/kubernetes/cmd/{part}"], scratch)
                os.rename(new, place / part)


def _install(module: str, name: str, target: Path) -> None:
    _say(f"{name} {module.rpartition('@')[2]}")
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        _run(["go", "install", "-ldflags", "-s -w", module], place, {**os.environ, "GOBIN": place})
        os.rename(Path(place, name), target)


def _link(link: Path, target: str) -> None:
    if not link.is_symlink() or os.readlink(link) != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _run(command: Sequence[str], directory: str, environment: Mapping[str, str] | None = None) -> str:
    variables = {**(environment or os.environ), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod"}
    done = subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, check=False)
    if done.returncode and "tidy" not in command:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["no output"]
        raise CannotMake(f"kubernetes: {' '.join(command[:3])} failed with {done.returncode}: {lines[-1]}")
    return done.stdout


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Others who want the same wait, and find it made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(what: str) -> None:
    print(f"kubernetes: making {what}", file=sys.stderr, flush=True)


def main() -> int:
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # removes what is half made
    try:
        made = programs(), operator_manifests(), rootfs()
    except CannotMake as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*made, f"{time.monotonic() - start:.0f}s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
