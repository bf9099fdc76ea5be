"""Lets the server ask where this process is: a signal makes Python write the stacks of all threads into a file.

The file is `stacks/<pid>.txt` in the try; its first line says who the process is. The handler is faulthandler's, in C:
it answers also while the process waits in a collective, where no Python code runs. The signal is one that nobody uses,
near the end of the real-time signals; whoever sends it looks first whether it is caught.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
from typing import Any, Optional

from shoal.sdk import identity

SIGNAL = getattr(signal, "SIGRTMAX", 0) - 3
DIRECTORY = "stacks"

_file: Optional[Any] = None
_pid = 0


def register(directory: str) -> None:
    """From now on the process can be asked; silent when that is not possible here, and when it can be asked already."""
    global _file, _pid
    if _pid == os.getpid() or SIGNAL < 0 or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    _pid = os.getpid()  # also when it fails: once is enough
    try:
        place = os.path.join(directory, DIRECTORY)
        os.makedirs(place, exist_ok=True)
        file = open(os.path.join(place, "%d.txt" % _pid), "ab", buffering=0)  # noqa: SIM115  it stays open
        me = identity.identify(os.environ)
        about = {
            "pid": _pid,
            "start": identity.start_time("self"),
            "fd": file.fileno(),
            "main": threading.main_thread().ident,
            "replica": me.replica,
            "process": me.process,
            "rank": me.rank,
        }
        file.write(json.dumps(about).encode() + b"\n")
        faulthandler.register(SIGNAL, file=file, all_threads=True)
        _file = file
    except (OSError, RuntimeError, ValueError, AttributeError):
        return


def _forget() -> None:
    """In a fork: the file is the parent's."""
    global _file, _pid
    if _file is not None:
        faulthandler.unregister(SIGNAL)
        _file.close()
    _file, _pid = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
