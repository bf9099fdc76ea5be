"""`shoal stop`: end experiments."""

from __future__ import annotations

import click


@click.command("stop")
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--now", is_flag=True, help="Kill at once, without the grace.")
def command(experiments: tuple[str, ...], now: bool) -> None:
    """Stop experiments: SIGTERM, the grace of the file, SIGKILL.

    What is over already stays as it is. On a cluster that cannot be reached, an experiment is stopped when that is
    back; with --now it is given up at once, and what is left there is removed when the cluster is back.
    """
    import sys

    from shoal.client import Client

    client = Client()
    for word in experiments:
        found = client.stop(word, grace=0.0 if now else None)
        print(f"{found['id']} {found['state']}")
        if found["state"] == "lost" and not now:
            print(
                f"{found['id']}: {found['reason']}; stopped when that is back, or given up with --now", file=sys.stderr
            )
