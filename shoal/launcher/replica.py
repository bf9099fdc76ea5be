"""Runs the command of one replica: its environment, its log, its end.

The same program on every cluster; on a laptop it is forked by the shepherd, which saves the start of an interpreter for
each replica. It owns the pipe of the command, so no line is lost while anybody else dies, and it writes `exit.json`
when all processes of the replica are gone. The pipes are made by whoever starts the launcher, which can so drain them
should the launcher itself be killed:

    {"exit_code": 137, "signal": "SIGKILL", "reason": "OOMKilled", "stopped": false, "started": …, "finished": …}

Signals to the launcher: SIGTERM stops the command with its grace, SIGUSR2 ends it at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from shoal.launcher import container, processes
from shoal.launcher.arrivals import Arrivals
from shoal.launcher.companion import Companion
from shoal.launcher.limits import Group, Kind, MemoryWatch, detect
from shoal.launcher.logfile import LogWriter
from shoal.launcher.shipping import stays_behind
from shoal.states import OOM_KILLED, normal_exit

STDOUT, STDERR = 1, 2
LEFTOVER_GRACE = 2.0  # for what a command left running behind its back
STOPPED_PATIENCE = 8.0  # for what is still to be carried when somebody wants the end now
DRAIN = 1.0  # for the last bytes of a pipe whose other end somebody still holds


@dataclass(frozen=True)
class Task:
    """One start of one replica, with everything resolved."""

    uid: str
    directory: str  # of this try: `log`, `streams` and exit.json lie in it
    command: str
    cwd: str
    env: Mapping[str, str]
    grace: float
    memory_limit: Optional[int] = None  # bytes
    cpu_limit: Optional[float] = None  # cores
    memory_from: str = ""  # the line of the file that set it
    watch_only: bool = False  # --oversubscribe: limits are watched, not enforced
    pipes: Tuple[Tuple[int, int], Tuple[int, int]] = ((-1, -1), (-1, -1))  # (read, write) of stdout and stderr
    groups: Optional[Kind] = None  # which control groups can be written, when that is known already
    echo: bool = False  # what the command prints goes to the launcher's own output too
    trouble: str = ""  # why the command cannot be started
    contained: bool = False  # the launcher is the program of a container, which has the limits already


def run(task: Task) -> bool:
    """Runs the task to its end. Silent: what there is to say stands in the log and in exit.json.

    Whether somebody asked it to stop, be it after its command had ended.
    """
    launcher = Launcher(task)
    launcher.run()
    return launcher.stop_asked


class Launcher:
    def __init__(self, task: Task) -> None:
        self.task = task
        # With a container, all that could go on with it dies.
        self.arrivals = Arrivals(None if task.contained else task.directory)
        self.log = LogWriter(os.path.join(task.directory, "log"), arrivals=self.arrivals)
        self.child: Optional[subprocess.Popen[bytes]] = None
        self.group: Optional[Group] = None
        self.watch: Optional[MemoryWatch] = None
        self.started = time.time()
        self.stop_asked = False
        self.hurried = False
        self.kill_at: Optional[float] = None
        self.exceeded = False
        self.signals, self.wake = os.pipe()
        self.pipes: Dict[int, int] = {}
        self.companion = Companion(
            task.directory, task.env, task.uid, memory_limit=task.memory_limit, done=lambda: _ring(self.wake)
        )

    def run(self) -> None:
        os.makedirs(os.path.join(self.task.directory, "streams"), exist_ok=True)
        os.set_blocking(self.wake, False)
        os.set_blocking(self.signals, False)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        # Ctrl-C and a closed terminal are for the command line. They get a handler that does nothing: what is ignored
        # would be ignored by the command too, as that passes through exec.
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, _noted)
        # Whoever forked us may have held signals back until we can take note of them. The command must not inherit it.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.limit()
        code, reason = self.start()
        self.companion.start(self.group)  # a thread: nothing is forked from here on
        while self.child is not None and code is None:
            self.step()
            code = self.child.poll()
        self.heed_a_stop_of_both(code)
        self.sweep()
        self.drain()
        self.finish(code if code is not None else 127, reason)

    def limit(self) -> None:
        task = self.task
        if task.contained:
            self.group = container.find()
            return
        if task.memory_limit is None and task.cpu_limit is None:
            return
        kind = task.groups if task.groups is not None else detect()
        try:
            self.group = Group.create(
                kind, f"shoal-{task.uid}", task.memory_limit, task.cpu_limit, oversubscribe=task.watch_only
            )
        except OSError:
            self.group = None
        if task.memory_limit is not None and (self.group is None or not kind.memory):
            self.watch = MemoryWatch(task.memory_limit, self.pids)

    def start(self) -> Tuple[Optional[int], str]:
        """Starts the command; an exit code and reason when that is not possible."""
        task = self.task
        if task.trouble:
            self.say(f"shoal: {task.trouble}\n")
            return 127, task.trouble
        try:
            self.child = subprocess.Popen(
                ["bash", "-c", task.command],
                cwd=task.cwd,
                env={name: value for name, value in task.env.items() if not name.startswith("SHOAL_SINK")},
                stdin=subprocess.DEVNULL,
                stdout=task.pipes[0][1],
                stderr=task.pipes[1][1],
                start_new_session=True,
                preexec_fn=self.group.add if self.group is not None else None,
            )
        except OSError as error:
            what = error.filename if error.filename not in (None, "bash") else "bash"
            self.say(f"shoal: cannot start the command: {what}: {error.strerror}\n")
            return 127, f"cannot start: {what}: {error.strerror}"
        finally:
            for _, write_end in task.pipes:
                os.close(write_end)
        self.pipes = {task.pipes[0][0]: STDOUT, task.pipes[1][0]: STDERR}
        for pipe in self.pipes:
            os.set_blocking(pipe, False)
        return None, ""

    def step(self) -> None:
        """Waits for output, a signal or a deadline, and deals with it."""
        ready = self.wait([*self.pipes, self.signals], self.timeout())
        if self.signals in ready:
            self.take_signals(os.read(self.signals, 4096))
            self.reap_orphans()
        self.read(ready)
        now = time.time()
        self.log.flush(now)
        if self.watch is not None and self.watch.check(now) is not None and not self.task.watch_only:
            self.exceeded = True
            self.signal_all(signal.SIGKILL)
        if self.kill_at is not None and now >= self.kill_at:
            self.signal_all(signal.SIGKILL)
            self.kill_at = now + 0.2  # what was forked meanwhile

    def timeout(self) -> Optional[float]:
        now = time.time()
        deadlines = [at for at in (self.kill_at, self.log.deadline) if at is not None]
        if self.watch is not None:
            deadlines.append(now + 0.2)
        return max(0.0, min(deadlines) - now) if deadlines else None

    def wait(self, fds: List[int], timeout: Optional[float]) -> Set[int]:
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN | select.POLLHUP)
        return {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}

    def read(self, ready: Set[int]) -> None:
        for pipe in [pipe for pipe in self.pipes if pipe in ready]:  # stdout first, if we come late and both wait
            try:
                data = self.arrivals.take(self.pipes[pipe], pipe)
            except BlockingIOError:
                continue
            if data:
                self.keep(self.pipes[pipe], data)
            else:
                del self.pipes[pipe]

    def keep(self, kind: int, data: bytes) -> None:
        self.log.write(kind, data, time.time())
        if self.task.echo:
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(kind, data) :]

    def take_signals(self, numbers: bytes) -> None:
        if signal.SIGUSR2 in numbers:
            self.stop_asked = self.hurried = True
            self.kill_at = time.time()
        elif signal.SIGTERM in numbers and not self.stop_asked:
            self.stop_asked = True
            self.kill_at = time.time() + self.task.grace
            self.signal_all(signal.SIGTERM)

    def heed_a_stop_of_both(self, code: Optional[int]) -> None:
        """A command that died of SIGTERM was stopped when we were told to stop it too, and have not read that yet.

        Whoever signals a whole job (scancel does) reaches both, in any order. Any other end is the command's own.
        """
        if code not in (-signal.SIGTERM, 128 + signal.SIGTERM):
            return
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self.signals, 4096)
            self.stop_asked = self.stop_asked or signal.SIGTERM in numbers
            os.write(self.wake, numbers)  # SIGUSR2 among them is for the companion

    def signal_all(self, number: int) -> None:
        known = processes.table()
        for pid in self.pids():
            if pid in known:
                processes.send(known[pid], number)

    def pids(self) -> Set[int]:
        """Every process of the replica that is left: orphans come back to the launcher, a mark tells the others."""
        return (processes.descendants(os.getpid()) | processes.marked(self.task.uid)) - {os.getpid()}

    def reap_orphans(self) -> None:
        """Takes note of the ends of the command's orphans; that of the command itself is its own matter."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or (self.child is not None and found.si_pid == self.child.pid):
                return
            os.waitpid(found.si_pid, 0)

    def sweep(self) -> None:
        """Ends what the command left running. Its output still comes through the pipes while it ends."""
        deadline = time.time() + (0 if self.kill_at else min(LEFTOVER_GRACE, self.task.grace))
        if self.pids():
            self.signal_all(signal.SIGTERM)
        pause = 0.002
        while self.pids():
            if time.time() >= deadline:
                self.signal_all(signal.SIGKILL)
            self.read(self.wait(list(self.pipes), pause))
            self.reap_orphans()
            pause = min(pause * 2, 0.05)

    def drain(self) -> None:
        """The last bytes: until both pipes are at their end, or nothing comes any more."""
        while self.pipes:
            ready = self.wait(list(self.pipes), DRAIN)
            if not ready:
                break
            self.read(ready)

    def finish(self, code: int, reason: str) -> None:
        now = time.time()
        exit_code, name = normal_exit(code)
        # A shell or torchrun turns a killed child into an ordinary exit code, so the kernel's count decides.
        oom = self.exceeded or (self.group is not None and self.group.oom_kills() > 0 and exit_code != 0)
        peak = self.group.peak() if self.group is not None else self.watch.peak if self.watch is not None else None
        if oom and not reason:
            reason = self.explain_oom(peak)
        self.companion.settle()
        left = stays_behind(self.task.directory, self.task.env)
        if left:
            self.say(left)
        if self.group is not None:
            self.group.remove()
        self.log.close(now)
        self.arrivals.forget()
        write_json(
            os.path.join(self.task.directory, "exit.json"),
            {
                "exit_code": exit_code,
                "signal": name,
                "reason": reason,
                "stopped": self.stop_asked and not oom,
                "started": self.started,
                "finished": now,
                "memory_peak": peak,
            },
        )
        told = "" if self.hurried else self.task.env.get("SHOAL_SINK_PATIENCE", "")
        patience = float(told or STOPPED_PATIENCE)
        self.companion.finish(patience if self.stop_asked else None)
        while not self.companion.over:
            self.wait([self.signals], None)
            numbers = os.read(self.signals, 4096)
            if signal.SIGTERM in numbers and not self.stop_asked:
                self.stop_asked = True
                self.companion.limit(patience)
            if signal.SIGUSR2 in numbers:
                self.companion.hurry()

    def explain_oom(self, peak: Optional[int]) -> str:
        limit = self.task.memory_limit or 0
        if isinstance(self.group, container.Container):
            limit = self.group.limit() or limit
        used = f"reached {_mib(max(peak or 0, limit))} of {_mib(limit)}"
        return f"{OOM_KILLED}: {used}" + (f", set in {self.task.memory_from}" if self.task.memory_from else "")

    def say(self, text: str) -> None:
        self.arrivals.put(STDERR, text.encode())
        self.keep(STDERR, text.encode())


