"""Git, by the system's own command: which commit a ref means, a checkout of it, and what a directory holds beside it.

Nothing here ever asks anybody anything: without the right credentials git fails, and its words are shown.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.data.downloads import Cancelled
from shoal.errors import Unavailable, UsageError

LOOK = 30.0  # seconds a remote may take to say which commit a ref is
FETCH = 3600.0
MOST_DIFF = 1 << 20
MOST_UNTRACKED = 200
COMMIT = re.compile(r"[0-9a-f]{40}")
ABOUT_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")


def resolve(url: str, ref: str, directory: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """(where the repository is, the commit that the ref means there). A path is relative to the directory."""
    if url.startswith("-") or ref.startswith("-"):
        raise UsageError(f"git: {url} {ref}: neither may begin with -", hint="git: a URL, ref: a branch, tag or commit")
    local = os.path.join(directory, url)
    if os.path.isdir(local):
        url = os.path.realpath(local)
        found = _git(["-C", url, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"], environment, LOOK)
        if found.returncode == 0:
            return url, found.stdout.decode().strip()
    elif COMMIT.fullmatch(ref):
        return url, ref
    found = _git(["ls-remote", "--", url], environment, LOOK)
    if found.returncode != 0:
        raise Unavailable(f"git: {url}: {_said(found)}", hint="is the URL right, and may you read it?")
    lines = [line.partition("\t") for line in found.stdout.decode("utf-8", "replace").splitlines()]
    known = {name: commit for commit, _, name in lines}
    for name in (ref, f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}", f"refs/tags/{ref}", f"refs/{ref}"):
        if name in known:
            return url, known[name]
    names = [name.split("/", 2)[2] for name in known if name.startswith(("refs/heads/", "refs/tags/"))]
    branches = ", ".join([name for name in names if not name.endswith("^{}")][:8])
    raise UsageError(
        f"git: {url} has no branch, tag or commit {ref!r}",
        hint=f"it has {branches or 'no branches'}; a commit is written with all of its 40 digits",
    )


def checkout(
    url: str, commit: str, target: Path, environment: Mapping[str, str], cancelled: Callable[[], bool]
) -> None:
    """A checkout of the commit, whole or not at all."""
    if target.is_dir():
        return
    building = target.with_name(f"{target.name}.part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    everything = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]

    def git(*arguments: str, fails: bool = True) -> bool:
        done = _git(["-C", str(building), *arguments], environment, FETCH, cancelled)
        if done.returncode != 0 and fails:
            raise Unavailable(f"git: {url}: {_said(done)}", hint="is the URL right, and may you read it?")
        return done.returncode == 0

    git("init", "--quiet")
    git("remote", "add", "origin", "--", url)
    if not git("fetch", "--quiet", "--depth", "1", "origin", commit, fails=False):  # not every server gives one commit
        git("fetch", "--quiet", "origin", *everything)
    git("checkout", "--quiet", "--detach", commit)
    if (building / ".gitmodules").exists():
        git("submodule", "--quiet", "update", "--init", "--recursive")
    building.rename(target)


def describe(directory: str, limit: float) -> tuple[dict[str, Any] | None, bytes]:
    """What a directory holds in terms of git, and the diff to its commit; None where there is no git or no repository.

        {"commit": "9f2c…", "branch": "main", "dirty": true, "untracked": ["new.py"],
         "diff_size": 1234, "diff_cut": false, "diff_hash": "5d41…"}

    What takes longer than the limit is left out, and `error` says so.
    """
    if not _in_repository(directory) or shutil.which("git") is None:
        return None, b""
    deadline = time.monotonic() + limit
    status = ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=none"]
    try:
        found = _git(["-C", directory, *status], os.environ, limit)
        if found.returncode != 0:
            return {"commit": None, "error": _said(found)}, b""
        about = _status(found.stdout)
        diff = b""
        if about["dirty"] and about["commit"]:
            diff = _diff(directory, max(0.1, deadline - time.monotonic()), about)
        return about, diff
    except subprocess.TimeoutExpired:
        return {"commit": None, "error": f"git took longer than {limit:g} s"}, b""
    except OSError as error:
        return {"commit": None, "error": f"git: {error.strerror}"}, b""


def _status(output: bytes) -> dict[str, Any]:
    commit, branch, dirty, untracked = None, None, False, []
    for line in output.decode("utf-8", "replace").split("\0"):
        if line.startswith("# branch.oid "):
            commit = line.split(" ", 2)[2]
        elif line.startswith("# branch.head "):
            branch = line.split(" ", 2)[2]
        elif line.startswith("? "):
            untracked.append(line[2:])
        elif line and not line.startswith("#"):
            dirty = True
    return {
        "commit": None if commit == "(initial)" else commit,
        "branch": None if branch == "(detached)" else branch,
        "dirty": dirty,
        "untracked": sorted(untracked)[:MOST_UNTRACKED],
        "diff_size": 0,
        "diff_cut": False,
        "diff_hash": "",
    }


def _diff(directory: str, limit: float, about: dict[str, Any]) -> bytes:
    """The changes to files that git knows. Of more than 1 MiB the beginning is kept, and the hash of all of it."""
    command = ["-C", directory, "diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index"]
    with subprocess.Popen(
        ["git", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=_environment(os.environ),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        late = threading.Timer(limit, process.kill)
        late.start()
        digest, kept, size = hashlib.sha256(), bytearray(), 0
        while block := process.stdout.read(1 << 16):
            digest.update(block)
            kept += block[: MOST_DIFF - len(kept)]
            size += len(block)
        late.cancel()
    if process.returncode < 0:
        raise subprocess.TimeoutExpired("git diff", limit)
    about.update(diff_size=size, diff_cut=size > len(kept), diff_hash=digest.hexdigest())
    return bytes(kept)


def _in_repository(directory: str) -> bool:
    """Without starting a process: most of the time it takes to submit would else be git's."""
    place = Path(directory)
    return any((above / ".git").exists() for above in (place, *place.parents))


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in variables.items() if name not in ABOUT_ANOTHER}
    kept.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _git(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    limit: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> subprocess.CompletedProcess[bytes]:
    environment = _environment(variables)
    program = shutil.which("git", path=environment.get("PATH")) or shutil.which("git")
    if program is None:
        raise Unavailable("git is not installed on the server's machine", hint="install git")
    deadline = time.monotonic() + limit
    with subprocess.Popen(
        [program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment, cwd="/",
    ) as process:  # fmt: skip
        while True:
            try:
                output, errors = process.communicate(timeout=min(0.2, max(0.01, deadline - time.monotonic())))
                return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
            except subprocess.TimeoutExpired:
                if cancelled():
                    process.kill()
                    raise Cancelled from None
                if time.monotonic() > deadline:
                    process.kill()
                    raise


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return (fatal or lines or [f"exit code {done.returncode}"])[0][:300]
