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
@click.option("--exact", is_flag=True, help="Refuse when its files or data are no longer what they were.")
@click.option("--resume", is_flag=True, help="Go on from its newest complete checkpoint: SHOAL_RESUME_FROM.")
@arguments.detach
def command(
    experiment: str, params: tuple[str, ...], oversubscribe: bool, exact: bool, resume: bool, detach: bool
) -> None:
    """Run an experiment again, as a new one.

    It gets the same files, params and directory, the same versions of data sets and the same commit of code from git.
    When its directory is at another commit now, or changed otherwise, a warning says so.

    \b
    shoal rerun e7k2m9 -P lr=0.01
    shoal rerun e7k2m9 --exact
    """
    from shoal.cli.watching import announce, watch
    from shoal.client import Client

    client = Client()
    created = client.rerun(experiment, params, dict(os.environ), oversubscribe, exact=exact, resume=resume)
    announce(client, created, detach=detach)
    if not detach:
        sys.exit(watch(client, created["experiment"]["id"]))
