"""`shoal open`: the console, signed in."""

from __future__ import annotations

import sys

import click


@click.command("open")
@click.argument("experiment", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the link instead of opening it.")
def command(experiment: str | None, only_print: bool) -> None:
    """Open the console in a browser, signed in.

    With an EXPERIMENT, at its page. The link is good once, for a minute.

    \b
    shoal open
    shoal open e7k2m9
    """
    import webbrowser

    from shoal.client import Client

    client = Client()
    page = f"/experiments/{client.show(experiment)['id']}" if experiment else "/"
    if not client.server().get("console"):
        print("note: the web console is not built here; make console builds it (it needs Node 20)", file=sys.stderr)
    url = client.sign_in(page)
    if only_print or not webbrowser.open(url):
        print(url)
