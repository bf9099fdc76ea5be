"""Virtual environments with real frameworks, made once per machine and shared by every checkout.

    python tests/environments.py pytorch jax      makes what is missing, prints the python of each
    python tests/environments.py --all

They live outside the checkout because one takes minutes and gigabytes, and are made from Debian's Python where there
is one: a pod or another user can enter that, unlike an interpreter in somebody's home.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PINS = {
    "pytorch": ("torch==2.15.0", "numpy==2.4.6"),
    "torchx": ("torchx==0.7.0",),  # a peer that `make bench` runs beside Shoal
    "peers": ("tensorboardX==2.6.5", "aim==3.29.1", "wandb==0.31.0", "trackio==0.43.0", "mlflow==3.17.2"),
    "frames": ("pandas==3.1.1", "polars==2.1.0"),
    "tensorflow": ("tensorflow-cpu==2.21.0",),
    "tensorboard": ("tensorboard==2.21.0", "tensorboardX==2.6.5"),  # writers of event files need the first beside them
    "mxnet": ("mxnet==1.9.1", "numpy==1.23.5"),  # mxnet 1.9 uses np.bool, which numpy 1.24 dropped
    "jax": ("jax==0.10.2",),
    "integrations": (
        "torch==2.15.0",
        "numpy==2.4.6",
        "lightning==2.6.6",
        "transformers==5.22.2",
        "accelerate==1.15.0",
        "wandb==0.29.0",  # the last with a reader of its files in Python
        "pillow==13.0.0",
    ),
}
PROOF = {
    "torchx": "import torchx",
    "peers": "import tensorboardX, aim, wandb, trackio, mlflow",
    "pytorch": "import torch.distributed as d; assert d.is_gloo_available()",
    "frames": "import pandas, polars",
    "tensorflow": "import tensorflow",
    "tensorboard": "import tensorboard, tensorboardX",
    "mxnet": "import mxnet; assert mxnet.runtime.Features().is_enabled('DIST_KVSTORE')",
    "jax": "import jax",
    "integrations": "import lightning, pytorch_lightning, transformers, accelerate, wandb, PIL",
}
SYSTEM_LIBRARIES = {"mxnet": ("libgomp1", "libquadmath0")}
DEBIAN_PYTHON = Path("/usr/bin/python3.11")
SHARED_CACHE = Path("/var/cache/shoal-tests")


class CannotMake(Exception):
    """An environment that cannot be made here; the text is one line that says why."""


def environment(name: str) -> Path:
    """The python of the named environment, which is made first if it is missing.

    Safe to call from several processes at once: the others wait for the one that makes it. Raises CannotMake.
    """
    if name not in PINS:
        raise CannotMake(f"{name}: no such environment; there are {', '.join(PINS)}")
    base = DEBIAN_PYTHON if DEBIAN_PYTHON.exists() else Path(sys.executable)
    key = _key(name, base)
    home = cache() / key
    if not os.environ.get("SHOAL_TEST_CACHE") and (SHARED_CACHE / key / "complete").exists():
        home = SHARED_CACHE / key  # what root has made serves everybody
    if (home / "complete").exists():
        return home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(f".{key}.lock")) as lock:
        if not (home / "complete").exists():
            # Scripts of a virtual environment name its path, so it is made in place and a half-made one removed.
            shutil.rmtree(home, ignore_errors=True)
            try:
                _make(name, base, home, lock)
            except CannotMake:
                shutil.rmtree(home, ignore_errors=True)
                raise
    return home / "bin" / "python"


def cache() -> Path:
    """Where everything that tests make once per machine is kept."""
    chosen = os.environ.get("SHOAL_TEST_CACHE")
    if chosen:
        return Path(chosen).absolute()
    nearest = SHARED_CACHE if SHARED_CACHE.exists() else SHARED_CACHE.parent
    return SHARED_CACHE if os.access(nearest, os.W_OK) else Path.home() / ".cache" / "shoal-tests"


def _key(name: str, base: Path) -> str:
    """`mxnet-py3.11.2-mxnet1.9.1-numpy1.23.5-5d0e5c71`: another interpreter or another pin is another environment."""
    version = _run([base, "-c", "import platform; print(platform.python_version())"]).stdout.strip()
    parts = [name, f"py{version}", *(pin.replace("==", "") for pin in PINS[name])]
    digest = hashlib.sha256("\n".join([str(base), *parts]).encode()).hexdigest()
    return "-".join([*parts, digest[:8]])


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _make(name: str, base: Path, home: Path, lock: int) -> None:
    python = home / "bin" / "python"
    if _run([base, "-c", "import ensurepip"], lock).returncode:
        install_system_packages(name, ["python3.11-venv"])
    _must(name, "python -m venv", _run([base, "-m", "venv", home], lock))
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _must(name, "pip install", _fetched([*pip, "install", "--no-cache-dir", *PINS[name]], lock))
    proof: list[str | Path] = [python, "-c", PROOF[name]]
    if name in SYSTEM_LIBRARIES and _run(proof, lock).returncode:
        install_system_packages(name, SYSTEM_LIBRARIES[name])
    _must(name, PROOF[name].partition(";")[0], _run(proof, lock))
    (home / "complete").write_text(_run([*pip, "freeze"], lock).stdout)


def install_system_packages(name: str, packages: Sequence[str]) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotMake(f"{name}: needs {' '.join(packages)}; install with apt-get as root")
    with installing():
        apt_install(name, packages)


def apt_install(name: str, packages: Sequence[str], *options: str) -> None:
    """For those who are `installing`."""
    # A run that was killed may have left packages half installed: apt-get then refuses everything else.
    _must(name, "dpkg --configure -a", _run(["dpkg", "--configure", "-a"]))
    _must(name, "apt-get update", _fetched(["apt-get", "update", "-q"]))
    install = ["apt-get", "install", "-qy", "-o", "DPkg::Lock::Timeout=600", *options, *packages]
    _must(name, f"apt-get install {' '.join(packages)}", _fetched(install))


@contextmanager
def installing() -> Iterator[None]:
    """One at a time: apt-get does not wait for another of its kind."""
    cache().mkdir(parents=True, exist_ok=True)
    with _locked(cache() / ".apt.lock"):
        yield


def _fetched(command: Sequence[str | Path], lock: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command that downloads: it is given more than one chance, since no mirror answers always."""
    for pause in (1, 5):
        if not (done := _run(command, lock)).returncode:
            return done
        time.sleep(pause)
    return _run(command, lock)


def _run(command: Sequence[str | Path], lock: int | None = None) -> subprocess.CompletedProcess[str]:
    """Children hold the lock too: a pip that outlives us still keeps others out of its directory."""
    return subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=[] if lock is None else [lock],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},
    )


def _must(name: str, what: str, done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        errors = [line for line in lines if line.upper().startswith(("ERROR", "E:"))]
        raise CannotMake(f"{name}: {what} failed with exit code {done.returncode}: {(errors or lines)[-1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PINS))
    parser.add_argument("--all", action="store_true", help="all of them")
    chosen = parser.parse_args()
    if not chosen.all and not chosen.names:
        parser.error(f"name one of {', '.join(PINS)}, or --all")
    failures = 0
    for name in PINS if chosen.all else chosen.names:
        start = time.monotonic()
        try:
            python = environment(name)
        except (CannotMake, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            failures += 1
            continue
        print(f"{python}  {time.monotonic() - start:.1f}s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
