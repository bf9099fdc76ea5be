"""What a pod of a cluster can do, seen from inside: `shoal cluster check` starts one.

It prints one line of JSON: for each thing an empty text, or what is wrong with it.

    {"python": "", "version": "3.11.2", "bash": "", "work": "", "claim": "", "dns": "Name or service not known", …}

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from typing import Any, Dict, Mapping

from shoal.launcher.shipping import Away, Closed, Refused
from shoal.launcher.sinks import HttpSink

MARK = "#shoal-probe "
PLACE = "probe/0/probe/0"  # an experiment that does not exist: a server that knows our token says so


def main(run: Mapping[str, Any]) -> int:
    """`run`: which names and directories to try."""
    found: Dict[str, str] = {
        "version": ".".join(map(str, sys.version_info[:3])),
        "bash": "" if shutil.which("bash") else "there is no bash in the image",
        "user": str(os.getuid()),
        "work": _writable(run["work"]),
        "dns": _known(run["name"]),
    }
    if run.get("claim"):
        found["claim"] = _writable(run["claim"])
    sink = os.environ.get("SHOAL_SINK", "")
    if sink.startswith("http"):
        found["server"] = _reached(sink)
    print(MARK + json.dumps(found), flush=True)
    return 0


def _writable(directory: str) -> str:
    path = os.path.join(directory, f".shoal-probe-{os.getpid()}-{socket.gethostname()}")
    try:
        with open(path, "w") as file:
            file.write("x")
        os.unlink(path)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return ""


def _known(name: str) -> str:
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        return f"{name}: {error.strerror}"
    return ""


def _reached(url: str) -> str:
    token, ca = os.environ.get("SHOAL_SINK_TOKEN", ""), os.environ.get("SHOAL_SINK_CA", "")
    try:
        HttpSink(url, PLACE, token, ca=ca).watermarks()
    except Closed:
        return ""  # it is the server of this home: it knows the token, and that there is no such experiment
    except (Away, Refused, ValueError) as error:
        return str(error) or "no answer"
    return "what answers there is not this server"
