"""Where an experiment comes from: kept with it, shown, compared, and used to run it again.

    {"command": "python train.py", "directory": "~ada/mnist", "caller": "~ada", "user": "ada", "shoal": "1.0",
     "host": {"name": …, "os": …, "machine": …, "cpu": 8, "cpu_model": …, "memory": 32110, "gpus": […]},
     "git": {"commit": …, "branch": …, "dirty": true, …} | null, "datasets": [ … ], "code": {…} | null,
     "files": {"digest": …, "complete": true, "hashes": {"train.py": …}}, where no commit tells what was run
     "executable": "/usr/bin/python3", "python": "3.12.1", "packages": {"numpy": "2.3.1", …}}

The diff itself lies beside the attempts (`git.diff`). Packages are asked for after the experiment was taken: a script
that uses the SDK tells its own, which count more than those of the python that the caller's PATH names.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import queue
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.backends.backend import LOCAL, Site
from shoal.engine import checkouts, codefiles
from shoal.engine.data import label
from shoal.engine.places import experiment_directory
from shoal.launcher.replica import read_json
from shoal.store import experiments as store
from shoal.store.database import Database, LeaseLost

DIFF = "git.diff"
GIT_AT_SUBMIT = 3.0  # seconds
GIT_LATER = 120.0
ASKING_PYTHON = 60.0

ASK = """
import importlib.metadata as m, json, platform, sys
found = {}
for d in m.distributions():
    n = d.metadata["Name"]
    if n and n not in found: found[n] = d.version
