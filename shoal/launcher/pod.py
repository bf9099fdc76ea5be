"""The launcher where nobody forks it: the program of a container, started from the archive.

    python3 shoal.zip            reads run.json beside the archive

Who it is, it knows from its host name: run.json lists all replicas with the names by which peers reach them. It brings
code and data here, waits until its peers can be found, computes the same variables as on a laptop and runs the command.
It ends with the exit code of the command, once everything has been carried to the sink.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from shoal.frameworks import FRAMEWORKS, Run, Task, Topology, environment, setters_of_variables
from shoal.launcher import checkpoints, probe, replica
from shoal.launcher.fetching import bring
from shoal.launcher.logfile import last_lines
from shoal.launcher.manifest import OUTPUTS
from shoal.launcher.replica import read_json
from shoal.states import LOST_CONNECTION, SETTLE, Policy, Status, restarts_alone

PATIENCE = 300.0  # seconds for the name of rank 0 to be known
LOOK = 2.0  # seconds between two looks for peers


def main() -> int:
    archive = os.path.abspath(sys.argv[0])
    run = read_json(os.path.join(os.path.dirname(archive), "run.json"))
    if run is None:
        print(f"shoal: {os.path.dirname(archive)} has no run.json", file=sys.stderr)
        return 2
    if run.get("probe"):
        return probe.main(run)
    topology, me = who(run, socket.gethostname(), os.environ.get("SHOAL_POD_IP", ""))
    if me is None:
        print(f"shoal: {socket.gethostname()} is none of the replicas", file=sys.stderr)
        return 2
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # held back while a try followed another
    place = os.path.join(run["work"], f"try-{number_of_try()}")
    os.makedirs(place, exist_ok=True)
    variables = variables_of(run, topology, me, place, archive)
    cwd, trouble = bring(run, variables)
    unknown = wait_for_names(run, topology, me) if not trouble else ""
    out, err = os.pipe(), os.pipe()
    if unknown:
        os.write(err[1], unknown.encode())  # the first line of its log
    limits = run.get("limits", {}).get(me.name, {})
    task = replica.Task(
        uid=variables["SHOAL_REPLICA_UID"],
        directory=place,
        command=run["command"],
        cwd=cwd,
        env=variables,
        grace=float(run["grace"]),
        memory_limit=limits.get("memory"),
        memory_from=str(limits.get("from", "")),
        pipes=(out, err),
        echo=variables.get("SHOAL_SINK", "") != "stdout:",  # so that the cluster's own tools show something
        trouble=trouble,
        contained=True,
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the launcher can take note of it
    told = replica.run(task)
    ended = read_json(os.path.join(place, "exit.json")) or {}
    code = int(ended.get("exit_code") or 0)
    if run.get("operator") and not told:
        if code and restarts_alone(Status(me.name, number_of_try(), exit_code=code), Policy.of(run["operator"])):
            begin_again(run, me, archive)
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(code))
        if code == 0 and me is topology.first:
            stay(run["operator"], topology, lambda task: has_name(task, me))
        elif code and not ended.get("signal") and symptom(place):
            time.sleep(SETTLE + 1.0)  # an operator would end the others at once, the cause among them
    return code


def who(run: Mapping[str, Any], host: str, ip: str) -> Tuple[Topology, Optional[Task]]:
    """All replicas, and the one that runs on this host: the first label of its name."""
    tasks = [Task(**entry) for entry in run["replicas"]]
    mine = next((place for place, task in enumerate(tasks) if task.host.partition(".")[0] == host), None)
    if mine is None:
        return Topology(tuple(tasks)), None
    tasks[mine] = replace(tasks[mine], ip=ip)
    return Topology(tuple(tasks)), tasks[mine]


def variables_of(run: Mapping[str, Any], topology: Topology, me: Task, place: str, archive: str) -> Dict[str, str]:
    """What the command sees: the pod's own variables, the file's, and Shoal's, which win."""
    outputs = run["outputs"] or os.path.join(place, OUTPUTS)  # its own, when nothing is shared: they are carried
    own = os.path.join(outputs, me.name)
    streams = os.path.join(place, "streams")
    data = os.path.join(run["work"], "data")
    for directory in (own, streams, data, os.path.join(run["work"], "tmp"), os.path.join(run["work"], "home")):
        os.makedirs(directory, exist_ok=True)
    known = Run(
        experiment=run["experiment"],
        name=run.get("name", ""),
        attempt=run["attempt"],
        try_=number_of_try(),
        params=run["params"],
        outputs=outputs,
        replica_outputs=own,
        data=data,
        streams=streams,
        log_level=run.get("log_level", "INFO"),
        resume_from=os.environ.get("SHOAL_RESUME_FROM") or run.get("resume_from", {}).get(me.name, ""),
    )
    hidden = {*HIDDEN, *(setters_of_variables() if run.get("operator") else ())}
    given = {name: value for name, value in os.environ.items() if name not in hidden}
    path = os.pathsep.join(part for part in (given.get("PYTHONPATH", ""), archive) if part)
    found = {
        "TMPDIR": os.path.join(run["work"], "tmp"),
        **given,
        **run["env_vars"],
        **environment(run["framework"], topology, me, known),
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "SHOAL_REPLICA_UID": f"{run['uid']}-{run['attempt']}-{me.name}",
        "SHOAL_SINK_OTHERWISE": "stdout:",
    }
    if not os.access(found.get("HOME") or "/", os.W_OK):
        found["HOME"] = os.path.join(run["work"], "home")
    if not _has_name():
        found.setdefault("USER", "shoal")  # libraries ask who they are, and a number has no name
        found.setdefault("LOGNAME", found["USER"])
    return found


