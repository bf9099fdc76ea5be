"""Debian's packages that clusters are made of, installed when they are missing. Their daemons stay asleep."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.environments import CannotMake, apt_install, installing

ASLEEP = Path("/usr/sbin/policy-rc.d")  # what packages ask whether they may start their daemons


def install(packages: Mapping[str, str], for_what: str) -> None:
    """Installs what lacks; `packages` names a file of each. Raises CannotMake in one line."""
    with installing():  # what is there while somebody else installs it may be half there
        missing = [name for name, file in packages.items() if not Path(file).exists()]
        if not missing:
            return
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise CannotMake(f"{for_what}: needs {' '.join(missing)}; install with apt-get as root")
        print(f"{for_what}: making Debian packages: {' '.join(missing)}", file=sys.stderr, flush=True)
        with _nothing_starts():
            apt_install(for_what, missing, "--no-install-recommends")


@contextmanager
def _nothing_starts() -> Iterator[None]:
    ours = not ASLEEP.exists()
    if ours:
        ASLEEP.write_text("#!/bin/sh\nexit 101\n")
        ASLEEP.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            ASLEEP.unlink()
