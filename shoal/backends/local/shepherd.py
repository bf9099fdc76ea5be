"""The shepherd: a detached process that owns the replicas of one attempt on this machine.

It forks a launcher for each replica, applies the attempt's policy by itself (`states.next_steps`), and writes what
happens into the attempt's directory; the server only reads there, so it may die and come back. A twin waits at a
socket: when the shepherd is killed, the twin ends what is left and writes the result; it holds the commands' pipes too,
so that what is in them is not lost. When both are killed, the launchers stop their commands (they are told of their
parent's death), and the next server does the rest.

    python -m shoal.backends.local.shepherd ATTEMPT_DIRECTORY

Standard library only, and few modules of it: starting must be cheap.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import termios
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from shoal.backends.local import files
from shoal.frameworks import Run, Topology, environment
from shoal.frameworks import Task as Peer
from shoal.launcher import arrivals, processes
from shoal.launcher.limits import Kind, detect
from shoal.launcher.logfile import LogWriter, last_lines
from shoal.launcher.replica import STDERR, STDOUT, Task, read_json, write_json
from shoal.launcher.replica import run as launch
from shoal.states import (
    FAILED,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    Attempt,
    End,
    Outcome,
    Policy,
    StartReplica,
    Status,
    StopReplica,
    next_steps,
    normal_exit,
)

HELD_BACK = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
DYING = 10.0  # seconds in which a server that was killed is gone, also on a busy machine
LAUNCHERS_END = 5.0  # what a launcher needs at most once its command is gone: the last lines, exit.json
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


class Shepherd:
    def __init__(self, directory: str, request: dict[str, Any], twin: socket.socket) -> None:
        self.directory = directory
        self.twin = twin
        self.request = request
        self.home = request["home"]
        self.policy = Policy.of(request["policy"])
        self.replicas = {replica["name"]: replica for replica in request["replicas"]}
        self.statuses = {name: Status(name, node=request["node"]) for name in self.replicas}
        self.history: list[Status] = []
        self.launchers: dict[int, str] = {}  # pid -> replica
        self.pipes: dict[
            str, tuple[int, int]
        ] = {}  # replica -> read ends, kept for the case that its launcher is killed
        self.stopping: dict[str, str] = {}  # replica -> why it was told to stop
        self.stop_reason = ""
        self.stop_now = False
        self.resumed: list[Any] = []  # the checkpoint that the replicas go on from, once somebody has looked
        self.began = time.time()
        self.signals, self.wake = os.pipe()
        self.caller = read_json(files.experiment_environment(directory)) or {}
        self.peers = Topology(
            tuple(
                Peer(r["role"], r["index"], r["rank"], r["host"], r["port"], r["n_trainers"])
                for r in request["replicas"]
            )
        )
        self.states = open(os.path.join(directory, files.STATES), "ab", buffering=0)  # noqa: SIM115
        limited = any(r["memory_limit"] or r["cpu_limit"] for r in request["replicas"])
        self.groups = detect() if limited else Kind()
        self.poke = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.poke.setblocking(False)

    def run(self) -> Outcome:
        for descriptor in (self.signals, self.wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        for number in HELD_BACK:
            signal.signal(number, _noted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        self.look_for_stop()
        for name in self.replicas:
            if self.stop_reason:
                self.change(name, Status(name, state=STOPPED, reason=self.stop_reason, finished=time.time()))
            else:
                self.start(name, 0)
        while True:
            decision = next_steps(Attempt(self.statuses, self.began, self.stop_reason), self.policy, time.time())
            for step in decision.steps:
                if isinstance(step, End):
                    return self.outcome(step)
                if isinstance(step, StopReplica):
                    self.stop(step.replica, step.reason)
                elif isinstance(step, StartReplica):
                    self.history.append(self.statuses[step.replica])
                    self.start(step.replica, step.try_)
            self.wait(decision.wake_at)

    def start(self, name: str, try_: int) -> None:
        replica = self.replicas[name]
        directory = files.try_directory(self.directory, name, try_)
        os.makedirs(directory, exist_ok=True)
        pipes = (os.pipe(), os.pipe())
        task = Task(
            uid=replica["uid"],
            directory=directory,
            command=self.request["command"],
            cwd=self.request["cwd"],
            env=self.environment_of(replica, try_, directory),
            grace=self.policy.grace_stop,
            memory_limit=replica["memory_limit"],
            cpu_limit=replica["cpu_limit"],
            memory_from=replica["memory_from"],
            watch_only=self.request["oversubscribe"],
            pipes=pipes,
            groups=self.groups,
        )
        noted_down, note = os.pipe()
        # A stop that comes before the launcher can take note of it must wait, and not be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        pid = os.fork()
        if pid == 0:
            os.close(note)
            _become_launcher(task, noted_down)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        for end in (noted_down, *(write_end for _, write_end in pipes)):
            os.close(end)
        self.tell_twin({"replica": name, "try": try_}, [pipes[0][0], pipes[1][0]])
        self.launchers[pid] = name
        self.pipes[name] = (pipes[0][0], pipes[1][0])
        status = Status(name, try_, RUNNING, node=self.request["node"], started=time.time())
        self.change(name, status, launcher=pid, launcher_start=processes.start_time(pid))
        with suppress(BrokenPipeError):  # it was killed already
            os.write(note, b".")
        os.close(note)

    def tell_twin(self, message: dict[str, Any], pipes: Sequence[int] = ()) -> None:
        """Hands the pipes of a replica over, or says that they are not needed any more. A dead twin is no matter."""
        with suppress(OSError):
            socket.send_fds(self.twin, [json.dumps(message).encode()], pipes)

    def environment_of(self, replica: dict[str, Any], try_: int, directory: str) -> dict[str, str]:
        request = self.request
        run = Run(
            experiment=request["experiment"],
            name=request["name"],
            attempt=request["attempt"],
            try_=try_,
            params=request["params"],
            outputs=request["outputs"],
            replica_outputs=os.path.join(request["outputs"], replica["name"]),
            data=request["data"],
            streams=os.path.join(directory, "streams"),
            log_level=request["log_level"],
            resume_from=self.resume_from(replica["name"], try_),
        )
        os.makedirs(run.replica_outputs, exist_ok=True)
        variables = dict(self.caller)
        for name in [name for name in variables if name.startswith("SHOAL_")]:
            del variables[name]  # an experiment started from within another is not part of it
        variables.setdefault("PYTHONUNBUFFERED", "1")
        variables.update(request["env_vars"])
        variables.update(environment(request["framework"], self.peers, self.peers.tasks[replica["rank"]], run))
        path = variables.get("PYTHONPATH")
        variables["PYTHONPATH"] = request["archive"] + (os.pathsep + path if path else "")
        variables["SHOAL_REPLICA_UID"] = replica["uid"]
        if not request["oversubscribe"] or replica["devices"]:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(device) for device in replica["devices"])
        return variables

    def resume_from(self, name: str, try_: int) -> str:
        """The checkpoint to go on from. All replicas of an attempt start from the same one; a later try looks again."""
        experiment = os.path.dirname(self.directory)
        if not (try_ or self.request["attempt"] or os.path.exists(os.path.join(experiment, files.RESUME))):
            return ""
        from shoal.launcher import checkpoints  # a first start does without

        if try_ or not self.resumed:
            self.resumed = [checkpoints.newest(experiment)]
        return checkpoints.path_for(self.resumed[0], name)

    def stop(self, name: str, reason: str) -> None:
        self.stopping.setdefault(name, reason)
        for pid, replica in self.launchers.items():
            if replica == name:
                _signal(pid, signal.SIGUSR2 if self.stop_now else signal.SIGTERM)

    def wait(self, wake_at: float | None) -> None:
        """Until something happens or the time has come; then takes note of it."""
        timeout = None if wake_at is None else max(0.0, wake_at - time.time())
        readable, _, _ = select.select([self.signals], [], [], timeout)
        if readable:
            numbers = os.read(self.signals, 4096)
            if signal.SIGTERM in numbers or signal.SIGUSR1 in numbers:
                self.look_for_stop(told_by="SIGTERM" if signal.SIGTERM in numbers else "")
        self.reap()

    def look_for_stop(self, told_by: str = "") -> None:
        wish = read_json(os.path.join(self.directory, files.STOP))
        if wish is not None:
            self.stop_reason = wish["reason"]
            self.stop_now = wish["grace"] <= 0
        elif told_by:
            self.stop_reason = f"its shepherd got {told_by}"
        if self.stop_now:
            for name in self.launchers.values():
                self.stop(name, self.stop_reason)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self.launchers.pop(pid, None)
            if name is not None:
                self.ended(name, os.waitstatus_to_exitcode(status))

    def ended(self, name: str, launcher_code: int) -> None:
        before = self.statuses[name]
        directory = files.try_directory(self.directory, name, before.try_)
        end = read_json(os.path.join(directory, "exit.json"))
        if end is None:
            end = self.clean_up_after_launcher(name, directory, launcher_code)
        for pipe in self.pipes.pop(name):
            os.close(pipe)
        self.tell_twin({"replica": name, "try": before.try_})
        if end["stopped"] and name in self.stopping:
            state, reason = STOPPED, self.stopping[name]
        elif end["stopped"]:
            state, reason = FAILED, "its launcher got SIGTERM, and not from Shoal"
        else:
            state, reason = (SUCCEEDED if end["exit_code"] == 0 else FAILED), end["reason"]
        lines = last_lines(os.path.join(directory, "log")) if state == FAILED else ()
        self.change(
            name,
            Status(
                name, before.try_, state, reason, end["exit_code"], end["signal"], before.node, before.started,
                end["finished"], lines,
            ),
        )  # fmt: skip

    def clean_up_after_launcher(self, name: str, directory: str, code: int) -> dict[str, Any]:
        """A launcher that left no exit.json was killed: its command ends with it, what was printed is kept."""
        uid = self.replicas[name]["uid"]
        processes.end(set(), uid, 0.0)
        _keep_what_is_in(self.pipes[name], directory)
        exit_code, signal_name = normal_exit(code)
        end = {
            "exit_code": exit_code,
            "signal": signal_name,
            "reason": f"its launcher was killed ({signal_name or exit_code})",
            "stopped": False,
            "finished": time.time(),
        }
        write_json(os.path.join(directory, "exit.json"), end)
        return end

    def change(self, name: str, status: Status, **more: Any) -> None:
        self.statuses[name] = status
        self.states.write(json.dumps({**status.json(), **more}).encode() + b"\n")
        wake_server(self.poke)

    def outcome(self, end: End) -> Outcome:
        left = processes.descendants(os.getpid()) - {self.request.get("twin", 0)}
        for pid in left:
            _signal(pid, signal.SIGKILL)
        return Outcome(
            end.state,
            end.reason,
            tuple(self.statuses.values()),
            end.failures,
            time.time(),
            self.began,
            tuple(self.history),
        )


def _become_launcher(task: Task, noted_down: int) -> None:
    """The child of a fork: a launcher, and nothing of the shepherd. Never returns.

    It starts nothing before the shepherd has noted it down and handed its pipes to the twin: who cleans up after a
    shepherd that was killed meanwhile would not know of it, nor would it be told of a death before it asked for that.
    """
    code = 70
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        keep: set[int] = {0, 1, 2, noted_down, *task.pipes[0], *task.pipes[1]}
        for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
            if descriptor not in keep:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        if os.read(noted_down, 1):  # nothing: the shepherd is gone
            os.close(noted_down)
            launch(task)
        code = 0
    except BaseException:  # noqa: BLE001  a fork must never return into the shepherd's loop
        traceback.print_exc()
    finally:
        os._exit(code)


def wake_server(poke: socket.socket) -> None:
    """Tells a living server to look; the shepherd's working directory is the home. Nobody there is fine."""
    with contextlib.suppress(OSError):
        poke.sendto(b".", files.WAKE)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _noted(number: int, frame: Any) -> None:
    """A Python handler must exist for the wake-up pipe to be written."""


