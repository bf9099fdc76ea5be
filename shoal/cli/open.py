"""`shoal open`: the console, signed in."""

from __future__ import annotations

import click


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link instead of opening it.")
def command(only_print: bool) -> None:
    """Open the console in a browser, signed in."""
    import webbrowser

    from shoal.client import Client

    url = Client().sign_in()
    if only_print or not webbrowser.open(url):
        print(url)
