"""`shoal rm`: forget finished experiments."""

from __future__ import annotations

import sys
from typing import Any

import click

MOST = 10_000


@click.command("rm")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("-q", "--query", default="", metavar="QUERY", help="Those it finds, if they are over: created:<-90d")
@click.option("--dry-run", is_flag=True, help="Only print which would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; needed for a query without a terminal.")
def command(experiments: tuple[str, ...], query: str, dry_run: bool, yes: bool) -> None:
    """Forget finished experiments: their logs and outputs are deleted.

    Metrics and artifacts too; models stay. One that cannot be removed is said, and the others go; the exit code is
    then 2. `[retention]` in config.toml has the server do this by itself.

    \b
    shoal rm e7k2m9 12
    shoal rm -q "state:failed, created:<-30d" --dry-run
    """
    from shoal.client import Client
    from shoal.errors import ShoalError, UsageError

    if bool(experiments) == bool(query.strip()):
        raise UsageError("experiments, or a query", hint='shoal rm e7k2m9, or shoal rm -q "state:failed"')
    client = Client()
    words = list(dict.fromkeys(experiments))
    if query.strip() or dry_run:
        found = client.experiments(query, limit=MOST) if query.strip() else [client.show(word) for word in words]
        found = _over(found)
        if dry_run:
            for entry in found:
                print(f"{entry['id']} #{entry['number']} {entry['name'] or '-'} {entry['state']}")
            return
        _ask(len(found), yes=yes)
        words = [entry["id"] for entry in found]
    failed = 0
    for word in words:
        try:
            client.remove(word)
        except ShoalError as error:
            if error.exit_code != 2:
                raise
            failed += 1
            print(error.text(), file=sys.stderr)
        else:
            print(f"{word} removed")
    if failed:
        print(f"{failed} of {len(words)} not removed", file=sys.stderr)
        sys.exit(2)


def _over(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of them that can go: also runs outside Shoal whose processes are gone without a word."""
    ends = ("succeeded", "failed", "stopped")
    over = [e for e in found if e["state"] in ends or (e["state"] == "lost" and e["origin"] != "run")]
    if len(over) < len(found):
        print(f"{len(found) - len(over)} of {len(found)} are not over and stay", file=sys.stderr)
    if not over:
        print("nothing to remove", file=sys.stderr)
    return over


def _ask(count: int, *, yes: bool) -> None:
    from shoal.errors import UsageError

    if yes or not count:
        return
    many = f"{count} experiments" if count != 1 else "1 experiment"
    if not sys.stdin.isatty():
        raise UsageError(f"this would remove {many}", hint="add --yes, or look at them first: --dry-run")
    click.confirm(f"Remove {many}?", abort=True, err=True)
