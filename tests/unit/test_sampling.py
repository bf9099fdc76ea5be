"""What real processes use is what is sampled, whoever started them; and a GPU is asked as NVIDIA's library is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal import journal
from shoal.launcher import sampling
from shoal.launcher.limits import Group, detect
from shoal.launcher.nvml import Gpus
from shoal.launcher.sampling import Sampler, Tree
from tests.launched import environment, frames, points, ran, start, try_directory, until_recorded
from tests.running import until

# Processes wait for the end of their input, which they have from this one: so their children end with them.
WAITS = "import sys; sys.stdin.read()"
# Each holds so many bytes, in processes of every sort, and waits.
HOLDS = "x = bytearray({size}); x[::4096] = b'1' * len(x[::4096]); print('ready', flush=True); " + WAITS
MIB = 1 << 20


@pytest.fixture
def child() -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def make(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()  # closes its input, which its children share


def test_memory_and_processes_of_the_whole_tree_are_counted(child: Any) -> None:
    tree = Tree(os.getpid())
    before = tree.look()
    inner = HOLDS.format(size=20 * MIB)
    outer = (
        "import subprocess, sys, threading\n"
        f"inner = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE)\n"
        "inner.stdout.readline()\n"
        # A child of another thread than the first is in that thread's list.
        "def start():\n"
        f"    global second; second = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE)\n"
        "    second.stdout.readline(); print('ready', flush=True); threading.Event().wait()\n"
        f"threading.Thread(target=start).start(); {WAITS}\n"
    )
    child(outer)
    after = tree.look()
    assert after.alive == before.alive + 3
    assert after.resident - before.resident > 40 * MIB
    assert len(tree.pids) >= 3


@pytest.mark.slow
def test_the_time_of_children_that_lived_between_two_looks_counts() -> None:
    tree = Tree(os.getpid())
    before = tree.look()
    for _ in range(3):
        burn = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)
    assert tree.look().cpu - before.cpu >= 0.25


def test_what_is_read_and_written_by_the_tree_counts(tmp_path: Path, child: Any) -> None:
    tree = Tree(os.getpid())
    before = tree.look()
    write = f"import os; f = open({str(tmp_path / 'x')!r}, 'wb'); f.write(b'1' * {4 * MIB}); f.flush(); os.fsync(f)"
    process = child(f"{write}\nprint('ready', flush=True); {WAITS}")
    told = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    after = tree.look()
    assert after.written - before.written == int(told["write_bytes"])
    assert after.read - before.read == int(told["read_bytes"])


def test_a_tree_is_found_without_lists_of_children(child: Any) -> None:
    child(HOLDS.format(size=MIB))
    tree = Tree(os.getpid())
    listed = tree.look()
    tree._listed = False  # a kernel without CONFIG_PROC_CHILDREN
    scanned = tree.look()
    assert (scanned.alive, tree.pids) == (listed.alive, tree.pids)
    assert scanned.alive >= 1


def test_network_counts_all_interfaces_but_loopback(tmp_path: Path) -> None:
    file = tmp_path / "dev"
    head = (
        "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n"
    )
    file.write_text(
        head + "    lo: 5 1 0 0 0 0 0 0 7 1 0\n  eth0: 100 1 0 0 0 0 0 0 200 1 0\neth1:1 1 0 0 0 0 0 0 2 1 0\n"
    )
    assert sampling.network(str(file)) == (101, 202)
    assert sampling.network(str(tmp_path / "none")) == (0, 0)


def test_samples_come_often_at_first_and_are_numbered(tmp_path: Path, child: Any) -> None:
    child(HOLDS.format(size=MIB))
    sampler = Sampler(str(tmp_path), {"replica": "worker-0", "started": 1.0}, os.getpid(), memory_limit=123)
    pauses = []
    for _ in range(22):
        pauses.append(sampler.pause)
        sampler.sample()
    sampler.close()
    assert pauses == [sampling.EARLY, *[sampling.OFTEN] * 19, sampling.RARELY, sampling.RARELY]
    found = points(tmp_path, "resource")
    assert [step for step, _, _ in found["cpu"]] == list(range(23))
    assert [step for step, _, _ in found["memory"]] == list(range(22))  # the last sample is of the dead
    assert {value for _, _, value in found["memory_limit"]} == {123.0}
    assert all(abs(at - time.time()) < 60 for _, at, _ in found["cpu"])
    [(_, items)] = frames(tmp_path)
    assert items[-1].kind == journal.END


@pytest.mark.parametrize(
    ("command", "names"),
    [
        pytest.param("true", {"cpu"}, id="a command that ends at once has its end"),
        pytest.param(
            until_recorded("memory"),
            {"cpu", "memory", "processes", "disk_read", "net_in"},
            id="one that lives for a moment has a sample",
        ),
    ],
)
def test_every_replica_has_samples(tmp_path: Path, command: str, names: set[str]) -> None:
    directory = ran(tmp_path, command)
    found = points(directory / "streams", "resource")
    assert names <= set(found)
    [(header, items)] = frames(directory / "streams")
    assert (header["replica"], header["rank"], header["kind"]) == ("worker-0", 0, "resource")
    assert items[-1].kind == journal.END
    assert not (directory / "companion.err").exists()


def test_the_work_of_a_replica_is_in_its_samples(tmp_path: Path) -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    directory = ran(tmp_path, f'{sys.executable} -c "{burn}" & wait', SHOAL_REPLICA="worker-1")
    found = points(directory / "streams", "resource")
    [(header, _)] = frames(directory / "streams")
    begins = [header["started"], *(at for _, at, _ in found["cpu"])]
    seconds = sum(value * (at - begin) for (_, at, value), begin in zip(found["cpu"], begins, strict=False))
    assert 0.25 < seconds < 3
    assert header["rank"] == 1


def test_a_control_group_counts_for_its_replica(tmp_path: Path) -> None:
    """Where this machine lets us make groups; elsewhere the counters of the tree stand in, which others tests see."""
    kind = detect()
    if kind:
        group = Group.create(kind, f"shoal-test-{os.getpid()}", 512 * MIB, None)
        code = HOLDS.format(size=30 * MIB)
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=group.add
        )  # without a pipe of its own it may have nothing to wait for
        assert process.stdout is not None
        process.stdout.readline()
        try:
            used = sampling.group_memory(group)
            cpu = sampling.group_cpu(group)
            assert used is None or used > 30 * MIB
            assert cpu is None or cpu > 0
        finally:
            process.kill()
            process.wait()
            group.remove()
    text = b"anon 10\ninactive_file 5\n"
    assert sampling._counts(text) == {b"anon": 10, b"inactive_file": 5}


def heard(directory: Path) -> str:
    """Waits, in a shell, until the companion of a command has complained."""
    return f"until grep -qs Error {directory}/companion.err; do sleep 0.05; done"


def test_a_failure_beside_the_command_harms_nothing_and_is_written_down(tmp_path: Path) -> None:
    directory = try_directory(tmp_path)
    launcher = start(tmp_path, f"{heard(directory)}; echo done", SHOAL_SINK="nonsense:")
    launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    assert (directory / "log" / "000000").read_bytes() == b"done\n"
    said = (directory / "companion.err").read_text()
    assert said.count("ValueError: SHOAL_SINK=nonsense:") == 2  # the line, and the end of the traceback


def test_a_stream_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    launcher = start(tmp_path, f"rm -rf $SHOAL_STREAMS; {heard(try_directory(tmp_path))}; echo done")
    launcher.communicate(timeout=60)
    assert (try_directory(tmp_path) / "log" / "000000").read_bytes() == b"done\n"
    assert (try_directory(tmp_path) / "exit.json").exists()
    assert "sampling: FileNotFoundError" in (try_directory(tmp_path) / "companion.err").read_text()


def test_the_command_does_not_see_where_its_files_go(tmp_path: Path) -> None:
    sink = {"SHOAL_SINK": f"directory:{tmp_path / 'sink'}", "SHOAL_SINK_TOKEN": "secret"}
    directory = ran(tmp_path, "env", **sink)
    assert b"SHOAL_SINK" not in (directory / "log" / "000000").read_bytes()
    assert environment(tmp_path, **sink)["SHOAL_SINK_TOKEN"] == "secret"


NVML = r"""
#include <string.h>
struct rates { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
static int numbers[3] = {0, 1, 2};
int nvmlInit_v2(void) { return FAILS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **handle) { *handle = &numbers[n]; return n < 3 ? 0 : 2; }
int nvmlDeviceGetUUID(int *device, char *name, unsigned length) {
  strcpy(name, *device == 0 ? "GPU-aaaa-0" : *device == 1 ? "GPU-bbbb-1" : "GPU-cccc-2"); return 0; }
int nvmlDeviceGetUtilizationRates(int *device, struct rates *out) { out->gpu = 90 + *device; return 0; }
int nvmlDeviceGetMemoryInfo(int *device, struct memory *out) {
  out->total = 80ull << 30; out->free = 0; out->used = (8ull << 30) + *device; return 0; }
int nvmlDeviceGetPowerUsage(int *device, unsigned *out) { *out = 250500; return *device == 2 ? 3 : 0; }
int nvmlDeviceGetTemperature(int *device, int sensor, unsigned *out) { *out = 60 + *device + sensor; return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"), "0")


def compiled(place: Path, fails: str) -> Path:
    """A library that answers as NVML does, for there is no GPU here."""
    (place / "nvml.c").write_text(NVML)
    target = place / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DFAILS={fails}", "-o", target, place / "nvml.c"], check=True)
    return target


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        pytest.param(None, [0, 1, 2], id="no word means all"),
        pytest.param("", [], id="an empty word means none"),
        pytest.param("2,0", [2, 0], id="numbers"),
        pytest.param("GPU-bbbb", [1], id="the beginning of a uuid"),
        pytest.param("1,7,0", [1], id="nothing after a device that is not there"),
        pytest.param("-1", [], id="a number that hides all"),
    ],
)
def test_only_visible_devices_are_sampled(library: Path, visible: str | None, numbers: list[int]) -> None:
    assert [number for number, _ in Gpus(visible, str(library)).devices] == numbers


