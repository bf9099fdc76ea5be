"""`shoal server status` and `shoal server stop`."""

from __future__ import annotations

import json

import click


@click.group("server")
def command() -> None:
    """Look after the server of this home."""


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Tell whether a server runs; exit code 3 when none does."""
    from shoal.cli.wording import age
    from shoal.client import Client

    client = Client(start=False)
    found = client.server()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    import time

    print(
        f"shoal {found['version']}, pid {found['pid']}, up {age(time.time() - found['started'])}, home {found['home']}"
    )
    print(f"{found['unfinished']} experiments are not over; " + ("kept" if found["kept"] else "ends when idle"))
    if found["engine"]:
        print(f"the engine cannot work: {found['engine']}")


@command.command("stop")
def stop() -> None:
    """End the server. Experiments go on."""
    from shoal.client import Client
    from shoal.errors import Unavailable

    try:
        client = Client(start=False)
    except Unavailable:
        print("no server runs")
        return
    client.end_server()
    print("the server has ended; experiments go on")