def _noted(number: int, frame: Any) -> None:
    """A Python handler must exist for the wake-up pipe to be written."""


def _ring(pipe: int) -> None:
    """Wakes whoever waits for signals; a pipe that is full has woken it already."""
    with contextlib.suppress(BlockingIOError):
        os.write(pipe, b"\0")


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def write_json(path: str, value: Mapping[str, Any], mode: int = 0o600) -> None:
    """Writes a whole file or nothing: a reader never sees half of it, and a full disk leaves the old one."""
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(value, file)
            file.flush()
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """The file's value; None when there is no such file."""
    try:
        with open(path) as file:
            value: Dict[str, Any] = json.load(file)
            return value
    except FileNotFoundError:
        return None


def read_ending(directory: str) -> Optional[Dict[str, Any]]:
    """The exit.json of a try; None when there is none, or none from which an end could be told."""
    try:
        found = read_json(os.path.join(directory, "exit.json"))
    except (OSError, ValueError):
        return None
    return None if wrong_ending(found) else found


def wrong_ending(value: Any) -> str:
    """Why a value is no exit.json; empty when it is one. It may have come from far away."""

    def is_number(number: Any) -> bool:
        return isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) < 1e18

    if not isinstance(value, dict):
        return "it is not a JSON object"
    code = value.get("exit_code")
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
        return "exit_code is not a number from 0 to 255"
    for name, kind, called in (
        ("signal", str, "a text"),
        ("reason", str, "a text"),
        ("stopped", bool, "true or false"),
    ):
        if not isinstance(value.get(name, kind()), kind):
            return f"{name} is not {called}"
    for name in ("started", "finished", "memory_peak"):
        if value.get(name) is not None and not is_number(value[name]):
            return f"{name} is not a number"
    return ""


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("replicas run on Linux only")
