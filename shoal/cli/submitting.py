"""From files or options to a running experiment: what `run`, `experiment create` and `plan` share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from shoal.cli.watching import announce, watch


def read_files(names: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """The files as (name, text), and the directory that `code` is relative to: the first file's, else the caller's.

    They are interpreted by the server, which has everything loaded: this command stays quick.
    """
    from shoal.errors import UsageError
    from shoal.sources import STANDARD_INPUT, read

    if list(names).count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read only once", hint="name - once")
    sources = [read(name) for name in names or ["."]]
    directory = next((str(source.directory) for source in sources if source.directory is not None), os.getcwd())
    return [(source.name, source.text) for source in sources], directory


def submit(
    files: Sequence[tuple[str, str]],
    params: Sequence[str],
    directory: str,
    *,
    oversubscribe: bool,
    detach: bool,
    cluster: str = "local",
) -> None:
    """Creates the experiment and watches it to its end, unless told to return at once. Exits with its outcome."""
    from shoal.client import Client

    client = Client()
    created = client.create(files, params, directory, dict(os.environ), oversubscribe=oversubscribe, cluster=cluster)
    announce(client, created, detach=detach)
    if not detach:
        sys.exit(watch(client, created["experiment"]["id"]))
