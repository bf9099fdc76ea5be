"""What a replica far from the home needs before its command starts: its code and its data, brought by the server.

Data comes as one tar for each data set, whose bytes are the same whenever they are asked for: after a broken connection
it goes on at the byte where it broke. Every file is compared with the hash that the server knows of it.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import time
from typing import Any, Callable, Iterator, Mapping, Tuple

from shoal.launcher.shipping import Away, Closed, Refused, back_off
from shoal.launcher.sinks import HttpSink

PATIENCE = 300.0  # seconds without a byte
PIECE = 1 << 20
HASH = "SHOAL.sha256"  # of a file, among the headers of its member
HERE = "/shoal"


def bring(run: Mapping[str, Any], variables: Mapping[str, str]) -> Tuple[str, str]:
    """The directory the command runs in, with the user's files and data where there are some; or why they are not."""
    target, trouble = unpack(run, variables)
    return target, trouble or bring_data(run, variables)


def unpack(run: Mapping[str, Any], variables: Mapping[str, str]) -> Tuple[str, str]:
    target = os.path.join(run["work"], "code")
    os.makedirs(target, exist_ok=True)
    packed = os.path.join(HERE, "code", "code.tar.gz")
    try:
        if run.get("code"):
            packed = os.path.join(run["work"], "code.tar.gz")
            with open(packed, "wb") as kept:
                digest = hashlib.sha256()
                for piece in Steady(_sink(run, variables), f"code/{run['code']['sha256']}"):
                    digest.update(piece)
                    kept.write(piece)
            if digest.hexdigest() != run["code"]["sha256"]:
                raise Refused(f"it is not what was sent: its SHA-256 is {digest.hexdigest()}")
        if os.path.exists(packed):
            with tarfile.open(packed) as file:
                # Our own archive, which a newer Python must not distrust.
                file.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
                file.extractall(target)
    except (OSError, tarfile.TarError, Away, Closed, Refused) as error:
        return target, f"the code could not be brought here: {error}"
    return os.path.join(target, run.get("cwd", "")) if run.get("cwd") else target, ""


def bring_data(run: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """Why the data sets are not all below SHOAL_DATA; empty when they are. What an earlier try brought stays."""
    for number, mount in enumerate(run.get("mounts") or ()):
        place = os.path.join(variables["SHOAL_DATA"], mount["at"])
        if os.path.lexists(place):
            continue
        part = os.path.join(run["work"], "fetched", str(number))
        shutil.rmtree(part, ignore_errors=True)
        try:
            os.makedirs(part)
            spread(Steady(_sink(run, variables), f"data/{number}"), part)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.rename(os.path.join(part, mount["file"]) if mount["file"] else part, place)
        except (OSError, tarfile.TarError, Away, Closed, Refused) as error:
            return f"{mount['label']} could not be brought here: {error}"
    return ""


def spread(source: "Steady", target: str) -> None:
    """The files of a tar, each compared with its hash. Raises Refused when one is another."""
    with tarfile.open(fileobj=source, mode="r|", bufsize=PIECE) as tar:  # type: ignore[call-overload]
        for member in tar:
            path = os.path.normpath(os.path.join(target, member.name))
            content = tar.extractfile(member)
            if content is None or not path.startswith(target + os.sep):
                raise Refused(f"{member.name} is no file that could be put here")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            digest = hashlib.sha256()
            with open(path, "wb") as file:
                while True:
                    piece = content.read(PIECE)
                    if not piece:
                        break
                    digest.update(piece)
                    file.write(piece)
            if digest.hexdigest() != member.pax_headers.get(HASH, digest.hexdigest()):
                raise Refused(f"{member.name} is not what it was when this was submitted")


class Steady:
    """The bytes behind a path of the server, over as many connections as it takes."""

    def __init__(
        self,
        sink: HttpSink,
        path: str,
        patience: float = PATIENCE,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sink = sink
        self._path = path
        self._patience = patience
        self._now = now
        self._sleep = sleep
        self._pieces = self._all()
        self._rest = b""

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def read(self, size: int) -> bytes:
        """As tarfile reads: that many, less only at the end."""
        found = [self._rest]
        missing = size - len(self._rest)
        while missing > 0:
            piece = next(self._pieces, b"")
            if not piece:
                break
            found.append(piece)
            missing -= len(piece)
        data = b"".join(found)
        self._rest = data[size:]
        return data[:size]

    def _all(self) -> Iterator[bytes]:
        done, failures = 0, 0
        deadline = self._now() + self._patience
        while True:
            try:
                for piece in self._sink.pieces(self._path, done):
                    yield piece
                    done, failures = done + len(piece), 0
                    deadline = self._now() + self._patience
                return
            except Away:
                failures += 1
                pause = back_off(failures)
                if self._now() + pause > deadline:
                    raise
                self._sleep(pause)


def _sink(run: Mapping[str, Any], variables: Mapping[str, str]) -> HttpSink:
    token, ca = variables.get("SHOAL_SINK_TOKEN", ""), variables.get("SHOAL_SINK_CA", "")
    return HttpSink(variables["SHOAL_SINK"], f"{run['uid']}/{run['attempt']}", token, ca=ca)
