"""The experiment file that options describe, when there is none: `shoal run --worker-count 2 -- python train.py`.

Here N workers are N nodes in all: there is no master, worker 0 is rank 0. MXNet adds its scheduler as the master.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from shoal.errors import Unavailable, UsageError, render

if TYPE_CHECKING:
    from shoal.spec import Document

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

    from shoal.spec import load, reading

    try:
        found = reading.find(Path("."))
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


def show(text: str, *, dry_run: bool) -> None:
    """Prints the file, once it is known to be right. Without --dry-run, says that this version goes no further."""
    from shoal.spec import Source, interpret

    show_document(interpret([Source(NAME, text)]), text, dry_run=dry_run)


def show_document(document: Document, text: str, *, dry_run: bool) -> None:
    print(text, end="")
    sys.stdout.flush()
    if document.warnings:
        print(render("warning", document.warnings), file=sys.stderr)
    if not dry_run:
        raise Unavailable(
            "this version checks experiments and does not run them yet", hint="--dry-run prints the file and stops"
        )
