"""`shoal experiment create`: VESSL's spelling of `shoal run` without a file."""

from __future__ import annotations

import os

import click

from shoal.cli import arguments
from shoal.errors import UsageError


@click.group("experiment")
def command() -> None:
    """Create an experiment from options, in VESSL's spelling."""


@command.command("create", cls=arguments.TakesCommand)
@click.option("--worker-count", metavar="N", default=1, type=click.IntRange(1), help="The number of nodes.")
@click.option(
    "--framework-type", "framework", default="pytorch", type=arguments.FrameworkName(), help="Default: pytorch."
)
@click.option("--ps-count", metavar="N", default=0, type=click.IntRange(0), help="The number of parameter servers.")
@click.option(
    "-x", "--command", "start", metavar="TEXT", default="", help="The start command; words after -- do as well."
)
@click.option("-i", "--image-url", "image", metavar="IMAGE", default="", help="The container image, on clusters.")
@click.option("-m", "--message", metavar="TEXT", default="", help="A sentence for people.")
@click.option(
    "-h", "--hyperparameter", "hyperparameters", multiple=True, help="NAME=VALUE: a param, and a variable too."
)
@click.option(
    "--dataset", "datasets", metavar="PATH:NAME[@VERSION]", multiple=True, help="A data set and where to put it."
)
@click.option("--cpu-limit", "cpu", metavar="CORES", type=float, help="Cores of each node.")
@click.option("--memory-limit", "memory", metavar="SIZE", help="Memory of each node, e.g. 4Gi.")
@click.option("--gpu-limit", "gpu", metavar="N", type=int, help="GPUs of each node.")
@arguments.on
@arguments.oversubscribe
@arguments.detach
@arguments.dry_run
@click.pass_context
def create(
    ctx: click.Context,
    worker_count: int,
    framework: str,
    ps_count: int,
    start: str,
    image: str,
    message: str,
    hyperparameters: tuple[str, ...],
    datasets: tuple[str, ...],
    cpu: float | None,
    memory: str | None,
    gpu: int | None,
    cluster: str,
    oversubscribe: bool,
    detach: bool,
    dry_run: bool,
) -> None:
    """Run a command on several nodes.

    \b
    shoal experiment create --worker-count 2 --framework-type pytorch --command "torchrun train.py"
    """
    from shoal.cli import fileless

    words = arguments.words_after_dashes(ctx)
    if start and words:
        raise UsageError("--command and a command after --", hint="keep one of the two")
    params = fileless.typed_pairs(hyperparameters, "--hyperparameter")
    limits = {"cpu": cpu, "memory": memory, "gpu": gpu}
    text = fileless.write(
        framework=framework,
        workers=worker_count,
        ps=ps_count,
        command=start or (fileless.command_text(words) if words else fileless.ask_or_find_command()),
        description=message,
        image=image,
        params=params,
        env_vars={name: str(value) for name, value in params.items()},
        resources={kind: {"requests": value, "limits": value} for kind, value in limits.items() if value is not None},
        data=[_dataset(text) for text in datasets],
    )
    sources = [(fileless.NAME, text)]
    if dry_run:
        fileless.show(sources, (), as_written=True)
        return
    from shoal.cli.submitting import submit

    submit(sources, (), os.getcwd(), oversubscribe=oversubscribe, detach=detach, cluster=cluster)


def _dataset(text: str) -> dict[str, str]:
    """`/input/cifar:cifar10@v1` -> a data set below SHOAL_DATA."""
    path, colon, name = text.partition(":")
    if not colon or not path or not name:
        raise UsageError(
            f"--dataset {text}: expected PATH:NAME[@VERSION]", hint="for example --dataset input:cifar10@v1"
        )
    return {"dataset": name, "at": path.strip("/")}
