"""A server that ends itself with SIGKILL at a point between two steps of its engine or two calls of an API server.

    python -m tests.clusters.kubernetes.dying_server POINT RECORD --home DIR …

Points have names (`after POST services shoal-ID-0`), as threads pass them in no fixed order. Every one is written to
RECORD; it dies where it passes the one that it was told first.
"""

from __future__ import annotations

import os
import re
import signal
import sys

from shoal.server.__main__ import parse, serve


def name_of(point: object) -> str:
    """The same in every life: without the experiment, the namespace, and what a cluster adds to the names of pods."""
    if not isinstance(point, str):
        attempt = getattr(point, "attempt", "")
        return type(point).__name__ + (f" {attempt}" if attempt != "" else "")
    when, _, call = point.partition(" ")
    if not call.startswith(("POST ", "PATCH ", "DELETE ")):
        return point
    method, _, path = call.partition(" ")
    kind, name = path.split("/")[-2:]
    name = re.sub(r"^shoal-e\w+-", "shoal-ID-", name)
    if kind == "pods":
        name = re.sub(r"-\w{5}$", "", name)
    return f"{when} {method} {kind} {name}"


def main() -> None:
    die_at, record = sys.argv[1:3]

    def between(point: object) -> None:
        name = name_of(point)
        with open(record, "a") as file:
            file.write(f"{name}\n")
        if name == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    serve(parse(sys.argv[3:]), between)


if __name__ == "__main__":
    main()
