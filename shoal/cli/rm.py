"""`shoal rm`: forget finished experiments."""

from __future__ import annotations

import click


@click.command("rm")
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...")
def command(experiments: tuple[str, ...]) -> None:
    """Forget finished experiments: their logs and outputs are deleted."""
    from shoal.client import Client

    client = Client()
    for word in experiments:
        client.remove(word)
        print(f"{word} removed")
