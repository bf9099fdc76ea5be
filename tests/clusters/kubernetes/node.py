"""The one node of the cluster: its bridge, containerd with the images of the tests, the kubelet, and DNS."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clusters.daemons import DidNotStart, until
from tests.clusters.kubernetes import binaries

if TYPE_CHECKING:
    from tests.clusters.kubernetes.cluster import Programs

BRIDGE, GATEWAY, SUBNET = "shoaltest0", "10.88.0.1", "10.88.0.0/24"
ADDRESS = "02:00:0a:58:00:01"  # without one of its own a bridge has that of a pod, and no pod reaches it when that ends
NODE = "shoal-node"
IMAGE = "shoal.test/python:2"
PAUSE = "shoal.test/pause:1"
GROUPS = Path("/sys/fs/cgroup")
PROGRAMS = {*binaries.PARTS, *binaries.INSTALLED, "etcd", "containerd", "containerd-shim-runc-v2"}


def network(place: Path) -> None:
    """The bridge before the first pod: DNS and the kubelet listen on it."""

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    if not Path("/sys/class/net", BRIDGE).exists():
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "address", ADDRESS, "up")
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": SUBNET}]], "dataDir": str(place / "run" / "ipam")},
    }
    content = {"cniVersion": "0.4.0", "name": "shoal", "plugins": [bridge]}
    (place / "cni" / "10-shoal.conflist").write_text(json.dumps(content))


def containerd(place: Path, programs: Programs) -> None:
    address = place / "run" / "containerd.sock"
    (place / "containerd.toml").write_text(f"""version = 2
root = "{place}/containerd"
state = "{place}/run/containerd"
[grpc]
  address = "{address}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{_snapshotter(place)}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{place}/cni"
""")
    programs.start("containerd", ["/usr/bin/containerd", "--config", str(place / "containerd.toml")])
    until("containerd", lambda: _ctr(place, "version").returncode == 0)


def _snapshotter(place: Path) -> str:
    """overlayfs where it can be mounted: `native` copies the whole image for each container."""
    probe = place / "run" / "overlay"
    for name in ("lower", "upper", "work", "merged"):
        (probe / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={probe}/lower,upperdir={probe}/upper,workdir={probe}/work"
    done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(probe / "merged")],
                          capture_output=True, check=False)  # fmt: skip
    if done.returncode:
        return "native"
    subprocess.run(["umount", str(probe / "merged")], check=True)
    return "overlayfs"


def _ctr(place: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    address = str(place / "run" / "containerd.sock")
    return subprocess.run(["ctr", "-a", address, "-n", "k8s.io", *arguments], capture_output=True, check=False)


def images(place: Path) -> None:
    """The test image and the pause image, written by hand and handed to containerd."""
    have = _ctr(place, "images", "ls", "-q").stdout.decode().split()
    if PAUSE not in have:
        with tarfile.open(place / "pause-layer.tar", "w") as layer:
            layer.add("/usr/bin/busybox", "busybox")
        _import(place, PAUSE, place / "pause-layer.tar", ["/busybox", "sleep", "2147483647"])
    if IMAGE not in have:
        _import(place, IMAGE, binaries.rootfs(), ["/bin/bash"])


def _import(place: Path, name: str, layer: Path, command: list[str]) -> None:
    digest = hashlib.sha256()
    with layer.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    config = json.dumps({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
    }).encode()  # fmt: skip
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    archive = place / "image.tar"
    with tarfile.open(archive, "w") as target:
        for entry, data in ((config_name, config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(entry)
            info.size = len(data)
            target.addfile(info, io.BytesIO(data))
        target.add(layer, "layer.tar")
    done = _ctr(place, "images", "import", str(archive))
    archive.unlink()
    if done.returncode:
        raise DidNotStart(f"kubernetes: ctr images import: {done.stderr.decode().strip()[-300:]}")


def kubelet(place: Path, programs: Programs, port: int) -> None:
    content = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,  # they would outlive it, and nothing here goes through them
        "resolvConf": "/dev/null",
        "clusterDNS": [GATEWAY],
        "clusterDomain": "cluster.local",
        "localStorageCapacityIsolation": False,
        "containerRuntimeEndpoint": f"unix://{place}/run/containerd.sock",
        "address": GATEWAY,
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                           "x509": {"clientCAFile": str(place / "pki" / "ca.crt")}},
        "authorization": {"mode": "AlwaysAllow"},
        "maxPods": 200,
        "cgroupRoot": "/",
        "evictionHard": {"memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": str(place / "kubelet" / "logs"),
        "syncFrequency": "5s",
        "fileCheckFrequency": "5s",
        "nodeStatusUpdateFrequency": "2s",
    }  # fmt: skip
    (place / "kubelet.json").write_text(json.dumps(content))
    programs.start("kubelet", ["kubelet", f"--config={place}/kubelet.json", f"--kubeconfig={place}/admin.kubeconfig",
                   f"--root-dir={place}/kubelet", f"--hostname-override={NODE}", f"--node-ip={GATEWAY}",
                   f"--cert-dir={place}/kubelet/pki"])  # fmt: skip


def dns(place: Path, programs: Programs) -> None:
    """The names of the cluster; all others do not exist, as a cluster that asks the world would say."""
    (place / "Corefile").write_text(f"""cluster.local:53 {{
    bind {GATEWAY}
    kubernetes cluster.local {{
        kubeconfig {place}/admin.kubeconfig test
        ttl 1
    }}
}}
.:53 {{
    bind {GATEWAY}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
""")
    programs.start("dns", ["coredns", "-conf", str(place / "Corefile")])


def end_containers(place: Path) -> None:
    """Shims hold the containers; each names our socket in its arguments."""
    socket_name = str(place / "run" / "containerd.sock")
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words and b"containerd-shim" in words[0] and socket_name.encode() in words:
            for pid in (*_below(int(entry)), int(entry)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [int(child), *_below(int(child))]
    return found


def clear(place: Path) -> None:
    """What containers and the kubelet leave when they are gone: mounts, network, control groups, links to logs."""
    for point in sorted(mounts(place), reverse=True):
        subprocess.run(["umount", "-l", point], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and os.readlink(link).startswith(f"{place}/"):
            link.unlink()
    deadline = time.monotonic() + 10.0
    while _groups() and time.monotonic() < deadline:  # processes that were killed take a moment
        for root in _groups():
            for directory, _, _ in os.walk(root, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
        time.sleep(0.05)


def left(place: Path) -> list[str]:
    """What is still there of a node that was ended and cleared: processes, mounts, links, control groups."""
    found = [f"a mount: {point}" for point in mounts(place)]
    found += [f"a control group: {group}" for group in _groups()]
    if Path("/sys/class/net", BRIDGE).exists():
        found.append(f"a link: {BRIDGE}")
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", entry, "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if os.path.basename(words[0]) in PROGRAMS and f"{place}/" in " ".join(words):
                found.append(f"a process: {entry} {words[0]}")
    return found


def _groups() -> list[Path]:
    return [path for path in [*GROUPS.glob("*/kubepods"), GROUPS / "kubepods"] if path.exists()]


def mounts(place: Path) -> list[str]:
    """What is mounted below a directory."""
    with open("/proc/self/mounts") as file:
        points = [line.split(" ")[1] for line in file]
    return [point for point in points if point.startswith(f"{place}/")]
