"""The home: where one user's experiments, settings and server live. Standard library only.

$SHOAL_HOME (default ~/.shoal)
├── shoal.db             the database; only the server opens it
├── experiments/<id>/    attempts with the logs of their replicas, outputs
├── blobs/<ab>/<hash>    content of artifacts, models and data sets, by its SHA-256
├── server.json          0600: where the server listens, and the token
├── config.toml          settings
└── secrets.toml         0600: values that `secret_refs` name
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError, Unavailable, UsageError

SERVER_FILE = "server.json"


def path() -> Path:
    """The home of this user, as an absolute path."""
    chosen = os.environ.get("SHOAL_HOME")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".shoal"


def prepare(home: Path) -> None:
    """Makes the home if there is none; an error that says why when that is not possible."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "experiments").mkdir(exist_ok=True)
    except OSError as error:
        raise _unusable(home, error) from None


def _unusable(home: Path, error: OSError) -> ShoalError:
    hint = "set SHOAL_HOME to a directory of your own that can be written"
    return Unavailable(f"the home {home} cannot be used: {error.strerror}", hint=hint)


def config(home: Path) -> Mapping[str, Any]:
    return _toml(home / "config.toml")


def secrets(home: Path) -> Mapping[str, Mapping[str, str]]:
    """name -> its variables, from secrets.toml, which nobody else may read."""
    file = home / "secrets.toml"
    values = _toml(file)
    if values and file.stat().st_mode & 0o077:
        raise UsageError(f"{file}: others can read it", hint=f"chmod 600 {file}")
    for name, section in values.items():
        if not isinstance(section, dict) or not all(isinstance(value, (str, int, float)) for value in section.values()):
            raise UsageError(
                f"{file}: {name} is not a section of plain values", hint=f'write [{name}] and KEY = "value"'
            )
    return {name: {key: str(value) for key, value in section.items()} for name, section in values.items()}


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", hint="is it yours?") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", hint="see https://toml.io for the format") from None


def read_server(home: Path) -> dict[str, Any] | None:
    """Where the server of this home listens, or listened last."""
    try:
        value: dict[str, Any] = json.loads((home / SERVER_FILE).read_text())
        return value
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    except OSError as error:
        raise _unusable(home, error) from None