print(json.dumps({"python": platform.python_version(), "packages": found, "path": sys.path}))
"""

Provenance = dict[str, Any]


def at_submit(
    planned: Mapping[str, Any], directory: str, environment: Mapping[str, str], site: Site, home: Path
) -> tuple[Provenance, bytes]:
    """What can be told at once, and the diff. `planned` is what the submission found: command, datasets, code."""
    git, diff = (None, b"") if planned.get("code") else checkouts.describe(directory, GIT_AT_SUBMIT)
    unversioned = not planned.get("code") and not (git and git.get("commit"))
    return {
        **planned,
        "directory": _text(directory),
        "caller": _text(environment.get("PWD")),
        "user": _text(environment.get("USER") or environment.get("LOGNAME")) or _own_name(),
        "shoal": __version__,
        "host": _host(site),
        "git": git,
        **({"files": codefiles.describe(directory, str(home))} if unversioned and directory else {}),
    }, diff


def full(provenance: Mapping[str, Any] | None, directory: Path) -> Provenance:
    """With the text of the diff."""
    shown = dict(provenance or {})
    if isinstance(shown.get("host"), str):  # as runs outside Shoal had it at first
        shown["host"] = {"name": shown["host"]}
    if shown.get("git"):
        diff = None
        with suppress(OSError):
            diff = (directory / DIFF).read_text("utf-8", "replace")
        shown["git"] = {**shown["git"], "diff": diff if shown["git"].get("diff_size") else ""}
    return shown


def differences(before: Mapping[str, Any] | None, now: Mapping[str, Any], *, exact: bool) -> list[str]:
    """What is no longer as it was when an experiment ran. With `exact` also what cannot be told."""
    if before is None or "directory" not in before:
        return ["it is not known what it ran with: it is older than this record"] if exact else []
    found = []
    if not now.get("code"):
        place = str(now["directory"])
        if before.get("files") and now.get("files"):
            found += codefiles.differences(before["files"], now["files"], place, exact=exact)
        else:
            found += _git_differences(before.get("git"), now.get("git"), place, exact=exact)
    digests = {mount["at"]: mount["digest"] for mount in before.get("datasets", ())}
    for mount in now.get("datasets", ()):
        then = digests.get(mount["at"])
        if then is not None and then != mount["digest"]:
            found.append(f"{label(mount)} holds other data than then")
    return found


def _git_differences(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, place: str, *, exact: bool
) -> list[str]:
    if not before or not now or not before.get("commit") or not now.get("commit"):
        unknown = f"{place}: it cannot be told whether its files are those of then: there is no commit to compare"
        return [unknown] if exact else []
    found = []
    if before["commit"] != now["commit"]:
        found.append(f"{place}: the commit is {now['commit'][:12]}, and was {before['commit'][:12]}")
    if before["diff_hash"] != now["diff_hash"]:
        was = "there was none" if not before["diff_hash"] else "there was another"
        is_ = "there is no change to it" if not now["diff_hash"] else "files are changed since the commit"
        found.append(f"{place}: {is_}; then {was}")
    new = sorted(set(now["untracked"]) - set(before["untracked"]))
    gone = sorted(set(before["untracked"]) - set(now["untracked"]))
    for names, word in ((new, "new"), (gone, "gone")):
        if names:
            found.append(f"{place}: files that git does not know are {word}: {', '.join(names[:3])}")
    return found


IN_AN_IMAGE: Provenance = {"executable": None, "python": None, "packages": {}}  # not those of this machine


class Recorder:
    """Adds what takes longer than a submission may, in a thread of its own."""

    def __init__(self, home: Path, database: Database) -> None:
        self.home = home
        self.database = database
        self._wanted: queue.SimpleQueue[tuple[str, Mapping[str, str] | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="provenance", daemon=True)
        self._known: dict[tuple[str, ...], tuple[list[tuple[str, int]], Provenance]] = {}

    def start(self) -> None:
        """Also for what a server that was killed left undone."""
        with self.database.read() as connection:
            for row in store.unfinished(connection):
                self.add(row["uid"])
        self._thread.start()

    def add(self, uid: str, variables: Mapping[str, str] | None = None) -> None:
        """`variables` are those of its replicas; they are kept on the disk only while it is not over."""
        self._wanted.put((uid, variables))

    def _loop(self) -> None:
        while True:
            uid, variables = self._wanted.get()
            try:
                self._complete(uid, variables)
            except LeaseLost:
                return
            except Exception as error:  # noqa: BLE001  an experiment without this record is still one
                with suppress(OSError):
                    print(f"provenance of {uid}: {error!r}", flush=True)

    def _complete(self, uid: str, variables: Mapping[str, str] | None) -> None:
        with self.database.read() as connection:
            row = store.find(connection, uid)
        if row is None or row["provenance"] is None:
            return
        found: Provenance = {}
        directory = experiment_directory(self.home, row)
        known = row["provenance"].get("git")
        if known and not known.get("late") and _can_tell_more(row):
            git, diff = checkouts.describe(row["cwd"], GIT_LATER)
            if row["origin"] == "run" or (git and git["commit"] == known["commit"]):
                found["git"] = {**(git or {}), "late": True}
                write_diff(directory, diff)
        variables = variables if variables is not None else read_json(str(directory / "environment.json"))
        if "packages" not in row["provenance"] and variables is not None:
            found |= self._python(variables) if row["cluster"] == LOCAL else IN_AN_IMAGE
        if found:
            with self.database.write() as connection:
                newest = store.find(connection, uid)
                if newest is not None:
                    store.set_provenance(connection, uid, _merged(newest["provenance"], found))

    def _python(self, variables: Mapping[str, str]) -> Provenance:
        """Version and packages of the python that the PATH names; asked once while its directories do not change."""
        path = variables.get("PATH", os.defpath)
        program = shutil.which("python", path=path) or shutil.which("python3", path=path)
        if program is None:
            return {"executable": None, "python": None, "packages": {}}
        key = (program, *(variables.get(name, "") for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "HOME")))
        if key in self._known and _times(path for path, _ in self._known[key][0]) == self._known[key][0]:
            return self._known[key][1]
        polite = [nice, "-n", "10"] if (nice := shutil.which("nice")) else []
        try:
            done = subprocess.run(
                [*polite, program, "-c", ASK], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASKING_PYTHON,
                env=dict(variables), cwd="/",
            )  # fmt: skip
            said = json.loads(done.stdout)
            answer = {"executable": program, **{key: said[key] for key in ("python", "packages")}}
            self._known[key] = (_times(said["path"]), answer)
        except (subprocess.SubprocessError, OSError, ValueError, LookupError):
            answer = {"executable": program, "python": None, "packages": {}}
        return answer


def _can_tell_more(row: store.Row) -> bool:
    """Of a run outside Shoal its script knew the commit and not the diff, which only its own machine has."""
    if row["origin"] == "run":
        return "error" in row["provenance"]["git"]
    return bool(row["origin"] == "outside" and row["provenance"]["host"] == {"name": socket.gethostname()})


def write_diff(directory: Path, diff: bytes) -> None:
    """Beside the attempts, for the owner only: a diff may hold what nobody else should read."""
    if diff:
        descriptor = os.open(directory / DIFF, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(diff)


def _merged(known: Mapping[str, Any], found: Provenance) -> Provenance:
    """What the script itself told meanwhile counts more."""
    merged = {**({} if "packages" in known else found), **known}
    return {**merged, "git": found["git"]} if "git" in found else merged


def _times(directories: Any) -> list[tuple[str, int]]:
    found = []
    for directory in directories:
        with suppress(OSError):
            if directory:
                found.append((directory, os.stat(directory).st_mtime_ns))
    return found


def _host(site: Site) -> dict[str, Any]:
    return {
        "name": site.node,
        "os": _system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": site.cpu,
        "cpu_model": _cpu_model(),
        "memory": round(site.memory),
        "gpus": _gpus(len(site.gpus)),
    }


@lru_cache
def _system() -> str:
    try:
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()))
    except OSError:
        return platform.system()


@lru_cache
def _cpu_model() -> str | None:
    with suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def _gpus(count: int) -> list[str]:
    """Their models as the driver names them; only how many there are where it does not."""
    models = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            models += [line.partition(":")[2].strip() for line in file.read_text().splitlines() if line[:6] == "Model:"]
    return [*models[:count], *["GPU"] * max(0, count - len(models))]


def _text(value: str | None) -> str | None:
    """Bytes of an environment that are no text cannot be shown."""
    return value.encode("utf-8", "replace").decode() if value else None


def _own_name() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
