"""The wheel, built once for a run of the tests, and an environment that holds nothing else."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from functools import cache
from pathlib import Path

from tests.conftest import ROOT


@cache
def wheel() -> Path:
    """The wheel of this checkout, with the console in it."""
    place = _temporary("shoal-wheel-")
    build(ROOT, place)
    (found,) = place.glob("*.whl")
    return found


@cache
def installed() -> Path:
    """An environment with the wheel and what it needs, and without this checkout.

    SHOAL_TEST_INSTALLED names one that is there already: for those who write a test and do not want to wait.
    """
    if "SHOAL_TEST_INSTALLED" in os.environ:
        return Path(os.environ["SHOAL_TEST_INSTALLED"])
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run:
        return _shared(Path(tempfile.gettempdir()) / f"shoal-installed-{run}")
    return _install(_temporary("shoal-installed-"))


def _install(place: Path) -> Path:
    venv.create(place, with_pip=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    done = subprocess.run([*pip, wheel()], cwd="/", env=outside(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place


def _shared(place: Path) -> Path:
    """Made by the first process of this run of the tests that comes, and removed by the last that ends."""
    made, used = Path(f"{place}.made"), Path(f"{place}.used")
    users = used.open("w")
    fcntl.flock(users, fcntl.LOCK_SH)  # until this process ends
    with made.open("a") as making:
        fcntl.flock(making, fcntl.LOCK_EX)
        if not made.stat().st_size:
            _install(place)
            making.write("yes")

    def leave() -> None:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody else still uses it
        shutil.rmtree(place, ignore_errors=True)
        made.unlink(missing_ok=True)
        used.unlink(missing_ok=True)

    atexit.register(leave)
    return place


def outside(**changes: str) -> dict[str, str]:
    """The variables of somebody who has no checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | changes


def build(source: Path, place: Path, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--installer", "pip", "--outdir", str(place), str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env or None,
    )
    assert env or not done.returncode, done.stdout
    return done


def _temporary(prefix: str) -> Path:
    place = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return Path(place)
