"""A real Slurm cluster on one machine: munge, the controller, and a daemon for each of three nodes, all on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clusters.daemons import end, free_ports, start_time, until
from tests.clusters.debian import install
from tests.environments import CannotMake
from tests.recording import environment_for

NODES = 3
PACKAGES = {
    "munge": "/usr/sbin/munged",
    "slurmctld": "/usr/sbin/slurmctld",
    "slurmd": "/usr/sbin/slurmd",
    "slurm-client": "/usr/bin/srun",
}
PATIENCE = 240  # seconds: a framework takes long to load where others want the processors too

CONFIGURATION = """
ClusterName=shoal
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire=10
StateSaveLocation={place}/state
SlurmctldPidFile={place}/slurmctld.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdSpoolDir={place}/spool-%n
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# Heterogeneous jobs are started by the backfill scheduler only; a requeued one waits until its credential is over.
SchedulerParameters=bf_interval=1,sched_interval=1
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster of three nodes with two processors each."""

    configuration: Path

    def run(self, *command: str | Path, home: Path, cwd: Path) -> str:
        """A command of Slurm, run to its end; what it printed. Scripts of it record into `home`."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=environment_for(home, SLURM_CONF=str(self.configuration)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def running() -> Iterator[Slurm]:
    """A cluster until the end of the block. Raises CannotMake in one line."""
    if os.geteuid() != 0:
        raise CannotMake("slurm: needs root")
    install(PACKAGES, "slurm")
    started: list[list[int]] = []
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # the path of munge's socket must be short
        place = Path(name)
        configuration = _write(place)
        try:
            _start(started, place, *_munge(place))
            until("munge", (place / "munge.socket").exists)
            _start(started, place, "/usr/sbin/slurmctld", "-D", "-f", configuration)
            for number in range(NODES):
                _start(started, place, "/usr/sbin/slurmd", "-D", "-f", configuration, "-N", f"n{number}")
            until("slurm", lambda: _idle(configuration) == NODES)
            yield Slurm(configuration)
        finally:
            for known in reversed(started):
                end(known)


def _write(place: Path) -> Path:
    """slurm.conf, and the key that all daemons share."""
    place.chmod(0o755)  # munge refuses a socket that others could not reach
    (place / "state").mkdir()
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname()
    controller, *ports = free_ports(1 + NODES)
    nodes = [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"
        for number, port in enumerate(ports)
    ]
    path = place / "slurm.conf"
    path.write_text(CONFIGURATION.format(host=host, place=place, controller=controller, nodes="\n".join(nodes)))
    return path


def _munge(place: Path) -> list[str]:
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    named = [f"--{option}={place}/munge.{end}" for option, end in files.items()]
    return ["/usr/sbin/munged", "--foreground", "--force", *named]


def _start(started: list[list[int]], place: Path, *command: str | Path) -> None:
    """A daemon whose output lies beside its log."""
    with (place / "output").open("a") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    started.append([process.pid, start_time(process.pid) or 0])


def _idle(configuration: Path) -> int:
    """How many nodes wait for work."""
    command = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    env = {**os.environ, "SLURM_CONF": str(configuration)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0
