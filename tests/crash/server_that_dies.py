"""A server that ends itself with SIGKILL at the k-th point between two steps of its engine.

    python tests/crash/server_that_dies.py K RECORD --home DIR …

Every point is written to RECORD first, so that the last one tells where it died. No exception, no mock.
"""

from __future__ import annotations

import os
import signal
import sys

from shoal.server.__main__ import parse, serve


def main() -> None:
    die_at, record = int(sys.argv[1]), sys.argv[2]
    count = 0

    def between(point: object) -> None:
        nonlocal count
        with open(record, "a") as file:
            file.write(f"{point!r}\n")
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    serve(parse(sys.argv[3:]), between)


if __name__ == "__main__":
    main()
