"""On the PYTHONPATH of scripts that use PyTorch: one whose process group outlives it ends with code 70, always.

The threads of such a group drop what they hold when they come to it, which takes Python's lock; while the interpreter
ends that aborts the process (`terminate called without an active exception`), once in some hundred times.
"""

import atexit
import os
import sys
from pathlib import Path


def look() -> None:
    names = [comm.read_text().strip() for comm in Path("/proc/self/task").glob("*/comm")]
    if "pt_gloo_runloop" in names:
        sys.stdout.flush()
        os.write(2, b"the process group of this script outlives it\n")
        os._exit(70)


atexit.register(look)  # the first to be registered is the last to be called
