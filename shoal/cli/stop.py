"""`shoal stop`: end experiments."""

from __future__ import annotations

import click


@click.command("stop")
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--now", is_flag=True, help="Kill at once, without the grace.")
def command(experiments: tuple[str, ...], now: bool) -> None:
    """Stop experiments: SIGTERM, the grace of the file, SIGKILL.

    What is over already stays as it is.
    """
    from shoal.client import Client

    client = Client()
    for word in experiments:
        found = client.stop(word, grace=0.0 if now else None)
        print(f"{found['id']} {found['state']}")
