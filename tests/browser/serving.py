"""Servers of what the wheel installs, as somebody without a checkout starts them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from shoal.client import Client
from tests.api.speaking import Served
from tests.packaging import installed, outside

# Each script runs in the environment of the wheel; `{python}` is its interpreter.
ONE = "name: {name}\nframework: none\nrun: {{cmd: {command}}}\nenvironment: {{replicas: {{n_workers: {workers}}}}}\n"


class FromTheWheel(Served):
    """A home whose server is the installed one."""

    @classmethod
    def of(cls, home: Path) -> FromTheWheel:
        start(home)
        served = cls(home, Client(home, start=False))
        assert Path(f"/proc/{served.pid}/cmdline").read_text().startswith(str(installed()))
        return served

    def restart(self) -> None:
        self.client.end_server()
        start(self.home)

    def submit(self, name: str, command: str, workers: int = 1, more: str = "", **options: object) -> str:
        """Starts a master and so many workers that run a line of bash; the id. `python` is that of the wheel."""
        line = command.replace("{python}", str(installed() / "bin" / "python"))
        text = ONE.format(name=name, command=json.dumps(line), workers=workers) + more
        return self.run(text, oversubscribe=True, **options)


def start(home: Path) -> None:
    """Any command does it."""
    command = [installed() / "bin" / "shoal", "ls"]
    subprocess.run(command, cwd="/", env=outside(SHOAL_HOME=str(home)), check=True, capture_output=True)
