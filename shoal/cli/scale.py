"""`shoal scale`: the same file at several sizes, and whether more workers are worth it."""

from __future__ import annotations

import json
import os
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import arguments
from shoal.cli.following import frames
from shoal.errors import ShoalError, UsageError

if TYPE_CHECKING:
    from shoal.client import Client

DEFAULT_METRIC = "samples_per_second"
ENDS = ("succeeded", "failed", "stopped")


@click.command("scale")
@arguments.files
@arguments.params
@click.option("--workers", required=True, metavar="N,N,…", help="The sizes to try: numbers of workers.")
@click.option("--metric", metavar="NAME", help=f"Throughput, as the script logs it; default: {DEFAULT_METRIC}.")
@click.option("--agg", type=click.Choice(["sum", "mean"]), default="sum", help="Over the processes that log it.")
@click.option("--cost-per-hour", type=click.FloatRange(0, min_open=True), metavar="X", help="Of one replica.")
@arguments.on
@arguments.oversubscribe
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    files: tuple[str, ...],
    params: tuple[str, ...],
    workers: str,
    metric: str | None,
    agg: str,
    cost_per_hour: float | None,
    cluster: str,
    oversubscribe: bool,
    as_json: bool,
) -> None:
    """Run a file at several sizes, one after another, and tell whether more workers are worth it.

    Throughput is the mean of the metric over the second half of a trial, added up over the processes that log it (with
    --agg mean, for scripts whose every process logs that of all). Where nobody logs it, a trial's work divided by its
    time is used: then every size must do the same work. Each trial is an ordinary experiment; `shoal ls -q scale:ID`
    lists them.

    \b
    shoal scale train.yml --workers 1,2,4 -P epochs=1
    shoal scale train.yml --workers 1,2,4 --metric images_per_second --cost-per-hour 3.06 --on lab
    """
    from shoal.cli.scaling import in_words, judged
    from shoal.cli.submitting import read_files
    from shoal.client import Client

    sizes = _sizes(workers)
    sources, directory = read_files(files)
    client = Client()
    group = "s" + secrets.token_hex(4)
    trials: list[dict[str, Any]] = []
    for size in sizes:
        text = f"environment: {{replicas: {{n_workers: {size}}}}}\n"
        changed = [*sources, (f"--workers {size}", text)]
        scale = {"id": group, "workers": size}
        try:
            where: dict[str, Any] = {"oversubscribe": oversubscribe, "cluster": cluster}
            made = client.create(changed, params, directory, dict(os.environ), scale=scale, **where)
        except ShoalError as error:
            if not trials and size == sizes[-1]:
                raise
            trials.append(_trial(size, error=error.problems[0].line()))
            print(f"{in_words(size)}: {trials[-1]['error']}", file=sys.stderr)
            continue
        word = made["experiment"]["id"]
        print(f"{in_words(size)}: {word}", file=sys.stderr)
        trials.append(_measured(client, _waited(client, word), size, metric, agg))
    if not any(trial["experiment"] for trial in trials):
        raise UsageError(trials[0]["error"], hint="no trial could be started; shoal check tells more")
    unit = _one_unit(trials, metric)
    found = {"id": group, "unit": unit, "cost_per_hour": cost_per_hour, **judged(trials, cost_per_hour)}
    print(json.dumps(found, indent=2) if as_json else _text(found))
    sys.exit(0 if all(trial["state"] == "succeeded" for trial in trials) else 1)


def _sizes(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise UsageError(f"--workers {text}: not numbers with commas between them", hint="for example --workers 1,2,4")
    return list(dict.fromkeys(int(word) for word in words))


def _trial(size: int, **values: Any) -> dict[str, Any]:
    nothing = {"experiment": None, "state": None, "replicas": None, "trains": None, "duration": None}
    return {"workers": size, **nothing, "throughput": None, "unit": None, "error": None, **values}


def _waited(client: Client, word: str) -> dict[str, Any]:
    """The experiment once it is over; Ctrl-C stops it first."""
    try:
        for _ in frames(client, word, replica="-"):  # no log: the states are enough
            pass
    except KeyboardInterrupt:
        print(f"stopping {word}", file=sys.stderr)
        client.stop(word)
        raise
    return client.show(word)


def _measured(client: Client, end: dict[str, Any], size: int, metric: str | None, agg: str) -> dict[str, Any]:
    from shoal.cli.scaling import throughput, trains

    duration = end["finished"] - end["started"] if end["started"] and end["finished"] else None
    trial = _trial(
        size,
        experiment=end["id"],
        state=end["state"],
        replicas=len(end["replicas"]),
        trains=sum(trains(end["framework"], replica["role"]) for replica in end["replicas"]) or 1,
        duration=duration,
    )
    if end["state"] != "succeeded":
        return {**trial, "error": f"{end['state']}: {end['reason']}"}
    name = metric or DEFAULT_METRIC
    curves = client.metrics(end["id"], name)
    found = throughput([list(map(float, curve.values)) for curve in curves if curve.name == name], mean=agg == "mean")
    if found:
        return {**trial, "throughput": found, "unit": name}
    if metric:
        return {**trial, "error": f"no process logged {metric}"}
    return {**trial, "throughput": 1 / duration if duration else None, "unit": "runs_per_second"}


def _one_unit(trials: list[dict[str, Any]], metric: str | None) -> str | None:
    """Sizes that are measured in different ways cannot be compared: then all are by their time."""
    units = {trial["unit"] for trial in trials if trial["unit"]}
    if len(units) > 1:
        for trial in trials:
            if trial["unit"]:
                trial.update(throughput=1 / trial["duration"], unit="runs_per_second")
        return "runs_per_second"
    return units.pop() if units else metric


def _text(found: dict[str, Any]) -> str:
    from shoal.cli.table import table
    from shoal.cli.wording import age

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    rows = [
        (
            str(trial["workers"]),
            str(trial["replicas"] or "-"),
            trial["experiment"] or "-",
            trial["state"] or "-",
            age(trial["duration"]) if trial["duration"] is not None else "-",
            number(trial["throughput"], ".4g"),
            number(trial["speed_up"], ".2f"),
            "-" if trial["efficiency"] is None else f"{trial['efficiency'] * 100:.0f} %",
            number(trial["cost"], ".4g"),
            trial["error"] or "",
        )
        for trial in found["trials"]
    ]
    cost = "cost per unit" if found["cost_per_hour"] else "replica seconds per unit"
    throughput = found["unit"] or "throughput"
    head = ("workers", "replicas", "experiment", "state", "ran", throughput, "speed-up", "efficiency", cost, "")
    return f"{table(head, rows)}\n\nis it worth it? {found['verdict']}"