def _has_name() -> bool:
    import pwd

    try:
        return bool(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False


# Whoever starts the command takes away what belongs to the sink. The last two are an operator's: a script sees the same
# on every cluster.
HIDDEN = ("SHOAL_POD_LABEL_TRY", "SHOAL_POD_IP", "MX_CONFIG", "DMLC_USE_KUBERNETES")


def number_of_try() -> int:
    return int(os.environ.get("SHOAL_POD_LABEL_TRY") or 0)


def begin_again(run: Mapping[str, Any], me: Task, archive: str) -> None:
    """The next try, as a new program in this pod: an operator would take a pod that failed for the end of all.

    Never returns. A checkpoint that this replica has marked is still there.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until there is somebody again to take note of it
    found = checkpoints.choose(checkpoints.marks_of(run["work"], run["attempt"], me.name))
    if found is not None:
        os.environ["SHOAL_RESUME_FROM"] = checkpoints.path_for(found, me.name)
    os.environ["SHOAL_POD_LABEL_TRY"] = str(number_of_try() + 1)
    shutil.rmtree(os.path.join(run["work"], "code"), ignore_errors=True)
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, archive])


def stay(
    rule: Mapping[str, Any],
    topology: Topology,
    there: Callable[[Task], bool],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Rank 0 has succeeded; an operator takes its end for the end of all, and would end those who still work.

    So it stays until the other deciding replicas are over, and then for the rest as long as the file's grace. Who is
    over is not `there`, has no name any more: that can be seen without any server.
    """
    began = now()
    seen = set()

    def all_over(tasks: List[Task]) -> bool:
        found = {task.name for task in tasks if there(task)}
        seen.update(found)
        late = now() >= began + PATIENCE  # it came and went before, or never will come
        return not found and (late or all(task.name in seen for task in tasks))

    peers = topology.tasks[1:]
    while not all_over([task for task in peers if task.name in rule["deciders"]]):
        sleep(LOOK)
    deadline = now() + rule["grace_finish"]
    while now() < deadline and not all_over([task for task in peers if task.name not in rule["servers"]]):
        sleep(LOOK)


def has_name(
    task: Task,
    me: Task,
    look_up: Callable[[str], Any] = lambda host: socket.getaddrinfo(host, None),
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether a replica can be found. When nobody can tell, it counts as there.

    Where a cluster cannot ask the world, a name that is not known is told as a failure that may pass. So it counts as
    gone when that is said repeatedly, while our own name is known.
    """

    def why_unknown(host: str) -> Optional[int]:
        try:
            look_up(host)
        except OSError as error:
            return error.errno or socket.EAI_FAIL
        return None

    for _ in range(3):
        said = why_unknown(task.host)
        if said in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return False
        if said != socket.EAI_AGAIN or why_unknown(me.host) is not None:
            return True
        sleep(0.3)
    return False


def symptom(place: str) -> bool:
    """Whether a failed command only lost a peer, by the last lines of its log."""
    return any(LOST_CONNECTION.search(line) for line in last_lines(os.path.join(place, "log")))


def wait_for_names(
    run: Mapping[str, Any],
    topology: Topology,
    me: Task,
    patience: float = PATIENCE,
    look_up: Callable[[str], Any] = lambda host: socket.getaddrinfo(host, None),
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Waits until the names are known that its framework is told: DNS of a new service may take half a minute, and not
    every library asks twice. Why not, if that of rank 0 never is; another's may be gone because it has ended.

    Its own comes first: a script that listens there needs it, and a cluster knows it only once the pod is seen to run.
    """
    told = " ".join(FRAMEWORKS[run["framework"]].env(topology, me).values())
    wanted = [task for task in topology.tasks if task.name != me.name and task.host in told]
    if len(topology.tasks) > 1 or (me.host in told and not run.get("operator")):
        wanted.insert(0, me)
    deadline = time.monotonic() + patience
    pause = 0.2
    for task in wanted:
        while True:
            try:
                look_up(task.host)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    if task.rank:
                        break
                    return f"shoal: {task.host} cannot be found after {patience:g} s: {error.strerror}\n"
            sleep(pause)
            pause = min(pause * 1.5, 2.0)
    return ""


def replicas_json(topology: Topology) -> List[Dict[str, Any]]:
    """As run.json lists them."""
    return [dict(task.__dict__) for task in topology.tasks]
