"""Who this process is: which replica, which rank, which attempt. From the variables alone, whoever started it.

inside a replica     SHOAL_*; torchrun's own variables for its processes
torchrun             worker-<node>, process <local rank>, attempt <restart count>
a Slurm step         worker-<node>, process <local id>, attempt <restart count>
anything else        master-0
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

SHOAL, TORCHRUN, SLURM, PLAIN = "shoal", "torchrun", "slurm", "plain"


class Identity(NamedTuple):
    """What a stream's header says of its process."""

    starter: str  # one of the four above
    replica: str = "master-0"
    role: str = "master"
    index: int = 0  # type: ignore[assignment]  # nobody looks for a value in this tuple
    attempt: int = 0
    try_: int = 0
    rank: int = 0
    process: int = 0
    world: Optional[int] = None
    restart: int = 0
    experiment: str = ""


def identify(env: Mapping[str, str]) -> Identity:
    """The identity that a process with these variables has."""
    restart = integer(env.get("TORCHELASTIC_RESTART_COUNT"), 0)
    if env.get("SHOAL_STREAMS"):
        rank, world = _rank_in_cluster(env)
        return Identity(
            SHOAL,
            env.get("SHOAL_REPLICA") or "master-0",
            env.get("SHOAL_ROLE") or "master",
            integer(env.get("SHOAL_INDEX"), 0),
            integer(env.get("SHOAL_ATTEMPT"), 0),
            integer(env.get("SHOAL_TRY"), 0),
            rank=integer(env.get("RANK"), rank),
            process=integer(env.get("LOCAL_RANK"), 0),
            world=_optional(env.get("WORLD_SIZE"), world),
            restart=restart,
            experiment=env.get("SHOAL_EXPERIMENT") or "",
        )
    if env.get("TORCHELASTIC_RUN_ID") and env.get("RANK"):
        node = integer(env.get("GROUP_RANK"), 0)
        return Identity(
            TORCHRUN,
            f"worker-{node}",
            "worker",
            node,
            restart,
            rank=integer(env.get("RANK"), 0),
            process=integer(env.get("LOCAL_RANK"), 0),
            world=_optional(env.get("WORLD_SIZE"), None),
            restart=restart,
        )
    # A batch script has SLURM_PROCID too, but no step: what it runs one after another is not one run.
    if env.get("SLURM_JOB_ID") and env.get("SLURM_STEP_ID") and env.get("SLURM_PROCID"):
        node = integer(env.get("SLURM_NODEID"), 0)
        tasks = env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS")
        return Identity(
            SLURM,
            f"worker-{node}",
            "worker",
            node,
            integer(env.get("SLURM_RESTART_COUNT"), 0),
            rank=integer(env.get("SLURM_PROCID"), 0),
            process=integer(env.get("SLURM_LOCALID"), 0),
            world=_optional(tasks, None),
        )
    return Identity(
        PLAIN,
        rank=integer(env.get("RANK"), 0),
        process=integer(env.get("LOCAL_RANK"), 0),
        world=_optional(env.get("WORLD_SIZE"), None),
    )


def myself() -> Identity:
    """The identity of this process. A process group of PyTorch knows ranks that no variable tells (mp.spawn)."""
    found = identify(os.environ)
    distributed: Any = sys.modules.get("torch.distributed")
    if found.starter == TORCHRUN or "TORCHELASTIC_RUN_ID" in os.environ or distributed is None:
        return found
    try:
        if not (distributed.is_available() and distributed.is_initialized()):
            return found
        rank, world = int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001  somebody else's library; the variables are an answer as well
        return found
    sibling = _sibling_number()
    return found._replace(rank=rank, world=world, process=found.process if sibling is None else sibling)


def header(identity: Identity) -> Dict[str, Any]:
    """What is known of this process, for the header of its stream; the place adds experiment and key."""
    return {
        "replica": identity.replica,
        "role": identity.role,
        "index": identity.index,
        "attempt": identity.attempt,
        "try": identity.try_,
        "rank": identity.rank,
        "process": identity.process,
        "world": identity.world,
        "restart": identity.restart,
        "host": host(),
        "boot": boot(),
        "pid": os.getpid(),
        "pid_start": start_time("self"),
        "program": program(),
    }


def host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def boot() -> str:
    """The id of this boot of the machine; empty where there is none."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def start_time(pid: object) -> Optional[int]:
    """When a process started, in ticks since the boot: with its pid it names one process only."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def program() -> List[str]:
    """The command line, as far as Python tells."""
    words = getattr(sys, "orig_argv", None) or getattr(sys, "argv", None) or []
    return [str(word)[:4000] for word in words[:1000]]


def name_process(pid: int) -> str:
    """A text that no other process of any machine has."""
    return f"{host()}/{boot()}/{pid}/{start_time(pid)}"


def starter_of(marker: str) -> str:
    """The nearest ancestor that was not given the variable `marker` itself: whoever gave it to us."""
    pid = os.getppid()
    while pid > 1:
        if f"\0{marker}=" not in "\0" + _read(f"/proc/{pid}/environ"):
            break
        parent = _parent(pid)
        if parent is None:
            break
        pid = parent
    return name_process(pid)


def ancestors() -> List[str]:
    """This process, its parent, and so on."""
    found: List[str] = []
    pid: Optional[int] = os.getpid()
    while pid is not None and pid > 1 and len(found) < 100:
        found.append(name_process(pid))
        pid = _parent(pid)
    return found


def integer(text: Optional[str], default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default


def _optional(text: Optional[str], default: Optional[int]) -> Optional[int]:
    try:
        return int(text) if text else default
    except ValueError:
        return default


def _rank_in_cluster(env: Mapping[str, str]) -> Tuple[int, Optional[int]]:
    """The rank a replica has where its framework sets none: the master, then workers, then parameter servers."""
    try:
        spec = json.loads(env.get("SHOAL_CLUSTER_SPEC") or "{}")
        sizes = [(role, len(spec.get(role) or ())) for role in ("master", "worker", "ps")]
    except (ValueError, TypeError, AttributeError):
        return 0, None
    before = 0
    for role, size in sizes:
        if role == env.get("SHOAL_ROLE"):
            break
        before += size
    return before + integer(env.get("SHOAL_INDEX"), 0), sum(size for _, size in sizes[:2]) or None


def _sibling_number() -> Optional[int]:
    """Which child of `multiprocessing` this is, from 0; None when it is none."""
    processes: Any = sys.modules.get("multiprocessing.process")
    number = getattr(processes.current_process(), "_identity", ()) if processes is not None else ()
    return number[0] - 1 if number else None


def _parent(pid: int) -> Optional[int]:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
