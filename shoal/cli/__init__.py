"""The command line: one file per verb, loaded when the verb is called.

stdout is data, stderr the rest. Exit codes: 0 done, 1 failed experiment, 2 wrong use or bad file, 3 cannot reach, 130
interrupted. `VERBS` is all that `shoal --help` needs, so it answers without loading a single verb.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from keyword import iskeyword
from types import ModuleType

import click

from shoal import __version__
from shoal.errors import ShoalError, UsageError

# verb -> the heading it is listed under, and what it does. Its file is shoal/cli/<verb>.py, which holds `command`.
VERBS = {
    "run": ("Run", "Run an experiment file, or a command on several nodes"),
    "check": ("Run", "Show the replicas a file means: ranks, resources, totals, environment"),
    "plan": ("Run", "Print what would be applied: every process, or the objects of a cluster"),
    "schema": ("Run", "Print the JSON Schema of the experiment file"),
    "scale": ("Run", "Run a file at several sizes, one after another, and tell whether more workers are worth it"),
    "experiment": ("Run", "Create an experiment from options, in VESSL's spelling"),
    "ls": ("Look", "List experiments, newest first"),
    "show": ("Look", "Show one experiment and its replicas"),
    "logs": ("Look", "Print what replicas printed, in the order of time"),
    "metrics": ("Look", "Show what was measured: a small chart for every metric of every rank, or every point"),
    "why": ("Look", "Tell why an experiment is in its state: the first failure, and what every rank did last"),
    "stacks": ("Look", "Show where every rank of a running experiment is: stacks merged as a tree"),
    "outputs": ("Files", "List, fetch or print the files of an experiment: outputs and artifacts"),
    "model": ("Files", "Look after models: numbered versions that scripts made with shoal.model"),
    "diff": ("Look", "Show what differs between two experiments, and nothing else"),
    "top": ("Look", "Watch replicas: what they use, what they logged last, how far they are"),
    "compare": ("Look", "Put experiments side by side: states, times, params that differ, metrics"),
    "stop": ("Change", "Stop experiments: SIGTERM, the grace of the file, SIGKILL"),
    "rerun": ("Change", "Run an experiment again, as a new one"),
    "export": ("Change", "Write everything of an experiment into a directory or a tar file"),
    "import": ("Change", "Bring in runs of TensorBoard or MLflow as experiments"),
    "sync": ("Change", "Bring in runs of scripts that Shoal did not start"),
    "rm": ("Change", "Forget finished experiments: their logs and outputs are deleted"),
    "dataset": ("Keep", "Keep data sets in versions, for `data:` in experiment files"),
    "serve": ("Server", "Serve this home until it is ended, for a team or for long"),
    "open": ("Server", "Open the console in a browser, signed in"),
    "server": ("Server", "Look after the server of this home"),
    "cluster": ("Server", "List the clusters of this home, and check what works there"),
    "completion": ("Shell", "Print the completion script of a shell"),
}


class Verbs(click.Group):
    """The verbs under their headings; each is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = import_module(f"shoal.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise UsageError(f"{args[0]}: no such command", hint=_nearest_verb(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in dict.fromkeys(heading for heading, _ in VERBS.values()):
            with formatter.section(heading):
                formatter.write_dl([(verb, text) for verb, (its, text) in VERBS.items() if its == heading])


def _nearest_verb(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=1)
    return (f"did you mean shoal {near[0]}? " if near else "") + f"commands: {', '.join(VERBS)}"


@click.group("shoal", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="shoal %(version)s")
def app() -> None:
    """Runs distributed training experiments and tracks every rank of them.

    \b
    shoal check                          the replicas that the experiment file here means
    shoal run train.yml -P lr=0.1        run another one, with one param changed
    shoal why e7k2m9                     what went wrong, and in which rank first
    """


def _spare_imports() -> None:
    """Keeps two libraries from loading what no verb uses; together that is a third of the time a short command takes.

    pydantic searches all installed packages for plugins before it first validates, with importlib.metadata and the
    email parser. httpx loads a command line of its own, with Rich and Pygments. Where these modules have other names
    one day, nothing happens.
    """
    for name, attribute in (("pydantic.plugin._loader", "get_plugins"), ("httpx._main", "main")):
        module = ModuleType(name)
        setattr(module, attribute, lambda: ())
        sys.modules.setdefault(name, module)


def main(arguments: list[str] | None = None) -> None:
    """The `shoal` command: an error is one clear text, never a traceback."""
    gc.set_threshold(100_000)  # collecting while modules load costs a tenth of a short command's time
    _spare_imports()
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = app.main(arguments, prog_name="shoal", standalone_mode=False)
        sys.stdout.flush()
    except ShoalError as error:
        print(error.text(), file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        import signal  # seldom needed, and not cheap

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed once more while this ends, it would end as a signal does
        return 130
    except BrokenPipeError:
        # The reader has seen enough (`shoal schema | head`). Python would complain when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0
