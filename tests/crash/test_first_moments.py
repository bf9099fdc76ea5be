"""The shepherd is killed in the moment between the fork of a launcher and its note of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shoal.backends.local.backend import LocalBackend
from shoal.launcher import processes
from tests.contract.test_backends import LocalPlace, observed
from tests.running import until

DIES = """
import os, signal, sys
from shoal.backends.local import shepherd
shepherd.Shepherd.change = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
shepherd.main(sys.argv[1])
"""


class Dying(LocalBackend):
    """Its shepherds die where they would note the first change of a replica: that a launcher has begun."""

    def _start_shepherd(self, directory: str) -> None:
        self.shepherds[directory] = subprocess.Popen([sys.executable, "-c", DIES, directory], start_new_session=True)


def test_a_launcher_that_nobody_has_noted_starts_nothing(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    backend = Dying(place.home)
    witness = tmp_path / "witness"
    try:
        launch = place.launch(f"run: {{cmd: 'touch {witness}; exec sleep 600'}}\n")
        handle = backend.submit(backend.render(launch, backend.probe()))
        end = until(lambda: observed(backend, handle).outcome, "the result that the twin writes")
        assert (end.state, end.reason) == ("failed", "its shepherd was killed")
        directory = str(backend.directory(handle)).encode()
        until(lambda: not speaking_of(directory), "the end of shepherd, twin and launcher")
        assert not witness.exists(), "it was started, and who cleaned up did not know of it"
        place.nothing_left()
    finally:
        place.close()


def speaking_of(directory: bytes) -> list[int]:
    """Processes with this word on their command line: a shepherd and what it forked."""
    found = [pid for pid, each in processes.table().items() if each.alive and pid != os.getpid()]
    return [pid for pid in found if directory in processes._bytes(f"/proc/{pid}/cmdline").split(b"\0")]
