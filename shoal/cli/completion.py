"""`shoal completion`: what a shell needs to complete verbs, options and files."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(shoal completion bash)"          in ~/.bashrc
    eval "$(shoal completion zsh)"           in ~/.zshrc
    shoal completion fish | source           in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from shoal.cli import app

    complete = get_completion_class(shell)
    assert complete is not None
    print(complete(app, {}, "shoal", "_SHOAL_COMPLETE").source())
