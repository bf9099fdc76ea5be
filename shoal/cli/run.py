"""`shoal run`: so far, the file it would run."""

from __future__ import annotations

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
    dry_run: bool,
) -> None:
    """Run an experiment file, or a command on several nodes.

    So far this prints the file it would run. FILEs are merged left to right; - reads standard input.

    \b
    shoal run experiment.yml --dry-run
    shoal run --framework pytorch --worker-count 2 --dry-run -- python train.py
    """
    from shoal.cli import fileless

    words = arguments.words_after_dashes(ctx)
    options = {"--framework": framework, "--worker-count": worker_count, "--ps-count": ps_count, "--name": name}
    given = [option for option, value in options.items() if value] + ["a command after --"] * bool(words)
    if not given:
        from shoal.spec import load
        from shoal.spec.writing import to_yaml

        document = load(files, params)
        fileless.show_document(document, to_yaml(document.root.plain()), dry_run=dry_run)
        return
    if files:
        raise UsageError(
            f"{files[0]} and {given[0]}", hint="the file says framework, replicas and command; change it there"
        )
    text = fileless.write(
        framework=framework or "none",
        workers=worker_count or 1,
        ps=ps_count or 0,
        command=fileless.command_text(words) if words else fileless.ask_or_find_command(),
        name=name,
        params=fileless.typed_pairs(params, "-P"),
    )
    fileless.show(text, dry_run=dry_run)
