"""`shoal run`: an experiment, from the file or the command to its end."""

from __future__ import annotations

import os

import click

from shoal.cli import arguments
from shoal.errors import UsageError


@click.command("run", cls=arguments.TakesCommand)
@arguments.files
@arguments.params
@click.option("--framework", metavar="NAME", type=arguments.FrameworkName(), help="Without a file: the framework.")
@click.option("--worker-count", metavar="N", type=click.IntRange(1), help="Without a file: the number of nodes.")
@click.option(
    "--ps-count", metavar="N", type=click.IntRange(0), help="Without a file: the number of parameter servers."
)
@click.option("--name", metavar="NAME", default="", help="Without a file: the experiment's name.")
@arguments.on
@arguments.oversubscribe
@arguments.detach
@arguments.dry_run
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    params: tuple[str, ...],
    framework: str | None,
    worker_count: int | None,
    ps_count: int | None,
    name: str,
    cluster: str,
    oversubscribe: bool,
    detach: bool,
    dry_run: bool,
) -> None:
    """Run an experiment file, or a command on several nodes.

    FILEs are merged left to right; a directory, or none, finds the usual names; - reads standard input. Ctrl-C stops
    the experiment, twice kills it. The exit code is 0 when it succeeded and 1 when not.

    \b
    shoal run experiment.yml
    shoal run --detach -P lr=0.1
    shoal run --framework pytorch --worker-count 2 -- torchrun train.py
    """
    words = arguments.words_after_dashes(ctx)
    options = {"--framework": framework, "--worker-count": worker_count, "--ps-count": ps_count, "--name": name}
    given = [option for option, value in options.items() if value] + ["a command after --"] * bool(words)
    if given and files:
        raise UsageError(
            f"{files[0]} and {given[0]}", hint="the file says framework, replicas and command; change it there"
        )
    if given:
        from shoal.cli import fileless

        text = fileless.write(
            framework=framework or "none",
            workers=worker_count or 1,
            ps=ps_count or 0,
            command=fileless.command_text(words) if words else fileless.ask_or_find_command(),
            name=name,
            params=fileless.typed_pairs(params, "-P"),
        )
        sources, directory, params = [(fileless.NAME, text)], os.getcwd(), ()
    else:
        from shoal.cli.submitting import read_files

        sources, directory = read_files(files)
    if dry_run:
        from shoal.cli import fileless

        fileless.show(sources, params, as_written=bool(given))
        return
    from shoal.cli.submitting import submit

    submit(sources, params, directory, oversubscribe=oversubscribe, detach=detach, cluster=cluster)
