"""`shoal plan`: exactly what would be applied."""

from __future__ import annotations

import sys

import click

from shoal.cli import arguments


@click.command("plan")
@arguments.files
@arguments.params
@arguments.on
def command(files: tuple[str, ...], params: tuple[str, ...], cluster: str) -> None:
    """Print what would be applied: every process, or the objects of a cluster.

    Secrets are left out. Ports are known when the experiment starts.
    """
    from shoal.cli.submitting import read_files
    from shoal.client import Client
    from shoal.errors import Problem, Where, render

    sources, directory = read_files(files)
    rendered = Client().render(sources, params, directory, cluster=cluster)
    print(rendered["text"])
    sys.stdout.flush()
    for note in rendered["warnings"]:
        where = Where(note["where"]) if note["where"] else None
        print(render("warning", [Problem(note["message"], note["path"], where, note["hint"] or "")]), file=sys.stderr)
