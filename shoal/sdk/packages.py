"""What is installed beside a script: names and versions, from the names of directories alone, which takes no time."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict


def installed() -> Dict[str, Any]:
    """{packages, python, implementation, platform, executable} of this interpreter."""
    packages: Dict[str, str] = {}
    for directory in reversed(sys.path):  # the first on the path is the one that is imported
        try:
            entries = os.listdir(directory or ".")
        except OSError:
            continue
        for entry in entries:
            stem, dot, kind = entry.rpartition(".")
            if dot and kind in ("dist-info", "egg-info"):
                name, _, version = stem.partition("-")
                if name and version:
                    packages[name.replace("_", "-").lower()] = version.partition("-py")[0]
    uname = os.uname() if hasattr(os, "uname") else None
    return {
        "packages": dict(sorted(packages.items())),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "executable": sys.executable or "",
        "platform": f"{uname.sysname} {uname.release} {uname.machine}" if uname else sys.platform,
        "cpus": os.cpu_count(),
    }
