"""`shoal check`: what a file means, before anything runs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import arguments

if TYPE_CHECKING:
    from shoal.plan import Plan, Replica
    from shoal.spec import Document
    from shoal.spec.types import Resources

MOST_ROWS = 24


@click.command("check")
@arguments.files
@arguments.params
@click.option("--env", metavar="REPLICA", default="", help="Print the variables this replica gets, e.g. worker-2.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(files: tuple[str, ...], params: tuple[str, ...], env: str, as_json: bool) -> None:
    """Show the replicas a file means: ranks, resources, totals, environment.

    FILEs are merged left to right. A directory, or none, finds the usual names; - reads standard input.

    \b
    shoal check                       the experiment file in this directory
    shoal check base.yml big.yml      two files, the second laid over the first
    shoal check -P lr=0.1 --json      one param changed, as JSON
    shoal check --env worker-2        every variable of one replica
    """
    from shoal.errors import FileProblems, render
    from shoal.plan import plan, preview
    from shoal.spec import load

    try:
        document = load(files, params)
    except FileProblems as error:
        if not as_json:
            _warn(render("warning", error.warnings))
            raise
        _print_json(_report([p.json() for p in error.problems], [p.json() for p in error.warnings]))
        sys.exit(error.exit_code)
    planned = plan(document.spec)
    chosen = _find(planned, env) if env else None
    if as_json:
        report = _report([], [p.json() for p in document.warnings], planned)
        if chosen is not None:
            report["env"] = preview(planned, chosen)
        _print_json(report)
        return
    if chosen is not None:
        for name, value in preview(planned, chosen).items():
            print(f"{name}={shlex.quote(value)}")
    else:
        print(describe(document, planned))
    _warn(render("warning", document.warnings))


def describe(document: Document, planned: Plan) -> str:
    """The replicas as a table, with their totals."""
    from shoal.cli.table import table
    from shoal.plan import totals

    count = len(planned.replicas)
    facts = [f"{count} replica{'s' if count != 1 else ''}", f"framework {planned.framework}"]
    if planned.backend != "native":
        facts.append(f"backend {planned.backend}")
    if planned.restart.policy != "never":
        facts.append(f"restart {planned.restart.policy} up to {planned.restart.max} times")
    title = f"{planned.name or ' + '.join(document.files)}: {', '.join(facts)}"
    rows = [
        (names, ranks, *_amounts(replica.resources), str(replica.n_trainers), "yes" if replica.decides else "")
        for names, ranks, replica in _folded(planned.replicas)
    ]
    sums = totals(planned.replicas)
    rows.append(("total", "", *(_pair(sums[kind]["requests"], sums[kind]["limits"]) for kind in sums), "", ""))
    header = ("replica", "rank", "cpu", "memory MiB", "gpu", "trainers", "decides")
    command = "\n".join("  " + line for line in planned.command.splitlines())
    note = "cpu, memory and gpu are requests/limits; `decides`: its success is the experiment's"
    return f"{title}\n\n{table(header, rows)}\n\n{note}\n\neach replica runs:\n{command}"


def _folded(replicas: tuple[Replica, ...]) -> Iterator[tuple[str, str, Replica]]:
    """A row per replica; where there are too many, neighbours that are alike share one."""
    if len(replicas) <= MOST_ROWS:
        yield from ((replica.name, str(replica.rank), replica) for replica in replicas)
        return
    start = 0
    for position in range(1, len(replicas) + 1):
        if position < len(replicas) and _alike(replicas[start], replicas[position]):
            continue
        first, last = replicas[start], replicas[position - 1]
        if first is last:
            yield first.name, str(first.rank), first
        else:
            yield f"{first.name} … {last.name}", f"{first.rank} … {last.rank}", first
        start = position


def _alike(one: Replica, other: Replica) -> bool:
    return (one.role, one.n_trainers, one.decides) == (other.role, other.n_trainers, other.decides) and (
        one.shape is other.shape or one.shape == other.shape
    )


def _amounts(resources: Resources) -> Iterator[str]:
    for amount in (resources.cpu, resources.memory, resources.gpu):
        yield _pair(amount.requests if amount.requests is not None else amount.limits, amount.limits)


def _pair(requests: float | None, limits: float | None) -> str:
    if not requests and not limits:
        return "-"
    return "/".join(f"{value:.10g}" if value else "-" for value in (requests, limits))


def _find(planned: Plan, name: str) -> Replica:
    from shoal.errors import UsageError

    for replica in planned.replicas:
        if replica.name == name:
            return replica
    names = [replica.name for replica in planned.replicas]
    shown = ", ".join(names) if len(names) <= MOST_ROWS else f"{', '.join(names[:3])}, … {names[-1]}"
    raise UsageError(f"--env {name}: there is no such replica", hint=f"replicas: {shown}")


def _report(errors: list[Any], warnings: list[Any], planned: Plan | None = None) -> dict[str, Any]:
    report: dict[str, Any] = {"ok": not errors, "errors": errors, "warnings": warnings, "replicas": [], "totals": None}
    if planned is not None:
        report |= planned.json()
    return report


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _warn(text: str) -> None:
    if text:
        sys.stdout.flush()
        print(text, file=sys.stderr)
