"""Puts the built web console into the wheel. `make wheel` and `pip wheel .` run it; `pip install -e .` needs none.

A console that lies there is taken as it is (`make console` keeps it up to date); else npm builds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        index = root / "shoal" / "server" / "console" / "index.html"
        if version == "editable" or index.exists() or os.environ.get("SHOAL_NO_CONSOLE") == "1":
            return
        npm = shutil.which("npm")
        if npm is None or not (root / "web" / "package-lock.json").exists():
            raise SystemExit(
                "error: the web console is not built and npm is not here: install Node 20.19 or newer, or set "
                "SHOAL_NO_CONSOLE=1 to build without the console"
            )
        for command in (["ci", "--prefer-offline", "--no-audit", "--no-fund"], ["run", "build"]):
            if subprocess.run([npm, *command], cwd=root / "web").returncode:
                raise SystemExit(f"error: npm {' '.join(command)} failed in web/; SHOAL_NO_CONSOLE=1 builds without")
        if not index.exists():
            raise SystemExit(f"error: npm run build left no {index}")
