"""The user's files as one archive, for a ConfigMap or for the server to keep. The same files give the same bytes."""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import stat
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from shoal.backends.kubernetes.request import LARGEST_CODE, LARGEST_FETCHED, Fetched, too_large
from shoal.backends.kubernetes.settings import STDOUT, Settings
from shoal.errors import UsageError

IGNORE = ".shoalignore"
NEVER = (".git", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ipynb_checkpoints")


class Packed(NamedTuple):
    """Code that is small enough for a ConfigMap, or a file that is kept for replicas to fetch."""

    code: bytes = b""
    fetched: Fetched | None = None
    file: IO[bytes] | None = None  # has no name: it is gone when nobody holds it


def packed(directory: str, settings: Settings, home: Path) -> Packed:
    """The files of a directory as this cluster takes them; UsageError when they are too many."""
    most = LARGEST_CODE if settings.sink == STDOUT else LARGEST_FETCHED
    file: IO[bytes] = tempfile.TemporaryFile(dir=home)  # noqa: SIM115  its owner closes it
    try:
        pack(directory, file, most)
    except TooLarge:
        file.close()
        raise too_large(settings, _weighed(directory)) from None
    size = file.tell()
    file.seek(0)
    if size <= LARGEST_CODE:
        with file:
            return Packed(file.read())
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return Packed(b"", Fetched(digest.hexdigest(), size), file)


def _weighed(directory: str) -> str:
    """The code in a few words: `the code of /work (12 files, 3.1 MiB: data.bin 3.0 MiB, …)`"""
    sizes: dict[str, int] = {}
    for name in files_of(directory):
        with suppress(OSError):
            sizes[name] = os.lstat(os.path.join(directory, name)).st_size
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    named = ", ".join(f"{name} {sizes[name] / 2**20:.1f} MiB" for name in largest)
    return f"the code of {directory} ({len(sizes)} files, {sum(sizes.values()) / 2**20:.1f} MiB: {named}, …)"


class TooLarge(Exception):
    """There is more than was allowed."""


def pack(directory: str, target: IO[bytes], most: int) -> None:
    """Writes a tar.gz of the directory, without what git or .shoalignore ignore. TooLarge soon after `most` bytes."""
    with gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name in sorted(files_of(directory)):
            _add(tar, os.path.join(directory, name), name)
            if target.tell() > most:
                raise TooLarge
    if target.tell() > most:
        raise TooLarge


def _add(tar: tarfile.TarFile, path: str, name: str) -> None:
    entry = tarfile.TarInfo(name)  # times and owners are left out
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(entry)
        elif stat.S_ISREG(found.st_mode):
            entry.mode = 0o755 if found.st_mode & 0o100 else 0o644
            with open(path, "rb") as file:
                entry.size = os.fstat(file.fileno()).st_size
                tar.addfile(entry, file)
    except FileNotFoundError:
        return
    except OSError as error:  # also: it became shorter while it was read
        raise UsageError(
            f"{path}: {error.strerror or error}", hint=f"list it in {IGNORE} if it is not needed"
        ) from None


def files_of(directory: str) -> list[str]:
    """Relative paths, as git sees them where there is git."""
    patterns = _patterns(directory)
    found = _git(directory)
    if found is None:
        found = _walk(directory)
    return [
        name
        for name in found
        if not any(part in NEVER for part in name.split("/")) and not any(_matches(name, text) for text in patterns)
    ]


def _patterns(directory: str) -> list[str]:
    path = os.path.join(directory, IGNORE)
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # as names are that are no text
            return [line.strip() for line in file if line.strip() and not line.startswith("#")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="a file with a pattern in each line") from None


def _matches(name: str, pattern: str) -> bool:
    wanted = pattern.rstrip("/").lstrip("/")
    parts = name.split("/")
    return any(fnmatch.fnmatchcase("/".join(parts[:count]), wanted) for count in range(1, len(parts) + 1)) or any(
        fnmatch.fnmatchcase(part, wanted) for part in parts
    )


def _git(directory: str) -> list[str] | None:
    """None where no repository tells: also in a directory that one ignores as a whole."""
    command = ["git", "-C", directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    found: list[str] = []
    for name in done.stdout.decode("utf-8", "surrogateescape").rstrip("\0").split("\0"):
        whole = os.path.join(directory, name)
        if name and os.path.isdir(whole) and not os.path.islink(whole):  # a submodule, or a repository of its own
            inside = _git(whole) if os.path.lexists(os.path.join(whole, ".git")) else None
            found += [os.path.join(name, path) for path in (_walk(whole) if inside is None else inside)]
        elif name and os.path.lexists(whole):
            found.append(name)
    return found or None


def _walk(directory: str) -> list[str]:
    found = []
    for place, below, names in os.walk(directory):
        below[:] = [name for name in below if name not in NEVER]
        found += [os.path.relpath(os.path.join(place, name), directory) for name in names]
    return found
