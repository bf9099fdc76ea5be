"""The local cluster as a backend: writes the request, starts a shepherd, reads what it wrote."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.backends.backend import Handle, Launch, Observation, Site
from shoal.backends.local import files
from shoal.frameworks import Run, environment
from shoal.launcher import processes
from shoal.launcher.replica import read_json, write_json
from shoal.launcher.stacks import Answer, collect
from shoal.plan import Replica, topology
from shoal.states import Outcome, Status

HOST = "127.0.0.1"
BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True)
class LocalRequest:
    """What the shepherd will find in request.json."""

    launch: Launch
    content: Mapping[str, Any]

    def __str__(self) -> str:
        """The processes that would run, each with its variables."""
        plan = self.launch.plan
        peers = topology(plan, lambda replica: (HOST, self.launch.ports.get(replica.name, "<port>")))
        blocks = []
        for replica in plan.replicas:
            run = Run(
                experiment=self.launch.experiment,
                name=plan.name,
                attempt=self.launch.attempt,
                params=plan.params,
                outputs=str(self.content["outputs"]),
                replica_outputs=f"{self.content['outputs']}/{replica.name}",
                data=str(self.content["data"]),
                streams="<streams>",
                log_level=plan.log_level,
            )
            variables = {**plan.env_vars, **environment(plan.framework, peers, peers.tasks[replica.rank], run)}
            lines = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
            blocks.append(f"# {replica.name}\ncd {shlex.quote(self.launch.cwd)}\n" + "\n".join(lines))
            blocks[-1] += f"\nbash -c {shlex.quote(plan.command)}"
        return "\n\n".join(blocks)


class LocalBackend:
    """Shepherds on this machine, their files below `home/experiments`."""

    def __init__(self, home: Path, *, gpus: int | None = None, archive: str = "") -> None:
        self.home = home
        self.gpus = gpus
        self.archive = archive
        self.shepherds: dict[str, subprocess.Popen[bytes]] = {}  # attempt directory -> the shepherd this server started

    def probe(self) -> Site:
        gpus = self.gpus if self.gpus is not None else len(list(Path("/dev").glob("nvidia[0-9]*")))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / BYTES_PER_MIB
        return Site(float(len(os.sched_getaffinity(0))), memory, tuple(range(gpus)), socket.gethostname())

    def render(self, launch: Launch, site: Site) -> LocalRequest:
        plan = launch.plan
        experiment = self.home / "experiments" / launch.experiment
        content = {
            "home": str(self.home),
            "experiment": launch.experiment,
            "uid": launch.uid,
            "attempt": launch.attempt,
            "name": plan.name,
            "node": site.node,
            "framework": plan.framework,
            "command": plan.command,
            "cwd": launch.cwd,
            "params": dict(plan.params),
            "env_vars": dict(plan.env_vars),
            "outputs": str(experiment / "outputs"),
            "data": str(experiment / "data"),
            "archive": self.archive,
            "log_level": plan.log_level,
            "oversubscribe": launch.oversubscribe,
            "policy": launch.policy.json(),
            "replicas": [self._replica(launch, replica) for replica in plan.replicas],
        }
        return LocalRequest(launch, content)

    def _replica(self, launch: Launch, replica: Replica) -> dict[str, Any]:
        memory, cpu = replica.resources.memory.limits, replica.resources.cpu.limits
        return {
            "name": replica.name,
            "role": replica.role,
            "index": replica.index,
            "rank": replica.rank,
            "n_trainers": replica.n_trainers,
            "uid": f"{launch.uid}-{launch.attempt}-{replica.name}",
            "host": HOST,
            "port": launch.ports.get(replica.name, 0),
            "devices": list(launch.devices.get(replica.name, ())),
            "memory_limit": int(memory * BYTES_PER_MIB) if memory is not None else None,
            "cpu_limit": cpu,
            "memory_from": launch.limits_from.get(replica.name, ""),
        }

    def assumed(self) -> str:
        return ""

    def lacks(self, path: str, experiment: str) -> str:
        return "" if os.path.exists(path) else f"{path} is not there any more"

    def submit(self, request: LocalRequest) -> Handle:
        launch = request.launch
        directory = self.home / "experiments" / launch.experiment / f"attempt-{launch.attempt}"
        directory.mkdir(parents=True, exist_ok=True)
        for place in (request.content["outputs"], request.content["data"]):
            Path(place).mkdir(parents=True, exist_ok=True)
        if not (directory / files.REQUEST).exists():
            write_json(str(directory / files.REQUEST), request.content)
        self._start_shepherd(str(directory))
        return f"local:{request.content['node']}/{processes.boot_id()}/{launch.experiment}/{launch.attempt}"

    def start(self, launch: Launch, site: Site) -> Handle:
        return self.submit(self.render(launch, site))

    def _start_shepherd(self, directory: str) -> None:
        """A second shepherd for the same attempt finds the lock or the traces of the first, and starts nothing."""
        running = self.shepherds.get(directory)
        if running is not None and running.poll() is None:
            return
        with open(os.path.join(directory, "shepherd.err"), "ab") as errors:
            self.shepherds[directory] = subprocess.Popen(
                [sys.executable, "-m", "shoal.backends.local.shepherd", directory],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                cwd="/",
                env=_own_environment(),
            )

    def observe(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        return {handle: self._observe(handle) for handle in handles}

    def _observe(self, handle: Handle) -> Observation:
        directory = str(self.directory(handle))
        wish = read_json(os.path.join(directory, files.STOP))
        grace = wish["grace"] if wish is not None else None
        result = read_json(os.path.join(directory, files.RESULT))
        if result is not None:
            self._forget(directory)
            outcome = Outcome.of(result)
            return Observation((*outcome.history, *outcome.statuses), outcome, stop_grace=grace)
        statuses = tuple(Status.of(entry) for entry in files.read_states(directory))
        newest = {(status.replica, status.try_): status for status in statuses}
        return Observation(tuple(newest.values()), missing=not self._tended(directory), stop_grace=grace)

    def _tended(self, directory: str) -> bool:
        """Whether a shepherd, or its twin, or one that is just starting looks after the attempt."""
        started = self.shepherds.get(directory)
        if started is not None and started.poll() is None:
            return True
        written = read_json(os.path.join(directory, files.SHEPHERD))
        if written is None or written["boot_id"] != processes.boot_id():
            return False
        return any(
            processes.alive(written[pid], written[start])
            for pid, start in (("pid", "start_time"), ("twin", "twin_start_time"))
        )

    def pids(self, handle: Handle) -> list[int]:
        """The shepherd and its twin: their ends are events for the engine."""
        written = read_json(str(self.directory(handle) / files.SHEPHERD))
        return [written["pid"], written["twin"]] if written is not None else []

    def stop(self, handle: Handle, reason: str, grace: float) -> None:
        directory = str(self.directory(handle))
        if not os.path.isdir(directory):
            return
        write_json(os.path.join(directory, files.STOP), {"reason": reason, "grace": grace})
        written = read_json(os.path.join(directory, files.SHEPHERD))
        if written is not None and processes.alive(written["pid"], written["start_time"]):
            os.kill(written["pid"], signal.SIGUSR1)

    def stacks(self, handle: Handle) -> tuple[list[Answer], list[str]]:
        directory = str(self.directory(handle))
        newest = {status.replica: status.try_ for status in self._observe(handle).statuses}
        return collect((name, Path(files.try_directory(directory, name, try_))) for name, try_ in newest.items())

    def sweep(self) -> None:
        """Nothing: whatever a shepherd leaves, it is looked for when it is asked about."""

    def close(self) -> None:
        """Nothing: shepherds do not need the server."""

    def directory(self, handle: Handle) -> Path:
        experiment, attempt = handle.split("/")[-2:]
        return self.home / "experiments" / experiment / f"attempt-{attempt}"

    def _forget(self, directory: str) -> None:
        process = self.shepherds.get(directory)
        if process is not None and process.poll() is not None:
            del self.shepherds[directory]


def _own_environment() -> dict[str, str]:
    """The shepherd's own variables: what the server has, without anything that marks a process as a replica's."""
    return {name: value for name, value in os.environ.items() if name != "SHOAL_REPLICA_UID"}
