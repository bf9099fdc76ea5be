"""`shoal rerun`: the same files again."""

from __future__ import annotations

import os
import sys

import click

from shoal.cli import arguments


@click.command("rerun")
@click.argument("experiment")
@arguments.params
@arguments.oversubscribe
@arguments.detach
def command(experiment: str, params: tuple[str, ...], oversubscribe: bool, detach: bool) -> None:
    """Run an experiment again, as a new one.

    \b
    shoal rerun e7k2m9 -P lr=0.01
    """
    from shoal.cli.watching import announce, watch
    from shoal.client import Client

    client = Client()
    created = client.rerun(experiment, params, dict(os.environ), oversubscribe)
    announce(client, created, detach=detach)
    if not detach:
        sys.exit(watch(client, created["experiment"]["id"]))
