"""Where this process records: the directory of its try. Inside a replica it is given, outside it is made.

$SHOAL_HOME/outside/<key>/
├── outside.json                       what the run says of itself; the first process writes it
├── claims/                            who takes part, where a key alone does not tell
├── outputs/
└── attempt-<N>/<replica>/try-0/       streams, files
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import sys
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from shoal.sdk import identity as who
from shoal.sdk.identity import PLAIN, SHOAL, SLURM, TORCHRUN, Identity

ABOUT = "outside.json"
JOIN = "SHOAL_OUTSIDE_RUN"  # set for children of `multiprocessing`: our pid, our stream, and the run's directory
GENERATIONS = 10_000
NEW = ".new"


class Place(NamedTuple):
    """One process's place on disk, and who the process is there."""

    identity: Identity
    directory: str  # of this try
    run: str = ""  # outside Shoal: the directory of the whole run
    key: str = ""
    home: str = ""  # whose server is told; empty when the run lies elsewhere

    @property
    def streams(self) -> str:
        return os.path.join(self.directory, "streams")

    @property
    def files(self) -> str:
        return os.path.join(self.directory, "files")


def settle(
    about: Mapping[str, Any],
    *,
    directory: Optional[str] = None,
    number: int = 0,
    run: Optional[str] = None,
    origin: Optional[str] = None,
) -> Place:
    """The place of this process; directories and outside.json are made.

    Outside Shoal, `number` says how many runs this process had before, `run` the one it has a part in already, and
    `origin` the process whose run it is, if it was forked. `about` goes into outside.json when this process is the
    first to write it. Raises OSError.
    """
    identity = who.myself()
    if identity.starter == SHOAL:
        place = Place(identity, os.path.dirname(os.path.abspath(os.environ["SHOAL_STREAMS"])))
        os.makedirs(os.environ["SHOAL_STREAMS"], exist_ok=True)
        return place
    home = os.path.abspath(os.path.expanduser(os.environ.get("SHOAL_HOME") or os.path.join("~", ".shoal")))
    chosen = directory or os.environ.get("SHOAL_OUTSIDE")
    root = os.path.abspath(os.path.expanduser(chosen)) if chosen else os.path.join(home, "outside")
    if not chosen:
        os.makedirs(home, mode=0o700, exist_ok=True)
    starter = origin or who.name_process(_multiprocessing_parent() or os.getpid())
    run = run or _run(root, identity, number, starter)
    place = Place(
        identity,
        os.path.join(run, f"attempt-{identity.attempt}", identity.replica, "try-0"),
        run,
        os.path.basename(run),
        "" if chosen else home,
    )
    os.makedirs(place.streams, exist_ok=True)
    os.makedirs(os.path.join(run, "outputs"), exist_ok=True)
    _introduce(place, about, starter if identity.starter == PLAIN else "")
    _touch(run, root)
    return place


def invite(stream: str, run: str) -> None:
    """Lets children of multiprocessing know whose they are, also those that are not forked."""
    os.environ[JOIN] = f"{os.getpid()}:{stream}:{run}"


def invitation() -> Tuple[Optional[str], Optional[str]]:
    """The stream and, outside Shoal, the run of the parent, in a child of multiprocessing whose parent has them."""
    parent = _multiprocessing_parent()
    inviter, _, rest = os.environ.get(JOIN, "").partition(":")
    if parent is None or inviter != str(parent):
        return None, None
    stream, _, run = rest.partition(":")
    return stream, run if os.path.isdir(run) else None


def knock(home: str) -> None:
    """Tells a living server of the home to look; nobody there is fine. Never waits."""
    if not home or not hasattr(socket, "AF_UNIX"):
        return
    try:
        door = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(b".", f"/proc/self/fd/{door}/wake.sock")  # the path of a socket must be short
    except OSError:
        pass
    finally:
        os.close(door)


