"""Control groups of version 1 on this machine, of version 2 on recorded trees.

Where this machine lets nobody make groups, the tests of version 1 hold what `detect` says instead.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.launcher import limits
from shoal.launcher.limits import Group, Kind, Mount, Setting

MIB = 1 << 20
DEADLINE = 60.0

HERE = limits.detect()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def unique() -> str:
    return f"shoal-test-{uuid.uuid4().hex}"


def real_group(memory: int | None, cores: float | None, oversubscribe: bool = False) -> Group | None:
    """A group on this machine; None where `detect` says, with a reason, that none can be made."""
    if not (HERE.memory and HERE.cpu):
        assert HERE.why
        return None
    return Group.create(HERE, unique(), memory, cores, oversubscribe)


def run_inside(group: Group, script: str) -> int:
    return subprocess.run([sys.executable, "-c", script], preexec_fn=group.add, timeout=DEADLINE).returncode


def test_a_replica_beyond_its_memory_is_killed_and_the_kernel_says_so() -> None:
    if group := real_group(64 * MIB, None):
        try:
            assert run_inside(group, f"b = bytearray({256 * MIB})") == -signal.SIGKILL
            assert group.oom_kills() == 1
            peak = group.peak()
            assert peak is not None
            assert 60 * MIB < peak <= 64 * MIB
        finally:
            assert group.remove()
        assert (group.oom_kills(), group.peak()) == (1, peak)


def test_any_other_sigkill_is_not_taken_for_want_of_memory() -> None:
    if group := real_group(64 * MIB, None):
        try:
            assert run_inside(group, "import os; os.kill(os.getpid(), 9)") == -signal.SIGKILL
            assert group.oom_kills() == 0
            assert (group.peak() or 0) > 0
        finally:
            assert group.remove()


def test_a_replica_within_its_memory_is_left_alone() -> None:
    if group := real_group(256 * MIB, 1):
        try:
            assert run_inside(group, f"b = bytearray({64 * MIB})") == 0
            assert group.oom_kills() == 0
            assert (group.peak() or 0) > 64 * MIB
        finally:
            assert group.remove()


def test_an_oversubscribed_replica_is_measured_and_not_limited() -> None:
    if group := real_group(32 * MIB, 0.1, oversubscribe=True):
        try:
            assert run_inside(group, f"b = bytearray({64 * MIB})") == 0
            assert (group.peak() or 0) > 64 * MIB
        finally:
            assert group.remove()


def test_cores_are_limited(children: list[subprocess.Popen[bytes]]) -> None:
    if group := real_group(None, 0.1):
        try:
            child = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=group.add)
            children.append(child)
            statistics = Path(HERE.cpu, group.name, "cpu.stat")
            until(lambda: limits.parse_counts(statistics.read_text()).get("nr_throttled", 0) > 0)
            assert group.pids() == {child.pid}
            assert group.usage()
            child.kill()
            child.wait()
        finally:
            assert group.remove()


def test_a_group_with_processes_is_not_removed_and_stays_for_the_next_cleaning(
    children: list[subprocess.Popen[bytes]],
) -> None:
    if group := real_group(None, None):
        child = subprocess.Popen(["sleep", "1000"], preexec_fn=group.add)
        children.append(child)
        assert not group.remove(within=0.01)
        assert limits.clean_leftovers(HERE, group.name) == []
        child.kill()
        child.wait()
        assert limits.clean_leftovers(HERE, group.name) == [group.name]
        assert group.remove()


def test_groups_inside_a_group_go_with_it() -> None:
    if group := real_group(None, None):
        Path(HERE.memory, group.name, "inner", "most").mkdir(parents=True)
        assert group.remove()


def test_detection_leaves_nothing_behind() -> None:
    assert limits.detect() == HERE
    # Others may be probing at the same time; theirs go, too.
    until(lambda: not [probe for each in HERE.directories for probe in Path(each).glob("shoal-probe-*")])


SYSTEMD = """\
24 30 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw
35 25 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""

MEMORY_FILES = {
    "memory.current": "0\n",
    "memory.max": "max\n",
    "memory.swap.max": "max\n",
    "memory.oom.group": "0\n",
    "memory.peak": "0\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
}
CPU_FILES = {"cpu.max": "max 100000\n", "cpu.stat": "usage_usec 0\nnr_throttled 0\n"}


