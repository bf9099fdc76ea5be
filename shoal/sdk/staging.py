"""Content that is handed over: copied at once into the files of this try, so the script may go on changing its own."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import Any, Dict, Iterator, List, Tuple

from shoal.sdk.warning import warn

CLONE = 0x40049409  # the ioctl FICLONE: both files share their blocks until one is changed
AT_ONCE = 1 << 30


def stage(path: str, files: str, number: str) -> List[Dict[str, Any]]:
    """Copies a file, or all files of a directory, to `files/number/…`: [{path, size, staged}].

    Symbolic links are followed. Raises OSError, and leaves nothing behind then.
    """
    found = list(_files_of(path))
    target = os.path.join(files, number)
    os.makedirs(target)
    try:
        for source, relative in found:
            copy = os.path.join(target, relative)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            copy_file(source, copy)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return [_described(relative, os.path.join(target, relative), number) for _, relative in found]


def stage_bytes(content: bytes, name: str, files: str, number: str) -> Dict[str, Any]:
    """Writes the content to `files/number/name`: {path, size, staged}. Raises OSError."""
    target = os.path.join(files, number)
    os.makedirs(target)
    try:
        with open(os.path.join(target, name), "wb") as file:
            file.write(content)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return {"path": name, "size": len(content), "staged": f"{number}/{name}"}


def copy_file(source: str, target: str) -> None:
    """Copies content and the bits of the mode; without moving bytes where the filesystem can."""
    with open(source, "rb") as reading, open(target, "wb") as writing:
        if not _cloned(reading.fileno(), writing.fileno()) and not _copied_by_kernel(
            reading.fileno(), writing.fileno()
        ):
            reading.seek(0)
            writing.seek(0)
            writing.truncate()
            shutil.copyfileobj(reading, writing, 1 << 20)
    shutil.copymode(source, target)


def _cloned(source: int, target: int) -> bool:
    try:
        import fcntl

        fcntl.ioctl(target, CLONE, source)
        return True
    except (ImportError, OSError):
        return False


def _copied_by_kernel(source: int, target: int) -> bool:
    if not hasattr(os, "copy_file_range"):
        return False
    size = os.fstat(source).st_size
    done = 0
    try:
        while True:
            step = os.copy_file_range(source, target, AT_ONCE)
            done += step
            if not step:
                return done >= size > 0  # some filesystems say 0 instead of that they cannot
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
            raise
        return False


def _files_of(path: str) -> Iterator[Tuple[str, str]]:
    """(path, path inside) of a file by itself, or of all files of a directory in order."""
    if not os.path.isdir(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for, a device has no end
            raise OSError(errno.EINVAL, "neither a file nor a directory", path)
        with open(path, "rb"):
            pass  # an error here names the path; nothing has been made yet
        yield path, os.path.basename(path)
        return
    yield from _below(path, "", ())


def _below(directory: str, inside: str, above: Tuple[str, ...]) -> Iterator[Tuple[str, str]]:
    real = os.path.realpath(directory)
    if real in above:  # a link that leads back up
        return
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        relative = os.path.join(inside, entry.name)
        if entry.is_dir():
            yield from _below(entry.path, relative, (*above, real))
        elif entry.is_file():
            yield entry.path, relative
        else:
            warn("no file", f"{entry.path} is no file and left out: a link that leads nowhere, a socket, a device")


def _described(relative: str, copy: str, number: str) -> Dict[str, Any]:
    inside = relative.replace(os.sep, "/")
    return {"path": inside, "size": os.path.getsize(copy), "staged": f"{number}/{inside}"}
