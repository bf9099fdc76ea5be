"""Whether a text is a command that the command line takes: it is parsed as `shoal` would, and not run."""

from __future__ import annotations

import shlex

import click

from shoal.cli import app


def parsed(text: str) -> dict[str, object]:
    """What `shoal VERB …` is called with; raises click.UsageError or ShoalError for what it does not take."""
    program, *words = shlex.split(text)
    assert program == "shoal", text
    command: click.Command = app
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, text
        command = found
        if not isinstance(command, click.Group):
            return dict(command.make_context(name, words, parent=context).params)
        context = click.Context(command, info_name=name, parent=context)
    raise AssertionError(f"{text}: no verb")