def test_what_a_device_tells(library: Path) -> None:
    gpus = Gpus("0,2", str(library))
    assert gpus.read() == {
        "gpu0/utilization": 90.0,
        "gpu0/memory": float(8 << 30),
        "gpu0/power": 250.5,
        "gpu0/temperature": 60.0,
        "gpu2/utilization": 92.0,
        "gpu2/memory": float((8 << 30) + 2),
        "gpu2/temperature": 62.0,  # it does not tell its power
    }
    gpus.close()
    assert gpus.read() == {}


def test_a_library_that_fails_or_is_missing_is_no_gpu(tmp_path: Path) -> None:
    assert Gpus(None, str(compiled(tmp_path, "9"))).devices == []
    assert Gpus(None, str(tmp_path / "nowhere.so")).devices == []


def test_a_replica_samples_its_gpus(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    directory = ran(tmp_path, until_recorded("gpu1/power"), CUDA_VISIBLE_DEVICES="1")
    found = points(directory / "streams", "resource")
    assert {name for name in found if name.startswith("gpu")} == {
        f"gpu1/{name}" for name in ("utilization", "memory", "power", "temperature")
    }


def test_a_launcher_with_a_companion_still_obeys(tmp_path: Path) -> None:
    launcher = start(tmp_path, "sleep 60")
    log = try_directory(tmp_path) / "streams"
    until(lambda: log.exists() and list(log.iterdir()), "the first sample")
    launcher.terminate()
    launcher.communicate(timeout=60)
    assert b'"stopped": true' in (try_directory(tmp_path) / "exit.json").read_bytes()