def _run(root: str, identity: Identity, number: int, starter: str) -> str:
    """The directory of the run this process belongs to."""
    again = f"-{number + 1}" if number else ""
    if identity.starter == PLAIN:
        # Children of multiprocessing compute the same key, also when their parent records nothing.
        return os.path.join(root, f"run-{_digest(starter)}{again}")
    env = os.environ
    if identity.starter == TORCHRUN:
        run_id = env.get("TORCHELASTIC_RUN_ID", "")
        meeting = [run_id, env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")]
        base = f"torchrun-{_slug(run_id)}-{_digest(*meeting)}{again}"
        return _generation(root, base, f"{identity.attempt}-{identity.index}", who.starter_of("TORCHELASTIC_RUN_ID"))
    assert identity.starter == SLURM
    job, step = _slug(env["SLURM_JOB_ID"]), _slug(env["SLURM_STEP_ID"])
    base = f"slurm-{_slug(env.get('SLURM_CLUSTER_NAME') or 'cluster')}-{job}-{step}{again}"
    return _generation(root, base, f"{identity.attempt}-{identity.rank}", "")


def _generation(root: str, base: str, slot: str, starter: str) -> str:
    """The newest run of the key that is ours; a new one when that is somebody else's.

    A key may come again: torchrun calls every run without an id "none". Each node (each rank, where nobody can be named
    who started it) claims its slot in a run, and a slot that another has claimed belongs to another run.
    """
    newest = 0
    while newest < GENERATIONS and os.path.isdir(_of_generation(root, base, newest + 1)):
        newest += 1
    while True:
        run = _of_generation(root, base, newest)
        claims = os.path.join(run, "claims")
        os.makedirs(claims, exist_ok=True)
        mine = [starter] if starter else who.ancestors()
        # Looked at again when the slot was just taken: it may have been a process of the same starter.
        for _ in range(2):
            if _claimed_by(claims, None if starter else slot) & set(mine):
                return run
            if _write_once(os.path.join(claims, slot), mine[0].encode()):
                return run
        newest += 1


def _of_generation(root: str, base: str, number: int) -> str:
    return os.path.join(root, f"{base}-g{number}" if number else base)


def _claimed_by(claims: str, slot: Optional[str]) -> Set[str]:
    """Who has claimed the slot, or any slot."""
    found = set()
    for name in os.listdir(claims):
        if name == slot or (slot is None and not name.endswith(NEW)):
            try:
                with open(os.path.join(claims, name), encoding="utf-8") as file:
                    found.add(file.read())
            except OSError:
                continue
    return found


def _introduce(place: Place, about: Mapping[str, Any], starter: str) -> None:
    path = os.path.join(place.run, ABOUT)
    if os.path.exists(path):
        return
    words: List[str] = who.program()
    value: Dict[str, Any] = {
        "key": place.key,
        "name": about.get("name") or _script_name(),
        "started": time.time(),
        "command": words,
        "cwd": _here(),
        "host": who.host(),
        "user": _user(),
        "git": commit_around(_here()),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "boot": who.boot(),
        "pid": os.getpid(),  # who was there first: if it dies before it records anything, nobody else tells
        "pid_start": who.start_time("self"),
        "starter": starter,  # whose children record too, and maybe later; torchrun and Slurm have claims
        "params": about.get("params") or {},
        "tags": about.get("tags") or [],
        **{name: text for name, text in about.items() if name not in ("name", "params", "tags")},
    }
    _write_once(path, json.dumps(value, indent=1).encode("utf-8", "replace"))


def _touch(*directories: str) -> None:
    """A server that takes the run for over looks at what has changed."""
    for directory in directories:
        try:
            os.utime(directory)
        except OSError:  # another user's
            pass


def _write_once(path: str, content: bytes) -> bool:
    """A file that appears whole; False when there is one already."""
    temporary = f"{path}.{secrets.token_hex(4)}{NEW}"
    with open(temporary, "wb") as file:
        file.write(content)
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # a filesystem without links
        try:
            with open(path, "xb") as file:
                file.write(content)
            return True
        except FileExistsError:
            return False
    finally:
        os.unlink(temporary)


def _multiprocessing_parent() -> Optional[int]:
    """The pid of the process whose `multiprocessing` started this one."""
    processes: Any = sys.modules.get("multiprocessing.process")
    parent = processes.parent_process() if processes is not None else None
    return None if parent is None else int(parent.pid)


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:12]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:30].strip("-") or "none"


def _script_name() -> str:
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    return os.path.splitext(os.path.basename(script))[0] if script not in ("", "-c", "-m") else "python"


def commit_around(directory: str) -> Optional[Dict[str, Any]]:
    """{commit, branch} of the repository around a directory, read from its files: a script is no place to run git."""
    try:
        while not os.path.exists(os.path.join(directory, ".git")):
            above = os.path.dirname(directory)
            if above == directory:
                return None
            directory = above
        git = os.path.join(directory, ".git")
        if os.path.isfile(git):  # of another worktree, or a submodule
            git = os.path.join(directory, _line(git).partition("gitdir: ")[2])
        head = _line(os.path.join(git, "HEAD"))
        if not head.startswith("ref: "):
            return {"commit": head, "branch": None}
        ref = head[len("ref: ") :]
        common = os.path.join(git, "commondir")
        places = [git, os.path.join(git, _line(common))] if os.path.exists(common) else [git]
        commits = [_commit_of(place, ref) for place in places]
        branch = ref[len("refs/heads/") :] if ref.startswith("refs/heads/") else ref
        return {"commit": next((commit for commit in commits if commit), None), "branch": branch}
    except OSError:
        return None


def _commit_of(git: str, ref: str) -> Optional[str]:
    if os.path.exists(os.path.join(git, ref)):
        return _line(os.path.join(git, ref))
    packed = os.path.join(git, "packed-refs")
    if os.path.exists(packed):
        with open(packed, encoding="utf-8", errors="replace") as file:
            for line in file:
                commit, _, name = line.rstrip("\n").partition(" ")
                if name == ref:
                    return commit
    return None


def _line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline().rstrip("\n")


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError, AttributeError):
        return os.environ.get("USER", "")
