"""The experiment file that options describe, when there is none: `shoal run --worker-count 2 -- python train.py`.

Here N workers are N nodes in all: there is no master, worker 0 is rank 0. MXNet adds its scheduler as the master.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from shoal.errors import UsageError, render

NAME = "(options)"


def write(
    *,
    framework: str,
    workers: int,
    ps: int = 0,
    command: str,
    name: str = "",
    description: str = "",
    image: str = "",
    params: Mapping[str, Any] | None = None,
    env_vars: Mapping[str, str] | None = None,
    resources: Mapping[str, Any] | None = None,
    data: Sequence[Mapping[str, str]] = (),
) -> str:
    """The text of the file."""
    from shoal.frameworks import FRAMEWORKS
    from shoal.spec.writing import to_yaml

    replicas: dict[str, Any] = {"n_workers": workers}
    if ps:
        replicas["n_ps"] = ps
    if framework not in FRAMEWORKS or not FRAMEWORKS[framework].NEEDS_MASTER:
        replicas["master"] = False
    if resources:
        replicas["default_worker"] = {"resources": dict(resources)}
    environment: dict[str, Any] = {"replicas": replicas}
    if env_vars:
        environment["env_vars"] = dict(env_vars)
    content = {
        "version": 1,
        "kind": "experiment",
        "name": name,
        "description": description,
        "framework": framework,
        "build": {"image": image} if image else None,
        "params": dict(params or {}),
        "run": {"cmd": command},
        "environment": environment,
        "data": list(data),
    }
    return to_yaml({key: value for key, value in content.items() if value})


def command_text(words: Sequence[str]) -> str:
    """One word is a shell command as it stands; several are an argument list, kept word for word."""
    return words[0] if len(words) == 1 else shlex.join(words)


def ask_or_find_command() -> str:
    """Without a command: a prompt on a terminal, else the `run.cmd` of the file found here, else an error."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return str(click.prompt("Command to run in each replica", err=True))
    from pathlib import Path

    from shoal.sources import find
    from shoal.spec import load

    try:
        found = find(Path("."))
    except UsageError:
        raise UsageError(
            "no command, no terminal to ask for one, and no experiment file here to take it from",
            hint="shoal run --framework pytorch --worker-count 2 -- python train.py",
        ) from None
    return load([str(found)]).spec.run.cmd


def typed_pairs(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """`["lr=0.1", "mode=fast"]` -> `{"lr": 0.1, "mode": "fast"}`, typed as YAML."""
    from shoal.errors import Where
    from shoal.spec.reading import parse_value

    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair}: expected name=value", hint=f"for example {option} lr=0.1")
        values[name] = parse_value(text, Where(f"{option} {pair}")).plain()
    return values


def show(sources: Sequence[tuple[str, str]], params: Sequence[str], *, as_written: bool) -> None:
    """Prints the file that would run, once it is known to be right: as it was made, or merged and filled in."""
    from shoal.spec import Source, interpret
    from shoal.spec.writing import to_yaml

    document = interpret([Source(name, text) for name, text in sources], params)
    print(sources[0][1] if as_written else to_yaml(document.root.plain()), end="")
    sys.stdout.flush()
    if document.warnings:
        print(render("warning", document.warnings), file=sys.stderr)
