"""`shoal serve`: a server that stays."""

from __future__ import annotations

import os
import sys

import click


@click.command("serve")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen; default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Default: the port this home had last.")
@click.option("--tls-cert", type=click.Path(exists=True), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(exists=True), help="Its private key, PEM.")
def command(host: str, port: int | None, tls_cert: str | None, tls_key: str | None) -> None:
    """Serve this home until it is ended, for a team or for long.

    \b
    shoal serve --host 0.0.0.0 --port 8443 --tls-cert chain.pem --tls-key key.pem
    """
    from shoal import home

    options = {"--host": host, "--port": port, "--tls-cert": tls_cert, "--tls-key": tls_key}
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    arguments = [sys.executable, "-m", "shoal.server", "--home", str(home.path()), "--keep", *given]
    sys.stdout.flush()
    os.execv(sys.executable, arguments)
