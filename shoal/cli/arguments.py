"""Arguments that several verbs share, and the command after `--`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

files = click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(allow_dash=True))
params = click.option(
    "-P", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Override a param; can be repeated."
)
oversubscribe = click.option(
    "--oversubscribe", is_flag=True, help="Do not check totals; watch limits instead of enforcing them."
)
on = click.option(
    "--on",
    "cluster",
    metavar="CLUSTER",
    default="local",
    help="Where: a cluster of config.toml. Default: this machine.",
)
detach = click.option("-d", "--detach", is_flag=True, help="Print the experiment's id and return at once.")
dry_run = click.option("--dry-run", is_flag=True, help="Print the file that would run, and stop.")


class FrameworkName(click.ParamType[str]):
    """A framework; a wrong one is an error of the file, which knows the nearest choice."""

    name = "framework"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from shoal.frameworks import FRAMEWORKS

        return [CompletionItem(name) for name in FRAMEWORKS if name.startswith(incomplete)]


class TakesCommand(click.Command):
    """A verb whose words after `--` are the command to run; they are kept in `ctx.meta["command"]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        command: list[str] = []
        if "--" in args:
            split = args.index("--")
            args, command = args[:split], args[split + 1 :]
        ctx.meta["command"] = command
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND]"]


def words_after_dashes(ctx: click.Context) -> list[str]:
    words: list[str] = ctx.meta["command"]
    return words
