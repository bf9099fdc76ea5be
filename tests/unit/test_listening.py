"""SIGTERM in the first moments of a container."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.launcher import listening
from shoal.launcher.archive import archive


@pytest.mark.parametrize(
    ("line", "heard"),
    [
        pytest.param("SigCgt:\t0000000000004002\n", True, id="SIGTERM and SIGINT"),
        pytest.param("SigCgt:\t0000000000000002\n", False, id="only SIGINT, as an interpreter that begins"),
        pytest.param("SigCgt:\t0000000180014a07\n", True, id="many"),
    ],
)
def test_what_a_process_catches_is_told_by_the_kernel(line: str, heard: bool) -> None:
    assert listening.catches(line, signal.SIGTERM) == heard


BEGINS = """
import signal, sys
sys.stdin.readline()
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
sys.stdin.readline()
"""


def test_whoever_asks_waits_until_it_listens() -> None:
    with subprocess.Popen([sys.executable, "-c", BEGINS], stdin=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        status = f"/proc/{first.pid}/status"
        asks = f"from shoal.launcher import listening; print('asks', flush=True); listening.wait({status!r})"
        with subprocess.Popen([sys.executable, "-c", asks], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "asks\n"
            assert other.poll() is None
            first.stdin.write("listen\n")
            first.stdin.flush()
            assert other.wait(timeout=60) == 0
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=60) == 143


def test_where_nothing_can_be_seen_nobody_waits(tmp_path: Path) -> None:
    assert listening.wait(str(tmp_path / "nothing")) == 0


def test_the_archive_listens_before_it_does_anything_else(tmp_path: Path) -> None:
    """Without run.json beside it, it ends with an error of its own; but it has loaded all of its parts."""
    done = subprocess.run([sys.executable, archive(str(tmp_path))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"shoal: {tmp_path} has no run.json\n")