class Recorded:
    """/proc and /sys/fs/cgroup of a machine of version 2, as far as they matter."""

    def __init__(self, root: Path, group: str = "/user.slice/run-r1.scope", mountinfo: str = SYSTEMD) -> None:
        self.proc = root / "proc"
        self.cgroup = root / "cgroup"
        self.own = self.cgroup / group.lstrip("/")
        self.own.mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text(mountinfo)
        (self.proc / "self" / "cgroup").write_text(f"0::{group}\n")

    def holds(
        self, *pids: int, controllers: str = "cpuset cpu io memory pids", given: str = "", kind: str = "domain"
    ) -> Recorded:
        fill(
            self.own,
            {
                "cgroup.controllers": controllers + "\n",
                "cgroup.procs": "".join(f"{pid}\n" for pid in pids),
                "cgroup.subtree_control": given + "\n",
                **({"cgroup.type": f"{kind}\n"} if kind else {}),
            },
        )
        return self

    def detect(self) -> Kind:
        return limits.detect(str(self.proc), str(self.cgroup))


def fill(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def test_v2_alone_in_a_delegated_group_we_move_into_a_leaf_and_pass_the_controllers_on(tmp_path: Path) -> None:
    machine = Recorded(tmp_path).holds(os.getpid())
    leaf = fill(machine.own / limits.LEAF, {"cgroup.procs": ""})
    assert machine.detect() == Kind(2, str(machine.own), str(machine.own))
    assert (leaf / "cgroup.procs").read_text() == str(os.getpid())
    assert (machine.own / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_v2_from_within_the_leaf_the_group_above_is_used(tmp_path: Path) -> None:
    machine = Recorded(tmp_path).holds(given="cpu memory")
    fill(machine.own / limits.LEAF, {"cgroup.procs": f"{os.getpid()}\n1\n"})
    (machine.proc / "self" / "cgroup").write_text(f"0::/user.slice/run-r1.scope/{limits.LEAF}\n")
    assert machine.detect() == Kind(2, str(machine.own), str(machine.own))


def test_v2_the_root_of_the_machine_may_hold_processes(tmp_path: Path) -> None:
    machine = Recorded(tmp_path, group="/").holds(1, 2, os.getpid(), kind="")
    assert machine.detect() == Kind(2, str(machine.cgroup), str(machine.cgroup))
    assert (machine.own / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not (machine.own / limits.LEAF).exists()


def test_v2_other_processes_in_our_group_are_not_moved_about(tmp_path: Path) -> None:
    machine = Recorded(tmp_path).holds(1, 2, os.getpid())
    kind = machine.detect()
    assert not kind
    assert "holds 2 other processes" in kind.why
    assert not (machine.own / limits.LEAF).exists()
    assert (machine.own / "cgroup.subtree_control").read_text() == "\n"


def test_v2_when_the_leaf_does_not_take_us_we_are_back_where_we_were(tmp_path: Path) -> None:
    """A directory that is no control group: nothing can be moved into it."""
    machine = Recorded(tmp_path).holds(os.getpid())
    kind = machine.detect()
    assert not kind
    assert "cannot limit its children" in kind.why
    assert not (machine.own / limits.LEAF).exists()


def test_v2_memory_alone_is_better_than_nothing(tmp_path: Path) -> None:
    machine = Recorded(tmp_path).holds(controllers="memory pids", given="memory pids")
    kind = machine.detect()
    assert kind == Kind(2, str(machine.own), "", f"cpu: {machine.own} is not given it")


def test_v2_without_delegation_nothing_is_possible(tmp_path: Path) -> None:
    machine = Recorded(tmp_path).holds(os.getpid(), controllers="pids")
    assert machine.detect() == Kind(why=f"{machine.own} is given neither memory nor cpu")


def test_v2_in_a_container_only_its_own_part_is_seen(tmp_path: Path) -> None:
    """The mount shows /docker/c1 at /sys/fs/cgroup, and /proc/self/cgroup names the whole path."""
    mountinfo = SYSTEMD.replace("0:30 / ", "0:30 /docker/c1 ")
    machine = Recorded(tmp_path, group="/", mountinfo=mountinfo).holds(given="cpu memory")
    (machine.proc / "self" / "cgroup").write_text("0::/docker/c1\n")
    assert machine.detect() == Kind(2, str(machine.cgroup), str(machine.cgroup))


NOTHING = {
    "no /proc": (None, None),
    "nothing mounted": ("24 30 0:22 / /proc rw - proc proc rw\n", "0::/\n"),
    "garbage": ("\0 - - cgroup2\n35 25 - cgroup2 x\n", "::::\n:\nx\n"),
    "a group outside of our namespace": (SYSTEMD, "0::/../../other\n"),
    "a group that the mount does not show": (SYSTEMD.replace("0:30 / ", "0:30 /docker/c1 "), "0::/docker/c2\n"),
    "a group that is gone": (SYSTEMD, "0::/gone\n"),
    "version 1 out of sight": (
        "35 31 0:32 /docker/c1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "4:memory:/x\n",
    ),
}


@pytest.mark.parametrize(("mountinfo", "groups"), NOTHING.values(), ids=NOTHING.keys())
def test_no_limits_and_a_reason_with(tmp_path: Path, mountinfo: str | None, groups: str | None) -> None:
    files = {"mountinfo": mountinfo, "cgroup": groups}
    fill(tmp_path / "proc" / "self", {name: text for name, text in files.items() if text is not None})
    kind = limits.detect(str(tmp_path / "proc"), str(tmp_path / "cgroup"))
    assert not kind
    assert kind.why


def test_a_hierarchy_of_version_1_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    """The own group is below a file system that refuses directories: /proc does, to root as well."""
    fill(
        tmp_path / "proc" / "self",
        {
            "mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
            "cgroup": "4:memory:/self\n",
        },
    )
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup" / "memory").symlink_to("/proc")
    kind = limits.detect(str(tmp_path / "proc"), str(tmp_path / "cgroup"))
    assert not kind
    assert "memory: " in kind.why
    assert "cannot be written" in kind.why
    assert "cpu: no hierarchy is mounted" in kind.why


@pytest.fixture
def v2(tmp_path: Path) -> Kind:
    return Recorded(tmp_path).holds(given="cpu memory").detect()


def test_v2_limits_are_written(v2: Kind) -> None:
    files = fill(Path(v2.memory, "shoal-u1"), {**MEMORY_FILES, **CPU_FILES, "cgroup.procs": ""})
    group = Group.create(v2, "shoal-u1", 512 * MIB, 1.5)
    assert (files / "memory.max").read_text() == str(512 * MIB)
    assert (files / "memory.swap.max").read_text() == "0"
    assert (files / "memory.oom.group").read_text() == "1"
    assert (files / "cpu.max").read_text() == "150000 100000"
    group.add(4711)
    assert (files / "cgroup.procs").read_text() == "4711"
    assert group.pids() == {4711}


def test_v2_older_kernels_lack_swap_and_peak(v2: Kind) -> None:
    files = fill(Path(v2.memory, "shoal-u1"), {"memory.max": "max\n", "memory.current": "4096\n"})
    group = Group.create(v2, "shoal-u1", MIB, None)
    assert group.peak() == 4096
    (files / "memory.current").write_text("8192\n")
    assert group.usage() == 8192
    (files / "memory.current").write_text("1024\n")
    assert group.peak() == 8192


def test_v2_kills_for_want_of_memory_are_counted(v2: Kind) -> None:
    files = fill(Path(v2.memory, "shoal-u1"), MEMORY_FILES)
    group = Group.create(v2, "shoal-u1", MIB, None)
    assert group.oom_kills() == 0
    (files / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 1\noom_kill 3\noom_group_kill 1\n")
    (files / "memory.peak").write_text("1048576\n")
    assert (group.oom_kills(), group.peak()) == (3, MIB)


def test_v2_a_group_that_cannot_have_its_limit_is_an_error_and_leaves_nothing(v2: Kind) -> None:
    with pytest.raises(FileNotFoundError):
        Group.create(v2, "shoal-u1", MIB, None)
    assert not Path(v2.memory, "shoal-u1").exists()


def test_cleaning_spares_groups_whose_maker_lives(v2: Kind) -> None:
    group = Group.create(v2, "shoal-u1", None, None)
    Path(v2.memory, "shoal-u2").mkdir()
    Path(v2.memory, "other").mkdir()
    assert limits.clean_leftovers(v2, "shoal-") == ["shoal-u2"]
    assert Path(v2.memory, "shoal-u1").is_dir()
    assert Path(v2.memory, "other").is_dir()
    assert group.remove()
    assert limits.clean_leftovers(v2, "shoal-") == []


def test_removing_twice_is_silent(v2: Kind) -> None:
    group = Group.create(v2, "shoal-u1", None, None)
    assert group.remove()
    assert group.remove()


def test_v1_without_a_count_of_kills_the_limit_that_was_hit_counts(tmp_path: Path) -> None:
    kind = Kind(1, str(tmp_path))
    files = {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n", "memory.failcnt": "0\n"}
    directory = fill(tmp_path / "shoal-u1", files)
    group = Group.create(kind, "shoal-u1", None, None)
    assert group.oom_kills() == 0
    (directory / "memory.failcnt").write_text("17\n")
    assert group.oom_kills() == 1


def test_without_control_groups_a_group_does_nothing() -> None:
    group = Group.create(Kind(), "shoal-u1", MIB, 1)
    group.add(os.getpid())
    assert (group.peak(), group.usage(), group.oom_kills(), group.pids()) == (None, None, 0, set())
    assert group.remove()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "-x", "a b", "a\n"])
def test_a_name_never_becomes_another_path(name: str) -> None:
    with pytest.raises(ValueError, match="control group"):
        Group.create(Kind(), name, None, None)


SETTINGS = {
    "version 1": (
        (1, 1024, 1.5),
        [
            Setting("memory", "memory.limit_in_bytes", "1024"),
            Setting("memory", "memory.memsw.limit_in_bytes", "1024", False),
            Setting("cpu", "cpu.cfs_period_us", "100000"),
            Setting("cpu", "cpu.cfs_quota_us", "150000"),
        ],
    ),
    "version 2": (
        (2, 1024, 0.25),
        [
            Setting("memory", "memory.max", "1024"),
            Setting("memory", "memory.swap.max", "0", False),
            Setting("memory", "memory.oom.group", "1", False),
            Setting("cpu", "cpu.max", "25000 100000"),
        ],
    ),
    "fewer cores than the kernel can count": ((2, None, 0.001), [Setting("cpu", "cpu.max", "1000 100000")]),
    "no limits": ((2, None, None), []),
    "oversubscribed": ((1, 1024, 1.0, True), []),
    "no control groups": ((0, 1024, 1.0), []),
}


@pytest.mark.parametrize(("asked", "expected"), SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_of(asked: tuple[int, int | None, float | None], expected: list[Setting]) -> None:
    assert limits.settings(*asked) == expected


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    text = (
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
        "41 31 0:38 /a\\040b /sys/fs/cgroup/unified rw - cgroup2 none rw\n"
        "23 1 0:21 / / rw - ext4 /dev/vda rw\n"
    )
    assert limits.parse_mounts(text) == [
        Mount("/", "/sys/fs/cgroup/cpu,cpuacct", 1, ("rw", "cpu", "cpuacct")),
        Mount("/a b", "/sys/fs/cgroup/unified", 2, ("rw",)),
    ]


def test_groups_are_read_as_the_kernel_writes_them() -> None:
    text = "9:name=systemd:/\n4:memory:/process:1\n1:cpu,cpuacct:/job_7\n0::/user.slice\n"
    assert limits.parse_groups(text) == {
        "name=systemd": "/",
        "memory": "/process:1",
        "cpu": "/job_7",
        "cpuacct": "/job_7",
        "": "/user.slice",
    }


LOCATIONS = {
    "the whole": (("/", "/sys/fs/cgroup"), "/a/b", "/r/a/b"),
    "our own part": (("/docker/c1", "/sys/fs/cgroup/memory"), "/docker/c1", "/r/memory"),
    "below our own part": (("/docker/c1", "/sys/fs/cgroup/memory"), "/docker/c1/x", "/r/memory/x"),
    "another with a longer name": (("/docker/c1", "/sys/fs/cgroup/memory"), "/docker/c11", None),
    "above the namespace": (("/", "/sys/fs/cgroup"), "/../x", None),
    "mounted elsewhere": (("/", "/sys/fs/cgroups"), "/", None),
}


@pytest.mark.parametrize(("mount", "group", "expected"), LOCATIONS.values(), ids=LOCATIONS.keys())
def test_the_directory_of(mount: tuple[str, str], group: str, expected: str | None) -> None:
    assert limits.locate(Mount(*mount, 2, ()), group, "/r") == expected