def _keep_what_is_in(pipes: Sequence[int], directory: str) -> None:
    """Brings what a killed launcher left, in its files or in its pipes, into the log of its try."""
    if not arrivals.exist(directory) and not any(_bytes_in(pipe) for pipe in pipes):
        return
    arrived = arrivals.Arrivals(directory)
    log = LogWriter(os.path.join(directory, "log"), arrivals=arrived)
    for stream, data in arrived.left(log.size).items():
        log.write(stream, data, time.time())
    for stream, pipe in zip((STDOUT, STDERR), pipes, strict=False):
        os.set_blocking(pipe, False)
        with suppress(BlockingIOError):
            while data := arrived.take(stream, pipe):
                log.write(stream, data, time.time())
    log.close(time.time())
    arrived.forget()


def _bytes_in(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


Pipes = dict[tuple[str, int], Sequence[int]]


def clean_up(directory: str, request: dict[str, Any], reason: str, pipes: Pipes | None = None) -> Outcome:
    """Ends what a killed shepherd left and writes down how the attempt ended. Harmless when there is nothing to do.

    Launchers that live stop their commands and write exit.json, so they are asked first, and waited for. `pipes` are
    those that a twin holds: they are empty unless a launcher was killed too. What it had read is kept in any case.
    """
    policy = Policy.of(request["policy"])
    written = files.read_states(directory)
    found = {status["replica"]: Status.of(status) for status in written}
    launchers = {entry["launcher"]: entry["launcher_start"] for entry in written if "launcher" in entry}
    for pid, start_time in launchers.items():
        if processes.alive(pid, start_time):
            _signal(pid, signal.SIGTERM)
    _wait_for(launchers, policy.grace_stop + LAUNCHERS_END)
    processes.end(set(), [replica["uid"] for replica in request["replicas"]], policy.grace_stop)
    _wait_for(launchers, LAUNCHERS_END)
    held = {**{(status.replica, status.try_): () for status in found.values()}, **(pipes or {})}
    for (name, try_), ends in held.items():
        _keep_what_is_in(ends, files.try_directory(directory, name, try_))
    statuses = []
    for replica in request["replicas"]:
        name = replica["name"]
        status = found.get(name, Status(name))
        end = read_json(os.path.join(files.try_directory(directory, name, status.try_), "exit.json"))
        if not status.over:
            status = _after_the_shepherd(status, end, reason)
        statuses.append(status)
    began = min((status.started for status in statuses if status.started), default=time.time())
    outcome = Outcome(FAILED, reason, tuple(statuses), (), time.time(), began)
    attempt = next_steps(Attempt({s.replica: s for s in statuses}, began), policy, time.time())
    for step in attempt.steps:
        if isinstance(step, End) and step.state == SUCCEEDED:
            outcome = Outcome(SUCCEEDED, "", tuple(statuses), (), time.time(), began)
        elif isinstance(step, End) and step.failures:
            outcome = Outcome(FAILED, step.reason, tuple(statuses), step.failures, time.time(), began)
    write_json(os.path.join(directory, files.RESULT), outcome.json())
    return outcome


def _wait_for(launchers: dict[int, int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(processes.alive(pid, start) for pid, start in launchers.items()) and time.monotonic() < deadline:
        time.sleep(0.01)


def why_gone(directory: str) -> str:
    written = read_json(os.path.join(directory, files.SHEPHERD))
    rebooted = written is not None and written["boot_id"] != processes.boot_id()
    return "the machine was restarted" if rebooted else "its shepherd and its twin were killed"


def _after_the_shepherd(status: Status, end: dict[str, Any] | None, reason: str) -> Status:
    """What became of a replica whose end the shepherd did not see."""
    if end is None or end["stopped"]:
        code, name = (end["exit_code"], end["signal"]) if end else (137, "SIGKILL")
        finished = end["finished"] if end else time.time()
        return Status(status.replica, status.try_, STOPPED, reason, code, name, status.node, status.started, finished)
    state = SUCCEEDED if end["exit_code"] == 0 else FAILED
    return Status(
        status.replica, status.try_, state, end["reason"], end["exit_code"], end["signal"], status.node,
        status.started, end["finished"],
    )  # fmt: skip


def start_server_if_needed(directory: str, request: dict[str, Any], outcome: Outcome) -> None:
    """Stays for a while when one lives: it may be about to die, and not look again."""
    deadline = time.monotonic() + DYING
    while needs_a_server(directory, request, outcome):
        if not files.server_lives(request["home"]):
            if os.fork() == 0:
                os.setsid()
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.execv(sys.executable, [sys.executable, "-m", "shoal.server", "--home", request["home"]])
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def needs_a_server(directory: str, request: dict[str, Any], outcome: Outcome) -> bool:
    """Whether a new attempt is due and does not run yet, or others wait in the queue: somebody has to see to it."""
    policy = Policy.of(request["policy"])
    due = outcome.state == FAILED and policy.restart == "experiment" and request["attempt"] < policy.restart_max
    following = os.path.join(os.path.dirname(directory), f"attempt-{request['attempt'] + 1}", files.SHEPHERD)
    return (due and not os.path.exists(following)) or os.path.exists(os.path.join(request["home"], files.WAITING))


def _twin(directory: str, request: dict[str, Any], shepherd: socket.socket, shepherd_pid: int) -> None:
    """Waits until the shepherd is gone; if it left no result, cleans up after it. Never returns."""
    code = 0
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
        pipes: Pipes = {}
        while True:
            message, descriptors, _, _ = socket.recv_fds(shepherd, 4096, 2)
            if not message:
                break
            told = json.loads(message)
            for pipe in pipes.pop((told["replica"], told["try"]), ()):
                os.close(pipe)
            if descriptors:
                pipes[told["replica"], told["try"]] = descriptors
        if read_json(os.path.join(directory, files.RESULT)) is None:
            while os.getppid() == shepherd_pid:  # its sockets close first; then every launcher is told of its death
                time.sleep(0.001)
            outcome = clean_up(directory, request, "its shepherd was killed", pipes)
            poke = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            poke.setblocking(False)
            wake_server(poke)
            start_server_if_needed(directory, request, outcome)
    except BaseException:  # noqa: BLE001  a fork must never return into the shepherd's code
        traceback.print_exc()
        code = 70
    finally:
        os._exit(code)


def main(directory: str) -> None:
    """Runs the attempt; where another shepherd did and was killed, cleans up; leaves it alone where one lives."""
    request = read_json(os.path.join(directory, files.REQUEST))
    assert request is not None
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    while not _taken(lock):
        written = read_json(os.path.join(directory, files.SHEPHERD))
        if written is not None and processes.alive(written["pid"], written["start_time"]):
            return
        time.sleep(
            0.01
        )  # a launcher that was just forked by one that is dead lets go of it; who cleans up comes to an end
    if os.path.exists(os.path.join(directory, files.RESULT)):
        return
    if files.read_states(directory):
        os.chdir(request["home"])
        clean_up(directory, request, why_gone(directory))
        wake_server(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # until they can be taken note of: see Shepherd.run
    os.chdir(request["home"])  # the wake socket is named relative to it: paths of sockets must be short
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, _noted)  # and not SIG_IGN, which commands would inherit
    twin_end, own_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shepherd = os.getpid()
    twin = os.fork()
    if twin == 0:
        own_end.close()
        os.close(lock)
        _twin(directory, request, twin_end, shepherd)
    twin_end.close()
    own_end.setblocking(False)
    request["twin"] = twin
    write_json(
        os.path.join(directory, files.SHEPHERD),
        {
            "pid": shepherd,
            "start_time": processes.start_time(shepherd),
            "twin": twin,
            "twin_start_time": processes.start_time(twin),
            "boot_id": processes.boot_id(),
        },
    )
    worker = Shepherd(directory, request, own_end)
    outcome = worker.run()
    write_json(os.path.join(directory, files.RESULT), outcome.json())
    wake_server(worker.poke)
    start_server_if_needed(directory, request, outcome)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
